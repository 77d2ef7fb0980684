package evlog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// unsynced makes of the log in p one that somebody has copied here: its files are
// on the disk, and none of their names.
func unsynced(t testing.TB, p place) {
	t.Helper()
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	names, err := d.Names()
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, d.Rename(name, name+"~"))
	}
	require.NoError(t, d.Sync())
	for _, name := range names {
		require.NoError(t, d.Rename(name+"~", name))
	}
}

// closedCleanly is a log of some closed segments and an active one that has room.
func closedCleanly(t testing.TB, p place) []evtest.Rec {
	t.Helper()
	l := p.open(t, &evlog.Options{SegmentBytes: 200, NoPreallocate: true})
	want := appendEach(t, p.ctx, l, numbered(0, 19)...)
	require.NoError(t, l.Roll(p.ctx))
	want = append(want, appendEach(t, p.ctx, l, numbered(19, 1)...)...)
	require.NoError(t, l.Close())
	return want
}

// heldSync is a file system whose first directory sync ends when it is let go.
type heldSync struct {
	trace *vfs.Trace
	let   func()
}

func holdSync(m *vfs.Mem) (vfs.FS, heldSync) {
	held := make(chan struct{})
	h := heldSync{trace: vfs.NewTrace(changesLog), let: sync.OnceFunc(func() { close(held) })}
	time.AfterFunc(10*time.Second, h.let) // a test that fails does not hang
	return vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpDirSync {
			<-held
		}
		return nil
	}).After(h.trace.Record), h
}

// names returns what was done to names so far, and to DURABLE, which names must not
// be behind.
func (h heldSync) names() (list []string) {
	for _, op := range h.trace.Ops() {
		switch {
		case strings.HasPrefix(op.Name, "LOCK"):
		case op.Kind&(vfs.OpCreate|vfs.OpRename|vfs.OpRemove|vfs.OpDirSync|vfs.OpSyncParent) != 0,
			op.Kind == vfs.OpWrite && op.Name == "DURABLE":
			list = append(list, op.String())
		}
	}
	return list
}

// After a clean close the names that opening finds are made durable beside the
// first append, which is not acknowledged before, and nothing is read before. A power
// failure until then leaves what it left before opening. (I1, I2, I5)
func TestOpen_NamesAreDurableBeforeAnAcknowledgement(t *testing.T) {
	p, m := inMem(t)
	want := closedCleanly(t, p)
	unsynced(t, p)
	require.Empty(t, onFS(t, m.SyncedImage()).image(t).Bases())

	fsys, held := holdSync(m)
	q := p.on(fsys)
	l := q.open(t, nil)
	defer held.let() // or Close would wait
	acked, read, got := make(chan error), make(chan error), make(chan error)
	go func() {
		var err error
		for _, err = range l.Reader().Records(p.ctx, 0) {
			break
		}
		read <- err
	}()
	go func() {
		_, err := l.Reader().Get(p.ctx, 3)
		got <- err
	}()
	go func() {
		_, err := l.Append(p.ctx, numbered(20, 1)...)
		acked <- err
	}()
	soon(t, "the segment is synced", func() bool {
		return slices.ContainsFunc(held.trace.Strings(), func(s string) bool { return strings.HasPrefix(s, "syncdata ") })
	})
	select {
	case err := <-acked:
		require.Fail(t, "acknowledged in a file that nobody will find", "%v", err)
	case err := <-read:
		require.Fail(t, "read from a file that nobody will find", "%v", err)
	case err := <-got:
		require.Fail(t, "got from a file that nobody will find", "%v", err)
	case <-time.After(5 * time.Millisecond):
	}
	require.Empty(t, held.names())

	held.let()
	require.NoError(t, inTime(t, "the append", acked))
	require.NoError(t, inTime(t, "the reading", read))
	require.NoError(t, inTime(t, "the look-up", got))
	sameRecs(t, want, take(t, l.Reader().Records(p.ctx, 0), len(want)))
	require.Equal(t, []string{"dirsync", "syncparent"}, held.names()[:2])
	out := onFS(t, m.SyncedImage()).image(t).Writer()
	require.NoError(t, out.Err)
	require.EqualValues(t, 21, out.Next)
	require.NoError(t, l.Close())
}

// A name that is changed after opening waits for those found there: in the other
// order a power failure could leave the later change alone.
func TestOpen_NamesAreDurableBeforeTheyAreChanged(t *testing.T) {
	hook := evlog.Hook{Name: "h", Run: func(context.Context, evlog.HookState) error { return nil }}
	for name, do := range map[string]func(p place, l *evlog.Log) error{
		"nothing": func(place, *evlog.Log) error { return nil }, // but what the log does by itself
		"roll":    func(p place, l *evlog.Log) error { return l.Roll(p.ctx) },
		"retain": func(p place, l *evlog.Log) error {
			_, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 5})
			return err
		},
		"compact": func(p place, l *evlog.Log) error { _, err := l.Compact(p.ctx, purging()); return err },
		"reindex": func(p place, l *evlog.Log) error { _, err := l.Reindex(p.ctx, nil); return err },
		"hook":    func(p place, l *evlog.Log) error { return l.RequireHook(p.ctx, "note") },
		"close":   func(_ place, l *evlog.Log) error { return l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p, m := inMem(t)
			closedCleanly(t, p)
			fsys, held := holdSync(m)
			q := p.on(fsys)
			opts := &evlog.Options{NoPreallocate: true}
			var l *evlog.Log
			done := make(chan error, 1)
			if name == "hook" {
				opts.OpenHook = hook
				time.AfterFunc(5*time.Millisecond, held.let)
			}
			l = q.open(t, opts)
			defer held.let()
			go func() { done <- do(q, l) }()
			time.Sleep(5 * time.Millisecond) // enough for what does not wait, as it is without the rule
			held.let()
			require.NoError(t, inTime(t, name, done))
			require.NoError(t, l.Close())
			names := held.names()
			require.Greater(t, len(names), 2)
			require.Equal(t, []string{"dirsync", "syncparent"}, names[:2])
		})
	}
}

// An open hook acts elsewhere on what it finds here: the names are durable before.
func TestOpen_NamesAreDurableBeforeTheHook(t *testing.T) {
	p, m := inMem(t)
	want := closedCleanly(t, p)
	unsynced(t, p)
	fsys, held := holdSync(m)
	time.AfterFunc(5*time.Millisecond, held.let)
	ran := false
	p.on(fsys).open(t, &evlog.Options{OpenHook: evlog.Hook{Name: "h", Run: func(_ context.Context, s evlog.HookState) error {
		ran = true
		out := onFS(t, m.SyncedImage()).image(t).Writer()
		require.EqualValues(t, len(want), s.Next)
		require.Equal(t, s.Next, out.Next, "the log is not there after a power failure")
		return nil
	}}})
	require.True(t, ran)
}

// Where the names cannot be made durable, Open or whatever comes after it says so,
// and nothing was acknowledged or published.
func TestOpen_NamesCannotBeMadeDurable(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpDirSync, vfs.OpSyncParent} {
		for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprint(kind, " ", cause), func(t *testing.T) {
				p, m := inMem(t)
				closedCleanly(t, p)
				before := p.image(t)
				failed := func(err error) {
					t.Helper()
					require.ErrorIs(t, err, cause)
					require.ErrorContains(t, err, "make the names that opening found durable")
				}
				failing := func(op vfs.Op) error {
					if op.Kind == kind {
						return cause
					}
					return nil
				}
				q := p.on(vfs.Inject(m, failing))
				poisoned := make(chan error, 1)
				l, err := evlog.Open(q.ctx, p.dir, &evlog.Options{NoPreallocate: true, OnEvent: func(e evlog.Event) {
					if e.Kind == evlog.EventPoisoned {
						poisoned <- e.Err
					}
				}})
				require.NoError(t, err, "it goes on beside")
				failed(inTime(t, "it is told without being asked for", poisoned))
				_, err = l.Append(p.ctx, numbered(20, 1)...)
				failed(err)
				require.ErrorIs(t, err, evlog.ErrPoisoned)
				_, err = l.Compact(p.ctx, purging())
				failed(err)
				_, _, err = l.Reader().Bounds(p.ctx)
				failed(err)
				_, err = l.Reader().Get(p.ctx, 3)
				failed(err)
				err = l.Close()
				failed(err)
				require.ErrorIs(t, err, evlog.ErrPoisoned)
				after := p.image(t)
				require.Equal(t, before["DURABLE"], after["DURABLE"])
				require.Equal(t, before.Bases(), after.Bases())

				// After a crash Open itself says it.
				delete(before, "DURABLE")
				p2, m2 := inMem(t)
				p2.put(t, before)
				failed(p2.on(vfs.Inject(m2, failing)).refused(t, nil))
			})
		}
	}
}

// Who waits for a sync that is an hour away is told at once that it will not come; and no
// room for a name is no full disk that a log goes on after: nothing is cut (I5).
func TestOpen_WhoWaitsIsToldThatNamesAreLost(t *testing.T) {
	for name, do := range map[string]func(p place, l *evlog.Log) error{
		"append": func(p place, l *evlog.Log) error { // so much that it is written at once
			_, err := l.Append(p.ctx, evlog.Record{Value: make([]byte, 1<<20)})
			return err
		},
		"roll": func(p place, l *evlog.Log) error { return l.Roll(p.ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			opts := &evlog.Options{
				Sync: evlog.SyncInterval, SyncInterval: time.Hour, NoPreallocate: true,
				OnEvent: func(e evlog.Event) { full.CompareAndSwap(false, e.Kind == evlog.EventDiskFull) },
			}
			p, m := inMem(t)
			l := p.open(t, opts)
			_, err := l.Enqueue(p.ctx, numbered(0, 3)...)
			require.NoError(t, err)
			require.NoError(t, l.Close())
			before := p.image(t)

			fail := make(chan struct{})
			let := sync.OnceFunc(func() { close(fail) })
			time.AfterFunc(10*time.Second, let) // a test that fails does not hang
			trace := vfs.NewTrace(changesLog)
			q := p.on(vfs.Inject(m, func(op vfs.Op) error {
				if op.Kind == vfs.OpDirSync {
					<-fail
					return syscall.ENOSPC
				}
				return nil
			}).After(trace.Record))
			l = q.open(t, opts)
			defer let()
			told := make(chan error, 1)
			go func() { told <- do(q, l) }()
			if name == "append" {
				soon(t, "it is written", func() bool {
					return slices.ContainsFunc(trace.Strings(), func(s string) bool { return strings.HasPrefix(s, "write 0") })
				})
			}
			let()
			err = inTime(t, "the error", told)
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.ErrorContains(t, err, "make the names that opening found durable")
			require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
			require.False(t, full.Load())
			cuts := 0
			for _, s := range trace.Strings() {
				if strings.HasPrefix(s, "truncate 0") {
					cuts++
				}
			}
			require.LessOrEqual(t, cuts, map[string]int{"append": 0, "roll": 1}[name]) // a roll cuts off what it has prepared
			require.Equal(t, before["DURABLE"], p.image(t)["DURABLE"])
		})
	}
}
