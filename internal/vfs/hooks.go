package vfs

import (
	"io"
	"slices"
	"sync"
)

// FailNth returns a Hook that fails the n-th operation (from 1) of one of
// kinds and of a name that matches pattern: path.Match's on Op.Name, "" for
// all. The error is returned as it is.
func FailNth(kinds OpKind, pattern string, n int, err error) Hook {
	return countdown(kinds, pattern, func(i int) bool { return i == n }, err)
}

// FailFrom is FailNth for the n-th and all that follow.
func FailFrom(kinds OpKind, pattern string, n int, err error) Hook {
	return countdown(kinds, pattern, func(i int) bool { return i >= n }, err)
}

func countdown(kinds OpKind, pattern string, fails func(i int) bool, err error) Hook {
	var mu sync.Mutex // guards seen
	var seen int
	return func(op Op) error {
		if !matches(kinds, pattern, op.Kind, op.Name) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
		if fails(seen) {
			return err
		}
		return nil
	}
}

// Hooks returns a Hook that calls each of hooks until one returns an error.
func Hooks(hooks ...Hook) Hook {
	return func(op Op) error {
		for _, hook := range hooks {
			if err := hook(op); err != nil {
				return err
			}
		}
		return nil
	}
}

// Trace records operations. Give its Record to [Injected.After].
type Trace struct {
	kinds OpKind

	mu  sync.Mutex // guards ops
	ops []Op
}

// NewTrace returns a Trace of the operations of kinds.
func NewTrace(kinds OpKind) *Trace { return &Trace{kinds: kinds} }

// Record notes an operation that succeeded, a read at the end of a file included.
func (t *Trace) Record(op Op, err error) {
	if err != nil && err != io.EOF || op.Kind&t.kinds == 0 { //nolint:errorlint // io.EOF is never wrapped
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops = append(t.ops, op)
}

// Ops returns what was recorded, in the order in which it ended.
func (t *Trace) Ops() []Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ops)
}

// Strings returns Ops as strings, such as "write a.log [0,100)".
func (t *Trace) Strings() []string {
	ops := t.Ops()
	list := make([]string, len(ops))
	for i, op := range ops {
		list[i] = op.String()
	}
	return list
}

// Reset forgets what was recorded.
func (t *Trace) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops = nil
}
