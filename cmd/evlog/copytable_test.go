package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqldb"
	"github.com/evlog-go/evlog/sqlbridge"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

// openTable opens a log in a table, whose database it creates.
func openTable(path, table string) (*sql.DB, *tablelog.Log, error) {
	db, err := sql.Open("sqlite", dsn(path, "rwc")+"&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, nil, err
	}
	l, err := tablelog.Open(context.Background(), db, &tablelog.Options{Table: table})
	return db, l, err
}

// tableRecord is unlike that of any other offset, and every third is not text.
func tableRecord(offset uint64) evlog.Record {
	r := evlog.Record{Offset: offset, Time: time.UnixMilli(int64(offset)*1000 - 5000), Schema: uint16(offset % 3)}
	switch offset % 4 {
	case 0:
		r.Key, r.Value = fmt.Appendf(nil, "k%d", offset), fmt.Appendf(nil, `{"n":%d}`, offset)
	case 1:
		r.Value = fmt.Appendf(nil, "\xff\x00%d\n", offset)
	case 2:
		r.Key = fmt.Appendf(nil, "\xfe%d", offset) // a tombstone
	}
	return r
}

// cmdTable appends records to a log in a table, removes those below an offset and
// leaves a hole up to another one, 0 for none: table DB TABLE BELOW NEXT OFFSET...
func cmdTable(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	db, l, err := openTable(ts.MkAbs(args[0]), args[1])
	ts.Check(err)
	defer db.Close()
	for _, arg := range args[4:] {
		ts.Check(l.AppendExact(ctx, tableRecord(uint64(position(ts, arg, 0)))))
	}
	if next := position(ts, args[3], 0); next > 0 {
		ts.Check(l.SkipTo(ctx, uint64(next)))
	}
	ts.Check(l.RemoveBelow(ctx, uint64(position(ts, args[2], 0))))
}

// A consumer of an application that has begun with a table goes on with the log
// of files, and applies each record once.
func TestCopyTable_Consumer(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx := t.Context()
	db, table, err := openTable("app.sqlite", tablelog.DefaultTable)
	require.NoError(t, err)
	defer db.Close()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	require.NoError(t, err)
	var got []uint64
	consume := func(l cursor.Log, until uint64) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		err := bridge.Run(ctx, l, "totals", func(_ context.Context, _ *sqlbridge.Tx, r evlog.Record) error {
			if got = append(got, r.Offset); r.Offset == until {
				stop()
			}
			return nil
		}, nil)
		require.ErrorIs(t, err, context.Canceled)
	}
	for o := range uint64(5) {
		require.NoError(t, table.AppendExact(ctx, tableRecord(o)))
	}
	consume(table, 4)
	require.NoError(t, table.AppendExact(ctx, tableRecord(7)))
	require.Zero(t, run(ctx, []string{"append", "events", "--from-table", "app.sqlite", "-q"}, nil, io.Discard, io.Discard))
	log, err := evlog.Open(ctx, "events", nil)
	require.NoError(t, err)
	offset, err := log.Append(ctx, tableRecord(0))
	require.NoError(t, err)
	require.EqualValues(t, 8, offset)
	consume(log.Reader(), 8)
	require.NoError(t, log.Close())
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 7, 8}, got)
}

const manyRecords = 5 * copyRecords

// killInTheMiddle kills a command up to three times when it has moved next forward,
// and then lets it finish. On a busy machine it may get to the end before that.
func killInTheMiddle(t *testing.T, next func() uint64, args ...string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	start := func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Args = append([]string{"evlog"}, args...)
		require.NoError(t, cmd.Start())
		return cmd
	}
	for killed := 0; killed < 3; killed++ {
		before := next()
		cmd := start()
		deadline := time.Now().Add(patience)
		for next() <= before && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // by that, mostly
		after := next()
		require.Greater(t, after, before)
		if after == manyRecords {
			t.Logf("not interrupted from %d on", before)
			break
		}
	}
	require.NoError(t, start().Wait())
}

func requireMany(t *testing.T, l cursor.Log) {
	t.Helper()
	o := uint64(0)
	for r, err := range l.Records(t.Context(), 0) {
		require.NoError(t, err)
		require.True(t, r.Equal(tableRecord(o)), "%v %v", r, tableRecord(o))
		o++
	}
	require.EqualValues(t, manyRecords, o)
}

func TestCopyTable_Killed(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx := t.Context()
	db, table, err := openTable("app.sqlite", tablelog.DefaultTable)
	require.NoError(t, err)
	records := make([]evlog.Record, manyRecords)
	for i := range records {
		records[i] = tableRecord(uint64(i))
	}
	require.NoError(t, table.AppendExact(ctx, records...))
	require.NoError(t, db.Close())

	killInTheMiddle(t, func() uint64 {
		r, err := evlog.OpenReader(ctx, "events", nil)
		if err != nil {
			return 0 // not yet
		}
		defer r.Close()
		_, next, err := r.Bounds(ctx)
		require.NoError(t, err)
		return next
	}, "append", "events", "--from-table", "app.sqlite", "--segment-bytes", "64K")
	r, err := evlog.OpenReader(ctx, "events", nil)
	require.NoError(t, err)
	defer r.Close()
	requireMany(t, r)
	report, err := evlog.Verify(ctx, "events", nil)
	require.NoError(t, err)
	require.True(t, report.OK())

	db, err = sql.Open("sqlite", dsn("copy.sqlite", "rwc"))
	require.NoError(t, err)
	defer db.Close()
	killInTheMiddle(t, func() uint64 {
		l, err := tablelog.Open(ctx, db, &tablelog.Options{MustExist: true})
		if err != nil {
			return 0 // not yet, or locked
		}
		_, next, err := l.Bounds(ctx)
		if sqldb.IsBusy(err) {
			return 0
		}
		require.NoError(t, err)
		return next
	}, "cat", "events", "--to-table", "copy.sqlite")
	copied, err := tablelog.Open(ctx, db, nil)
	require.NoError(t, err)
	require.Equal(t, table.ID(), copied.ID())
	requireMany(t, copied)
}
