package cursor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func init() {
	children["committer"] = committerChild
	children["stepper"] = stepperChild
}

// committerChild commits DIR NAME N times, each time one further.
func committerChild(args []string) error {
	ctx := context.Background()
	f, err := cursor.OpenFile(ctx, args[0], nil)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	for at := range n {
		if err := f.Commit(ctx, args[1], at, at+1); err != nil {
			return err
		}
	}
	return f.Close()
}

// stepperChild commits under DIR NAME, one further each time, until it has won
// N times, and counts how often another one was faster. It prints both.
func stepperChild(args []string) error {
	ctx := context.Background()
	f, err := cursor.OpenFile(ctx, args[0], nil)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	won, lost := 0, 0
	var at uint64
	for won < n {
		err := f.Commit(ctx, args[1], at, at+1)
		var moved *cursor.MovedError
		switch {
		case err == nil:
			won++
			at++
		case errors.As(err, &moved):
			lost++
			at = moved.Stored
		default:
			return err
		}
	}
	fmt.Println(won, lost)
	return f.Close()
}

func diskLog(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l, err := evlog.Open(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return path
}

// Eight processes commit under names of their own: no update is lost, and a
// reader that polls meanwhile never sees a torn file or anybody go backwards.
func TestFile_EightProcesses(t *testing.T) {
	const processes = 8
	commits := max(100, evtest.Count(1000))
	path := diskLog(t)
	ctx := t.Context()
	began := time.Now()
	ended := make(chan error, processes)
	for i := range processes {
		cmd := child(t, "committer", path, fmt.Sprint("c", i), strconv.Itoa(commits))
		require.NoError(t, cmd.Start())
		go func() { ended <- cmd.Wait() }()
	}
	f := openFile(t, ctx, path)
	last := map[string]uint64{}
	reads := 0
	for left := processes; left > 0; {
		select {
		case err := <-ended:
			require.NoError(t, err)
			left--
		default:
		}
		all, err := f.List(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(all), len(last))
		for _, p := range all {
			require.GreaterOrEqual(t, p.Next, last[p.Name])
			last[p.Name] = p.Next
		}
		reads++
	}
	took := time.Since(began)
	for i := range processes {
		require.EqualValues(t, commits, standsAt(t, ctx, f, fmt.Sprint("c", i)))
	}
	t.Logf("%d processes, %d commits each in %v (%.2f ms a commit), %d reads meanwhile",
		processes, commits, took, took.Seconds()*1000/float64(processes*commits), reads)
	left, err := filepath.Glob(filepath.Join(path, "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Four processes under one name: each step is made by exactly one of them.
func TestFile_ProcessesUnderOneName(t *testing.T) {
	const processes, wins = 4, 100
	path := diskLog(t)
	outs := make([]bytes.Buffer, processes)
	ended := make(chan error, processes)
	for i := range processes {
		cmd := child(t, "stepper", path, "one", strconv.Itoa(wins))
		cmd.Stdout = &outs[i]
		require.NoError(t, cmd.Start())
		go func() { ended <- cmd.Wait() }()
	}
	for range processes {
		require.NoError(t, <-ended)
	}
	require.EqualValues(t, processes*wins, standsAt(t, t.Context(), openFile(t, t.Context(), path), "one"))
	for i := range outs {
		t.Logf("process %d won and lost: %s", i, outs[i].String())
	}
}

// A process that is killed while it commits leaves the old position or the new
// one, and no lock.
func TestFile_KilledWhileCommitting(t *testing.T) {
	path := diskLog(t)
	ctx := t.Context()
	f := openFile(t, ctx, path)
	for range max(5, evtest.Count(200)) {
		cmd := child(t, "committer", path, "a", "1000000")
		cmd.Stderr = nil
		require.NoError(t, f.Commit(ctx, "b", 0, 0))
		if err := f.Remove(ctx, "a"); err != nil {
			require.ErrorIs(t, err, cursor.ErrUnknownConsumer)
		}
		require.NoError(t, cmd.Start())
		var p cursor.Position
		require.Eventually(t, func() bool {
			p, _ = f.Load(ctx, "a")
			return p.Next > 3
		}, 20*time.Second, time.Microsecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		after := standsAt(t, ctx, f, "a")
		require.GreaterOrEqual(t, after, p.Next)
		require.NoError(t, f.Commit(ctx, "a", after, after+1), "the lock died with its process")
	}
	_, err := os.Stat(filepath.Join(path, "consumers.json.tmp"))
	require.ErrorIs(t, err, os.ErrNotExist, "the next commit took it away")
}
