package sqlsuite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/sqlbridge"
	"github.com/evlog-go/evlog/testdata/events"
)

const (
	killRecords = 20_000
	killStream  = "edits_seph_blog1"
)

// runKill has a process apply recorded events, and kills it at random, again
// and again: 200 times with EVLOG_SOAK=1, 10 times by default. After each time
// the effects are exactly those of the records below the cursor, once each.
func runKill(t *testing.T, d Driver, m Mode) {
	log := killLog(t)
	kills := max(10, evtest.Count(200))
	rounds, amid := 0, 0
	seed := newSeed(t)
	rng := evtest.Rand(seed)
	for killed := 0; killed < kills; rounds++ {
		k, in := killRound(t, d, m, log, rng, kills-killed)
		killed += k
		amid += in
	}
	require.Positive(t, amid, "no process was killed while it applied records")
	t.Logf("%d kills, %d of them while records were applied, in %d rounds of %d records", kills, amid, rounds, killRecords)
}

// killLog is the log that the processes read.
func killLog(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	l, err := evlog.Open(t.Context(), dir, &evlog.Options{Sync: evlog.SyncFlush})
	require.NoError(t, err)
	n := 0
	for e, err := range events.All(killStream) {
		require.NoError(t, err)
		_, err := l.Enqueue(t.Context(), evlog.Record{Time: e.Time, Key: e.Key, Value: e.Value})
		require.NoError(t, err)
		if n++; n == killRecords {
			break
		}
	}
	require.NoError(t, l.Close())
	return dir
}

// killRound goes through the log once, killing up to limit processes, and
// returns how many it killed, and how many of them before the last record and
// after the first.
func killRound(t *testing.T, d Driver, m Mode, log string, rng *rand.Rand, limit int) (killed, amid int) {
	dsn := m.dsn(filepath.Join(t.TempDir(), "app.db"), 5000)
	db, err := sql.Open(d.Name, dsn)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	// Half of the processes are killed early, so that one round takes many.
	for {
		delay := time.Duration(rng.Int64N(int64(400 * time.Millisecond)))
		if rng.IntN(2) == 0 {
			delay /= 10
		}
		if killed == limit {
			delay = time.Minute
		}
		done, err := runChild(t.Context(), delay, log, dsn, strconv.FormatUint(rng.Uint64(), 10))
		require.NoError(t, err)
		next, err := appliedOnce(db)
		require.NoError(t, err, "after %d kills", killed)
		if done {
			require.EqualValues(t, killRecords, next)
			require.NoError(t, sameAsLog(t.Context(), db, log))
			return killed, amid
		}
		killed++
		if next > 0 && next < killRecords {
			amid++
		}
	}
}

// runChild starts a process and kills it so long after it is ready. done says
// that it was quicker.
func runChild(ctx context.Context, delay time.Duration, args ...string) (done bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return false, err
	}
	ready, _ := bufio.NewReader(out).ReadString('\n')
	timer := time.AfterFunc(delay, cancel) // which kills it
	err = cmd.Wait()
	killed := !timer.Stop()
	switch {
	case stderr.Len() > 0, err != nil && !killed, err == nil && ready != "ready\n":
		return false, fmt.Errorf("the process failed: %w: %s", err, stderr.String())
	}
	return err == nil, nil
}

// applyChild applies the log, in batches of a random size, until it is killed.
func applyChild(d Driver, args []string) (err error) {
	log, dsn := args[0], args[1]
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	rng := evtest.Rand(seed)
	ctx := context.Background()
	r, err := evlog.OpenReader(ctx, log, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	db, err := sql.Open(d.Name, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	b, err := sqlbridge.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	for _, query := range []string{
		`CREATE TABLE IF NOT EXISTS effect (offset INTEGER PRIMARY KEY, n INTEGER NOT NULL, key BLOB, value BLOB) STRICT`,
		`CREATE TABLE IF NOT EXISTS total (one INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT`,
		`INSERT INTO total (one, n) VALUES (1, 0) ON CONFLICT DO NOTHING`,
	} {
		if _, err := db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return b.Run(ctx, r, consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if _, err := tx.ExecContext(ctx, `UPDATE total SET n = n + 1`); err != nil {
			return err
		}
		return apply(ctx, tx, rec)
	}, &sqlbridge.RunOptions{UntilEnd: true, BatchRecords: 1 + rng.IntN(400), Poison: sqlbridge.Poison(rng.IntN(2))})
}

// appliedOnce tests that what lies below the cursor was applied once and the
// rest not at all.
func appliedOnce(db *sql.DB) (next int64, err error) {
	err = db.QueryRow(`SELECT coalesce((SELECT next FROM evlog_cursor WHERE name = ?1), 0)`, consumer).Scan(&next)
	if err != nil {
		if strings.Contains(err.Error(), "no such table") {
			err = nil // killed before it had created them
		}
		return 0, err
	}
	var rows, sum, lowest, highest, total int64
	err = db.QueryRow(`SELECT count(*), coalesce(sum(n), 0), coalesce(min(offset), 0), coalesce(max(offset), -1),
		coalesce((SELECT n FROM total), 0) FROM effect`).Scan(&rows, &sum, &lowest, &highest, &total)
	if err != nil && strings.Contains(err.Error(), "no such table") && next == 0 {
		return 0, nil
	}
	if err == nil && (rows != next || sum != next || total != next || lowest != 0 || highest != next-1) {
		err = fmt.Errorf("cursor %d, but %d records [%d, %d] applied %d times, counted %d", next, rows, lowest, highest, sum, total)
	}
	return next, err
}

// sameAsLog compares the effects with the log, byte by byte.
func sameAsLog(ctx context.Context, db *sql.DB, log string) error {
	r, err := evlog.OpenReader(ctx, log, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	rows, err := db.QueryContext(ctx, `SELECT offset, key, value FROM effect ORDER BY offset`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rec, err := range r.Records(ctx, 0) {
		if err != nil {
			return err
		}
		var offset uint64
		var key, value sql.RawBytes
		if !rows.Next() {
			return fmt.Errorf("no effect of record %d", rec.Offset)
		}
		if err := rows.Scan(&offset, &key, &value); err != nil {
			return err
		}
		if offset != rec.Offset || string(key) != string(rec.Key) || string(value) != string(rec.Value) {
			return fmt.Errorf("the effect of record %d is not what the log has", rec.Offset)
		}
		n++
	}
	if n != killRecords || rows.Next() {
		return fmt.Errorf("%d records, and more effects: %w", n, rows.Err())
	}
	return rows.Err()
}
