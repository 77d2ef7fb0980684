package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/evlog-go/evlog/internal/format"
)

// windowBytes is how much of a file is in memory at once.
const windowBytes = 256 << 10

// window reads a file piece by piece. What it takes into memory
// never depends on what stands in the file.
type window struct {
	r    io.ReaderAt
	size int64
	buf  []byte
	pos  int64 // of the first byte in buf
	n    int
}

func newWindow(r io.ReaderAt, size int64) *window {
	return &window{r: r, size: size, buf: make([]byte, windowBytes)}
}

// bytes returns the n bytes at pos, n at most windowBytes, valid until the next
// call. They must lie inside the file.
func (w *window) bytes(pos int64, n int) ([]byte, error) {
	if pos < w.pos || pos+int64(n) > w.pos+int64(w.n) {
		w.pos, w.n = pos, 0
		b := w.buf[:min(int64(len(w.buf)), w.size-pos)]
		if len(b) < n {
			return nil, io.ErrUnexpectedEOF
		}
		if err := readAll(w.r, b, pos); err != nil {
			return nil, err
		}
		w.n = len(b)
	}
	from := int(pos - w.pos)
	return w.buf[from : from+n : from+n], nil
}

// forget drops what was read, so that it is read again.
func (w *window) forget() { w.n = 0 }

// refresh takes the file's size anew and forgets what was read.
func (w *window) refresh() error {
	w.forget()
	f, ok := w.r.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.size = info.Size()
	return nil
}

// sum continues a checksum over [from, to).
func (w *window) sum(crc uint32, from, to int64) (uint32, error) {
	for from < to {
		b, err := w.bytes(from, int(min(to-from, windowBytes)))
		if err != nil {
			return 0, err
		}
		crc = format.UpdateChecksum(crc, b)
		from += int64(len(b))
	}
	return crc, nil
}

// zerosUpTo returns the position of the first byte from pos on that is not
// zero, the file's size if there is none.
func (w *window) zerosUpTo(pos int64) (int64, error) {
	for pos < w.size {
		b, err := w.bytes(pos, int(min(w.size-pos, windowBytes)))
		if err != nil {
			return 0, err
		}
		for i, c := range b {
			if c != 0 {
				return pos + int64(i), nil
			}
		}
		pos += int64(len(b))
	}
	return pos, nil
}

// readAll fills b from pos on; a file that ends earlier was cut meanwhile.
func readAll(r io.ReaderAt, b []byte, pos int64) error {
	n, err := r.ReadAt(b, pos)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("the file became shorter than %d bytes: %w", pos+int64(len(b)), io.ErrUnexpectedEOF)
	}
	return err
}
