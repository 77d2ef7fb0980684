package outbox

import (
	"context"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
)

// HookName is what log.json stores of a log that an outbox is relayed into.
const HookName = "outbox"

// Hook is the open hook that a log needs into which this outbox is relayed: give
// it to evlog.Open as Options.OpenHook. While the log is opened, before anybody
// can append, it finds out which rows of an open intent are in the log, and
// removes those.
//
// Opening waits for the database's lock, up to a minute, and fails with a
// *MismatchError if log and database do not belong together. Once a relay has
// run, a log can be appended to only if it was opened with this hook.
func (b *Box) Hook() evlog.Hook { return evlog.Hook{Name: HookName, Run: b.open} }

func (b *Box) open(ctx context.Context, hs evlog.HookState) error {
	release, err := b.register()
	if err != nil {
		return err
	}
	defer release()
	var s *session
	err = b.patiently(ctx, func() (err error) {
		s, err = b.session(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer s.close()
	var t taken
	err = b.patiently(ctx, func() error {
		return b.transact(ctx, &s.connection, func(x *tx) (err error) {
			t, err = b.takeOver(ctx, x, hs)
			return err
		})
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.opened = opened{reader: hs.Reader, epoch: t.epoch}
	b.mu.Unlock()
	if t.mismatch != nil {
		b.logger.Warn("outbox: log and database do not belong together; going on", "err", t.mismatch)
		b.rec.event(Event{Kind: EventMismatch, Err: t.mismatch})
	}
	if len(t.rows) > 0 {
		b.logger.Info("outbox: resolved an open intent", "offset", t.offset, "relayed", t.there, "again", len(t.rows)-t.there)
		b.rec.event(t.event())
	}
	return nil
}

// taken is what takeOver did.
type taken struct {
	resolution
	epoch    int64
	mismatch error
}

// takeOver makes this box the one that relays, after resolving what the one
// before has left. It is one transaction, and doing it again does no harm.
func (b *Box) takeOver(ctx context.Context, t *tx, hs evlog.HookState) (taken, error) {
	if err := tables.Check(t.ctx, t); err != nil {
		return taken{}, err
	}
	s, err := t.state()
	if err != nil {
		return taken{}, err
	}
	if err := fits(hs.Next, 0); err != nil {
		return taken{}, err
	}
	n := parseNote(hs)
	done := taken{epoch: max(s.epoch, n.epoch) + 1}
	if b.rules.Off(outboxrule.HookFirst) {
		done.epoch = s.epoch
		return done, nil
	}
	var astray bool
	done.mismatch, astray, err = b.mismatch(ctx, s, n, hs)
	if err != nil || done.mismatch != nil && b.opts.Policy == Fail {
		return taken{}, join(done.mismatch, err)
	}
	in := b.inLog(s, hs)
	if b.rules.Off(outboxrule.ByOffset) {
		if s.intent, in, err = b.guess(ctx, t, s, hs); err != nil {
			return taken{}, err
		}
	}
	if astray {
		in = func(int) bool { return b.opts.Policy == DropIntent }
	}
	if done.resolution, err = b.resolve(t, s, in); err != nil {
		return taken{}, err
	}
	return done, b.store(t, s.epoch, state{epoch: done.epoch, logID: hs.LogID, logEnd: int64(hs.Next)})
}

// inLog tells which rows of the intent are in the log.
func (b *Box) inLog(s state, hs evlog.HookState) func(i int) bool {
	gaps := hs.Gaps
	if b.rules.Off(outboxrule.Gaps) {
		gaps = nil
	}
	return func(i int) bool { return s.in(i, hs.Next, gaps) }
}

// guess is what one would do without intents: the rows that are queued are taken
// for relayed if the log has such records. It is there to show that this loses
// events, since two can be equal.
func (b *Box) guess(ctx context.Context, t *tx, s state, hs evlog.HookState) (intent, func(i int) bool, error) {
	in := intent{offset: s.logEnd}
	err := queryRows(ctx, t, func(r Row) bool {
		in.rows = append(in.rows, rowRef{id: r.ID, uid: r.UID, sum: sumOf(r.Record)})
		return false
	}, `SELECT `+rowColumns+` FROM main.evlog_outbox WHERE parked IS NULL ORDER BY id LIMIT ?1`, b.opts.BatchRows)
	k := 0
	if err == nil {
		err = eachRecord(ctx, hs, uint64(s.logEnd), hs.Next, func(r evlog.Record) error {
			if k < len(in.rows) && sumOf(r) == in.rows[k].sum {
				k++
			}
			return nil
		})
	}
	return in, func(i int) bool { return i < k }, err
}

// note is what the relay leaves in log.json: which outbox it is, and how often
// it was taken over. A database that is older than the log has a lower number.
type note struct {
	box   string
	epoch int64
}

func (n note) String() string { return fmt.Sprintf("%s %d", n.box, n.epoch) }

// parseNote reads the note; zero if there is none.
func parseNote(hs evlog.HookState) (n note) {
	if _, err := fmt.Sscanf(hs.Note, "%s %d", &n.box, &n.epoch); err != nil {
		return note{}
	}
	return n
}

// mismatch tells whether log and database belong together, and whether the
// intent's offset is astray: then how far the log has got says nothing about the
// rows. Several things can be wrong at once; the error is the first of them.
func (b *Box) mismatch(ctx context.Context, s state, n note, hs evlog.HookState) (mismatch error, astray bool, err error) {
	changed := s.logID != "" && s.logID != hs.LogID && !b.rules.Off(outboxrule.LogID)
	behind := uint64(s.logEnd) > hs.Next && !b.rules.Off(outboxrule.Ahead)
	other, differs := s.offset, false
	if !changed && !b.rules.Off(outboxrule.Sums) {
		if other, differs, err = s.differs(ctx, hs); err != nil {
			return nil, false, err
		}
	}
	say := func(err error, offset int64) error {
		return &MismatchError{
			Err: err, Database: b.file, LogID: hs.LogID, Next: hs.Next, RelayedTo: s.logID, End: uint64(s.logEnd),
			Offset: uint64(offset), Rows: len(s.rows), Outbox: note{s.box, s.epoch}.String(), FedBy: n.String(),
		}
	}
	note := n.box != "" && !b.rules.Off(outboxrule.Note)
	switch {
	case changed:
		mismatch = say(ErrLogChanged, s.offset)
	case note && n.box != s.box:
		mismatch = say(ErrDatabaseChanged, s.offset)
	case note && n.epoch > s.epoch:
		mismatch = say(ErrDatabaseBehind, s.offset)
	case behind:
		mismatch = say(ErrLogBehind, s.offset)
	case differs:
		mismatch = say(ErrLogMismatch, other)
	}
	return mismatch, changed || behind || differs, nil
}

// differs finds the first record where the intent's should stand that is none of
// them.
func (s state) differs(ctx context.Context, hs evlog.HookState) (offset int64, differs bool, err error) {
	if len(s.rows) == 0 {
		return 0, false, nil
	}
	from := uint64(s.offset)
	err = eachRecord(ctx, hs, from, from+uint64(len(s.rows)), func(r evlog.Record) error {
		if !differs && sumOf(r) != s.rows[r.Offset-from].sum {
			offset, differs = int64(r.Offset), true
		}
		return nil
	})
	return offset, differs, err
}

// eachRecord calls f for the records of [from, to) that the log has.
func eachRecord(ctx context.Context, hs evlog.HookState, from, to uint64, f func(evlog.Record) error) error {
	first, _, err := hs.Reader.Bounds(ctx)
	if err != nil {
		return err
	}
	from, to = max(from, first), min(to, hs.Next)
	if from >= to {
		return nil
	}
	for r, err := range hs.Reader.Records(ctx, from) {
		if err != nil {
			return err
		}
		if r.Offset >= to {
			return nil
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}
