package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
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
	"github.com/evlog-go/evlog/internal/format"
)

// A reader that has fallen behind is told so with the first offset left, in
// every way of reading, and may go on there. (I6)
func TestReader_FallenBehind(t *testing.T) {
	if windowsRules {
		t.Skip("what is being read cannot be removed: see TestRetainer_WindowsRules")
	}
	eachPlace(t, func(t *testing.T, p place) {
		var behind []evlog.OffsetError
		goOn := func(e *evlog.OffsetError) bool {
			behind = append(behind, *e)
			return true
		}
		l := p.open(t, &evlog.Options{SegmentBytes: 1, OnBehind: goOn})
		want := appendEach(t, p.ctx, l, numbered(0, 12)...)
		plain, going := p.reader(t, nil), p.reader(t, &evlog.ReaderOptions{OnBehind: goOn})

		// Inside a segment that goes, a reader finishes it.
		var recs []evtest.Rec
		var failed error
		for rec, err := range plain.Records(p.ctx, 2) {
			if err != nil {
				failed = err
				break
			}
			recs = append(recs, evtest.RecOf(rec))
			if rec.Offset == 3 {
				_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 7})
				require.NoError(t, err)
			}
		}
		sameRecs(t, want[2:4], recs)
		var out *evlog.OffsetError
		require.ErrorAs(t, failed, &out)
		require.Equal(t, evlog.OffsetError{Asked: 4, First: 7, Next: 12}, *out)

		for _, r := range []*evlog.Reader{plain, p.reader(t, nil)} {
			_, err := collect(r.Records(p.ctx, 6))
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange)
			_, err = collect(r.Follow(p.ctx, 0))
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange)
			_, err = collect(r.ByKey(p.ctx, []byte("k1"), 0))
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange)
			_, err = r.Get(p.ctx, 6)
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange)
			got, err := collect(r.Backward(p.ctx, 12))
			require.NoError(t, err)
			sameRecs(t, reversed(want[7:]), got)
			got, err = collect(r.Backward(p.ctx, 5))
			require.NoError(t, err)
			require.Empty(t, got)
			at, err := r.OffsetAt(p.ctx, time.UnixMilli(0))
			require.NoError(t, err)
			require.EqualValues(t, 7, at)
			latest, err := r.Latest(p.ctx, want[8].Key)
			require.NoError(t, err)
			require.Equal(t, uint64(8), latest.Offset)
			_, err = r.Latest(p.ctx, want[5].Key)
			require.ErrorIs(t, err, evlog.ErrNotFound)
		}

		for _, r := range []*evlog.Reader{going, l.Reader()} {
			behind = nil
			got, err := collect(r.Records(p.ctx, 2))
			require.NoError(t, err)
			sameRecs(t, want[7:], got)
			require.Equal(t, []evlog.OffsetError{{Asked: 2, First: 7, Next: 12}}, behind)
			pre, err := r.Prefix(p.ctx)
			require.NoError(t, err)
			key := want[8].Key
			behind = nil
			for name, seq := range map[string]iter.Seq2[evlog.Record, error]{
				"Reader.ByKey":   r.ByKey(p.ctx, key, 2),
				"Prefix.ByKey":   pre.ByKey(p.ctx, key, 2),
				"Prefix.Records": pre.Records(p.ctx, 2),
			} {
				got, err := collect(seq)
				require.NoError(t, err, name)
				if name != "Prefix.Records" {
					sameRecs(t, want[8:9], got, name)
				} else {
					sameRecs(t, want[7:], got, name)
				}
			}
			require.Len(t, behind, 3, "each was asked once")
			got, err = collect(pre.Below(5).Records(p.ctx, 2))
			require.NoError(t, err, "all of it is gone")
			require.Empty(t, got)
			_, err = r.Get(p.ctx, 2)
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, "a look-up is about one offset")
		}

		// On the way, and again.
		behind, recs = nil, nil
		ctx, cancel := context.WithCancel(p.ctx)
		defer cancel()
		for rec, err := range going.Follow(ctx, 8) {
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				break
			}
			recs = append(recs, evtest.RecOf(rec))
			switch rec.Offset {
			case 8:
				_, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 11})
			case 11:
				want = append(want, appendEach(t, p.ctx, l, numbered(12, 3)...)...)
				_, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 14})
			case 14:
				cancel()
			}
			require.NoError(t, err)
		}
		sameRecs(t, []evtest.Rec{want[8], want[11], want[14]}, recs)
		require.Equal(t, []evlog.OffsetError{{Asked: 9, First: 11, Next: 12}, {Asked: 12, First: 14, Next: 15}}, behind)
	})
}

func init() {
	children["retaining-writer"] = retainingWriter
	children["looping-reader"] = loopingReader
}

// retainingWriter appends, rolls and retains as fast as it can. It prints "ack
// OFFSET ROUND N" for what is acknowledged and "gone OFFSET 0 0" before
// everything below that offset may go.
func retainingWriter(args []string) error {
	seed, _ := strconv.Atoi(args[1])
	rng := evtest.Rand(uint64(seed))
	l, err := evlog.Open(background, args[0], &evlog.Options{SegmentBytes: 2000, IndexBytes: 200, NoPreallocate: rng.IntN(2) == 0})
	if err != nil {
		return err
	}
	for n := 0; ; {
		var batch []evlog.Record
		for range 1 + rng.IntN(20) {
			batch = append(batch, serialRecord(seed, n))
			n++
		}
		first, err := l.Append(background, batch...)
		if err != nil {
			return err
		}
		var b strings.Builder
		for i := range batch {
			fmt.Fprintf(&b, "ack %d %d %d\n", first+uint64(i), seed, n-len(batch)+i)
		}
		next := first + uint64(len(batch))
		if _, err := io.WriteString(os.Stdout, b.String()); err != nil {
			return err
		}
		switch rng.IntN(8) {
		case 0:
			err = l.Roll(background)
		case 1, 2:
			_, err = l.Retain(background, &evlog.RetainOptions{Below: next - min(next, rng.Uint64N(400))})
		case 3:
			_, err = l.Retain(background, &evlog.RetainOptions{MaxBytes: 10_000 + rng.Int64N(50_000)})
		}
		if err != nil {
			return err
		}
	}
}

// loopingReader reads in every way for as long as it was told. Only falling
// behind is no error.
func loopingReader(args []string) error {
	span, _ := time.ParseDuration(args[2])
	deadline := time.Now().Add(span)
	var r *evlog.Reader
	for {
		var err error
		if r, err = evlog.OpenReader(background, args[0], nil); err == nil {
			break
		}
		if !errors.Is(err, evlog.ErrNoLog) {
			return err
		}
	}
	defer r.Close()
	seen := map[uint64]string{}
	check := func(rec evlog.Record) error {
		round, n, err := serialOf(evtest.RecOf(rec))
		if err != nil {
			return err
		}
		what := fmt.Sprint(round, n)
		if old, ok := seen[rec.Offset]; ok && old != what {
			return fmt.Errorf("offset %d was %s, now %s", rec.Offset, old, what)
		}
		seen[rec.Offset] = what
		return nil
	}
	loops, records, fell := 0, 0, 0
	ctx, cancel := context.WithDeadline(background, deadline)
	defer cancel()
	var next uint64
	for ctx.Err() == nil {
		first, end, err := r.Bounds(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		seq := r.Records(ctx, first)
		switch args[1] {
		case "follow":
			seq = r.Follow(ctx, next)
		case "back":
			seq = r.Backward(ctx, end)
		case "key":
			seq = r.ByKey(ctx, []byte("k1"), first)
		}
		last := uint64(0)
		for rec, err := range seq {
			var behind *evlog.OffsetError
			if errors.As(err, &behind) && behind.Asked < behind.First {
				fell++
				next = behind.First
				break
			}
			if err != nil {
				if ctx.Err() != nil {
					break
				}
				return fmt.Errorf("loop %d, behind %d: %w", loops, last, err)
			}
			if err := check(rec); err != nil {
				return err
			}
			// No offset is ever left out by this writer, so each gap is a skip.
			step := last + 1
			if args[1] == "back" {
				step = last - 1
			}
			if last > 0 && args[1] != "key" && rec.Offset != step && (args[1] != "follow" || rec.Offset != next) {
				return fmt.Errorf("loop %d: offset %d after %d", loops, rec.Offset, last)
			}
			last = rec.Offset
			records++
		}
		if args[1] == "key" {
			if _, err := r.Latest(ctx, []byte("k2")); err != nil && !errors.Is(err, evlog.ErrNotFound) && ctx.Err() == nil {
				return err
			}
			if _, err := r.Segments(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			if _, err := r.PlanRetain(ctx, &evlog.RetainOptions{MaxRecords: 10}); err != nil && ctx.Err() == nil {
				return fmt.Errorf("plan: %w", err)
			}
		}
		loops++
	}
	fmt.Printf("%s: %d loops, %d records, fell behind %d times\n", args[1], loops, records, fell)
	return nil
}

// Readers in other processes, while a writer appends, rolls and removes as fast
// as it can: no error but falling behind, nothing twice, nothing left out.
func TestProcess_ReadersUnderRetention(t *testing.T) {
	p := onDisk(t)
	span := time.Duration(max(1, evtest.Count(60))) * time.Second
	seed := time.Now().UnixNano() % 1e6
	t.Logf("seed %d, %v", seed, span)
	w, stop := start(t, child(t, "retaining-writer", p.dir, strconv.FormatInt(seed, 10)), "ack")
	defer stop()
	readers := map[string]*exec.Cmd{}
	for _, how := range []string{"scan", "follow", "back", "key"} {
		cmd := child(t, "looping-reader", p.dir, how, span.String())
		cmd.Stderr = cmd.Stdout
		readers[how] = cmd
	}
	outputs := map[string]*strings.Builder{}
	for how, cmd := range readers {
		outputs[how] = &strings.Builder{}
		cmd.Stdout, cmd.Stderr = outputs[how], outputs[how]
		require.NoError(t, cmd.Start())
	}
	for how, cmd := range readers {
		require.NoError(t, cmd.Wait(), "%s: %s", how, outputs[how])
		t.Log(outputs[how])
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(p.dir, format.SegmentName(0)))
		return errors.Is(err, fs.ErrNotExist)
	}, time.Minute, 10*time.Millisecond, "something is removed, however slow the writer is")
	stop()
	require.NoError(t, w.bad)
	im, err := evtest.ReadDir(p.dir)
	require.NoError(t, err)
	out := im.Writer()
	require.NoError(t, out.Err)
	require.GreaterOrEqual(t, out.Next, w.last+1)
	t.Logf("%d records acknowledged, the log holds %d to %d", w.have(), im.Bases()[0], out.Next)
}
