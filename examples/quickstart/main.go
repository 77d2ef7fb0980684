// Quickstart shows the main job of evlog on a real editing history: append,
// lose the process, carry on where the log ends, and have a second process read
// along.
//
//	go run ./examples/quickstart
//
// It works in a temporary directory, which it removes at the end unless -keep is
// given. It starts itself three times over: the program you run is the parent,
// one child is the writer that gets killed, another one is the follower.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/testdata/events"
)

const (
	// stream is 18,335 edits of one source file, with the times of the keystrokes.
	stream = "edits_sveltecomponent"
	// batch is how many edits go into one Append, and so into one sync.
	batch = 25
	// live is how many edits are appended one by one at the end, to see how soon
	// the second process has each.
	live = 200

	// roleVar tells a child what it is: "writer DIR" or "follower DIR FROM".
	roleVar = "EVLOG_QUICKSTART_ROLE"
)

// options make segments small, so that this little log has several.
var options = &evlog.Options{SegmentBytes: 256 << 10}

func main() {
	keep := flag.Bool("keep", false, "keep the log's directory")
	flag.Parse()
	ctx := context.Background()
	var err error
	if role := strings.Split(os.Getenv(roleVar), "\n"); role[0] != "" {
		err = child(ctx, role, os.Stdout)
	} else {
		err = run(ctx, os.Stdout, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func child(ctx context.Context, role []string, out io.Writer) error {
	switch {
	case role[0] == "writer" && len(role) == 2:
		return write(ctx, role[1], out)
	case role[0] == "follower" && len(role) == 3:
		return follow(ctx, role[1], role[2], out)
	}
	return fmt.Errorf("unknown role %q", role)
}

// history is the recorded edits as records. Their offsets are not set: the log
// gives them.
func history() ([]evlog.Record, error) {
	var all []evlog.Record
	for e, err := range events.All(stream) {
		if err != nil {
			return nil, err
		}
		all = append(all, evlog.Record{Time: e.Time, Key: e.Key, Value: e.Value})
	}
	return all, nil
}

// write is the child that gets killed. After each Append it prints how many
// edits are acknowledged: these must be in the log whatever happens.
func write(ctx context.Context, dir string, out io.Writer) error {
	edits, err := history()
	if err != nil {
		return err
	}
	log, err := evlog.Open(ctx, dir, options)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(edits[:len(edits)-len(edits)/4], batch) {
		first, err := log.Append(ctx, part...)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, first+uint64(len(part)))
	}
	time.Sleep(time.Minute) // never closes the log: it is killed first
	return errors.New("the writer was not killed")
}

// follow is the second process: it prints each record's offset and when it had
// it, and checks the record against the source.
func follow(ctx context.Context, dir, from string, out io.Writer) error {
	edits, err := history()
	if err != nil {
		return err
	}
	next, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return err
	}
	r, err := evlog.OpenReader(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintln(out, "ready")
	for rec, err := range r.Follow(ctx, next) {
		if err != nil {
			return err
		}
		seen := time.Now()
		if rec.Offset != next || !sameEvent(rec, edits[next]) {
			return fmt.Errorf("record %v is not edit %d of the source", rec, next)
		}
		fmt.Fprintln(out, rec.Offset, seen.UnixNano())
		if next++; next == uint64(len(edits)) {
			return nil
		}
	}
	return nil
}

// sameEvent compares all but the offset.
func sameEvent(a, b evlog.Record) bool {
	a.Offset = b.Offset
	return a.Equal(b)
}

// run is the parent: the whole story, told line by line.
func run(ctx context.Context, out io.Writer, keep bool) (err error) {
	started := time.Now()
	parent, err := os.MkdirTemp("", "evlog-quickstart-")
	if err != nil {
		return err
	}
	if !keep {
		defer func() { err = errors.Join(err, os.RemoveAll(parent)) }()
	}
	s := &story{out: out, dir: parent + string(os.PathSeparator) + "events"}
	if s.edits, err = history(); err != nil {
		return err
	}
	s.say("log", "%s", s.dir)
	s.say("events", "%s edits of one document, %s to %s", count(len(s.edits)),
		s.edits[1].Time.Format(time.DateOnly), s.edits[len(s.edits)-1].Time.Format(time.DateOnly))
	for _, step := range []func(context.Context) error{s.killWriter, s.reopen, s.lookUp, s.verify} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.say("done", "%s", time.Since(started).Round(10*time.Millisecond))
	return nil
}

// story is what the steps of the parent hand on to each other.
type story struct {
	out   io.Writer
	dir   string
	edits []evlog.Record
	acked uint64 // acknowledged before the kill
}

func (s *story) say(topic, format string, args ...any) {
	fmt.Fprintf(s.out, "%-10s %s\n", topic, fmt.Sprintf(format, args...))
}

// killWriter starts the writer and kills it in the middle of its work.
func (s *story) killWriter(ctx context.Context) error {
	writer, acks, err := startChild(ctx, "writer", s.dir)
	if err != nil {
		return err
	}
	enough := uint64(len(s.edits) / 3)
	killed := false
	for acks.Scan() {
		if s.acked, err = strconv.ParseUint(acks.Text(), 10, 64); err != nil {
			break
		}
		if s.acked >= enough && !killed {
			killed = true
			if err = writer.Process.Kill(); err != nil {
				break
			}
		}
	}
	waitErr := writer.Wait()
	if err = errors.Join(err, acks.Err()); err != nil {
		return err
	}
	if !killed {
		return fmt.Errorf("the writer ended before it was killed: %w", waitErr)
	}
	s.say("killed", "the writing process (pid %d) while it appended; %s edits were acknowledged", writer.Process.Pid, count(s.acked))
	return nil
}

// reopen opens the log again, checks what is there, and appends the rest while
// the second process follows.
func (s *story) reopen(ctx context.Context) (err error) {
	began := time.Now()
	log, err := evlog.Open(ctx, s.dir, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	took := time.Since(began)
	_, next, err := log.Reader().Bounds(ctx)
	if err != nil {
		return err
	}
	if err := s.compare(ctx, log.Reader(), next); err != nil {
		return err
	}
	s.say("reopened", "in %s: all %s acknowledged edits are there, and %d that were not acknowledged yet",
		round(took), count(s.acked), next-s.acked)

	follower, err := startFollower(ctx, s.dir, next)
	if err != nil {
		return err
	}
	defer follower.stop()
	began = time.Now()
	rest := s.edits[next:]
	bulk := rest[:len(rest)-live]
	for part := range slices.Chunk(bulk, batch) {
		if _, err := log.Append(ctx, part...); err != nil {
			return err
		}
	}
	took = time.Since(began)
	s.say("continued", "at offset %s: %s edits, %d with each sync, in %s", count(next), count(len(bulk)), batch, round(took))
	return s.typeLive(ctx, log, follower, rest[len(rest)-live:])
}

// compare checks that the log is the source's edits up to next.
func (s *story) compare(ctx context.Context, r *evlog.Reader, next uint64) error {
	if next < s.acked || next > uint64(len(s.edits)) {
		return fmt.Errorf("the log ends at %d, %d were acknowledged", next, s.acked)
	}
	var want uint64
	for rec, err := range r.Records(ctx, 0) {
		if err != nil {
			return err
		}
		if rec.Offset != want || !sameEvent(rec, s.edits[want]) {
			return fmt.Errorf("record %v is not edit %d of the source", rec, want)
		}
		want++
	}
	if want != next {
		return fmt.Errorf("the log holds %d edits, its next offset is %d", want, next)
	}
	return nil
}

// typeLive appends edits one at a time and compares clocks with the follower.
func (s *story) typeLive(ctx context.Context, log *evlog.Log, f *follower, edits []evlog.Record) error {
	var own, seen []time.Duration
	for _, e := range edits {
		called := time.Now()
		offset, err := log.Append(ctx, e)
		if err != nil {
			return err
		}
		own = append(own, time.Since(called))
		at, err := f.sawAt(offset)
		if err != nil {
			return err
		}
		seen = append(seen, at.Sub(called))
	}
	if err := f.wait(); err != nil {
		return err
	}
	s.say("one by one", "%d edits, one with each sync: durable after %s (median), %s at most", live, round(median(own)), round(slices.Max(own)))
	s.say("followed", "a second process (pid %d) had each after %s (median), and got all %s",
		f.cmd.Process.Pid, round(median(seen)), count(f.got))
	return nil
}

// lookUp asks what was being typed one night.
func (s *story) lookUp(ctx context.Context) (err error) {
	r, err := evlog.OpenReader(ctx, s.dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	at := time.Date(2020, 10, 19, 2, 30, 0, 0, time.UTC)
	began := time.Now()
	offset, err := r.OffsetAt(ctx, at)
	if err != nil {
		return err
	}
	rec, err := r.Get(ctx, offset)
	if err != nil {
		return err
	}
	took := time.Since(began)
	s.say("looked up", "%s: offset %s, typed at %s, found in %s", at.Format("2006-01-02 15:04"),
		count(rec.Offset), rec.Time.Format(time.TimeOnly), round(took))
	s.say("", "%s", rec.Value)
	return nil
}

// verify reads every byte.
func (s *story) verify(ctx context.Context) error {
	report, err := evlog.Verify(ctx, s.dir, nil)
	if err != nil {
		return err
	}
	if !report.OK() || report.Records != uint64(len(s.edits)) {
		return fmt.Errorf("verify: %d records, problems: %v", report.Records, report.Problems)
	}
	s.say("verified", "%s records, %d segments, %s bytes, no problems", count(report.Records), len(report.Segments), count(report.Bytes))
	return nil
}

// startChild starts this program again in a role and returns its output, line
// by line.
func startChild(ctx context.Context, role ...string) (*exec.Cmd, *bufio.Scanner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleVar+"="+strings.Join(role, "\n"))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return cmd, bufio.NewScanner(pipe), nil
}

// follower is the parent's view of the second process.
type follower struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	got   int
	ended bool
}

func startFollower(ctx context.Context, dir string, from uint64) (*follower, error) {
	cmd, lines, err := startChild(ctx, "follower", dir, strconv.FormatUint(from, 10))
	if err != nil {
		return nil, err
	}
	f := &follower{cmd: cmd, lines: lines}
	if !lines.Scan() { // "ready"
		return nil, errors.Join(errors.New("the follower did not start"), f.wait())
	}
	return f, nil
}

// sawAt returns when the follower had the record with this offset.
func (f *follower) sawAt(offset uint64) (time.Time, error) {
	for f.lines.Scan() {
		f.got++
		var got uint64
		var ns int64
		if _, err := fmt.Sscan(f.lines.Text(), &got, &ns); err != nil {
			return time.Time{}, err
		}
		if got == offset {
			return time.Unix(0, ns), nil
		}
	}
	return time.Time{}, errors.Join(errors.New("the follower ended early"), f.wait())
}

func (f *follower) wait() error {
	f.ended = true
	return f.cmd.Wait()
}

// stop ends a follower that is still there because something failed.
func (f *follower) stop() {
	if !f.ended {
		_ = f.cmd.Process.Kill() // it may just have ended by itself
		_ = f.wait()             // killed: the error says so
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// round keeps three or four digits.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 10000 {
		unit *= 10
	}
	return d.Round(unit)
}

// count writes a number with separators: 18,335.
func count[N int | int64 | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
