package evlogtest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Open creates a log in a new temporary directory. When the test ends it is
// closed and verified.
func Open(t testing.TB, opts *evlog.Options) *evlog.Log {
	t.Helper()
	return NewDir(t).Open(opts)
}

// OpenMem is Open in memory: nothing is written to the disk, and syncs cost
// nothing.
func OpenMem(t testing.TB, opts *evlog.Options) *evlog.Log {
	t.Helper()
	return NewMemDir(t).Open(opts)
}

// Dir is a directory for one log. When the test ends, everything that was
// opened in it is closed, and the log is verified. Safe for concurrent use.
type Dir struct {
	t    testing.TB
	path string
	ctx  context.Context
	mem  *vfs.Mem // nil on the real file system

	// mu guards the rest.
	mu      sync.Mutex
	closers []func() error
}

// NewDir returns a new temporary directory of the real file system.
func NewDir(t testing.TB) *Dir {
	t.Helper()
	return newDir(t, filepath.Join(t.TempDir(), "log"), nil)
}

// NewMemDir returns a directory in memory. What works on it has to use its
// Context.
func NewMemDir(t testing.TB) *Dir {
	t.Helper()
	return newDir(t, "/evlog", vfs.NewMem())
}

func newDir(t testing.TB, path string, mem *vfs.Mem) *Dir {
	ctx := t.Context()
	if mem != nil {
		ctx = vfs.NewContext(ctx, mem)
	}
	d := &Dir{t: t, path: path, ctx: ctx, mem: mem}
	t.Cleanup(d.finish)
	return d
}

// Path is the path of the directory. It exists once a log was opened in it.
func (d *Dir) Path() string { return d.path }

// Context is what functions of evlog have to be given to find the directory in
// memory. It ends with the test.
func (d *Dir) Context() context.Context { return d.ctx }

// Open opens the log for writing, creating it at the first time. A test that
// opens it once more closes the log before.
func (d *Dir) Open(opts *evlog.Options) *evlog.Log {
	d.t.Helper()
	l, err := evlog.Open(d.ctx, d.path, opts)
	if err != nil {
		d.t.Fatalf("evlogtest: %v", err)
	}
	d.closeLater(l.Close)
	return l
}

// Reader opens the log for reading, as another process does.
func (d *Dir) Reader(opts *evlog.ReaderOptions) *evlog.Reader {
	d.t.Helper()
	r, err := evlog.OpenReader(d.ctx, d.path, opts)
	if err != nil {
		d.t.Fatalf("evlogtest: %v", err)
	}
	d.closeLater(r.Close)
	return r
}

func (d *Dir) closeLater(f func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closers = append(d.closers, f)
}

// Crash returns the directory as a power failure at this moment might leave
// it: what was synced is there, of the rest each part is or is not, as seed
// chooses. The log here goes on. It needs a directory in memory.
func (d *Dir) Crash(seed uint64) *Dir {
	d.t.Helper()
	d.needMem()
	return newDir(d.t, d.path, d.mem.Crash(seed))
}

// Kill returns the directory as the process would leave it if it were killed
// at this moment. It needs a directory in memory.
func (d *Dir) Kill() *Dir {
	d.t.Helper()
	d.needMem()
	return newDir(d.t, d.path, d.mem.KillImage())
}

func (d *Dir) needMem() {
	d.t.Helper()
	if d.mem == nil {
		d.t.Fatal("evlogtest: only a directory in memory (NewMemDir) can crash")
	}
}

// Limit sets how many bytes more the directory in memory takes before its
// disk is full; negative is no limit.
func (d *Dir) Limit(bytes int64) {
	d.t.Helper()
	d.needMem()
	if bytes >= 0 {
		bytes += d.mem.Used()
	}
	d.mem.SetCapacity(bytes)
}

// Verify checks every byte of the log, and fails the test for damage.
func (d *Dir) Verify() *evlog.VerifyReport {
	d.t.Helper()
	return d.verify(d.ctx)
}

func (d *Dir) verify(ctx context.Context) *evlog.VerifyReport {
	d.t.Helper()
	rep, err := evlog.Verify(ctx, d.path, nil)
	if err != nil {
		d.t.Errorf("evlogtest: %v", err)
		return nil
	}
	for _, p := range rep.Problems {
		if p.Fatal {
			d.t.Errorf("evlogtest: %s: byte %d, offset %d: %v", p.Path, p.Pos, p.Offset, p.Err)
		}
	}
	return rep
}

// finish runs when the test ends.
func (d *Dir) finish() {
	d.mu.Lock()
	closers := d.closers
	d.closers = nil
	d.mu.Unlock()
	if len(closers) == 0 {
		return // nothing was ever opened
	}
	for i := len(closers) - 1; i >= 0; i-- {
		if err := closers[i](); err != nil {
			d.t.Errorf("evlogtest: close: %v", err)
		}
	}
	d.verify(context.WithoutCancel(d.ctx)) // the test's context has ended
}
