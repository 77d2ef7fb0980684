package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// Eight goroutines query a log, through its writer's connector and through one of
// another reader, while it is appended to, rolled, compacted, and loses its old end.
// Each record has its offset as its value, so that whatever is seen can be checked.
func TestConcurrent(t *testing.T) {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 1000, IndexBytes: 200, Sync: evlog.SyncFlush})
	require.NoError(t, err)
	own, err := sqldriver.NewLogConnector(p.ctx, l)
	require.NoError(t, err)
	dbs := []*sql.DB{sql.OpenDB(own), p.open(t, "")}

	ctx, cancel := context.WithTimeout(p.ctx, time.Duration(evtest.Count(60_000))*time.Millisecond+time.Second)
	defer cancel()
	var acked atomic.Int64 // records that are acknowledged
	var wg, queries sync.WaitGroup
	wg.Go(func() {
		for n := int64(0); ctx.Err() == nil; n++ {
			first, err := l.Append(ctx, evlog.Record{Time: at(n), Key: keyOf(n), Value: fmt.Append(nil, n)})
			if ctx.Err() != nil {
				return
			}
			if err != nil || first != uint64(n) {
				t.Error("append", first, err)
				return
			}
			acked.Store(n + 1)
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := l.Compact(ctx, &evlog.CompactOptions{MinLag: -1}); err != nil && ctx.Err() == nil {
				t.Error("compact", err)
			}
			if _, err := l.Retain(ctx, &evlog.RetainOptions{MaxRecords: 60}); err != nil && ctx.Err() == nil {
				t.Error("retain", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	var asked, overtaken atomic.Int64
	for g := range 8 {
		queries.Go(func() {
			rng := evtest.Rand(uint64(time.Now().UnixNano()) + uint64(g))
			for ctx.Err() == nil {
				err := askOnce(ctx, dbs[g%2], acked.Load(), rng.IntN(kindsOfQuestion), rng.Int64N(acked.Load()+1))
				switch {
				case ctx.Err() != nil:
				case errors.Is(err, evlog.ErrOffsetOutOfRange):
					overtaken.Add(1)
				case err != nil:
					t.Error(err)
					return
				default:
					asked.Add(1)
				}
			}
		})
	}
	queries.Wait()
	wg.Wait()
	require.Positive(t, asked.Load())
	require.NoError(t, dbs[0].Close())
	require.NoError(t, l.Close())
	t.Logf("%d answers, %d overtaken by retention, %d records", asked.Load(), overtaken.Load(), acked.Load())
}

// keyOf is nil for every other record: compaction leaves those alone, so the
// newest of them is there whenever it was acknowledged.
func keyOf(n int64) []byte {
	if n%2 == 0 {
		return nil
	}
	return fmt.Appendf(nil, "key-%d", n%17)
}

const kindsOfQuestion = 11

// askOnce asks one question when at least acked records are there, and checks the
// answer.
func askOnce(ctx context.Context, db *sql.DB, acked int64, which int, at int64) error {
	q, args := `SELECT offset, value FROM log`, []any{}
	last := (acked - 1) &^ 1
	switch which {
	case 0:
		q += ` WHERE offset >= ? LIMIT 50`
		args, last = append(args, at), -1
	case 1:
		q += ` WHERE offset <= ? ORDER BY offset DESC LIMIT 50`
		args, last = append(args, at), -1
	case 2:
		q += ` WHERE ts_ms BETWEEN ? AND ? + 20`
		args, last = append(args, at, at), -1
	case 3:
		q += ` WHERE key = ?`
		args, last = append(args, fmt.Sprintf("key-%d", at%17)), -1
	case 4:
		q += ` a WHERE offset = (SELECT max(offset) FROM log WHERE key IS NULL) AND EXISTS (SELECT 1 FROM log b WHERE b.offset = a.offset)`
	case 5: // all of it, the last one included
	case 6: // from here on in any order
		q += ` WHERE offset IN (?, ? + 2, (SELECT max(offset) FROM log WHERE key IS NULL))`
		args = append(args, at, at)
	case 7:
		q += ` WHERE key IN (?, 'key-3') AND offset >= ?`
		args, last = append(args, fmt.Sprintf("key-%d", at%17), at), -1
	case 8:
		q += ` WHERE segment IN (SELECT max(base) FROM segments WHERE records > 0) OR segment = ? OR key IS NULL`
		args = append(args, at)
	case 9:
		q += ` WHERE offset >= (SELECT min(segment) FROM log) AND segment <= offset`
	case 10:
		q += ` WHERE (SELECT sum(records) FROM segments) > 0 AND (SELECT count(*) FROM consumers) = 0`
	}
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return fmt.Errorf("%s %v: %w", q, args, err)
	}
	defer rows.Close()
	seen, previous, n := int64(-1), int64(-1), 0
	for rows.Next() {
		var offset int64
		var value string
		if err := rows.Scan(&offset, &value); err != nil {
			return err
		}
		if value != fmt.Sprint(offset) {
			return fmt.Errorf("%s %v: offset %d has value %s", q, args, offset, value)
		}
		if n > 0 && which < 6 && (which == 1) != (offset < previous) {
			return fmt.Errorf("%s %v: offset %d after %d", q, args, offset, previous)
		}
		seen, previous = max(seen, offset), offset
		n++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s %v: %w", q, args, err)
	}
	if seen < last {
		return fmt.Errorf("%s %v: %d was acknowledged, %d is the last one seen", q, args, last, seen)
	}
	return nil
}
