package evlog_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

var background = context.Background()

// child prepares this test binary to run as one of children.
func child(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	return cmd
}

// serialRecord is what the writer of a round appends as its n-th record. All
// of it follows from the two numbers, so that whoever reads it can tell whether
// it is what somebody wanted to append.
func serialRecord(round, n int) evlog.Record {
	rng := evtest.Rand(uint64(round)<<32 | uint64(n))
	value := fmt.Appendf(nil, "%d/%d ", round, n)
	if rng.IntN(20) == 0 {
		value = append(value, make([]byte, rng.IntN(20_000))...)
	}
	for range rng.IntN(50) {
		value = append(value, byte(rng.Uint32()))
	}
	return evlog.Record{
		Time: time.UnixMilli(int64(rng.Uint32())), Schema: uint16(n),
		Key: fmt.Appendf(nil, "k%d", rng.IntN(5)), Value: value,
	}
}

// serialOf returns the numbers of a record, if it is what they say.
func serialOf(r evtest.Rec) (round, n int, err error) {
	head, _, _ := strings.Cut(string(r.Value[:min(len(r.Value), 40)]), " ")
	a, b, _ := strings.Cut(head, "/")
	round, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("nobody appended %v", r)
	}
	if want := evtest.RecOf(serialRecord(round, n)); !want.SameContent(r) {
		return 0, 0, fmt.Errorf("%v is not what was appended: %v", r, want)
	}
	return round, n, nil
}

func init() {
	children["writer"] = writerChild
	children["follower"] = followerChild
}

// writerChild appends until it is killed and prints "ack OFFSET ROUND N" for
// each record that is acknowledged.
func writerChild(args []string) error {
	dir := args[0]
	round, _ := strconv.Atoi(args[1])
	rng := evtest.Rand(uint64(round))
	opts := &evlog.Options{
		SegmentBytes: 2000 + rng.Int64N(20_000), IndexBytes: 200,
		Sync:         evlog.SyncPolicy(1 + rng.IntN(3)),
		SyncInterval: 2 * time.Millisecond, NoPreallocate: rng.IntN(2) == 0,
	}
	if rng.IntN(3) == 0 {
		opts.SegmentBytes += 200_000 // so much that zeros are written ahead
	}
	l, err := evlog.Open(background, dir, opts)
	if err != nil {
		return err
	}
	if rng.IntN(3) == 0 { // what is killed then was opened after a clean close
		if err := l.Close(); err != nil {
			return err
		}
		if l, err = evlog.Open(background, dir, opts); err != nil {
			return err
		}
	}
	var mu sync.Mutex // guards n and stdout
	n := 0
	take := func(count int) (first int, batch []evlog.Record) {
		mu.Lock()
		defer mu.Unlock()
		first = n
		for range count {
			batch = append(batch, serialRecord(round, n))
			n++
		}
		return first, batch
	}
	acked := func(offset uint64, first, count int) {
		var b strings.Builder
		for i := range count {
			fmt.Fprintf(&b, "ack %d %d %d\n", offset+uint64(i), round, first+i)
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(os.Stdout, b.String())
	}
	var wg sync.WaitGroup
	failed := make(chan error, 10)
	for c := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				first, batch := take(1 + (i+c)%3)
				if c < 2 {
					offset, err := l.Append(background, batch...)
					if err != nil {
						failed <- err
						return
					}
					acked(offset, first, len(batch))
					continue
				}
				offset, err := l.Enqueue(background, batch...)
				if err == nil && i%3 == 0 {
					if err = l.Flush(background); err == nil {
						acked(offset, first, len(batch))
					}
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	return <-failed
}

// followerChild follows from the start and prints "saw OFFSET ROUND N".
func followerChild(args []string) error {
	var r *evlog.Reader
	for { // the log may not be there yet
		var err error
		r, err = evlog.OpenReader(background, args[0], &evlog.ReaderOptions{NoFileEvents: args[1] == "poll"})
		if err == nil {
			break
		}
		if !errors.Is(err, evlog.ErrNoLog) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	defer r.Close()
	for rec, err := range r.Follow(background, 0) {
		if err != nil {
			return err
		}
		round, n, err := serialOf(evtest.RecOf(rec))
		if err != nil {
			return err
		}
		fmt.Printf("saw %d %d %d\n", rec.Offset, round, n)
	}
	return nil
}

// told collects what a child prints: offset to "ROUND N".
type told struct {
	mu    sync.Mutex
	by    map[uint64]string
	last  uint64
	count int
	bad   error
	lines chan struct{} // receives now and then
	done  chan struct{}
}

func listen(out io.Reader, verb string) *told {
	l := &told{by: map[uint64]string{}, lines: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return // a line without an end was cut off by the kill
			}
			l.note(strings.Fields(line), verb)
			select {
			case l.lines <- struct{}{}:
			default:
			}
		}
	}()
	return l
}

func (l *told) note(f []string, verb string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(f) != 4 || f[0] != verb {
		l.bad = fmt.Errorf("%s prints %q", verb, f)
		return
	}
	off, err := strconv.ParseUint(f[1], 10, 64)
	what := f[2] + " " + f[3]
	if old, ok := l.by[off]; err != nil || ok && old != what {
		l.bad = fmt.Errorf("offset %s is %q and %q: %v", f[1], old, what, err)
	}
	if verb == "saw" && l.count > 0 && off <= l.last {
		l.bad = fmt.Errorf("a follower saw %d after %d", off, l.last)
	}
	l.by[off], l.last = what, off
	l.count++
}

func (l *told) have() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// waitFor waits for n lines, or the end.
func (l *told) waitFor(n int) {
	for l.have() < n {
		select {
		case <-l.lines:
		case <-l.done:
			return
		}
	}
}

// A real process is killed at any moment, again and again, while others
// follow: acknowledged ⊆ readable ⊆ intended, and no offset ever means two
// things.
func TestProcess_KilledAgainAndAgain(t *testing.T) {
	p := onDisk(t)
	seed := uint64(time.Now().UnixNano())
	rng := evtest.Rand(seed)
	t.Logf("seed %d", seed)
	known := map[uint64]string{} // acknowledged or seen
	learn := func(l *told) {
		l.mu.Lock()
		defer l.mu.Unlock()
		require.NoError(t, l.bad)
		for off, what := range l.by {
			if old, ok := known[off]; ok {
				require.Equal(t, old, what, "offset %d", off)
			}
			known[off] = what
		}
	}
	var followers []*told
	for _, how := range []string{"events", "poll"} {
		cmd := child(t, "follower", p.dir, how)
		f, stop := start(t, cmd, "saw")
		defer stop()
		followers = append(followers, f)
	}
	rounds := max(20, evtest.Count(1000))
	for round := range rounds {
		cmd := child(t, "writer", p.dir, strconv.Itoa(round))
		w, stop := start(t, cmd, "ack")
		if rng.IntN(5) > 0 {
			w.waitFor(rng.IntN(60))
		}
		select { // anywhere between two lines
		case <-time.After(time.Duration(rng.IntN(4000)) * time.Microsecond):
		case <-w.done:
		}
		stop()
		learn(w)
		checkKilled(t, p, known, fmt.Sprintf("seed %d, round %d", seed, round))
	}
	// Followers get everything, in the end.
	l := p.open(t, nil)
	next := l.Stats().NextOffset
	require.NoError(t, l.Close())
	for _, f := range followers {
		soon(t, "followers are at the end", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.bad != nil || next == 0 || f.count > 0 && f.last == next-1
		})
		learn(f)
		require.EqualValues(t, len(p.image(t).Writer().Recs), f.have(), "a follower saw each record once")
	}
	checkKilled(t, p, known, fmt.Sprintf("seed %d, at the end", seed))
	p.verified(t)
	t.Logf("%d rounds, %d records in the log, %d acknowledged or seen", rounds, next, len(known))
}

// start runs a child that prints lines; stop kills it and reaps it.
func start(t *testing.T, cmd *exec.Cmd, verb string) (l *told, stop func()) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	l = listen(out, verb)
	return l, sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-l.done
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			t.Errorf("%s: %s", verb, stderr.String())
		}
	})
}

func checkKilled(t *testing.T, p place, known map[uint64]string, what string) {
	t.Helper()
	im, err := evtest.ReadDir(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		require.Empty(t, known)
		return
	}
	require.NoError(t, err)
	out := im.Writer()
	require.NoError(t, out.Err, what)
	there := map[uint64]bool{}
	for _, r := range out.Recs {
		round, n, err := serialOf(r)
		require.NoError(t, err, what)
		there[r.Offset] = true
		if was, ok := known[r.Offset]; ok {
			require.Equal(t, was, fmt.Sprintf("%d %d", round, n), "%s: offset %d", what, r.Offset)
		}
	}
	for off, was := range known {
		require.True(t, there[off], "%s: offset %d (%s) was acknowledged or seen, and is gone", what, off, was)
	}
}

// Reading as a user who may not write, and with nothing written at all.
func TestProcess_ReadOnlyUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	dir := t.TempDir()
	for up := dir; up != "/" && up != os.TempDir(); up = filepath.Dir(up) {
		require.NoError(t, os.Chmod(up, 0o755))
	}
	p := onDisk(t)
	p.dir = filepath.Join(dir, "log")
	l := p.open(t, tiny())
	appendEach(t, p.ctx, l, numbered(0, 40)...)
	require.NoError(t, l.Close())
	entries, err := os.ReadDir(p.dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(p.dir, 0o555))
	for _, e := range entries {
		require.NoError(t, os.Chmod(filepath.Join(p.dir, e.Name()), 0o444))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	exe := filepath.Join(dir, "test.exe")
	b, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(exe, b, 0o755))
	cmd := child(t, "read-all", p.dir, "40")
	cmd.Path, cmd.Args[0] = exe, exe
	cmd.Dir = dir
	become(cmd, 65534)
	before := p.image(t)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	sameImage(t, before, p.image(t))
}

func init() {
	children["read-all"] = func(args []string) error {
		r, err := evlog.OpenReader(background, args[0], nil)
		if err != nil {
			return err
		}
		defer r.Close()
		recs, err := readAll(background, r)
		if err != nil {
			return err
		}
		if len(recs) != 40 {
			return fmt.Errorf("%d records", len(recs))
		}
		if _, err := r.Status(background); err != nil {
			return err
		}
		rep, err := evlog.Verify(background, args[0], nil)
		if err != nil || !rep.OK() {
			return fmt.Errorf("verify: %v %+v", err, rep)
		}
		if _, err := evlog.Open(background, args[0], nil); err == nil {
			return errors.New("opened for writing")
		}
		return nil
	}
}
