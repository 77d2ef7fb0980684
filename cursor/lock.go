package cursor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// longWait is when waiting for the lock is worth a notice. A change takes
// milliseconds.
const longWait = 5 * time.Second

// lock waits until consumers.lock is held, or ctx ends. The lock dies with its
// process; the file stays, since a new one of that name would be another lock.
func (f *File) lock(ctx context.Context) (unlock func() error, err error) {
	// Asked first: with room in turn, select would choose at random.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l, err := f.lockFile(ctx)
	if err != nil {
		<-f.turn
		return nil, err
	}
	return func() error {
		defer func() { <-f.turn }()
		return l.Unlock()
	}, nil
}

func (f *File) lockFile(ctx context.Context) (vfs.Lock, error) {
	if err := f.prepare(); err != nil {
		return nil, err
	}
	began, noted := time.Now(), false
	for wait := newBackoff(forever); ; {
		l, err := f.dir.Lock(format.ConsumersLock)
		if !errors.Is(err, vfs.ErrLocked) {
			return l, readOnly(err)
		}
		if !noted && time.Since(began) > longWait {
			noted = true
			f.logger.Warn("waiting for another process that changes consumers.json", "path", f.Path())
		}
		if !wait.sleep(ctx) {
			return nil, ctx.Err()
		}
	}
}

// prepare comes before the first change. It creates the lock file with the mode
// that all of a log's files have.
func (f *File) prepare() error {
	if f.prepared {
		return nil
	}
	kind, err := f.dir.Network()
	if err != nil {
		return err
	}
	if kind != "" && !f.netOK {
		return fmt.Errorf("%w (%s)", evlog.ErrNetworkFS, kind)
	}
	file, err := f.dir.OpenFile(format.ConsumersLock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return readOnly(err)
	}
	f.prepared = true
	return file.Close()
}

// readOnly adds what an error means that says so in the system's words.
func readOnly(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", err, evlog.ErrReadOnly)
	}
	return err
}

// backoff is the pauses of somebody who tries again and again: first short, so
// that a change of a millisecond costs little more, then longer, and never the
// same for two who wait.
type backoff struct {
	next time.Duration
	left time.Duration // of the time that all may take; forever: no limit
}

const (
	firstPause = 100 * time.Microsecond
	maxPause   = 5 * time.Millisecond
	forever    = -1
)

func newBackoff(most time.Duration) *backoff { return &backoff{next: firstPause, left: most} }

// sleep pauses. It returns false, at once, when the time is up or ctx has
// ended.
func (b *backoff) sleep(ctx context.Context) bool {
	d := b.next/2 + rand.N(b.next)
	b.next = min(maxPause, 2*b.next)
	if b.left != forever {
		if b.left == 0 {
			return false
		}
		b.left = max(0, b.left-d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
