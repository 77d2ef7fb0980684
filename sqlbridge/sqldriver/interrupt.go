package sqldriver

import (
	"context"
	"reflect"
	"sync"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// modernc.org/sqlite interrupts a query when its context ends, but only up to its
// first row. From there on a watch does.

// handleOf is SQLite's handle of a connection of modernc.org/sqlite, which has no
// name outside of it. It is 0 where a version keeps it elsewhere: then a query that
// has returned a row is interrupted only where it goes on to read the log.
func handleOf(c engineConn) uintptr {
	v := reflect.ValueOf(c)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0
	}
	db := v.Elem().FieldByName("db")
	if db.Kind() != reflect.Uintptr {
		return 0
	}
	return uintptr(db.Uint())
}

// watch interrupts the steps of one query when its context ends.
type watch struct {
	handle uintptr
	stop   func() bool   // nil: the watch is closed
	ended  chan struct{} // closed when the end of the context has been dealt with

	mu       sync.Mutex // guards stepping, and is held while SQLite is interrupted
	stepping bool
}

// newWatch returns nil where there is nothing to watch.
func newWatch(ctx context.Context, handle uintptr) *watch {
	if handle == 0 || ctx.Done() == nil {
		return nil
	}
	w := &watch{handle: handle, ended: make(chan struct{})}
	w.stop = context.AfterFunc(ctx, func() {
		defer close(w.ended)
		w.interrupt()
	})
	return w
}

// interrupt does nothing between steps: the next step asks the context itself.
func (w *watch) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stepping {
		tls := libc.NewTLS()
		defer tls.Close()
		sqlite3.Xsqlite3_interrupt(tls, w.handle)
	}
}

// step runs a step of the query.
func (w *watch) step(ctx context.Context, next func() error) error {
	if w == nil {
		return next()
	}
	w.set(true)
	defer w.set(false)
	if err := ctx.Err(); err != nil { // the end may have come before stepping was set
		return err
	}
	err := next()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (w *watch) set(stepping bool) {
	w.mu.Lock()
	w.stepping = stepping
	w.mu.Unlock()
}

// close ends the watch: from then on the handle is not used.
func (w *watch) close() {
	if w == nil || w.stop == nil {
		return
	}
	if !w.stop() {
		<-w.ended
	}
	w.stop = nil // a second call of it would say what it says where the context has ended
}
