package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/outbox"
)

const outboxBatch = 1000

// outboxSide is an application's database, with an outbox, and a log.
type outboxSide struct {
	b    testing.TB
	db   *sql.DB
	box  *outbox.Box
	log  *evlog.Log
	path string
	dir  string
}

func newOutboxSide(b testing.TB, hook bool) *outboxSide {
	b.Helper()
	s := &outboxSide{b: b, path: filepath.Join(b.TempDir(), "app.sqlite")}
	s.dir = s.path + ".log"
	s.open()
	b.Cleanup(func() { require.NoError(b, s.db.Close()) })
	o := &evlog.Options{}
	if hook {
		o.OpenHook = s.box.Hook()
	}
	s.log = openLog(b, s.dir, o)
	return s
}

func (s *outboxSide) open() {
	var err error
	s.db, err = sql.Open("sqlite", "file:"+filepath.ToSlash(s.path)+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	require.NoError(s.b, err)
	s.box, err = outbox.Open(background, s.db, &outbox.Options{BatchRows: outboxBatch})
	require.NoError(s.b, err)
}

// fill puts n records into the outbox.
func (s *outboxSide) fill(records []evlog.Record) {
	err := s.box.InTx(background, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.box.Put(ctx, tx, records...)
		return err
	})
	require.NoError(s.b, err)
}

// drain relays n rows.
func (s *outboxSide) drain(n int) {
	want := s.box.Stats().Relayed + uint64(n)
	run, stop := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { done <- s.box.Run(run, s.log) }()
	for s.box.Stats().Relayed < want {
		select {
		case err := <-done:
			require.NoError(s.b, err)
		case <-time.After(100 * time.Microsecond):
		}
	}
	stop()
	require.ErrorIs(s.b, <-done, context.Canceled)
}

// deleteOnly is a relay without intents: it appends, and then deletes. Killed in
// between it appends again.
func (s *outboxSide) deleteOnly(n int) {
	for n > 0 {
		rows, err := s.db.Query(`SELECT id, schema, ts_ms, key, value FROM evlog_outbox ORDER BY id LIMIT ?1`, outboxBatch)
		require.NoError(s.b, err)
		var records []evlog.Record
		var first, last int64
		for rows.Next() {
			var r evlog.Record
			var ms int64
			require.NoError(s.b, rows.Scan(&last, &r.Schema, &ms, &r.Key, &r.Value))
			r.Time = time.UnixMilli(ms)
			if len(records) == 0 {
				first = last
			}
			records = append(records, r)
		}
		require.NoError(s.b, rows.Close())
		_, err = s.log.Append(background, records...)
		require.NoError(s.b, err)
		_, err = s.db.Exec(`DELETE FROM evlog_outbox WHERE id BETWEEN ?1 AND ?2`, first, last)
		require.NoError(s.b, err)
		n -= len(records)
	}
}

// OutboxRelay: rows that are queued are relayed, beside a relay that only
// deletes them afterwards, and so appends some twice when it is killed.
func BenchmarkOutboxRelay(b *testing.B) {
	const n = 100_000
	records := limit.Records(n, 200)
	x, byHand := newOutboxSide(b, true), newOutboxSide(b, false)
	turns.Take(b, limit.RecordSize(200),
		&turns.Side{Name: "evlog", Ops: n, Before: func() { x.fill(records) }, Run: x.drain},
		&turns.Side{Name: "limit", Ops: n, Before: func() { byHand.fill(records) }, Run: byHand.deleteOnly})
}

// OutboxLatency: from the application's commit, with Notify, to a follower of the
// log. The limit is one small write at the end of a file with its fdatasync; the
// relay has two to do, one of the intent and one of the log. The driver syncs the
// WAL by fsync, which it does by itself, or by fdatasync, as SQLite's usual builds
// on Linux do.
func BenchmarkOutboxLatency(b *testing.B) {
	for _, call := range []string{"fsync", "fdatasync"} {
		b.Run("wal="+call, func(b *testing.B) {
			was, err := sqlite.Fdatasync(call == "fdatasync")
			if err != nil {
				b.Skip(err)
			}
			defer func() { _, _ = sqlite.Fdatasync(was) }()
			outboxLatency(b)
		})
	}
}

func outboxLatency(b *testing.B) {
	records := limit.Records(100, 200)
	x := newOutboxSide(b, true)
	run, stop := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { done <- x.box.Run(run, x.log) }()
	b.Cleanup(func() {
		stop()
		<-done
	})
	follow, unfollow := context.WithCancel(background)
	seen := make(chan time.Time, 1)
	go func() {
		defer close(seen)
		for _, err := range x.log.Reader().Follow(follow, 0) {
			if err != nil {
				return
			}
			seen <- time.Now()
		}
	}()
	b.Cleanup(func() {
		unfollow()
		for range seen { // until it has ended
		}
	})
	at := 0
	one := func() time.Duration {
		time.Sleep(2 * time.Millisecond) // the relay has gone to sleep
		x.fill(records[at%len(records) : at%len(records)+1])
		committed := time.Now()
		at++
		return max(0, (<-seen).Sub(committed))
	}
	// Until the WAL has been used once, and is written over from now on, as in any
	// database that is in use.
	for range 400 {
		one()
	}
	const ops = 30
	evlogSide := &turns.Side{Name: "evlog", Ops: ops, ByLatency: true}
	evlogSide.Run = func(ops int) {
		for range ops {
			evlogSide.Lat = append(evlogSide.Lat, one())
		}
	}
	l := limit.New(b, b.TempDir(), 0)
	byHand := &turns.Side{Name: "limit", Ops: ops, ByLatency: true}
	byHand.Run = func(ops int) {
		for i := range ops {
			time.Sleep(2 * time.Millisecond)
			start := time.Now()
			l.Add(records[i])
			l.Write()
			l.Sync()
			byHand.Lat = append(byHand.Lat, time.Since(start))
		}
	}
	turns.Take(b, 0, evlogSide, byHand)
}

// OutboxCancel: from the cancelling of a relay in the middle of its work until
// another connection has the database's write lock. The limit is what a
// transaction that is on its way cannot do without: one sync.
func BenchmarkOutboxCancel(b *testing.B) {
	records := limit.Records(1000, 200)
	x := newOutboxSide(b, true)
	other, err := x.db.Conn(background)
	require.NoError(b, err)
	b.Cleanup(func() { _ = other.Close() })
	_, err = other.ExecContext(background, `PRAGMA busy_timeout = 0`)
	require.NoError(b, err)
	one := func(i int) time.Duration {
		run, stop := context.WithCancel(background)
		done := make(chan error, 1)
		go func() { done <- x.box.Run(run, x.log) }()
		x.fill(records)
		time.Sleep(time.Duration(i%10) * 300 * time.Microsecond)
		start := time.Now()
		stop()
		for err := errors.New("not yet"); err != nil; {
			_, err = other.ExecContext(background, `BEGIN IMMEDIATE`)
		}
		took := time.Since(start)
		_, err := other.ExecContext(background, `ROLLBACK`)
		require.NoError(b, err)
		<-done
		return took
	}
	const ops = 30
	evlogSide := &turns.Side{Name: "evlog", Ops: ops, ByLatency: true}
	evlogSide.Run = func(ops int) {
		for i := range ops {
			evlogSide.Lat = append(evlogSide.Lat, one(i))
		}
	}
	l := limit.New(b, b.TempDir(), 0)
	byHand := &turns.Side{Name: "limit", Ops: ops, ByLatency: true}
	byHand.Run = func(ops int) {
		for i := range ops {
			start := time.Now()
			l.Add(records[i])
			l.Write()
			l.Sync()
			byHand.Lat = append(byHand.Lat, time.Since(start))
		}
	}
	turns.Take(b, 0, evlogSide, byHand)
	b.ReportMetric(float64(slices.Max(evlogSide.Lat).Microseconds())/1000, "max-ms")
	b.ReportMetric(float64(slices.Max(byHand.Lat).Microseconds())/1000, "limit-max-ms")
}

// OutboxBacklog: a process is killed while it relays, with 10,000 rows before it.
// An operation is a row, from opening database and log again until the last one
// is durable; there is no lease to wait for.
func BenchmarkOutboxBacklog(b *testing.B) {
	const n = 10_000
	records := limit.Records(n, 200)
	x := newOutboxSide(b, true)
	require.NoError(b, x.log.Close())
	left := 0
	var took time.Duration
	s := &turns.Side{Name: "evlog", Ops: n}
	s.Before = func() {
		x.fill(records)
		require.NoError(b, x.db.Close())
		killRelay(b, x.path, x.dir)
		x.open()
	}
	s.Run = func(int) {
		start := time.Now()
		var err error
		x.log, err = evlog.Open(background, x.dir, &evlog.Options{OpenHook: x.box.Hook()})
		require.NoError(b, err)
		st, err := outbox.ReadStatus(background, x.db)
		require.NoError(b, err)
		left += st.Queued
		x.drain(st.Queued)
		took += time.Since(start)
		require.NoError(b, x.log.Close())
	}
	turns.Take(b, 0, s)
	b.ReportMetric(float64(left)/float64(b.N), "rows")
	b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "drain-ms")
}

func init() {
	children["outbox"] = func(args []string) error {
		db, err := sql.Open("sqlite", "file:"+args[0]+"?_pragma=busy_timeout(5000)")
		if err != nil {
			return err
		}
		box, err := outbox.Open(background, db, &outbox.Options{BatchRows: 100})
		if err != nil {
			return err
		}
		log, err := evlog.Open(background, args[1], &evlog.Options{OpenHook: box.Hook()})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		return errors.Join(box.Run(background, log), log.Close())
	}
}

// killRelay has another process relay, and kills it a moment after it began.
func killRelay(b testing.TB, db, log string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], filepath.ToSlash(db), log)
	cmd.Env = append(os.Environ(), childEnv+"=outbox")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	time.Sleep(5 * time.Millisecond)
	require.NoError(b, cmd.Process.Kill())
	_ = cmd.Wait()
}
