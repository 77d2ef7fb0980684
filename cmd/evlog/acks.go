package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/evlog-go/evlog/evlog"
)

// acks are offsets that wait to be printed. When standard output fails, the
// records still go into the log: the error is told at the end.
type acks struct {
	wanted  bool
	out     flushWriter
	pending []evlog.OffsetRange
	buf     []byte
	err     error
}

type flushWriter interface {
	io.Writer
	Flush() error
}

func (a *acks) add(from, to uint64) {
	if !a.wanted || a.err != nil {
		return
	}
	if n := len(a.pending); n > 0 && a.pending[n-1].To == from {
		a.pending[n-1].To = to
		return
	}
	a.pending = append(a.pending, evlog.OffsetRange{From: from, To: to})
}

// print prints what is pending below next.
func (a *acks) print(next uint64) {
	if !a.wanted || a.err != nil {
		return
	}
	printed := false
	for len(a.pending) > 0 && a.pending[0].From < next {
		r := &a.pending[0]
		for ; r.From < min(r.To, next); r.From++ {
			a.buf = strconv.AppendUint(a.buf[:0], r.From, 10)
			a.buf = append(a.buf, '\n')
			if _, a.err = a.out.Write(a.buf); a.err != nil {
				return
			}
		}
		printed = true
		if r.From < r.To {
			break
		}
		a.pending = a.pending[1:]
	}
	if printed {
		a.err = a.out.Flush()
	}
}

// acksLost is the error for acknowledgements that nobody read.
func acksLost(err error) error {
	return fmt.Errorf("acknowledge: %w; everything read was appended", errors.New(err.Error()))
}
