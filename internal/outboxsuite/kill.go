package outboxsuite

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/outbox"
)

// runKill has a process write, relay, and append to the log beside the relay,
// and kills it at random, again and again: 300 times with EVLOG_SOAK=1, 6 by
// default. At the end the rows that its transactions have left and the events in
// the log tell the same story.
func runKill(t *testing.T, driver string, m Mode) {
	kills := max(6, evtest.Count(300))
	seed := killSeed(t)
	rng := evtest.Rand(seed)
	dir := t.TempDir()
	path, log := filepath.Join(dir, "app.db"), filepath.Join(dir, "log")
	dsn := m.dsn(path, 5000)
	amid := 0
	for range kills {
		delay := time.Duration(rng.Int64N(int64(250 * time.Millisecond)))
		if rng.IntN(2) == 0 {
			delay /= 5
		}
		require.NoError(t, runChild(t.Context(), delay, log, dsn, strconv.FormatUint(rng.Uint64(), 10)))
		if n, err := queued(driver, dsn); err == nil && n > 0 {
			amid++
		}
	}
	rows, others, err := settle(t.Context(), driver, dsn, log)
	require.NoError(t, err)
	t.Logf("%d kills, %d of them with rows in the outbox; %d rows, %d records of others", kills, amid, rows, others)
}

func killSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano()) % 1_000_000_000
	if s, err := strconv.ParseUint(os.Getenv("EVLOG_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("run again with EVLOG_SEED=%d", seed)
	return seed
}

func queued(driver, dsn string) (n int, err error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := outbox.ReadStatus(context.Background(), db)
	return s.Queued, err
}

// runChild starts a process and kills it so long after it is ready.
func runChild(ctx context.Context, delay time.Duration, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	ready, _ := bufio.NewReader(out).ReadString('\n')
	time.Sleep(delay)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if stderr.Len() > 0 || ready != "ready\n" {
		return fmt.Errorf("the process failed: %s", stderr.String())
	}
	return nil
}

// killChild is that process.
func killChild(driver string, args []string) error {
	log, dsn := args[0], args[1]
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	rng := evtest.Rand(seed)
	ctx := context.Background()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS effect (n INTEGER PRIMARY KEY) STRICT`)
	if err != nil {
		return err
	}
	box, err := outbox.Open(ctx, db, &outbox.Options{BatchRows: 1 + rng.IntN(50)})
	if err != nil {
		return err
	}
	l, err := evlog.Open(ctx, log, &evlog.Options{OpenHook: box.Hook(), SegmentBytes: 16 << 10})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	errs := make(chan error, 3)
	go func() { errs <- box.Run(ctx, l) }()
	go func() { errs <- beside(ctx, l) }()
	go func() { errs <- transactions(ctx, box, rng) }()
	return <-errs
}

const beside0 = "beside"

func beside(ctx context.Context, l *evlog.Log) error {
	for {
		if _, err := l.Append(ctx, evlog.Record{Value: []byte(beside0)}); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// transactions writes rows and their events, and rolls back every fifth time.
func transactions(ctx context.Context, box *outbox.Box, rng *rand.Rand) error {
	back := errors.New("rolled back")
	for {
		err := box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for range 1 + rng.IntN(20) {
				var n int64
				err := tx.QueryRowContext(ctx, `INSERT INTO effect DEFAULT VALUES RETURNING n`).Scan(&n)
				if err == nil {
					_, err = box.Put(ctx, tx, evlog.Record{Key: []byte("effect"), Value: strconv.AppendInt(nil, n, 10)})
				}
				if err != nil {
					return err
				}
			}
			if rng.IntN(5) == 0 {
				return back
			}
			return nil
		})
		if err != nil && !errors.Is(err, back) {
			return err
		}
	}
}

// settle relays what is left, and compares the log with the rows.
func settle(ctx context.Context, driver, dsn, log string) (rows, others int, err error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	box, err := outbox.Open(ctx, db, nil)
	if err != nil {
		return 0, 0, err
	}
	l, err := evlog.Open(ctx, log, &evlog.Options{OpenHook: box.Hook(), Verify: evlog.VerifyAll})
	if err != nil {
		return 0, 0, err
	}
	var wg sync.WaitGroup
	run, stop := context.WithCancel(ctx)
	wg.Go(func() { _ = box.Run(run, l) })
	for s := (outbox.Status{Queued: 1}); s.Queued > 0 && err == nil; time.Sleep(time.Millisecond) {
		s, err = outbox.ReadStatus(ctx, db)
	}
	stop()
	wg.Wait()
	var got []string
	for r, e := range l.Reader().Records(ctx, 0) {
		switch err = errors.Join(err, e); {
		case e != nil:
		case string(r.Value) == beside0:
			others++
		default:
			got = append(got, string(r.Value))
		}
	}
	want, e := effects(ctx, db)
	if err = errors.Join(err, e, l.Close()); err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("the log has %d events, %d were committed; the first that differs is number %d", len(got), len(want), differs(got, want))
	}
	return len(want), others, err
}

func effects(ctx context.Context, db *sql.DB) (all []string, err error) {
	rows, err := db.QueryContext(ctx, `SELECT n FROM effect ORDER BY n`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, strconv.FormatInt(n, 10))
	}
	return all, rows.Err()
}

func differs(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
