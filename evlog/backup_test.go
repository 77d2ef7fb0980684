package evlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	cursors "github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// backedUp is where a test's backup goes.
func (p place) backedUp() place {
	p.dir = "/data/backup"
	return p
}

func backup(t testing.TB, p, to place) uint64 {
	t.Helper()
	next, err := p.reader(t, nil).Backup(to.ctx, to.dir, nil)
	require.NoError(t, err)
	return next
}

// consumer commits a cursor.
func consumer(t testing.TB, p place, next uint64) {
	t.Helper()
	store, err := cursors.OpenFile(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.NoError(t, store.Commit(p.ctx, "c", 0, next))
	require.NoError(t, store.Close())
}

// A copy is the same log: records, cursors, indexes, identity, configuration.
func TestBackup_SameLog(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		to := p
		to.dir += "-backup"
		l := p.open(t, tiny())
		want := appendEach(t, p.ctx, l, numbered(0, 60)...)
		consumer(t, p, 7)
		quiet(t, p)
		var progress []int64
		next, err := l.Reader().Backup(to.ctx, to.dir, &evlog.BackupOptions{Progress: func(done, total int64) {
			require.LessOrEqual(t, done, total)
			progress = append(progress, done)
		}})
		require.NoError(t, err)
		require.EqualValues(t, 60, next)
		require.IsIncreasing(t, progress)
		sameRecs(t, want, to.all(t))
		im := to.image(t)
		for name, b := range p.image(t) {
			switch name {
			case "LOCK", "consumers.lock":
				require.NotContains(t, im, name)
			case evtest.SegmentFile(p.image(t).Bases()[len(p.image(t).Bases())-1]):
				require.True(t, bytes.HasPrefix(b, im[name]), "%s: what is prepared ahead is left out", name)
			default:
				require.Equal(t, b, im[name], name)
			}
			if strings.HasSuffix(name, ".log") {
				require.Equal(t, modified(t, p, name), modified(t, to, name), "%s: when it was closed", name)
			}
		}
		to.verified(t)
		copied := to.open(t, nil)
		require.Equal(t, l.ID(), copied.ID())
		require.Equal(t, l.Config(), copied.Config())
		appendEach(t, to.ctx, copied, numbered(60, 1)...)

		_, err = p.reader(t, nil).Backup(to.ctx, to.dir, nil)
		require.ErrorIs(t, err, fs.ErrExist)
		require.NoError(t, copied.Close())
		require.Len(t, to.all(t), 61, "a backup that is refused changes nothing")
	})
}

func modified(t *testing.T, p place, name string) time.Time {
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	info, err := d.Stat(name)
	require.NoError(t, err)
	return info.ModTime()
}

// What is beyond the durable position after a power failure is in the copy.
func TestBackup_BeyondDurable(t *testing.T) {
	p, _ := inMem(t)
	p.put(t, build().segment(0, 0, 1).segment(2, 2, 3, 4).durable(3, 2).im)
	to := p.backedUp()
	require.EqualValues(t, 3, backup(t, p, to))
	require.Len(t, to.all(t), 3)
	require.NoError(t, to.open(t, nil).Close())
	require.Len(t, to.all(t), 5)
}

// Beside appends, rolls, compaction, merges, retention, consumers and changes of
// log.json a backup is the log as it was at one moment, and that moment is not
// before the backup began. So it is with listings that miss a name.
func TestBackup_IsOneMoment(t *testing.T) {
	evtest.Seeds(t, 1000, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		m := vfs.NewMem()
		shared := vfs.FS(m)
		if windowsRules {
			shared = vfs.Windows(m)
		}
		p := place{ctx: vfs.NewContext(t.Context(), shared), dir: "/data/log", fsys: m}
		rec := history{permits: make(chan struct{}, 100)}
		rec.free.Store(true)
		hook := evlog.Hook{Name: "h", Run: func(ctxT, evlog.HookState) error { return nil }}
		b := &busy{
			p: place{ctx: vfs.NewContext(t.Context(), rec.on(t, shared, p)), dir: p.dir, fsys: m}, rng: evtest.Rand(seed + 1),
			stop: make(chan struct{}), stopped: make(chan error, 1),
		}
		b.log = b.p.open(t, &evlog.Options{
			SegmentBytes: 1 + rng.Int64N(400), IndexBytes: 100, NoPreallocate: true,
			HoldFor: []string{"c"}, HoldBytes: 1 << 30, OpenHook: hook,
		})
		let := sync.OnceFunc(func() { close(rec.permits) })
		t.Cleanup(let) // before the log is closed, whatever happens
		go b.run()
		for rec.ops.Load() < 400 && len(b.stopped) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		rec.free.Store(false)

		// Between two operations of the backup, the others now and then do some of
		// theirs; in the end no more, or it might never be done.
		calls, share, left := evtest.Rand(seed+2), 2+rng.IntN(40), 1500
		besides := func(vfs.Op) error {
			if left == 0 || calls.IntN(share) > 0 {
				return nil
			}
			n := min(1+calls.IntN(8), left)
			left -= n
			rec.let(n, b.stopped)
			return nil
		}
		from := p.on(vfs.Inject(&forgetful{FS: shared, pick: calls.IntN}, besides))
		for i := range 3 {
			to := place{ctx: vfs.NewContext(t.Context(), vfs.Inject(shared, besides)), dir: fmt.Sprint("/data/backup", i), fsys: m}
			began := rec.seen()
			next := backup(t, from, to)
			states := rec.since(began)
			im := to.image(t)
			d, err := im.Durable()
			require.NoError(t, err)
			require.Equal(t, d.Next, next)
			got, found := momentOf(im, d), false
			for _, state := range states {
				found = found || maps.EqualFunc(got, momentOf(state, d), bytes.Equal)
			}
			require.True(t, found, "seed %d: the log never was as the copy is:\n%s", seed, im.Describe())
			at := committedIn(t, im)
			require.LessOrEqual(t, at, next, "seed %d: the cursor is ahead", seed)
			require.GreaterOrEqual(t, at, im.Bases()[0], "seed %d: the cursor is behind", seed)
			out := im.Writer()
			require.NoError(t, out.Err, "seed %d", seed)
			to = to.on(m)
			to.verified(t)
			copied := to.open(t, &evlog.Options{OpenHook: hook, Verify: evlog.VerifyAll})
			require.NoError(t, copied.Close())
			sameRecs(t, out.Recs, to.all(t), "seed %d", seed)
		}
		close(b.stop)
		let()
		require.NoError(t, <-b.stopped, "seed %d", seed)
	})
}

// At any one operation of a backup something happens: the copy is the log before or
// after it, as a whole.
func TestBackup_BeforeOrAfter(t *testing.T) {
	for name, happens := range map[string]func(p place, l *evlog.Log) error{
		"roll": func(p place, l *evlog.Log) error { return l.Roll(p.ctx) },
		"compaction": func(p place, l *evlog.Log) error {
			_, err := l.Compact(p.ctx, purging())
			return err
		},
		"retention": func(p place, l *evlog.Log) error {
			_, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 5})
			return err
		},
		"log.json and a record": func(p place, l *evlog.Log) error {
			_, err := l.Append(p.ctx, rec("k", "v"))
			return errors.Join(err, l.RequireHook(p.ctx, "changed"))
		},
		"a record and a commit": func(p place, l *evlog.Log) error {
			offset, err := l.Append(p.ctx, rec("k", "v"))
			if err != nil {
				return err
			}
			store, err := cursors.OpenFile(p.ctx, p.dir, nil)
			if err != nil {
				return err
			}
			return errors.Join(store.Commit(p.ctx, "c", 0, offset+1), store.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n, done := 1, false; !done; n++ {
				done = backupMeets(t, n, happens)
			}
		})
	}
}

// backupMeets backs up a log to which something happens at the n-th operation, and
// reports whether there were fewer.
func backupMeets(t *testing.T, n int, happens func(place, *evlog.Log) error) (fewer bool) {
	p, m := inMem(t)
	opts := tiny()
	opts.OpenHook = evlog.Hook{Name: "h", Run: func(ctxT, evlog.HookState) error { return nil }}
	l := p.open(t, opts)
	appendEach(t, p.ctx, l, numbered(0, 30)...)
	quiet(t, p)
	states := []evtest.Image{p.image(t)}
	count := 0
	slow := vfs.Inject(p.fsys, func(op vfs.Op) error {
		if count++; count == n {
			err := happens(p, l)
			if err != nil && !(windowsRules && errors.Is(err, fs.ErrPermission)) {
				t.Error(err)
			}
			quiet(t, p)
			states = append(states, p.image(t))
		}
		return nil
	})
	to := p.on(slow).backedUp()
	next := backup(t, p.on(slow), to)
	require.NoError(t, l.Close())
	im := onFS(t, m).backedUp().image(t)
	d, err := im.Durable()
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(states, func(state evtest.Image) bool {
		return maps.EqualFunc(momentOf(im, d), momentOf(state, d), bytes.Equal)
	}), "operation %d:\n%s", n, im.Describe())
	require.LessOrEqual(t, committedIn(t, im), next, "operation %d", n)
	onFS(t, m).backedUp().verified(t)
	return count < n
}

// history notes every state of a log's directory: its operations wait for each
// other, and unless they are free, for permits.
type history struct {
	permits chan struct{}
	free    atomic.Bool
	ops     atomic.Int64
	mu      sync.Mutex // held from before an operation until its result is noted
	states  []evtest.Image
}

// let waits until n more operations have begun.
func (r *history) let(n int, stopped <-chan error) {
	for range n {
		r.permits <- struct{}{}
	}
	for len(r.permits) > 0 && len(stopped) == 0 {
		time.Sleep(time.Microsecond)
	}
}

func (r *history) on(t *testing.T, fsys vfs.FS, p place) vfs.FS {
	return vfs.Inject(fsys, func(vfs.Op) error {
		if !r.free.Load() {
			<-r.permits
		}
		r.mu.Lock()
		return nil
	}).After(func(op vfs.Op, err error) {
		defer r.mu.Unlock()
		r.ops.Add(1)
		if op.Kind&(vfs.OpCreate|vfs.OpWrite|vfs.OpTruncate|vfs.OpRename|vfs.OpRemove) == 0 {
			return
		}
		if im, err := evtest.ReadFS(p.fsys, p.dir); err == nil {
			r.states = append(r.states, im)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

func (r *history) seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.states)
}

// since returns the states from the n-th on, and the one before: that was the
// state when there were n.
func (r *history) since(n int) []evtest.Image {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[max(0, n-1):]
}

// momentOf is what a backup takes from one moment: of the active segment what was
// durable.
func momentOf(im evtest.Image, d evtest.Durable) evtest.Image {
	part := evtest.Image{"log.json": im["log.json"], "DURABLE": im["DURABLE"]}
	for _, base := range im.Bases() {
		if base < d.Base {
			part[evtest.SegmentFile(base)] = im[evtest.SegmentFile(base)]
		}
	}
	eachIndex(im, func(name string) {
		if name < evtest.IndexFile(d.Base) {
			part[name] = im[name]
		}
	})
	active := im[evtest.SegmentFile(d.Base)]
	part[evtest.SegmentFile(d.Base)] = active[:min(d.Pos, int64(len(active)))]
	return part
}

// committedIn is the cursor that a backup has; 0 where it has none yet.
func committedIn(t *testing.T, im evtest.Image) uint64 {
	var c struct {
		Consumers map[string]struct {
			Next uint64 `json:"next_offset"`
		} `json:"consumers"`
	}
	if b, ok := im["consumers.json"]; ok {
		require.NoError(t, json.Unmarshal(b, &c))
	}
	return c.Consumers["c"].Next
}

// busy is a writer that does everything that changes files, without a pause.
type busy struct {
	p       place
	log     *evlog.Log
	rng     *rand.Rand
	stop    chan struct{}
	stopped chan error
	n       int
	at      uint64 // the cursor
}

func (b *busy) run() {
	store, err := cursors.OpenFile(b.p.ctx, b.p.dir, nil)
	for err == nil {
		select {
		case <-b.stop:
			b.stopped <- errors.Join(store.Close(), b.log.Close())
			return
		default:
		}
		if err = b.step(store); windowsRules && errors.Is(err, fs.ErrPermission) {
			err = nil // the backup has it open
		}
	}
	b.stopped <- err
}

func (b *busy) step(store *cursors.File) error {
	l, ctx := b.log, b.p.ctx
	switch b.rng.IntN(10) {
	case 0:
		return l.Roll(ctx)
	case 1:
		_, err := l.Compact(ctx, fast())
		return err
	case 2:
		_, err := l.Compact(ctx, purging())
		return err
	case 3, 4: // within what the cursor allows
		_, err := l.Retain(ctx, &evlog.RetainOptions{MaxRecords: 10 + b.rng.Int64N(20)})
		return err
	case 5, 6:
		next := l.Stats().DurableNext
		err := store.Commit(ctx, "c", b.at, next)
		if err == nil {
			b.at = next
		}
		return err
	case 7:
		if windowsRules {
			return nil // log.json must not fail to be written
		}
		return l.RequireHook(ctx, fmt.Sprint(b.n))
	}
	for range 1 + b.rng.IntN(6) {
		r := evlog.Record{Key: fmt.Appendf(nil, "k%d", b.rng.IntN(8))}
		if b.rng.IntN(4) > 0 {
			r.Value = fmt.Appendf(nil, "%d", b.n)
		}
		b.n++
		if _, err := l.Append(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Power fails at any operation of a backup, or after it: the copy is whole, or no
// log at all.
func TestBackup_Crash(t *testing.T) {
	for n := int64(0); ; n++ {
		p, m := inMem(t)
		l := p.open(t, tiny())
		want := appendEach(t, p.ctx, l, numbered(0, 30)...)
		require.NoError(t, l.Close())
		consumer(t, p, 7)
		to := p.backedUp()
		m.SetCut(n)
		_, failed := p.reader(t, nil).Backup(to.ctx, to.dir, nil)
		for seed := range uint64(10) {
			after := onFS(t, m.Crash(seed)).backedUp()
			copied, err := evlog.Open(after.ctx, after.dir, &evlog.Options{MustExist: true})
			if err != nil {
				require.Error(t, failed, "cut %d, crash %d: %v", n, seed, err)
				continue
			}
			require.NoError(t, copied.Close())
			sameRecs(t, want, after.all(t), "cut %d, crash %d", n, seed)
			require.EqualValues(t, 7, committedIn(t, after.image(t)))
			after.verified(t)
		}
		if failed == nil {
			require.Greater(t, n, int64(20))
			return
		}
	}
}

// Any operation of a backup fails, for lack of space or because ctx ends: the error
// is returned, and nothing of the copy is left.
func TestBackup_EveryOperationFails(t *testing.T) {
	for n := 1; ; n++ {
		p, m := inMem(t)
		l := p.open(t, tiny())
		appendEach(t, p.ctx, l, numbered(0, 30)...)
		require.NoError(t, l.Close())
		before := p.image(t)
		ctx, cancel := context.WithCancel(p.ctx)
		defer cancel()
		count := 0
		failing := vfs.Inject(m, func(op vfs.Op) error {
			if count++; count == n && n%2 == 0 {
				cancel()
			} else if count == n {
				return syscall.ENOSPC
			}
			return nil
		})
		r := p.reader(t, nil)
		to := p.on(failing).backedUp()
		_, err := r.Backup(vfs.NewContext(ctx, failing), to.dir, nil)
		sameImage(t, before, p.image(t))
		if count < n {
			require.NoError(t, err)
			require.Greater(t, n, 30)
			return
		}
		if err == nil {
			continue // ctx ended too late, or where nothing more was to be done
		}
		require.True(t, errors.Is(err, syscall.ENOSPC) || errors.Is(err, context.Canceled), "%v", err)
		if left, err := evtest.ReadFS(m, to.dir); err == nil {
			require.Empty(t, left, "operation %d", n)
		}
	}
}

// A log that cannot be backed up as it is says why.
func TestBackup_Refused(t *testing.T) {
	noMeta := build().segment(0, upTo(0, 5)...).durable(5, 0)
	delete(noMeta.im, "log.json")
	for _, c := range []struct {
		name string
		b    *builder
		want error
	}{
		{"DURABLE is missing", build().segment(0, upTo(0, 5)...), fs.ErrNotExist},
		{"durable records are missing", build().segment(0, upTo(0, 5)...).durableAt(evtest.Durable{Next: 9, Base: 0, Pos: 1000}), evlog.ErrCorrupt},
		{"the active segment is missing", build().segment(0, upTo(0, 5)...).durableAt(evtest.Durable{Next: 9, Base: 5, Pos: 100}), evlog.ErrCorrupt},
		{"log.json is missing", noMeta, fs.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := inMem(t)
			p.put(t, c.b.im)
			to := p.backedUp()
			_, err := p.reader(t, nil).Backup(to.ctx, to.dir, nil)
			require.ErrorIs(t, err, c.want)
			if left, err := evtest.ReadFS(to.fsys, to.dir); err == nil {
				require.Empty(t, left)
			}
		})
	}
}

// The segment that is being copied as the active one is rolled and removed: the next
// one's records are not taken to be in it.
func TestBackup_WhatWasActiveIsRemoved(t *testing.T) {
	for n, done := 1, false; !done; n++ {
		p, m := inMem(t)
		l := p.open(t, &evlog.Options{NoPreallocate: true})
		appendEach(t, p.ctx, l, numbered(0, 30)...)
		quiet(t, p)
		count := 0
		slow := vfs.Inject(p.fsys, func(op vfs.Op) error {
			if count++; count == n {
				_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 30})
				if !windowsRules || !errors.Is(err, fs.ErrPermission) { // the backup has it open
					require.NoError(t, err)
				}
				appendEach(t, p.ctx, l, numbered(30, 5)...)
				quiet(t, p)
			}
			return nil
		})
		to := p.on(slow).backedUp()
		next, err := p.on(slow).reader(t, nil).Backup(to.ctx, to.dir, nil)
		if err == nil {
			to := onFS(t, m).backedUp()
			rep, err := evlog.Verify(to.ctx, to.dir, nil)
			require.NoError(t, err)
			if !rep.OK() {
				t.Errorf("operation %d, next %d: %+v", n, next, rep.Problems)
			}
		}
		require.NoError(t, l.Close())
		done = count < n
	}
}
