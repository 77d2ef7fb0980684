package sqldriver_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

const childEnv = "EVLOG_TEST_CHILD"

// insertChild inserts transactions of 1 to 50 records into the log in dir until
// it is killed: the number of the transaction is the key, that of the row and the
// last row's the value. It prints a line when one begins to commit and when it has
// committed, and rolls every fourth one back.
func insertChild(dir string, out io.Writer) error {
	ctx := context.Background()
	db, err := sql.Open("evlog", dir+"?mode=rwc")
	if err != nil {
		return err
	}
	rng := evtest.Rand(uint64(time.Now().UnixNano()))
	for i := time.Now().UnixNano(); ; i++ {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		n := 1 + rng.IntN(50)
		for row := range n {
			_, err := tx.ExecContext(ctx, `INSERT INTO log (key, value) VALUES (?, ?)`, fmt.Sprint(i), fmt.Sprintf("%d of %d", row+1, n))
			if err != nil {
				return err
			}
		}
		if rng.IntN(4) == 0 {
			fmt.Fprintln(out, "rollback", i)
			if err := tx.Rollback(); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(out, "commit", i)
		if err := tx.Commit(); err != nil {
			return err
		}
		fmt.Fprintln(out, "done", i, n)
	}
}

// A process that inserts is killed at random. What was committed is there and
// whole; of a transaction that was committing, the beginning may be there; of one
// that was open or rolled back, nothing.
func TestInsert_Killed(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	p := place{t.Context(), filepath.Join(t.TempDir(), "log")}
	rng := evtest.Rand(uint64(time.Now().UnixNano()))
	committed := map[string]string{} // number of rows
	for range evtest.Count(300) + 4 {
		cmd := exec.CommandContext(t.Context(), self, p.dir)
		cmd.Env = append(os.Environ(), childEnv+"=insert")
		cmd.Stderr = os.Stderr
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		in := bufio.NewScanner(stdout)
		var timer *time.Timer
		last := ""
		for in.Scan() {
			if timer == nil {
				timer = time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
			word := strings.Fields(in.Text())
			last = word[0] + " " + word[1]
			if word[0] == "done" {
				committed[word[1]] = word[2]
			}
		}
		require.Error(t, cmd.Wait(), "it was killed")
		checkKilled(t, p, committed, last)
	}
	require.NotEmpty(t, committed)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.True(t, rep.OK(), "%+v", rep.Problems)
}

func checkKilled(t *testing.T, p place, committed map[string]string, last string) {
	t.Helper()
	// Opening for writing recovers what was written and not yet published.
	db, err := sql.Open("evlog", p.dir+"?mode=rw")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	rows, err := db.QueryContext(p.ctx, `SELECT key, count(*), min(value), max(offset) - min(offset) + 1,
		sum(CAST(value AS INTEGER)), substr(max(value), instr(max(value), 'of') + 3) FROM log GROUP BY key`)
	require.NoError(t, err)
	defer rows.Close()
	there, known := 0, len(committed)
	for rows.Next() {
		var key, first, of string
		var n, width, sum int
		require.NoError(t, rows.Scan(&key, &n, &first, &width, &sum, &of))
		require.Equal(t, n, width, "transaction %s is contiguous", key)
		require.Equal(t, n*(n+1)/2, sum, "transaction %s is a beginning of itself", key)
		if rowsOf, ok := committed[key]; ok {
			there++
			require.Equal(t, rowsOf, fmt.Sprint(n), "transaction %s was committed", key)
			require.Equal(t, rowsOf, of)
			continue
		}
		// It may have been committed without having said so, or in part.
		require.Equal(t, last, "commit "+key, "transaction %s was not committed, and %d rows of %s are there", key, n, of)
		committed[key] = fmt.Sprint(n)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, known, there, "transactions that were committed")
}
