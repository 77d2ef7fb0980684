package sqldriver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// churn is a process that writes a log and takes it apart again: see churnChild.
// What a record of the log is follows from its offset.
type churn struct {
	p   place
	lag time.Duration // of compaction; 0 is none
	cmd *exec.Cmd
	in  io.WriteCloser // a pipe, which many may write to

	mu    sync.Mutex // guards the rest
	grown sync.Cond
	told  []churnedRecord
	last  map[string]int // of each key
	ended bool
}

// churnedRecord is what is known of a record of which the process has told.
type churnedRecord struct {
	key       string
	tombstone bool
	ms        int64  // when it was about to be appended, by the wall clock
	newer     uint64 // the next offset with the same key; 0 is none
}

const (
	churnKeys    = 13
	churnKeyless = 4 // each so many-th record has no key
)

// churned is the record at an offset. Every fifth or so of those with a key is a
// tombstone.
func churned(n uint64) evlog.Record {
	r := evlog.Record{Time: at(int64(n)), Value: fmt.Append(nil, n)}
	if n%churnKeyless == 0 {
		return r
	}
	hi, lo := bits.Mul64(n+1, 0x9e3779b97f4a7c15)
	h := hi ^ lo
	r.Key = fmt.Appendf(nil, "k%d", h%churnKeys)
	if h>>32%5 == 0 {
		r.Value = nil
	}
	return r
}

// churnChild appends to the log in dir for each byte that it reads, up to the end of
// in, and rolls, compacts and removes old segments meanwhile as fast as it can. It
// prints each offset, and the time, before it appends.
func churnChild(dir, lag string, in io.Reader, out io.Writer) error {
	opts := &evlog.Options{SegmentBytes: 1500, IndexBytes: 200, Sync: evlog.SyncFlush}
	compact := &evlog.CompactOptions{BytesPerSecond: -1} // MinLag is the default
	if lag != "default" {
		d, err := time.ParseDuration(lag)
		if err != nil {
			return err
		}
		compact.MinLag = d
		if d == 0 {
			compact.MinLag, compact.Grace = -1, -1
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := evlog.Open(ctx, dir, opts)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	failed := make(chan error, 3)
	loop := func(f func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := f(); err != nil && ctx.Err() == nil {
					failed <- err
					cancel()
				}
			}
		})
	}
	loop(func() error {
		_, err := l.Compact(ctx, compact)
		return err
	})
	rng := evtest.Rand(uint64(time.Now().UnixNano()))
	loop(func() error {
		_, err := l.Retain(ctx, &evlog.RetainOptions{MaxRecords: int64(200 + rng.IntN(400))})
		return err
	})
	appending := evtest.Rand(uint64(time.Now().UnixNano()) + 1)
	grow := func(n int) error {
		records := make([]evlog.Record, n)
		for i := range records {
			next := l.Stats().NextOffset + uint64(i)
			records[i] = churned(next)
			fmt.Fprintln(out, next, time.Now().UnixMilli())
		}
		if _, err := l.Append(ctx, records...); err != nil {
			return err
		}
		if appending.IntN(4) == 0 {
			return l.Roll(ctx)
		}
		return nil
	}
	err = grow(300)
	for b := make([]byte, 1); err == nil; {
		if _, err = in.Read(b); err == nil {
			err = grow(1 + appending.IntN(20))
		}
	}
	cancel()
	wg.Wait()
	close(failed)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	for e := range failed {
		err = errors.Join(err, e)
	}
	return errors.Join(err, l.Close())
}

// startChurn starts the process. lag is that of its compaction, or "default".
func startChurn(t *testing.T, lag string) *churn {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &churn{p: onDisk(t), last: map[string]int{}}
	c.grown.L = &c.mu
	if c.lag, err = time.ParseDuration(lag); err != nil {
		c.lag = evlog.DefaultMinLag
	}
	c.cmd = exec.CommandContext(t.Context(), self, c.p.dir, lag)
	c.cmd.Env = append(os.Environ(), childEnv+"=churn")
	c.cmd.Stderr = os.Stderr
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { // where the test failed
		_ = c.in.Close()
		_ = c.cmd.Wait()
	})
	go c.listen(out)
	require.True(t, c.await(300))
	return c
}

func (c *churn) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var n int
		var ms int64
		if _, err := fmt.Sscan(lines.Text(), &n, &ms); err != nil || n != len(c.told) {
			break
		}
		r := churned(uint64(n))
		key := string(r.Key)
		c.mu.Lock()
		c.told = append(c.told, churnedRecord{key: key, tombstone: r.Tombstone(), ms: ms})
		if key != "" {
			if before, ok := c.last[key]; ok {
				c.told[before].newer = uint64(n)
			}
			c.last[key] = n
		}
		c.mu.Unlock()
		c.grown.Broadcast()
	}
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.grown.Broadcast()
}

// await waits until the process has told of all offsets below n. It returns false if
// it has ended before.
func (c *churn) await(n uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uint64(len(c.told)) < n && !c.ended {
		c.grown.Wait()
	}
	return uint64(len(c.told)) >= n
}

// grow lets the process append some more.
func (c *churn) grow() error {
	_, err := c.in.Write([]byte{'+'})
	return err
}

// stop ends the process, whose log then has to be sound.
func (c *churn) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.in.Close())
	require.False(t, c.await(math.MaxUint64), "it tells until it ends")
	require.NoError(t, c.cmd.Wait())
	rep, err := evlog.Verify(c.p.ctx, c.p.dir, nil)
	require.NoError(t, err)
	require.True(t, rep.OK(), "%+v", rep.Problems)
}
