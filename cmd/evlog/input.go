package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// blockBytes is how much input is read at once.
const blockBytes = 256 << 10

// block is a piece of the input that ends where a line ends.
type block struct {
	data []byte
	err  error // why the input ends here, io.EOF for a good end; data counts too
}

// lineReader reads ahead of whoever takes the blocks, so that it is known
// whether more input is ready. It belongs to the goroutine that runs read.
type lineReader struct {
	r       io.Reader
	maxLine int
	blocks  chan block
	free    chan []byte
	stop    chan struct{} // closed when nobody takes blocks any more
}

// errLineTooLong ends an input whose next line is beyond all limits.
var errLineTooLong = errors.New("line is too long")

func newLineReader(r io.Reader, maxLine int) *lineReader {
	const ahead = 4
	return &lineReader{
		r: r, maxLine: maxLine,
		blocks: make(chan block, ahead), free: make(chan []byte, ahead+2), stop: make(chan struct{}),
	}
}

// read runs until the input ends. It returns without sending where nobody
// listens any more.
func (l *lineReader) read() {
	defer close(l.blocks)
	if err := guarded(l.readBlocks); err != nil {
		l.send(block{err: err})
	}
}

// guarded turns a panic of f into an error: on a goroutine of its own it would
// end the process with a stack trace.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v; please report it", p)
		}
	}()
	return f()
}

// readBlocks returns an error only where it has not sent one.
func (l *lineReader) readBlocks() error {
	buf := make([]byte, blockBytes)
	n := 0 // bytes of an unfinished line at the start of buf
	for {
		m, err := l.r.Read(buf[n:])
		end := bytes.LastIndexByte(buf[n:n+m], '\n') + 1
		if end > 0 {
			end += n
		}
		n += m
		if err != nil {
			data := buf[:end] // of an input that broke off, whole lines alone
			if errors.Is(err, io.EOF) {
				data = buf[:n]
			}
			l.send(block{data: data, err: err})
			return nil
		}
		if end == 0 {
			if n > l.maxLine {
				return fmt.Errorf("%w (more than %d bytes)", errLineTooLong, l.maxLine)
			}
			buf = withRoom(buf, n)
			continue
		}
		next := withRoom(l.spare(), n-end)
		rest := copy(next, buf[end:n])
		if !l.send(block{data: buf[:end]}) {
			return nil
		}
		buf, n = withRoom(next, rest), rest
	}
}

func (l *lineReader) send(b block) bool {
	select {
	case l.blocks <- b:
		return true
	case <-l.stop:
		return false
	}
}

// withRoom returns buf, or a copy twice its size if the first n bytes fill it.
func withRoom(buf []byte, n int) []byte {
	if n < len(buf) {
		return buf
	}
	larger := make([]byte, max(2*len(buf), 2*n))
	copy(larger, buf[:min(n, len(buf))])
	return larger
}

// spare returns a buffer that is not in use.
func (l *lineReader) spare() []byte {
	select {
	case buf := <-l.free:
		return buf
	default:
		return make([]byte, blockBytes)
	}
}

// done gives a block's memory back.
func (l *lineReader) done(b block) {
	if cap(b.data) != blockBytes {
		return // an unusual line's; not worth keeping
	}
	select {
	case l.free <- b.data[:cap(b.data)]:
	default:
	}
}

// ready reports whether more input is there already.
func (l *lineReader) ready() bool { return len(l.blocks) > 0 }
