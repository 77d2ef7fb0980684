package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/evlog-go/evlog/evlog"
)

// pump moves input into the log. One goroutine reads ahead and one waits for
// durability, so that neither holds up the other; the rest happens in run.
type pump struct {
	a     *app
	l     *evlog.Log
	lines *lineReader
	batch batcher
	acks  acks

	accepted uint64        // offset after the last record given to the log
	dirty    bool          // something was given to the log since the last flush began
	flushing chan flushEnd // nil while no flush is running
}

// flushEnd is the outcome of a flush: all below next is durable.
type flushEnd struct {
	next uint64
	err  error
}

// run appends all input and closes the log.
func (p *pump) run(ctx context.Context) error {
	first := p.l.Stats().NextOffset
	bar, input := p.progress()
	p.lines.r = input
	go p.lines.read()
	err := p.loop(ctx)
	close(p.lines.stop)
	bar.end()
	err = p.finish(err)
	durable := p.l.Stats().DurableNext
	p.acks.print(durable)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		// Each line is a record, and the log was this command's alone.
		return &hinted{err, fmt.Sprintf("make room on the disk and append again from line %d on", durable-first+1)}
	case err == nil && p.acks.err != nil:
		return acksLost(p.acks.err)
	}
	return err
}

// loop takes blocks until the input ends, and flushes when it pauses.
func (p *pump) loop(ctx context.Context) error {
	for {
		select {
		case b, ok := <-p.lines.blocks:
			if !ok {
				return nil
			}
			if done, err := p.take(ctx, b); done || err != nil {
				return err
			}
		case end := <-p.flushing:
			p.flushing = nil
			if end.err != nil {
				return end.err
			}
			p.acks.print(end.next)
		case <-ctx.Done():
			return ctx.Err()
		}
		if p.dirty && p.flushing == nil && !p.lines.ready() {
			p.startFlush(ctx)
		}
	}
}

// take gives the records of a block to the log.
func (p *pump) take(ctx context.Context, b block) (done bool, err error) {
	if err := p.batch.add(b.data, func(batch []evlog.Record) error { return p.enqueue(ctx, batch) }); err != nil {
		return false, err
	}
	p.lines.done(b)
	switch {
	case errors.Is(b.err, io.EOF):
		return true, nil
	case errors.Is(b.err, errLineTooLong):
		return false, &lineError{p.batch.line + 1, b.err}
	case b.err != nil:
		return false, fmt.Errorf("read standard input: %w", b.err)
	}
	if p.acks.wanted {
		p.acks.print(p.l.Stats().DurableNext)
	}
	return false, nil
}

func (p *pump) enqueue(ctx context.Context, batch []evlog.Record) error {
	first, err := p.l.Enqueue(ctx, batch...)
	if err != nil {
		return err
	}
	p.accepted = first + uint64(len(batch))
	p.dirty = true
	p.acks.add(first, p.accepted)
	return nil
}

// startFlush has everything accepted so far made durable in the background.
func (p *pump) startFlush(ctx context.Context) {
	p.dirty = false
	p.flushing = make(chan flushEnd, 1)
	go func(end chan<- flushEnd, next uint64) {
		end <- flushEnd{next, guarded(func() error { return p.l.Flush(ctx) })}
	}(p.flushing, p.accepted)
}

// finish makes everything that was accepted durable and closes the log, also
// where the input was bad or a signal came. It returns the error to be told,
// err being the one that ended the loop.
func (p *pump) finish(err error) error {
	if p.flushing != nil {
		<-p.flushing // the flush below says it all
	}
	if flushErr := p.l.Flush(context.Background()); flushErr != nil {
		err = firstError(flushErr, err)
	} else {
		p.acks.print(p.accepted)
	}
	if closeErr := p.l.Close(); err == nil {
		err = closeErr
	}
	return err
}

// firstError chooses between the two errors of a failed end: a bad line or a
// signal is told only if what came before it is durable.
func firstError(flush, loop error) error {
	var line *lineError
	if loop == nil || errors.As(loop, &line) || errors.Is(loop, context.Canceled) {
		return flush
	}
	return loop
}

// progress wraps the input with a bar if it is a file. Acknowledgements on the
// same terminal show as well how far it is.
func (p *pump) progress() (*progress, io.Reader) {
	f, ok := p.a.in.(*os.File)
	if !ok || p.acks.wanted && isTerminal(p.a.stdout) {
		return &progress{}, p.a.in
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return &progress{}, f
	}
	from, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return &progress{}, f
	}
	bar := p.a.newProgress("append", true)
	return bar, &countingReader{r: f, bar: bar, total: st.Size() - from}
}

type countingReader struct {
	r           io.Reader
	bar         *progress
	done, total int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.done += int64(n)
	c.bar.set(c.done, c.total)
	return n, err
}
