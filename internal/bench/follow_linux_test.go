package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/internal/format"
)

const (
	// followPause is how long the writer rests between two records, so that the
	// follower has gone to sleep.
	followPause = 2 * time.Millisecond
	// followOps is how many records there are in a turn.
	followOps = 30
)

// BenchmarkFollow measures from when a record is acknowledged to when a follower has
// read it. Of an SQLite table he asks again and again.
func BenchmarkFollow(b *testing.B) {
	records := limit.Records(100, 100)
	// In a process of its own the follower gets nothing but the files.
	for _, c := range []struct{ process, events string }{
		{"own", "none"}, {"other", "yes"}, {"other", "no"},
	} {
		b.Run(fmt.Sprintf("process=%s/events=%s", c.process, c.events), func(b *testing.B) {
			dir := b.TempDir()
			l := openLog(b, dir, nil)
			write := func(i int) {
				_, err := l.Append(background, records[i%len(records)])
				require.NoError(b, err)
			}
			sqliteWrite, sqliteSeen := followSQLite(b, records, c.process)
			sqlite := followSide("sqlite", sqliteWrite, sqliteSeen)
			if c.process == "own" {
				limitWrite, limitSeen := limitOwn(b, records)
				turns.Take(b, 0,
					followSide("evlog", write, followOwn(b, l)),
					followSide("limit", limitWrite, limitSeen),
					sqlite)
				return
			}
			p := newLimitPublisher(b, records)
			turns.Take(b, 0,
				followSide("evlog", write, startFollower(b, "follow", dir, c.events).seen),
				followSide("limit", p.write, startFollower(b, "follow-limit", p.Dir).seen),
				sqlite)
		})
	}
}

// followSide writes one record after the other; an operation takes from when
// write returns to when the follower saw the record. seen waits for the latter.
func followSide(name string, write func(i int), seen func() time.Duration) *turns.Side {
	s := &turns.Side{Name: name, Ops: followOps, ByLatency: true}
	at := 0
	one := func() time.Duration {
		time.Sleep(followPause)
		write(at)
		acknowledged := monotonic()
		at++
		// It can be faster than the return of write.
		return max(0, seen()-acknowledged)
	}
	s.Run = func(ops int) {
		for range ops {
			s.Lat = append(s.Lat, one())
		}
	}
	one() // warm
	return s
}

// monotonic is a clock that all processes share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// followOwn follows in this process.
func followOwn(b *testing.B, l *evlog.Log) (seen func() time.Duration) {
	times := make(chan time.Duration, followOps)
	ctx, cancel := context.WithCancel(background)
	go func() {
		defer close(times)
		for _, err := range l.Reader().Follow(ctx, 0) {
			if err != nil {
				return
			}
			times <- monotonic()
		}
	}()
	b.Cleanup(func() {
		cancel()
		for range times { // until it has ended
		}
	})
	return func() time.Duration { return <-times }
}

// limitOwn is a goroutine that is told of each record by a channel, after the
// sync, and reads it from the file.
func limitOwn(b *testing.B, records []evlog.Record) (write func(i int), seen func() time.Duration) {
	l := limit.New(b, b.TempDir(), limit.Zeroed)
	published := make(chan int64, 1)
	times := make(chan time.Duration, followOps)
	b.Cleanup(func() { close(published) })
	go func() {
		buf := make([]byte, limit.RecordSize(100))
		for pos := range published {
			if _, err := l.F.ReadAt(buf, pos); err != nil {
				b.Error(err)
				return
			}
			limit.Parse(b, buf, 0)
			times <- monotonic()
		}
	}()
	write = func(i int) {
		pos := l.Pos
		l.Add(records[i%len(records)])
		l.Write()
		l.Sync()
		published <- pos
	}
	return write, func() time.Duration { return <-times }
}

// limitPublisher writes a record, syncs it, and publishes its end in a file.
type limitPublisher struct {
	*limit.Log
	b       *testing.B
	records []evlog.Record
	durable *os.File
}

func newLimitPublisher(b *testing.B, records []evlog.Record) *limitPublisher {
	p := &limitPublisher{limit.New(b, b.TempDir(), limit.Zeroed), b, records, nil}
	var err error
	p.durable, err = os.Create(filepath.Join(p.Dir, format.DurableName))
	require.NoError(b, err)
	b.Cleanup(func() { p.durable.Close() })
	p.publish()
	return p
}

func (p *limitPublisher) write(i int) {
	p.Add(p.records[i%len(p.records)])
	p.Write()
	p.Sync()
	p.publish()
}

func (p *limitPublisher) publish() {
	var b [format.DurableSize]byte
	format.Durable{NextOffset: p.Next, Position: p.Pos}.Encode(&b)
	if _, err := p.durable.WriteAt(b[:], 0); err != nil {
		p.b.Fatal(err)
	}
}

// follower is this binary as a process that follows a log. It writes the time
// at which it saw each record, and answers each byte with the processor time it
// has used.
type follower struct {
	b   *testing.B
	in  io.Writer
	out io.Reader
}

func startFollower(b *testing.B, args ...string) *follower {
	self, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(self, args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+args[0])
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		require.NoError(b, in.Close()) // ends it
		require.NoError(b, cmd.Wait())
	})
	return &follower{b, in, out}
}

func (f *follower) receive() time.Duration {
	var b [8]byte
	if _, err := io.ReadFull(f.out, b[:]); err != nil {
		f.b.Fatal(err)
	}
	return time.Duration(binary.LittleEndian.Uint64(b[:]))
}

func (f *follower) seen() time.Duration { return f.receive() }

func (f *follower) cpu() time.Duration {
	_, err := f.in.Write([]byte{0})
	require.NoError(f.b, err)
	return f.receive()
}

func send(d time.Duration) error {
	_, err := os.Stdout.Write(binary.LittleEndian.AppendUint64(nil, uint64(d)))
	return err
}

func init() {
	children["follow"] = func(args []string) error {
		r, err := evlog.OpenReader(background, args[0], &evlog.ReaderOptions{NoFileEvents: args[1] == "no"})
		if err != nil {
			return err
		}
		defer r.Close()
		ctx := untilTold()
		for _, err := range r.Follow(ctx, 0) {
			if err == nil {
				err = send(monotonic())
			}
			if err != nil {
				return ignoreCancel(err)
			}
		}
		return nil
	}
	children["follow-limit"] = func(args []string) error {
		go func() {
			<-untilTold().Done()
			os.Exit(0) // inotify is not left otherwise
		}()
		return followLimit(args[0])
	}
	children["idle"] = func([]string) error {
		<-untilTold().Done()
		return nil
	}
}

// untilTold answers questions for the processor time until there is nobody left
// who asks, then ends the context.
func untilTold() context.Context {
	ctx, cancel := context.WithCancel(background)
	go func() {
		defer cancel()
		var b [1]byte
		for {
			if _, err := os.Stdin.Read(b[:]); err != nil {
				return
			}
			if send(cpuTime()) != nil {
				return
			}
		}
	}()
	return ctx
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// cpuTime is the processor time that this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// followLimit sleeps in a read from inotify, and then reads the position and the
// records.
func followLimit(dir string) error {
	events, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	durable, err := os.Open(filepath.Join(dir, format.DurableName))
	if err != nil {
		return err
	}
	log, err := os.Open(filepath.Join(dir, format.SegmentName(0)))
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(events, durable.Name(), unix.IN_MODIFY); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	pos := int64(0)
	for {
		var d [format.DurableSize]byte
		if _, err := durable.ReadAt(d[:], 0); err != nil {
			return err
		}
		p, err := format.ParseDurable(d[:])
		for err == nil && pos < p.Position {
			rec := buf[:limit.RecordSize(100)]
			if _, err := log.ReadAt(rec, pos); err != nil {
				return err
			}
			if _, err := format.Parse(rec, 0); err != nil {
				return err
			}
			pos += int64(len(rec))
			if err := send(monotonic()); err != nil {
				return err
			}
		}
		if _, err := unix.Read(events, buf); err != nil && err != unix.EINTR { //nolint:errorlint // a bare errno
			return err
		}
	}
}
