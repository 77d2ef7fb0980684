package evlog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// retention watches what retention does to one disk: each segment that it unlinks
// must be due at that moment, by the files as they are.
type retention struct {
	r *random
	m *vfs.Mem

	mu     sync.Mutex // guards the rest
	rules  []limits   // by which a segment may go: the log's own, those of a call under way
	was    *moment    // the clock was set while a run may have been under way: what held before
	gone   uint64     // the last segment that was unlinked
	swept  int64      // bytes of indexes alone that were taken away since
	failed error
	off    bool // the disk is not the log's any more
}

// limits are those of one run.
type limits struct {
	maxAge     time.Duration
	maxBytes   int64
	maxRecords int64
	below      uint64
	ignoreHold bool
}

// storedLimits are those that the log was opened with.
func (r *random) storedLimits() limits {
	return limits{maxAge: r.opts.MaxAge, maxBytes: r.opts.MaxBytes, maxRecords: r.opts.MaxRecords}
}

// of are the limits of a call.
func (l limits) of(o evlog.RetainOptions) limits {
	if o.MaxAge != 0 {
		l.maxAge = max(0, o.MaxAge)
	}
	if o.MaxBytes != 0 {
		l.maxBytes = max(0, o.MaxBytes)
	}
	if o.MaxRecords != 0 {
		l.maxRecords = max(0, o.MaxRecords)
	}
	l.below, l.ignoreHold = o.Below, o.IgnoreHold
	return l
}

// watch returns the file system of a log on m.
func (r *random) watch(m *vfs.Mem) *retention {
	k := &retention{r: r, m: m}
	if r.background() {
		k.rules = []limits{r.storedLimits()}
	}
	return k
}

func (k *retention) before(op vfs.Op) error {
	if op.Kind != vfs.OpRemove {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.off || k.failed != nil {
		return nil
	}
	if base, ok := format.ParseSegmentName(op.Name); ok {
		k.failed = k.unlinks(base)
	} else if base, ok := format.ParseIndexName(op.Name); ok && base != k.gone {
		d, err := stateOf(k.m, k.r.w.p.dir)
		if _, there := d.im[evtest.SegmentFile(base)]; err == nil && !there {
			k.swept += int64(len(d.im[op.Name]))
		}
	}
	return nil
}

// unlinks checks that a segment which is about to be unlinked may go. A merge never
// unlinks the first one, nor one without records.
func (k *retention) unlinks(base uint64) error {
	r := k.r
	s, err := stateOf(k.m, r.w.p.dir)
	if err != nil {
		return err
	}
	if len(s.bases) == 0 || s.bases[0] != base {
		return nil
	}
	recs := s.recs[base]
	if len(recs) > 0 && len(s.bases) == 1 {
		return fmt.Errorf("the only segment is unlinked\n%s", s.im.Describe())
	}
	if len(recs) == 0 { // an old one, or a name that is made to go for good
		if len(s.bases) > 1 {
			r.w.model.Due(s.bases[1])
		}
		return nil
	}
	s.total += k.swept
	why, err := k.reason(s)
	if err != nil {
		return fmt.Errorf("segment %d is unlinked: %w\n%s", base, err, s.im.Describe())
	}
	k.gone, k.swept = base, 0
	r.w.model.Due(s.bases[1])
	removals.Lock()
	removals.by[why]++
	removals.Unlock()
	return nil
}

// reason says why the first segment may go.
func (k *retention) reason(s logState) (string, error) {
	r := k.r
	held := false
	at := []moment{r.moment()}
	if k.was != nil {
		at = append(at, *k.was)
	}
	for _, m := range s.planned(at, time.Duration(r.speed())*600*time.Millisecond) {
		now := m.now
		for _, l := range k.rules {
			why := s.due(l, now, m.wait(l.maxAge), false)
			if why == "" {
				continue
			}
			if !l.ignoreHold && s.held(r.opts, now, m.wait(r.opts.HoldAge)) {
				held = true
				continue
			}
			for _, rec := range s.recs[s.bases[0]] {
				if why == "age" && !r.w.model.MayBeOld(rec, now, l.maxAge) {
					return "", fmt.Errorf("for its age of %v at %d, though %v was written less than that ago", l.maxAge, now.UnixMilli(), rec)
				}
			}
			return why, nil
		}
	}
	return "", fmt.Errorf("it is not due by any of %+v at %d, or held (%v): %d bytes in all, an age of an hour waits for %v",
		k.rules, r.clock.Now().UnixMilli(), held, s.total, r.jumps.wait(time.Hour))
}

// planned adds the moments shortly before, at which what goes now may have been
// planned: a time that was not believed then, since it was in the future, may have
// come since.
func (s logState) planned(at []moment, lag time.Duration) []moment {
	for _, m := range slices.Clone(at) {
		var times []time.Time
		for _, r := range s.recs[s.bases[0]] {
			times = append(times, time.UnixMilli(r.TimeMS))
		}
		for _, base := range s.bases[:len(s.bases)-1] {
			times = append(times, s.closed(base)...)
		}
		for _, t := range times {
			if !t.After(m.now) && m.now.Sub(t) < lag {
				at = append(at, moment{t.Add(-time.Millisecond), m.wait})
			}
		}
	}
	return at
}

// removals counts why segments went in such runs.
var removals = struct {
	sync.Mutex
	by map[string]int
}{by: map[string]int{}}

// during has calls judged by their own limits too.
func (k *retention) during(l limits, call func()) error {
	k.mu.Lock()
	k.rules = append(k.rules, l)
	k.swept = 0
	k.mu.Unlock()
	call()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = slices.DeleteFunc(k.rules, func(o limits) bool { return o == l })
	if k.r.background() {
		k.rules = []limits{k.r.storedLimits()}
	}
	return k.failed
}

// moment is what ages count by at some moment.
type moment struct {
	now  time.Time
	wait func(limit time.Duration) time.Duration
}

func (r *random) moment() moment { return moment{r.clock.Now(), r.jumps.waiting()} }

// set notes what held before the clock is set, while a run may be under way that
// goes by it; nil: none is any more.
func (k *retention) set(before *moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.was = before
}

// failure is what was found.
func (k *retention) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// leave: what is done to the disk from now on does not count.
func (k *retention) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off = true
}

// logState is what the files of a log say, as the second implementation reads them.
type logState struct {
	im    evtest.Image
	bases []uint64
	recs  map[uint64][]evtest.Rec
	mtime map[uint64]int64
	total int64 // bytes of all files that count
}

func stateOf(m *vfs.Mem, dir string) (logState, error) {
	s := logState{recs: map[uint64][]evtest.Rec{}, mtime: map[uint64]int64{}}
	var err error
	if s.im, err = evtest.ReadFS(m, dir); err != nil {
		return s, err
	}
	d, err := m.OpenDir(dir)
	if err != nil {
		return s, err
	}
	defer d.Close()
	for name, b := range s.im {
		base, isLog := format.ParseSegmentName(name)
		_, isIndex := format.ParseIndexName(name)
		switch {
		case isLog, isIndex, strings.HasSuffix(name, ".torn"):
		case slices.Contains([]string{"DURABLE", "log.json", "LOCK", "consumers.json", "consumers.lock"}, name):
		default:
			continue
		}
		s.total += int64(len(b))
		if isLog {
			s.recs[base] = evtest.DecodeSegment(base, b).Recs
			if info, err := d.Stat(name); err == nil {
				s.mtime[base] = info.ModTime().UnixMilli()
			}
		}
	}
	s.bases = s.im.Bases()
	return s, nil
}

// due says by which limit the first segment is due, empty for none. Where the files
// can be read in two ways it is due if either says so, or with certain if both do.
func (s logState) due(l limits, now time.Time, wait time.Duration, certain bool) string {
	if len(s.bases) < 2 {
		return ""
	}
	if d, err := s.im.Durable(); err != nil || d.Base <= s.bases[0] {
		return ""
	}
	switch {
	case s.bases[1] <= l.below:
		return "below"
	case l.maxAge > 0 && wait == 0 && s.old(now, l.maxAge, certain):
		return "age"
	case l.maxBytes > 0 && s.total > l.maxBytes:
		return "bytes"
	case l.maxRecords > 0 && s.above(certain) >= l.maxRecords:
		return "records"
	}
	return ""
}

// above is the number of records that are not in the first segment.
func (s logState) above(certain bool) int64 {
	d, _ := s.im.Durable()
	seen := map[uint64]bool{}
	for _, r := range s.recs[s.bases[0]] {
		seen[r.Offset] = true
	}
	n, next := int64(0), s.bases[0]
	for i, base := range s.bases {
		overlaps := base < next // its records stand in the one below, and go with that
		for _, r := range s.recs[base] {
			next = max(next, r.Offset+1)
		}
		if i == 0 || certain && overlaps {
			continue
		}
		for _, r := range s.recs[base] {
			if !seen[r.Offset] && (!certain || r.Offset < d.Next) {
				n++
			}
			seen[r.Offset] = true
		}
	}
	return n
}

// old reports whether the first segment has an age of limit.
func (s logState) old(now time.Time, limit time.Duration, certain bool) bool {
	ages := s.times(now)
	is := func(at time.Time) bool { return !at.Add(limit).After(now) }
	if certain {
		return len(ages) > 0 && !slices.ContainsFunc(ages, func(at time.Time) bool { return !is(at) })
	}
	return slices.ContainsFunc(ages, is)
}

var plausibleSince = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// times are those that the age of the first segment may count from.
func (s logState) times(now time.Time) (ages []time.Time) {
	plausible := func(at time.Time) bool { return !at.Before(plausibleSince) && !at.After(now) }
	highest := time.Time{}
	for _, r := range s.recs[s.bases[0]] {
		if at := time.UnixMilli(r.TimeMS); highest.IsZero() || at.After(highest) {
			highest = at
		}
	}
	for i, base := range s.bases[:len(s.bases)-1] {
		for _, closed := range s.closed(base) {
			switch {
			case i == 0 && plausible(highest) && plausible(closed) && closed.Before(highest):
				ages = append(ages, closed)
			case i == 0 && plausible(highest):
				ages = append(ages, highest)
			case plausible(closed):
				ages = append(ages, closed)
			}
		}
		if len(ages) > 0 {
			break
		}
	}
	return ages
}

// closed is when a segment was closed: by its index, and by its file where that
// does not match.
func (s logState) closed(base uint64) (at []time.Time) {
	at = []time.Time{time.UnixMilli(s.mtime[base])}
	h, err := format.ParseIndexHeader(s.im[evtest.IndexFile(base)])
	if err == nil && h.ClosedMS != 0 && h.LogSize == int64(len(s.im[evtest.SegmentFile(base)])) {
		if closed := time.UnixMilli(h.ClosedMS); !closed.Equal(at[0]) {
			at = append(at, closed)
		}
	}
	return at
}

// held reports whether the first segment stays for consumers' sake for sure.
func (s logState) held(o evlog.Options, now time.Time, wait time.Duration) bool {
	if o.HoldBytes > 0 && s.total > o.HoldBytes {
		return false
	}
	if o.HoldAge > 0 && wait == 0 && s.old(now, o.HoldAge, false) {
		return false
	}
	return s.wanted(o)
}

// wanted reports whether a consumer that is held for has not finished the first
// segment.
func (s logState) wanted(o evlog.Options) bool {
	if len(s.bases) < 2 {
		return false
	}
	var c struct {
		Consumers map[string]struct {
			Next uint64 `json:"next_offset"`
		} `json:"consumers"`
	}
	_ = json.Unmarshal(s.im["consumers.json"], &c)
	return slices.ContainsFunc(o.HoldFor, func(name string) bool { return c.Consumers[name].Next < s.bases[1] })
}

// retain calls for retention with limits of every kind.
func (r *random) retain() {
	w, rng := r.w, r.gen.Rng
	var o evlog.RetainOptions
	next := w.l.Stats().DurableNext
	if rng.IntN(2) == 0 {
		o.Below = next - min(next, rng.Uint64N(60))
	}
	if rng.IntN(3) == 0 {
		o.MaxAge = time.Duration(1+rng.IntN(60)) * r.unit
	}
	if rng.IntN(4) == 0 {
		o.MaxBytes = 1 + rng.Int64N(2*max(1, w.m.Used()))
	}
	if rng.IntN(4) == 0 {
		o.MaxRecords = 1 + rng.Int64N(150)
	}
	o.IgnoreHold = rng.IntN(4) == 0
	w.done = append(w.done, fmt.Sprintf("retain %+v", o))
	r.retainBy(o)
}

// retainBy does that, and checks that what is due is gone. Files may change until
// the call has looked at them, and after it.
func (r *random) retainBy(o evlog.RetainOptions) {
	w := r.w
	l := r.storedLimits().of(o)
	for tries := 1; ; tries++ {
		r.jumps.look()
		now := r.clock.Now()
		var rep *evlog.RetainReport
		var err error
		r.fatal(r.keeps.during(l, func() { rep, err = w.l.Retain(w.p.ctx, &o) }))
		if rep != nil && !r.background() { // what is done beside it may be done by halves when the power fails
			for _, s := range rep.Removed {
				r.fatal(w.model.Gone(s.End))
			}
		}
		if errors.Is(err, fs.ErrPermission) {
			return // open elsewhere, by the rules of Windows: later
		}
		r.fatal(err)
		if l.maxAge > 0 {
			r.checkClockWait(rep.ClockWait, l.maxAge, "retain")
		}
		s, err := stateOf(w.m, w.p.dir)
		r.fatal(err)
		why := s.due(l, now, rep.ClockWait, true)
		if !o.IgnoreHold && s.wanted(r.opts) && len(rep.Held) > 0 {
			return
		}
		if why == "" {
			r.fatal(r.outlives(s, l, now.Add(-rep.ClockWait)))
			return
		}
		if tries > 300 { // seconds: the background changes files meanwhile
			r.fatal(fmt.Errorf("retain %+v leaves segment %d, which is due for its %s at %d, %d bytes in all; held: %v\n%s",
				l, s.bases[0], why, now.UnixMilli(), s.total, rep.Held, s.im.Describe()))
		}
		time.Sleep(time.Duration(min(tries, 20)) * time.Millisecond)
	}
}

// outlives finds a record that has stayed for longer than a merge may have it stay: by
// a quarter of MaxAge, and only where the log knows of that.
func (r *random) outlives(s logState, l limits, now time.Time) error {
	if r.opts.MaxAge <= 0 || l.maxAge <= 0 || r.clockSet || len(s.bases) < 2 {
		return nil
	}
	for _, rec := range s.recs[s.bases[0]] {
		closed, known := r.closed[rec.Offset]
		if known && now.Sub(closed) > l.maxAge+r.opts.MaxAge/4 {
			return fmt.Errorf("%v was in a closed segment at %d and stays at %d, with an age of %v, though segments are merged within a quarter of %v\n%s",
				rec, closed.UnixMilli(), now.UnixMilli(), l.maxAge, r.opts.MaxAge, s.im.Describe())
		}
	}
	return nil
}

// noteClosed notes which records are in closed segments by now.
func (r *random) noteClosed() {
	if r.opts.MaxAge <= 0 {
		return
	}
	d, err := onFS(r.t, r.w.m).image(r.t).Durable()
	r.fatal(err)
	for _, rec := range r.w.model.Settled() {
		if _, known := r.closed[rec.Offset]; !known && rec.Offset < d.Base {
			r.closed[rec.Offset] = r.clock.Now()
		}
	}
}

// mergedSizes checks that no merge has made a segment larger than a roll would. One
// case has another limit: an append, a compaction that joins segments 0 and 10 while
// a later record has the keys of the last ones in 10, and a failed sync or a kill
// after the rename. Segment 0 then ends below what went from 10, which is still there.
// The next compaction clears that first, and takes along what 10 has above that end,
// whatever it is, as readers may have gone on there: so segment 0 grows by less than
// one segment, until the same run drops those records again. Such a change drops
// nothing, and its sum is smaller than its segments, for they hold the same records.
func (r *random) mergedSizes(rep *evlog.CompactReport) error {
	limit := r.opts.SegmentBytes
	if r.opts.MaxBytes > 0 {
		limit = min(limit, r.opts.MaxBytes/4)
	}
	for all := rep.Changes; len(all) > 0; {
		n := 1
		for n < len(all) && all[n].Base != all[n].Into {
			n++
		}
		into, last := all[0], all[n-1]
		sum, dropped := int64(0), uint64(0)
		for _, c := range all[:n] {
			sum += c.Before
			dropped += c.Superseded + c.Tombstones
		}
		cleared := dropped == 0 && into.After < sum && into.After-into.Before < last.Before
		if n > 1 && into.After > limit && into.After > into.Before && !cleared {
			return fmt.Errorf("segment %d was merged into %d, which has %d bytes now, with a limit of %d: %+v", last.Base, into.Base, into.After, limit, all[:n])
		}
		all = all[n:]
	}
	return nil
}

// checkClockWait compares for how long ages wait with what the clock did.
func (r *random) checkClockWait(got, limit time.Duration, what string) {
	want := r.jumps.wait(limit)
	switch {
	case got > limit, got > 0 && !r.jumps.ever:
		r.fatal(fmt.Errorf("%s: ages of %v wait for %v", what, limit, got))
	case got < want-time.Minute:
		r.fatal(fmt.Errorf("%s: after a jump of the clock ages of %v wait for %v, and should for %v", what, limit, got, want))
	}
}

// commit moves the cursor of the consumer that is held for, in place: the file has
// one name for ever.
func (r *random) commit() {
	w, rng := r.w, r.gen.Rng
	if len(r.opts.HoldFor) == 0 {
		return
	}
	next := w.l.Stats().DurableNext
	next -= min(next, rng.Uint64N(40))
	w.done = append(w.done, fmt.Sprintf("commit %d", next))
	b := fmt.Appendf(nil, `{"version":1,"log_id":%q,"consumers":{"a":{"next_offset":%20d,"updated_ms":1}}}`, w.l.ID(), next)
	d, err := w.m.OpenDir(w.p.dir)
	r.fatal(err)
	defer d.Close()
	f, err := d.OpenFile("consumers.json", os.O_RDWR|os.O_CREATE, 0o600)
	r.fatal(err)
	defer f.Close()
	_, err = f.WriteAt(b, 0)
	r.fatal(errors.Join(err, f.Sync()))
}
