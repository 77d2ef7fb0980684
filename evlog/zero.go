package evlog

import (
	"fmt"
	"os"
	"sync"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	// zeroStep is what is zeroed at once, and so the longest that an append may
	// have to wait for it.
	zeroStep = 64 << 10
	// zeroSync is what is synced at once: a commit's sync that comes meanwhile has to
	// wait for it. With less the file system commits its journal more often, which slows
	// down all of them. Where writes are small, zeros for hundreds of commits are synced
	// at once, so that fewer than one commit in a hundred meets that. With larger writes
	// it is more of them anyhow, and each would wait longer.
	zeroSync      = 256 << 10
	zeroSyncSmall = 512 << 10
	zeroSmall     = 4 << 10 // what a small write is
	// zeroAhead is how far ahead of the records a large segment is zeroed.
	zeroAhead = 1 << 20
	// zeroMaxWrite: with larger writes zeroing costs more than it saves.
	zeroMaxWrite = 64 << 10
)

var zeros [zeroStep]byte

// zeroer is the goroutine that fills the active segment with zeros ahead of the
// records. A sync of bytes that the file already has does not change the inode,
// which saves the file system's journal commit. It is only ever a help: where
// anything is in the way, the file just grows as it is written.
//
// It has an open file of its own, since an error of writing back is told once
// to each: were it shared, the zeroer's sync could take away the error that a
// commit has to see (I5).
type zeroer struct {
	l       *Log
	off     bool // for good
	signals chan struct{}
	done    chan struct{}

	syncMu sync.Mutex // held while zeros are synced, and until a failure has poisoned

	mu   sync.Mutex // guards the rest; held for one step at most
	base uint64
	on   bool
	over bool  // stopped for good
	pos  int64 // end of the records
	end  int64 // end of records and zeros
	want bool  // the records have come near to the end
	last int64 // size of the last write
}

func (z *zeroer) start(l *Log) {
	z.l = l
	z.off = l.opts.NoPreallocate || l.rollBytes < zeroStep
	z.signals, z.done = make(chan struct{}, 1), make(chan struct{})
	if z.off {
		close(z.done)
		return
	}
	go z.run()
}

func (z *zeroer) stop() {
	z.mu.Lock()
	z.on, z.over = false, true
	if !z.off {
		close(z.signals)
	}
	z.mu.Unlock()
	<-z.done
}

// use starts with another active segment, whose records end at pos. The turn is held, as for all but run.
func (z *zeroer) use(base uint64, pos int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.base, z.on, z.pos, z.end, z.want = base, !z.off && !z.over, pos, pos, false
	if z.on {
		signal(z.signals) // the old file is not to stay open: it could not go
	}
}

// pause stops zeroing until the next segment: the file is about to be cut.
func (z *zeroer) pause() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.on = false
}

// claim takes the file up to end for records that are about to be written.
func (z *zeroer) claim(end int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.end = max(z.end, end)
}

// extend says that records end at pos, the last write having been of n bytes.
func (z *zeroer) extend(pos, n int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.pos, z.last = pos, n
	if z.on && n <= zeroMaxWrite && z.end-pos < z.ahead()/2 {
		z.want = true
		signal(z.signals)
	}
}

// ahead is how far ahead to zero: a small log shall stay small.
func (z *zeroer) ahead() int64 {
	want := min(zeroAhead, max(zeroStep, z.pos))
	return min(want, max(0, z.l.rollBytes-z.pos))
}

// syncAt is how many zeros to sync at once.
func (z *zeroer) syncAt() int64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.last <= zeroSmall {
		return zeroSyncSmall
	}
	return zeroSync
}

func (z *zeroer) run() {
	defer close(z.done)
	var f vfs.File
	var base uint64
	shut := func() {
		if f != nil {
			_ = f.Close() // nothing that was written is needed
			f = nil
		}
	}
	defer shut()
	for range z.signals {
		z.mu.Lock()
		wanted, now := z.on && z.want, z.base
		z.want = false
		z.mu.Unlock()
		if base != now {
			shut()
		}
		if !wanted {
			continue
		}
		if f == nil {
			var err error
			if f, err = z.l.dir.OpenFile(format.SegmentName(now), os.O_RDWR, 0); err != nil {
				f = nil
				z.pause()
				continue
			}
			base = now
		}
		if err := z.fill(f, base); err != nil {
			z.fail(err)
			return
		}
	}
}

// fill zeroes as far ahead as is wanted. The error is one that poisons.
func (z *zeroer) fill(f vfs.File, base uint64) error {
	for unsynced := int64(0); ; {
		n, err := z.step(f, base)
		if err != nil {
			return fmt.Errorf("zero ahead in segment %d: %w", base, err)
		}
		unsynced += n
		if unsynced >= z.syncAt() || n == 0 && unsynced > 0 {
			if err := z.sync(f, base); err != nil {
				return err
			}
			unsynced = 0
		}
		if n == 0 {
			return nil
		}
	}
}

// sync makes the zeros durable. It may take records along that were written and
// not yet synced; if it fails, they can be lost while a commit's own sync, which
// finds nothing left to write, succeeds. So a failure poisons before settle lets
// any commit go on.
func (z *zeroer) sync(f vfs.File, base uint64) error {
	z.syncMu.Lock()
	defer z.syncMu.Unlock()
	err := f.SyncData()
	if err != nil {
		err = z.l.poison(fmt.Errorf("sync zeros in segment %d: %w", base, err))
	}
	return err
}

// settle waits for a sync of zeros that is under way. Called after a commit's
// own sync and before it looks whether the log is poisoned (I5).
func (z *zeroer) settle() {
	z.syncMu.Lock()
	//lint:ignore SA2001 only to wait
	z.syncMu.Unlock()
}

// step zeroes n bytes; 0: no more are wanted.
func (z *zeroer) step(f vfs.File, base uint64) (n int64, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	want := z.pos + z.ahead() - z.end
	if !z.on || z.base != base || want <= 0 {
		return 0, nil
	}
	n = min(want, zeroStep)
	if err := f.Allocate(z.end, n); err != nil {
		// Not to be had here, or no space for it: go on without. No data was
		// touched.
		z.on = false
		return 0, nil
	}
	if _, err := f.WriteAt(zeros[:n], z.end); err != nil {
		z.on = false
		if diskFull(err) {
			return 0, nil
		}
		return 0, err
	}
	z.end += n
	z.l.retain.grown(z.end)
	return n, nil
}

// fail poisons the log: what the failed sync covered may have been records.
func (z *zeroer) fail(err error) {
	z.l.poisonBeside(err)
}
