package evlog_test

import (
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// left waits until the log begins at this base.
func left(t testing.TB, p place, base uint64) {
	t.Helper()
	soon(t, "the first segment is the one wanted", func() bool { return p.image(t).Bases()[0] == base })
}

// A log that gets one record and then nothing loses it when it is old, also
// across reopenings, by MaxAge alone.
func TestRetainer_QuietLogExpires(t *testing.T) {
	for _, c := range []struct {
		name   string
		reopen time.Duration // how often the process is restarted; 0: never
		time   time.Time
		by     time.Duration
	}{
		{"one process", 0, time.Time{}, time.Hour},
		{"restarted every ten minutes", 10 * time.Minute, time.Time{}, time.Hour},
		// Its age counts from the closing, at a quarter of MaxAge.
		{"a time in the future", 0, noon.Add(1000 * time.Hour), time.Hour + 15*time.Minute},
		{"a time in the future, restarted", 10 * time.Minute, noon.Add(1000 * time.Hour), time.Hour + 15*time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := inMem(t)
				clock := evlogtest.NewClock(noon)
				opts := &evlog.Options{Clock: clock, MaxAge: time.Hour, NoPreallocate: true}
				l := p.open(t, opts)
				appendEach(t, p.ctx, l, evlog.Record{Time: c.time, Value: []byte("one")})
				for at := time.Minute; at < c.by; at += time.Minute {
					clock.Advance(time.Minute)
					synctest.Wait()
					if c.reopen > 0 && at%c.reopen == 0 {
						require.NoError(t, l.Close())
						l = p.open(t, opts)
						synctest.Wait()
					}
					require.Len(t, p.all(t), 1, "after %v", at)
				}
				clock.Advance(time.Minute)
				synctest.Wait()
				require.Empty(t, p.all(t))
				require.NoError(t, l.Close())
				l = p.open(t, opts)
				require.EqualValues(t, 1, l.Stats().NextOffset)
				require.NoError(t, l.Close())
			})
		})
	}
}

// A log that was written while the clock stood in 1970 keeps what it has, and
// what came since, for one MaxAge after the clock was set.
func TestRetainer_ClockJumps(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name  string
		start time.Time
		set   time.Time
		// wait is how long after the clock was set something written just before is kept.
		wait time.Duration
	}{
		{"set by NTP, from 1970", time.UnixMilli(1000), noon, math.MaxInt64},
		{"forwards by two days", noon, noon.Add(2 * day), day},
		{"forwards by an hour and a second", noon, noon.Add(time.Hour + time.Second), day},
		{"forwards by less", noon, noon.Add(59 * time.Minute), day - 59*time.Minute},
		{"back by two days", noon, noon.Add(-2 * day), 3 * day},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := inMem(t)
			clock := evlogtest.NewClock(c.start)
			l := p.open(t, &evlog.Options{Clock: clock, NoRetention: true, MaxAge: day, NoPreallocate: true})
			appendEach(t, p.ctx, l, evlog.Record{Value: []byte("before")})
			require.NoError(t, l.Roll(p.ctx))
			clock.SetWall(c.set)
			for at := time.Duration(0); at < 4*day; at += time.Hour {
				rep, err := l.Retain(p.ctx, nil)
				require.NoError(t, err)
				require.Equal(t, at >= c.wait, len(rep.Removed) == 1, "%v after the clock was set", at)
				if len(rep.Removed) > 0 {
					return
				}
				clock.Advance(time.Hour)
			}
			require.Equal(t, time.Duration(math.MaxInt64), c.wait)
		})
	}
}

// What is written after a jump is kept for its time too, though the clock that
// closed the segment before it was wrong; the wait is told.
func TestRetainer_ClockWaitIsTold(t *testing.T) {
	p, _ := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{NoRetention: true, MaxAge: time.Hour}, steady(3)...)
	clock.SetWall(noon.Add(1000 * time.Hour))
	rep := retain(t, p, l, evlog.RetainOptions{})
	require.Empty(t, rep.Removed)
	require.Equal(t, time.Hour, rep.ClockWait)
	clock.Advance(20 * time.Minute)
	rep = retain(t, p, l, evlog.RetainOptions{MaxRecords: 1})
	require.Equal(t, 40*time.Minute, rep.ClockWait)
	require.Equal(t, []uint64{0, 1}, bases(rep.Removed), "other limits count")
	clock.Advance(40 * time.Minute)
	rep = retain(t, p, l, evlog.RetainOptions{})
	require.Equal(t, []uint64{2}, bases(rep.Removed))
	require.Zero(t, rep.ClockWait)
}

// By itself, at opening, at each roll, and by time.
func TestRetainer_RunsByItself(t *testing.T) {
	p, _ := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{MaxRecords: 3}, steady(5)...)
	left(t, p, 2)
	require.NoError(t, l.Close())

	opts := &evlog.Options{Clock: clock, MaxRecords: 1, NoRetention: true}
	l = p.open(t, opts)
	quiet(t, p)
	require.NoError(t, l.Close())
	require.EqualValues(t, 2, p.image(t).Bases()[0], "not by itself")
	l = p.open(t, &evlog.Options{Clock: clock})
	left(t, p, 4)
	require.NoError(t, l.Close())

	l = p.open(t, &evlog.Options{Clock: clock, MaxRecords: -1, MaxAge: time.Hour})
	appendEach(t, p.ctx, l, evlog.Record{Value: []byte("five")})
	require.NoError(t, l.Roll(p.ctx)) // its record is of noon+4m
	for range 6 {
		clock.WaitTimers(1)
		clock.Advance(9 * time.Minute)
	}
	require.EqualValues(t, 4, p.image(t).Bases()[0])
	soon(t, "both are old", func() bool {
		clock.Advance(time.Minute)
		return p.image(t).Bases()[0] == 6
	})
	require.NoError(t, l.Close())
	p.verified(t)
}

// A process that only appends and ends gives what is due a moment to go.
func TestRetainer_ShortLived(t *testing.T) {
	if windowsRules {
		t.Skip("what the housekeeper looks at is tried again later, and the process has ended by then")
	}
	p, _ := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{NoRetention: true, MaxRecords: 2}, steady(30)...)
	require.NoError(t, l.Close())
	l = p.open(t, &evlog.Options{Clock: clock, SegmentBytes: 1})
	appendEach(t, p.ctx, l, rec("k", "v"), rec("k", "w"))
	require.NoError(t, l.Close())
	require.EqualValues(t, 30, p.image(t).Bases()[0])
}

// All files together stay below MaxBytes while records come, as soon as
// retention got its turn; and what it leaves is as much as fits.
func TestRetainer_BytesAreACap(t *testing.T) {
	for _, prealloc := range []bool{false, true} {
		p, _ := inMem(t)
		const limit = 400_000
		removed := make(chan struct{}, 1)
		l := p.open(t, &evlog.Options{MaxBytes: limit, NoPreallocate: !prealloc, OnEvent: func(e evlog.Event) {
			if e.Kind == evlog.EventRemoved {
				select {
				case removed <- struct{}{}:
				default:
				}
			}
		}})
		for range 300 {
			_, err := l.Append(p.ctx, evlog.Record{Value: make([]byte, 5000)})
			require.NoError(t, err)
			soon(t, "the cap is kept", func() bool { return size(p.image(t)) <= limit })
		}
		im := p.image(t)
		require.Greater(t, size(im), int64(limit)*2/3, "no more than needed goes")
		require.GreaterOrEqual(t, len(im.Bases()), 3, "segments are a part of the cap")
		inTime(t, "it is told", removed)
		s := l.Stats()
		require.NotZero(t, s.RemovedBytes)
		require.NoError(t, l.Close())
		require.LessOrEqual(t, size(p.image(t)), int64(limit))
		p.verified(t)
	}
}

// consumers writes consumers.json as of the log in this place.
func consumers(t testing.TB, p place, id string, next map[string]uint64) {
	t.Helper()
	b := []byte(`{"version":1,"log_id":"` + id + `","consumers":{`)
	sep := ""
	for name, n := range next {
		b = append(b, sep...)
		b = append(b, `"`+name+`":{"next_offset":`...)
		b = strconv.AppendUint(b, n, 10)
		b = append(b, `,"updated_ms":1}`...)
		sep = ","
	}
	p.put(t, evtest.Image{"consumers.json": append(b, "}}"...)})
}

// Nothing that a held consumer has not finished goes, within the bound.
func TestRetainer_Hold(t *testing.T) {
	const all = evlog.HoldForAll
	for _, c := range []struct {
		name     string
		hold     []string
		write    func(t testing.TB, p place, id string)
		opts     evlog.Options
		want     []uint64 // of 0 to 5, all of which are due
		by       []string
		overrule bool
	}{
		{"nobody is held for", nil, nil, evlog.Options{}, upToBase(6), nil, false},
		{"committed at a segment's start", []string{"a"}, at("a", 3), evlog.Options{}, upToBase(3), []string{"a"}, false},
		{"at the end", []string{"a"}, at("a", 6), evlog.Options{}, upToBase(6), nil, false},
		{"never committed", []string{"a"}, at("b", 6), evlog.Options{}, nil, []string{"a"}, false},
		{"no file", []string{"a"}, nil, evlog.Options{}, nil, []string{"a"}, false},
		{"no file, all", []string{all}, nil, evlog.Options{}, upToBase(6), nil, false},
		{"the slowest of the named", []string{"a", "b"}, at("a", 2, "b", 4, "c", 0), evlog.Options{}, upToBase(2), []string{"a", "b"}, false},
		{"the slowest of all", []string{all}, at("a", 2, "b", 4, "c", 1), evlog.Options{}, upToBase(1), []string{"a", "b", "c"}, false},
		{"all and one that never committed", []string{all, "d"}, at("a", 2), evlog.Options{}, nil, []string{"a", "d"}, false},
		{"damaged", []string{"a"}, file(`{"version":1,"consumers":{"a":{"next_of`), evlog.Options{}, nil, []string{""}, false},
		{"empty file", []string{all}, file(``), evlog.Options{}, nil, []string{""}, false},
		{"no log id", []string{all}, file(`{"version":1,"consumers":{}}`), evlog.Options{}, nil, []string{""}, false},
		{"a later version", []string{all}, file(`{"version":2,"log_id":"x","consumers":{}}`), evlog.Options{}, nil, []string{""}, false},
		{"of another log", []string{"a"}, other(at("a", 6)), evlog.Options{}, nil, []string{"a"}, false},
		{"of another log, all", []string{all}, other(at("a", 6)), evlog.Options{}, nil, []string{""}, false},
		{"bound by bytes", []string{"a"}, at("a", 2), evlog.Options{HoldBytes: 4000, HoldAge: -time.Millisecond}, upToBase(3), []string{"a"}, true},
		{"bound by age", []string{"a"}, at("a", 2), evlog.Options{HoldAge: 3 * time.Minute}, upToBase(3), []string{"a"}, true},
		{"damaged, bound by age", []string{"a"}, file(`{`), evlog.Options{HoldAge: 3 * time.Minute}, upToBase(3), []string{""}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := inMem(t)
			opts := c.opts
			opts.HoldFor, opts.NoRetention = c.hold, true
			if opts.HoldAge == 0 {
				opts.HoldAge = 1000 * time.Hour
			}
			l, clock := agedLog(t, p, opts, steady(6)...)
			quiet(t, p)
			removeIndexes(t, p)
			if c.write != nil {
				c.write(t, p, l.ID())
			}
			r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
			plan, err := r.PlanRetain(p.ctx, &evlog.RetainOptions{Below: 6})
			require.NoError(t, err)
			rep, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 6})
			require.NoError(t, err)
			require.Equal(t, plan, rep)
			require.Equal(t, c.want, bases(rep.Removed), "%+v", rep)
			require.Len(t, rep.Held, 6-len(c.want))
			var by []string
			for _, h := range rep.Holds {
				by = append(by, h.Name)
				require.Positive(t, h.Segments)
				require.Positive(t, h.Bytes)
				require.Equal(t, h.Name == "" || h.Next == 0 && h.Err != nil, h.Err != nil)
			}
			require.Equal(t, c.by, by)
			overruled := false
			for _, s := range rep.Removed {
				overruled = overruled || len(s.Overruled) > 0
			}
			require.Equal(t, c.overrule, overruled)

			rep, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 6, IgnoreHold: true})
			require.NoError(t, err)
			require.Len(t, rep.Removed, 6-len(c.want))
			require.Empty(t, rep.Held)
		})
	}
}

func upToBase(n uint64) (all []uint64) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func at(pairs ...any) func(testing.TB, place, string) {
	next := map[string]uint64{}
	for i := 0; i < len(pairs); i += 2 {
		next[pairs[i].(string)] = uint64(pairs[i+1].(int))
	}
	return func(t testing.TB, p place, id string) { consumers(t, p, id, next) }
}

func other(write func(testing.TB, place, string)) func(testing.TB, place, string) {
	return func(t testing.TB, p place, _ string) { write(t, p, "another-log") }
}

func file(content string) func(testing.TB, place, string) {
	return func(t testing.TB, p place, _ string) { p.put(t, evtest.Image{"consumers.json": []byte(content)}) }
}

func TestRetainer_HoldNeedsABound(t *testing.T) {
	p, _ := inMem(t)
	require.ErrorIs(t, p.refused(t, &evlog.Options{HoldFor: []string{"a"}}), evlog.ErrBadOptions)
	l := p.open(t, &evlog.Options{HoldFor: []string{"a"}, HoldBytes: 1})
	require.NoError(t, l.Close())
	require.ErrorIs(t, p.refused(t, &evlog.Options{HoldBytes: -1}), evlog.ErrBadOptions)
	l = p.open(t, nil)
	require.Equal(t, []string{"a"}, l.Config().HoldFor)
}

// What a consumer held goes soon after it has committed, and with a warning
// when the bound is passed.
func TestRetainer_HoldEnds(t *testing.T) {
	p, _ := inMem(t)
	var logged safeBuffer
	opts := evlog.Options{
		MaxRecords: 1, HoldFor: []string{"uplink"}, HoldAge: time.Hour,
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	l, clock := agedLog(t, p, opts, steady(4)...)
	consumers(t, p, l.ID(), map[string]uint64{"uplink": 2})
	soon(t, "what was finished goes", func() bool {
		clock.Advance(time.Second)
		return p.image(t).Bases()[0] == 2
	})
	require.NotContains(t, logged.String(), "had not finished")
	soon(t, "the bound is passed", func() bool {
		clock.Advance(time.Minute)
		return p.image(t).Bases()[0] == 3
	})
	require.NoError(t, l.Close()) // what is removed is told a moment later
	require.Contains(t, logged.String(), "had not finished")
	require.Contains(t, logged.String(), "uplink")
}

// safeBuffer takes what goroutines log.
type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// By the rules of Windows what somebody reads cannot go now, and nothing behind
// it does either; it is tried again.
func TestRetainer_WindowsRules(t *testing.T) {
	m := vfs.NewMem()
	q, p := onFS(t, m), onFS(t, vfs.Windows(m)) // nobody else may look at a locked LOCK
	l, clock := agedLog(t, p, evlog.Options{MaxRecords: 1, NoRetention: true}, steady(5)...)
	quiet(t, q)
	require.NoError(t, l.Close())
	r := p.reader(t, nil)
	inside, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for rec, err := range r.Records(p.ctx, 1) {
			if err == nil && rec.Offset == 1 {
				close(inside)
				<-leave
				return
			}
		}
	}()
	inTime(t, "a reader is in segment 1", inside)
	l = p.open(t, &evlog.Options{Clock: clock})
	soon(t, "what nobody reads goes, when the housekeeper has looked at it", func() bool {
		clock.Advance(10 * time.Second)
		return q.image(t).Bases()[0] == 1
	})
	own, err := readAll(p.ctx, l.Reader())
	require.NoError(t, err)
	require.Len(t, own, 4, "the log's own reader keeps the segments open that it has read")
	for range 3 {
		clock.WaitTimers(1)
		clock.Advance(10 * time.Second)
	}
	require.EqualValues(t, 1, q.image(t).Bases()[0])
	close(leave)
	inTime(t, "the reader", done)
	require.NoError(t, r.Close())
	soon(t, "it is tried again", func() bool {
		clock.Advance(10 * time.Second)
		return q.image(t).Bases()[0] == 4
	})
	require.NoError(t, l.Close())
	p.verified(t)
}
