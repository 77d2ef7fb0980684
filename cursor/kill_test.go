package cursor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/testdata/events"
)

func init() { children["consumer"] = consumerChild }

// consumerChild consumes the log DIR to its end and writes the offsets to the
// file OUT, one a line, flushed before each commit.
func consumerChild(args []string) error {
	ctx := context.Background()
	r, err := evlog.OpenReader(ctx, args[0], nil)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := cursor.OpenFile(ctx, args[0], nil)
	if err != nil {
		return err
	}
	defer f.Close()
	out, err := os.OpenFile(args[1], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var buf []byte
	handle := func(_ context.Context, rec evlog.Record) error {
		buf = fmt.Appendln(buf, rec.Offset)
		return nil
	}
	err = cursor.Run(ctx, r, f, "printer", handle, &cursor.Options{
		UntilEnd: true, CommitRecords: 37, CommitInterval: 2 * time.Millisecond,
		BeforeCommit: func(context.Context) error {
			// What a kill has torn off stays a line of its own.
			_, err := out.Write(append([]byte("\n"), buf...))
			buf = buf[:0]
			return err
		},
	})
	return errors.Join(err, out.Close())
}

// A consumer of 20,000 real records is killed at random, again and again. Every
// record comes out, none before those below it; what comes out twice was not
// committed.
func TestRun_KilledAtRandom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	ctx := t.Context()
	l, err := evlog.Open(ctx, dir, &evlog.Options{SegmentBytes: 256 << 10})
	require.NoError(t, err)
	all, err := events.Load("sensors_plant")
	require.NoError(t, err)
	const count = 20_000
	var recs []evlog.Record
	for _, e := range all[:count] {
		recs = append(recs, evlog.Record{Time: e.Time, Key: e.Key, Value: e.Value})
	}
	_, err = l.Append(ctx, recs...)
	require.NoError(t, err)
	require.NoError(t, l.Close())

	f := openFile(t, ctx, dir)
	out := filepath.Join(t.TempDir(), "out")
	rng := evtest.Rand(evtest.Seed(t))
	kills, rounds := 0, max(8, evtest.Count(200))
	for range rounds {
		// How far this one may come before it is killed.
		p, err := f.Load(ctx, "printer")
		if !errors.Is(err, cursor.ErrUnknownConsumer) {
			require.NoError(t, err)
		}
		until := p.Next + rng.Uint64N(2*count/uint64(rounds)+1)
		cmd := child(t, "consumer", dir, out)
		cmd.Stderr = nil
		require.NoError(t, cmd.Start())
		eventually(t, func() bool {
			p, err := f.Load(ctx, "printer")
			return err == nil && p.Next >= min(until, count)
		})
		_ = cmd.Process.Kill()
		if cmd.Wait() != nil {
			kills++
		}
		checkPrinted(t, out, standsAt(t, ctx, f, "printer"))
	}
	require.NoError(t, child(t, "consumer", dir, out).Run())
	require.EqualValues(t, count, standsAt(t, ctx, f, "printer"))
	twice := checkPrinted(t, out, count)
	require.Positive(t, kills)
	t.Logf("%d kills, %d of %d records came out more than once", kills, twice, count)
}

// checkPrinted checks that everything below next was printed, in order, and
// returns how many records were repeated.
func checkPrinted(t *testing.T, out string, next uint64) (twice int) {
	t.Helper()
	b, err := os.ReadFile(out)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	var reached uint64 // all below it were seen
	for line := range strings.Lines(string(b)) {
		if line == "\n" || !strings.HasSuffix(line, "\n") {
			continue
		}
		var offset uint64
		_, err := fmt.Sscan(line, &offset)
		require.NoError(t, err)
		switch {
		case offset == reached:
			reached++
		case offset < reached:
			twice++
		default:
			t.Fatalf("offset %d was printed when only those below %d had been", offset, reached)
		}
	}
	require.GreaterOrEqual(t, reached, next, "committed and not printed")
	return twice
}
