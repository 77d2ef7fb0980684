package evlog_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func init() {
	children["compact-loop"] = loopChild
	children["compact-follow"] = followChild
	children["compact-lookup"] = lookupChild
	children["compact-backup"] = backupChild
}

// liveKeys is the number of keys that the live test overwrites.
const liveKeys = 40

func liveKey(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }

// until runs do until the time given as the second argument, and prints how
// often, and how often retention was faster, which is no error.
func until(args []string, do func(r *evlog.Reader) error) error {
	r, err := evlog.OpenReader(background, args[0], nil)
	if err != nil {
		return err
	}
	defer r.Close()
	ms, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	n, fell := 0, 0
	for ; time.Now().UnixMilli() < ms; n++ {
		err := do(r)
		if behind(err) {
			fell++
		} else if err != nil {
			return err
		}
	}
	fmt.Println("rounds", n, "fell behind", fell)
	return nil
}

// behind reports whether retention has removed what was asked for.
func behind(err error) bool {
	var out *evlog.OffsetError
	return errors.As(err, &out) && out.Asked < out.First
}

// loopChild reads the whole log again and again. Each record is there once, in
// order, and what is live when a loop is over and lies below the loop's end was
// in it.
func loopChild(args []string) error {
	return until(args, func(r *evlog.Reader) error {
		seen := map[string]uint64{}
		first, next, err := r.Bounds(background)
		if err != nil {
			return err
		}
		last, some := uint64(0), false
		for rec, err := range r.Records(background, first) {
			if err != nil {
				return err
			}
			if some && rec.Offset <= last {
				return fmt.Errorf("%d after %d", rec.Offset, last)
			}
			if err := checkLive(rec); err != nil {
				return err
			}
			last, some = rec.Offset, true
			seen[string(rec.Key)] = rec.Offset
		}
		for i := range liveKeys {
			rec, err := r.Latest(background, liveKey(i))
			if err != nil {
				return fmt.Errorf("latest of key %d, which is never deleted: %w", i, err)
			}
			if off, ok := seen[string(liveKey(i))]; rec.Offset < next && (!ok || off != rec.Offset) {
				return fmt.Errorf("%d is live and below %d, and the loop had %d, %v", rec.Offset, next, off, ok)
			}
		}
		return nil
	})
}

// checkLive tests that a record is what was appended at its offset.
func checkLive(r evlog.Record) error {
	if len(r.Value) == 0 {
		return nil // a deleted extra
	}
	if got := string(r.Value[:min(len(r.Value), len(liveValue(r.Offset)))]); got != liveValue(r.Offset) {
		return fmt.Errorf("offset %d has %q", r.Offset, got)
	}
	return nil
}

func liveValue(offset uint64) string { return fmt.Sprintf("%d.", offset) }

// followChild follows from the start: in order, nothing twice, and in the end it
// has what is live.
func followChild(args []string) error {
	fell := 0
	r, err := evlog.OpenReader(background, args[0], &evlog.ReaderOptions{OnBehind: func(*evlog.OffsetError) bool {
		fell++
		return true
	}})
	if err != nil {
		return err
	}
	defer r.Close()
	state := map[string]uint64{}
	n, last := 0, int64(-1)
	for rec, err := range r.Follow(background, 0) {
		if err != nil {
			return err
		}
		if int64(rec.Offset) <= last {
			return fmt.Errorf("%d after %d", rec.Offset, last)
		}
		if err := checkLive(rec); err != nil {
			return err
		}
		last = int64(rec.Offset)
		state[string(rec.Key)] = rec.Offset
		n++
		if string(rec.Key) == "the end" {
			break
		}
	}
	for i := range liveKeys {
		rec, err := r.Latest(background, liveKey(i))
		if err != nil || rec.Offset != state[string(liveKey(i))] {
			return fmt.Errorf("key %d: followed up to %d, the latest is %d: %w", i, state[string(liveKey(i))], rec.Offset, err)
		}
	}
	fmt.Println("records", n, "fell behind", fell)
	return nil
}

// lookupChild looks up keys and offsets.
func lookupChild(args []string) error {
	rng := evtest.Rand(7)
	newest := map[string]uint64{}
	return until(args, func(r *evlog.Reader) error {
		key := liveKey(rng.IntN(liveKeys))
		rec, err := r.Latest(background, key)
		if err != nil {
			return err
		}
		if rec.Offset < newest[string(key)] {
			return fmt.Errorf("the latest of %s was %d and is %d", key, newest[string(key)], rec.Offset)
		}
		newest[string(key)] = rec.Offset
		first, next, err := r.Bounds(background)
		if err != nil {
			return err
		}
		at := min(first, rec.Offset) + rng.Uint64N(rec.Offset+1-min(first, rec.Offset))
		got, err := r.Get(background, at)
		if behind(err) {
			return err
		}
		if err != nil || got.Offset < at || got.Offset > rec.Offset {
			return fmt.Errorf("get %d: %d, %d is live: %w", at, got.Offset, rec.Offset, err)
		}
		some := 0
		for hit, err := range r.ByKey(background, key, first) {
			if err != nil {
				return err
			}
			if string(hit.Key) != string(key) {
				return fmt.Errorf("%s among those of %s", hit.Key, key)
			}
			some++
		}
		// It reads up to the end as it is; what it was to find may have gone for
		// the sake of a record above that, and the lag here is as good as none.
		if rec, err := r.Latest(background, key); some == 0 && (err != nil || rec.Offset < next) {
			return fmt.Errorf("no record of %s below %d, the latest is %d: %w", key, next, rec.Offset, err)
		}
		return checkLive(got)
	})
}

// backupChild backs the log up again and again. Each copy is sound, has all that is
// live when it begins or something newer, and can be opened.
func backupChild(args []string) error {
	n := 0
	return until(args, func(r *evlog.Reader) error {
		var before [liveKeys]uint64
		for i := range before {
			rec, err := r.Latest(background, liveKey(i))
			if err != nil {
				return err
			}
			before[i] = rec.Offset
		}
		n++
		p := place{ctx: background, dir: fmt.Sprint(args[0], "-backup-", n)}
		defer os.RemoveAll(p.dir)
		next, err := r.Backup(p.ctx, p.dir, nil)
		if err != nil {
			return err
		}
		report, err := evlog.Verify(p.ctx, p.dir, nil)
		if err != nil {
			return err
		}
		if !report.OK() || report.Next != next {
			return fmt.Errorf("backup up to %d: %+v", next, report)
		}
		l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{Verify: evlog.VerifyAll})
		if err != nil {
			return err
		}
		for i := range before {
			rec, err := l.Reader().Latest(p.ctx, liveKey(i))
			if err == nil && rec.Offset < before[i] {
				err = fmt.Errorf("it is %d", rec.Offset)
			}
			if err = errors.Join(err, checkLive(rec)); err != nil {
				return errors.Join(fmt.Errorf("key %d was at %d before the backup up to %d: %w", i, before[i], next, err), l.Close())
			}
		}
		return l.Close()
	})
}

// Other processes loop over the log, follow it, look things up and back it up, while
// this one appends, rolls, compacts and retains as fast as it can: a few seconds, 60 with
// EVLOG_SOAK=1. Retention takes what is older than the oldest live key.
func TestProcess_ReadersBesideCompaction(t *testing.T) {
	p := onDisk(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 4000, IndexBytes: 200, Sync: evlog.SyncFlush})
	put := func(key []byte, value bool) uint64 {
		r := evlog.Record{Key: key}
		if value {
			r.Value = append([]byte(liveValue(l.Stats().NextOffset)), make([]byte, l.Stats().NextOffset%40)...)
		}
		offset, err := l.Enqueue(p.ctx, r)
		require.NoError(t, err)
		return offset
	}
	var newest [liveKeys]uint64
	for i := range liveKeys {
		newest[i] = put(liveKey(i), true)
	}
	require.NoError(t, l.Flush(p.ctx))
	span := max(2*time.Second, time.Duration(evtest.Count(60))*time.Second)
	end := time.Now().Add(span)
	until := strconv.FormatInt(end.UnixMilli(), 10)
	type result struct {
		name string
		out  []byte
		err  error
	}
	results := make(chan result, 5)
	for _, name := range []string{"compact-loop", "compact-loop", "compact-follow", "compact-lookup", "compact-backup"} {
		cmd := child(t, name, p.dir, until)
		go func() {
			out, err := cmd.CombinedOutput()
			results <- result{name, out, err}
		}()
	}
	seed := uint64(time.Now().UnixNano())
	rng := evtest.Rand(seed)
	var dropped, merged uint64
	runs, removed := 0, 0
	for ; time.Now().Before(end) || merged == 0 || removed == 0; runs++ {
		for range 1 + rng.IntN(200) {
			i := rng.IntN(liveKeys)
			newest[i] = put(liveKey(i), true)
			if rng.IntN(5) == 0 {
				put(fmt.Appendf(nil, "extra-%d", rng.IntN(100)), rng.IntN(2) == 0)
			}
		}
		require.NoError(t, l.Flush(p.ctx))
		if rng.IntN(3) == 0 {
			require.NoError(t, l.Roll(p.ctx))
		}
		if rng.IntN(2) == 0 {
			gone, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: slices.Min(newest[:])})
			require.NoError(t, err)
			removed += len(gone.Removed)
		}
		o := fast()
		o.MinLag = time.Duration(rng.IntN(2)) * time.Millisecond
		o.MemoryBytes = 32 * (1 + rng.Int64N(300))
		if rng.IntN(4) == 0 {
			o.Grace = -1
		}
		rep := compact(t, p, l, o)
		require.Empty(t, rep.Refused)
		dropped += rep.Superseded + rep.Tombstones
		for _, c := range rep.Changes {
			if c.Into != c.Base {
				merged++
			}
		}
	}
	_, err := l.Append(p.ctx, evlog.Record{Key: []byte("the end")})
	require.NoError(t, err)
	for range cap(results) {
		r := inTime(t, "the readers", results)
		require.NoError(t, r.err, "seed %d, %s: %s", seed, r.name, r.out)
		t.Logf("%s: %s", r.name, r.out)
	}
	require.NoError(t, l.Close())
	p.verified(t)
	require.Positive(t, merged)
	require.Positive(t, removed)
	t.Logf("seed %d: %d compactions dropped %d records and merged %d segments, retention removed %d; next offset %d",
		seed, runs, dropped, merged, removed, l.Stats().NextOffset)
}
