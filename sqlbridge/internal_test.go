package sqlbridge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// The versions that can lose what was committed in WAL mode.
func TestVersion_LosesCommits(t *testing.T) {
	for v, want := range map[string]bool{
		"3.37.0": true, "3.44.5": true, "3.44.6": false, "3.45.0": true, "3.50.6": true, "3.50.7": false,
		"3.50.10": false, "3.51.0": true, "3.51.2": true, "3.51.3": false, "3.52.0": false, "3.54.1": false, "4.0.0": false,
	} {
		require.Equal(t, want, sqldb.ParseVersion(v).LosesCommits(), v)
		r := Report{Version: v, JournalMode: "wal", Synchronous: "FULL", BusyTimeout: 1}
		r.judge()
		require.Equal(t, want, len(r.Unsafe) > 0, v)
		r = Report{Version: v, JournalMode: "delete", Synchronous: "FULL", BusyTimeout: 1}
		r.judge()
		require.Empty(t, r.Unsafe, v)
	}
	require.ErrorIs(t, (&Report{Version: "3.36.0", JournalMode: "wal"}).usable(), ErrUnsafe)
	require.NoError(t, (&Report{Version: "3.37.0", JournalMode: "wal"}).usable())
}

// What is not surely harmless is looked at: the other way round would be wrong.
func TestKindOf(t *testing.T) {
	for text, want := range map[string]kind{
		"INSERT INTO t VALUES (1)":                 writes,
		"\n\t insert into t values (1) ; ":         writes,
		"WITH x AS (SELECT 1) DELETE FROM t":       writes,
		"SELECT(1)":                                reads,
		"REPLACE INTO t VALUES (1)":                writes,
		"-- name: Add :exec\nUPDATE t SET x = 1":   writes,
		"--\n--\nDELETE FROM t":                    writes,
		"INSERT INTO t VALUES (1);;  \n ;":         writes,
		"COMMIT":                                   control,
		"commit;":                                  control,
		"  end":                                    control,
		"-- a comment\nEnd Transaction ;":          control,
		"BEGIN":                                    control,
		"begin immediate":                          control,
		"ROLLBACK":                                 control,
		"ROLLBACK TRANSACTION":                     control,
		"ROLLBACK TO x":                            odd,
		"rollback transaction to savepoint x":      odd,
		"ROLLBACK; SELECT 1":                       odd,
		"RELEASE x":                                odd,
		"PRAGMA user_version = 1":                  odd,
		"INSERT INTO t VALUES (1); COMMIT":         odd,
		"INSERT INTO t VALUES (';')":               odd,
		"/* a comment */ INSERT INTO t VALUES (1)": odd,
		"/* a comment */ COMMIT":                   odd,
		"-- INSERT\nCOMMIT":                        control,
		"-- INSERT":                                odd,
		"":                                         odd,
		";":                                        odd,
		"INSERTS":                                  odd,
		"EXPLAIN COMMIT":                           odd,
		"SELECT 1;\n-- and now\nROLLBACK":          odd,
		"INSERT INTO t VALUES (1) -- ; \n; ROLLBACK": odd,
	} {
		require.Equal(t, want, kindOf(text), "%q", text)
		require.Equal(t, want == writes || want == reads, want.harmless())
	}
}

// Errors say whose they are, once.
func TestWrap(t *testing.T) {
	require.NoError(t, wrap("x", "me", nil))
	require.EqualError(t, wrap("claim", "me", errors.New("disk I/O error")), `sqlbridge: claim for consumer "me": disk I/O error`)
	require.EqualError(t, wrap("claim", "me", &CommittedError{Name: "me", From: 3, To: 9, Under: 9}),
		`sqlbridge: claim: consumer "me": a handler committed part of a batch by itself: offsets 3 to 8 are applied in part`)
	require.EqualError(t, &CommittedError{Name: "me", From: 3, To: 9, Under: 5},
		`consumer "me": a handler committed part of a batch by itself: offsets 3 to 8 are applied in part, noticed under 5`)
	require.ErrorIs(t, wrap("claim", "me", &CommittedError{}), ErrCommitted)
}

// A feed hands out everything once, whatever its bounds are, and what it hands
// out stays as it is until the next batch is taken.
func TestFeed(t *testing.T) {
	const n = 1000
	records := func(yield func(evlog.Record, error) bool) {
		buf := make([]byte, 0, 100) // one buffer, as a log has it
		for i := range n {
			buf = fmt.Appendf(buf[:0], "value %d", i)
			rec := evlog.Record{Offset: uint64(i), Value: buf}
			if i%3 == 0 {
				rec.Key = buf[:3]
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
	b := newBridge(t.Context(), nil, nil)
	for _, o := range []RunOptions{
		{BatchRecords: 1, BatchBytes: 1 << 20},
		{BatchRecords: 7, BatchBytes: 1 << 20},
		{BatchRecords: n + 1, BatchBytes: 40},
		{BatchRecords: n + 1, BatchBytes: 1 << 20, BatchDelay: 1},
	} {
		f := b.newFeed(o)
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.fill(t.Context(), records)
		}()
		seen := 0
		for {
			recs, err := f.take(t.Context())
			require.NoError(t, err)
			if recs == nil {
				break
			}
			require.LessOrEqual(t, len(recs), o.BatchRecords+readAhead)
			for _, r := range recs {
				require.EqualValues(t, seen, r.Offset)
				require.Equal(t, fmt.Sprintf("value %d", seen), string(r.Value))
				require.Equal(t, seen%3 == 0, r.Key != nil)
				seen++
			}
		}
		<-done
		require.Equal(t, n, seen)
	}
}

// An error of the log comes after what was read before it.
func TestFeed_Error(t *testing.T) {
	broken := errors.New("broken")
	b := newBridge(t.Context(), nil, nil)
	f := b.newFeed(RunOptions{BatchRecords: 10, BatchBytes: 100})
	f.fill(t.Context(), iter.Seq2[evlog.Record, error](func(yield func(evlog.Record, error) bool) {
		_ = yield(evlog.Record{Offset: 1}, nil) && yield(evlog.Record{}, broken)
	}))
	recs, err := f.take(t.Context())
	require.NoError(t, err)
	require.Len(t, recs, 1)
	_, err = f.take(t.Context())
	require.Equal(t, broken, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.newFeed(RunOptions{BatchRecords: 1}).take(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
