package ncruces

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
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
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/sqldb"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// crashCase is a row of the table: what is set up how, and which rule is off.
type crashCase struct {
	name string
	// journal is wal or delete. With truncate SQLite itself is not safe on this
	// disk, which may clear parts of a file that is cut, and keep its size.
	journal string
	app     string // how the application commits: NORMAL, FULL
	off     outboxrule.Rule
	equal   bool // all records look the same, those of others too
	full    bool // the disk is full now and then
	unsure  bool // the COMMIT of an intent fails now and then, after it was written
	tail    bool // the log's recovery does not sync the tail
	bad     bool // runs have to go wrong
}

var crashCases = []crashCase{
	{name: "kept/wal/app_full", journal: "wal", app: "FULL", full: true},
	{name: "kept/wal/app_normal", journal: "wal", app: "NORMAL", full: true},
	{name: "kept/delete/app_full", journal: "delete", app: "FULL", full: true},
	{name: "kept/delete/app_normal", journal: "delete", app: "NORMAL"},
	{name: "kept/wal/equal_records", journal: "wal", app: "FULL", equal: true},
	{name: "kept/wal/unsure_commits", journal: "wal", app: "FULL", unsure: true},
	{name: "kept/delete/unsure_commits", journal: "delete", app: "FULL", unsure: true},
	{name: "off/relay_normal/app_full", journal: "wal", app: "FULL", off: outboxrule.Extra, bad: true},
	{name: "off/relay_normal/app_normal", journal: "wal", app: "NORMAL", off: outboxrule.Extra, bad: true},
	{name: "off/relay_normal/delete", journal: "delete", app: "NORMAL", off: outboxrule.Extra, bad: true},
	{name: "off/intent", journal: "wal", app: "FULL", off: outboxrule.Intent, bad: true},
	{name: "off/gate", journal: "wal", app: "FULL", off: outboxrule.Gate, bad: true},
	{name: "off/hook_first", journal: "wal", app: "FULL", off: outboxrule.HookFirst, bad: true},
	{name: "off/sync_first", journal: "wal", app: "FULL", off: outboxrule.SyncFirst, bad: true},
	{name: "off/settle", journal: "wal", app: "FULL", off: outboxrule.Settle, full: true, bad: true},
	{name: "off/settle/unsure_commits", journal: "wal", app: "FULL", off: outboxrule.Settle, unsure: true, bad: true},
	{name: "off/by_offset", journal: "wal", app: "FULL", off: outboxrule.Intent | outboxrule.ByOffset, equal: true, bad: true},
	{name: "off/tail_synced_at_open", journal: "wal", app: "FULL", tail: true, bad: true},
}

// Crashes at every operation of database and log, of the process and of the
// machine, several in a row, with torn writes and others that append to the log:
// whatever the database says was committed is in the log once and in order, and
// nothing else. With EVLOG_SOAK=1 there are 10,000 runs of each of the rows
// with all rules kept, of 15 ms each: 12 minutes on two cores with -parallel 7,
// since a run often waits. With a rule switched off it does not hold.
func TestOutbox_Crash(t *testing.T) {
	for _, c := range crashCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base := newBase(t, c)
			if !c.bad {
				runs, damaged := 0, 0
				evtest.Seeds(t, 10_000, func(t *testing.T, seed uint64) {
					err := crashRun(t, c, base, seed)
					if runs++; errors.Is(err, errDamaged) {
						damaged++
						return
					}
					require.NoError(t, err)
				})
				t.Logf("%d runs; in %d of them SQLite has damaged the database", runs, damaged)
				require.Less(t, damaged, 2+runs/20)
				return
			}
			runs, found := evtest.Count(500), map[string]int{}
			bad := 0
			first := uint64(time.Now().UnixNano()) % 1_000_000_000
			for seed := first; int(seed-first) < runs || bad == 0 && seed-first < 2000; seed++ {
				if err := crashRun(t, c, base, seed); err != nil {
					bad++
					kind, _, _ := strings.Cut(err.Error(), ":")
					found[kind]++
				}
				runs = max(runs, int(seed-first)+1)
			}
			t.Logf("%d of %d runs went wrong: %v", bad, runs, found)
			require.NotZero(t, bad, "the test does not notice that the rule is not kept")
		})
	}
}

const crashLog = "/data/log"

var worlds atomic.Int64

// newBase is a disk with the tables and an empty log, which each run starts from.
func newBase(t *testing.T, c crashCase) *vfs.Mem {
	mem := vfs.NewMem()
	w := openWorld(t, c, mem, 0)
	defer w.close()
	_, err := w.db.Exec(`CREATE TABLE effect (n INTEGER PRIMARY KEY, tx INTEGER NOT NULL) STRICT`)
	require.NoError(t, err)
	_, err = outbox.Open(t.Context(), w.db, nil)
	require.NoError(t, err)
	log, err := evlog.Open(w.ctx, crashLog, &evlog.Options{NoPreallocate: true})
	require.NoError(t, err)
	require.NoError(t, log.Close())
	require.NoError(t, w.db.Close())
	return mem.Crash(1)
}

// world is one life of the process.
type world struct {
	c    crashCase
	name string
	mem  *vfs.Mem
	disk *disk
	ctx  context.Context
	stop context.CancelFunc
	db   *sql.DB
	tail *tailFS

	moment atomic.Bool   // this life ends with a crash at a moment that is still to be chosen
	poke   chan struct{} // has others append

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// roll is a number below n, for any goroutine.
func (w *world) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// synced is called after each sync of SQLite's, which may be that of an intent:
// the moment for others to append, or for a crash.
func (w *world) synced() {
	if w.roll(15) == 0 {
		w.cutIn(w.roll(8))
	}
	if w.roll(2) == 0 {
		w.othersNow()
	}
}

// cutIn has the crash come so many operations later. Only the first call counts:
// a second one could take a cut back that has been met.
func (w *world) cutIn(n int) {
	if w.moment.CompareAndSwap(true, false) {
		w.mem.SetCut(int64(n))
	}
}

func (w *world) othersNow() {
	select {
	case w.poke <- struct{}{}:
		time.Sleep(20 * time.Microsecond)
	default:
	}
}

func openWorld(t *testing.T, c crashCase, mem *vfs.Mem, seed uint64) *world {
	w := &world{
		c: c, name: fmt.Sprintf("evlog%d", worlds.Add(1)), mem: mem, poke: make(chan struct{}), rng: evtest.Rand(seed + 1),
	}
	w.disk = newDisk(t, w.name, mem)
	w.disk.synced = w.synced
	w.tail = &tailFS{FS: mem, skip: c.tail}
	off := c.off
	if c.bad {
		// What would be noticed when the log is opened is to be seen in the log.
		off |= outboxrule.Sums | outboxrule.Ahead | outboxrule.Note
	}
	ctx := outboxrule.Without(vfs.NewContext(t.Context(), w.tail), off)
	w.ctx, w.stop = context.WithCancel(ctx)
	var err error
	w.db, err = sql.Open("sqlite3", fmt.Sprintf("file:app.db?vfs=%s&_txlock=deferred&_pragma=busy_timeout(0)&_pragma=journal_mode(%s)&_pragma=synchronous(%s)",
		w.name, c.journal, c.app))
	require.NoError(t, err)
	return w
}

func (w *world) close() {
	w.stop()
	_ = w.db.Close()
	w.disk.close()
}

// ledger is what the test knows of what it did, over all lives.
type ledger struct {
	mu      sync.Mutex
	nextN   int
	nextTx  int
	foreign int // records of others that were acknowledged
	tried   int // and that they began to append
}

// crashRun is a few lives, all but the last with a crash.
func crashRun(t *testing.T, c crashCase, base *vfs.Mem, seed uint64) error {
	rng := evtest.Rand(seed)
	led := &ledger{}
	mem := base.KillImage()
	lives := 2 + rng.IntN(3)
	killed := false
	for life := range lives {
		last := life == lives-1
		w := openWorld(t, c, mem, rng.Uint64())
		if !w.intact() {
			w.close()
			return errDamaged
		}
		switch {
		case last:
		case rng.IntN(2) == 0 || c.tail:
			w.moment.Store(true)
		default:
			// The first few operations are the opening's.
			n := 15 + rng.IntN(120)
			if rng.IntN(4) == 0 || killed && rng.IntN(2) == 0 {
				n = rng.IntN(40)
			}
			mem.SetTornCut(int64(n), rng.IntN(600))
		}
		err := w.live(rng, led, last)
		w.close()
		if err != nil {
			return err
		}
		if last {
			break
		}
		if killed = rng.IntN(3) == 0; killed {
			mem = mem.KillImage()
		} else {
			mem = mem.Crash(rng.Uint64() >> (rng.IntN(2) * 63)) // with everything lost or kept at times
		}
	}
	w := openWorld(t, c, mem.KillImage(), seed)
	defer w.close()
	return w.check(led)
}

// errDamaged: the power failure has damaged the database, which SQLite's journal
// is there to undo. It does not always succeed with a rollback journal and
// synchronous=NORMAL (TestDisk_SQLiteAlone). Such a run says nothing about the
// outbox.
var errDamaged = errors.New("the database is damaged")

// intact looks for that, where it can be.
func (w *world) intact() bool {
	if w.c.journal == "wal" || w.c.app != "NORMAL" {
		return true
	}
	w.disk.synced = nil
	defer func() { w.disk.synced = w.synced }()
	return intact(w.db)
}

// live runs application, relay and others until all is done, or the cut is met.
func (w *world) live(rng *rand.Rand, led *ledger, last bool) error {
	box, err := outbox.Open(w.ctx, w.db, &outbox.Options{
		BatchRows: 1 + rng.IntN(6), PollInterval: 50 * time.Millisecond, Clock: quickClock{time.Now()}, OnEvent: w.onEvent,
	})
	if err != nil {
		return w.lost("open the outbox", err, last)
	}
	log, err := evlog.Open(w.ctx, crashLog, &evlog.Options{
		OpenHook: box.Hook(), NoPreallocate: true, SegmentBytes: 200 + int64(rng.IntN(3000)),
	})
	if err != nil {
		return w.lost("open the log", err, last)
	}
	w.tail.opened(w)
	if w.c.unsure {
		w.disk.committing = func() error {
			if log.Stats().GateHolder != outbox.HookName || w.roll(8) > 0 {
				return nil
			}
			w.othersNow()
			w.cutIn(8 + w.roll(12)) // while others append, or a little later
			return syscall.EIO
		}
	}
	defer func() { _ = log.Close() }()

	life, stop := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	defer func() {
		if !last && !w.mem.WasCut() {
			w.mem.SetCut(0) // what is done when it stops is not to be seen
		}
	}()
	relay := make(chan error, 1)
	wg.Go(func() { relay <- box.Run(life, log) })
	wg.Go(func() { w.others(life, log, led) })

	txs := 3 + rng.IntN(12)
	if last {
		txs = 1
	}
	for range txs {
		if w.mem.WasCut() {
			break
		}
		if w.c.full && rng.IntN(4) == 0 {
			w.mem.SetCapacity(w.mem.Used() + int64(rng.IntN(20_000)))
		}
		w.transaction(rng, box, led)
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
		}
		if rng.IntN(3) == 0 {
			w.mem.SetCapacity(-1)
		}
	}
	w.mem.SetCapacity(-1)
	var queued anyQueued
	defer queued.close()
	for asked := 0; !w.mem.WasCut() && (last || rng.IntN(12) > 0); asked++ {
		left, err := queued.ask(life, w.db)
		if err == nil && !left {
			break
		}
		select {
		case err := <-relay:
			return w.lost("relay", err, last)
		default:
		}
		// Not by the clock: a machine that was stopped for a while is not a relay
		// that is stuck.
		if asked > 50_000 {
			s, err := outbox.ReadStatus(life, w.db)
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return fmt.Errorf("stuck: %+v, %+v, %v\n%s", s, box.Stats(), err, stacks)
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// anyQueued asks whether rows are queued. It prepares the question once: it is
// asked ten thousand times a second.
type anyQueued struct{ st *sql.Stmt }

func (q *anyQueued) ask(ctx context.Context, db *sql.DB) (is bool, err error) {
	if q.st == nil {
		if q.st, err = db.PrepareContext(ctx, `SELECT EXISTS (SELECT 1 FROM evlog_outbox WHERE parked IS NULL)`); err != nil {
			return false, err
		}
	}
	err = q.st.QueryRowContext(ctx).Scan(&is)
	return is, err
}

func (q *anyQueued) close() {
	if q.st != nil {
		_ = q.st.Close()
	}
}

// onEvent has the machine crash soon after the relay has met a full disk, and
// room for others before.
func (w *world) onEvent(e outbox.Event) {
	if w.c.full && e.Kind == outbox.EventRetry && !sqldb.IsBusy(e.Err) {
		w.mem.SetCapacity(-1)
		w.othersNow()
		time.Sleep(200 * time.Microsecond) // until they are done
		w.cutIn(w.roll(6))
	}
}

// lost says whether an error is the crash's.
func (w *world) lost(what string, err error, last bool) error {
	if !last && w.mem.WasCut() {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// others append to the log now and then, and when they are told to.
func (w *world) others(ctx context.Context, log *evlog.Log, led *ledger) {
	for {
		led.mu.Lock()
		led.tried++
		led.mu.Unlock()
		if _, err := log.Append(ctx, w.record(-1)); err == nil {
			led.mu.Lock()
			led.foreign++
			led.mu.Unlock()
		} else if errors.Is(err, evlog.ErrPoisoned) {
			return
		}
		select {
		case <-w.poke:
		case <-time.After(time.Duration(w.roll(3000)) * time.Microsecond):
		case <-ctx.Done():
			return
		}
	}
}

// record is that of effect n, or of others for -1.
func (w *world) record(n int) evlog.Record {
	r := evlog.Record{Time: time.UnixMilli(1_700_000_000_000), Value: []byte("same")}
	if !w.c.equal {
		r.Value = fmt.Appendf(nil, "%d", n)
	}
	return r
}

// transaction is one of the application, with a few events, which it may roll
// back.
func (w *world) transaction(rng *rand.Rand, box *outbox.Box, led *ledger) {
	rows := 1 + rng.IntN(3)
	first, tx := led.nextN, led.nextTx
	led.nextN, led.nextTx = led.nextN+rows, led.nextTx+1
	rollback := rng.IntN(5) == 0
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
	defer cancel()
	// The database says later what was committed.
	_ = box.InTx(ctx, func(ctx context.Context, t *sql.Tx) error {
		for n := first; n < first+rows; n++ {
			if _, err := t.ExecContext(ctx, `INSERT INTO effect (n, tx) VALUES (?1, ?2)`, n, tx); err != nil {
				return err
			}
			if _, err := box.Put(ctx, t, w.record(n)); err != nil {
				return err
			}
		}
		if rollback {
			return errors.New("rolled back")
		}
		return nil
	})
}

// check compares the log with what the database says was committed.
func (w *world) check(led *ledger) error {
	rows, err := w.db.Query(`SELECT n FROM effect ORDER BY n`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var want []string
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return err
		}
		want = append(want, fmt.Sprint(n))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	r, err := evlog.OpenReader(w.ctx, crashLog, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	var got []string
	foreign := 0
	for rec, err := range r.Records(w.ctx, 0) {
		if err != nil {
			return err
		}
		if string(rec.Value) == "-1" {
			foreign++
			continue
		}
		got = append(got, string(rec.Value))
	}
	if w.c.equal {
		least, most := len(want)+led.foreign, len(want)+led.tried
		switch {
		case len(got) < least:
			return fmt.Errorf("lost: %d records, at least %d were committed", len(got), least)
		case len(got) > most:
			return fmt.Errorf("twice: %d records, at most %d were committed", len(got), most)
		}
		return nil
	}
	if foreign < led.foreign || foreign > led.tried {
		return fmt.Errorf("others: %d records, %d acknowledged, %d tried", foreign, led.foreign, led.tried)
	}
	if slices.Equal(got, want) {
		return nil
	}
	sorted := slices.Clone(got)
	slices.Sort(sorted)
	kind := "order"
	switch {
	case len(slices.Compact(slices.Clone(sorted))) < len(got):
		kind = "twice"
	case slices.ContainsFunc(got, func(s string) bool { return !slices.Contains(want, s) }):
		kind = "phantom"
	case len(got) < len(want):
		kind = "lost"
	}
	return fmt.Errorf("%s: the log has %v, committed were %v", kind, got, want)
}

// quickClock makes the relay wait a hundredth of what it would.
type quickClock struct{ start time.Time }

const quicker = 100

func (quickClock) Now() time.Time           { return time.Now() }
func (c quickClock) Elapsed() time.Duration { return quicker * time.Since(c.start) }
func (quickClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d / quicker)
	return t.C, func() { t.Stop() }
}

// tailFS is a file system on which, if skip is set, opening a log does not sync
// its segments. So that it matters, lives end soon after the log was opened or
// written to.
type tailFS struct {
	vfs.FS
	skip bool
	done atomic.Bool
	w    *world
}

func (f *tailFS) opened(w *world) {
	f.w = w
	f.done.Store(true)
	f.soon(3, 4)
}

// soon ends the life in one of n cases, in fewer than within operations.
func (f *tailFS) soon(n, within int) {
	if f.skip && f.w.roll(n) == 0 {
		f.w.cutIn(f.w.roll(within))
	}
}

func (f *tailFS) OpenDir(p string) (vfs.Dir, error) {
	d, err := f.FS.OpenDir(p)
	if err == nil && f.skip {
		d = &tailDir{d, f}
	}
	return d, err
}

type tailDir struct {
	vfs.Dir
	f *tailFS
}

func (d *tailDir) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := d.Dir.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, ".log") {
		file = &tailFile{file, d.f}
	}
	return file, err
}

func (d *tailDir) Same(name string, f vfs.File) (bool, error) {
	if t, ok := f.(*tailFile); ok {
		f = t.File
	}
	return d.Dir.Same(name, f)
}

type tailFile struct {
	vfs.File
	f *tailFS
}

func (t *tailFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := t.File.WriteAt(b, off)
	if t.f.done.Load() {
		t.f.soon(4, 1)
	}
	return n, err
}

func (t *tailFile) Sync() error {
	if !t.f.done.Load() {
		return nil
	}
	return t.File.Sync()
}

func (t *tailFile) SyncData() error {
	if !t.f.done.Load() {
		return nil
	}
	return t.File.SyncData()
}
