package outbox

import (
	"context"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
)

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
	noted := n.box != "" && !b.rules.Off(outboxrule.Note)
	switch {
	case changed:
		mismatch = say(ErrLogChanged, s.offset)
	case noted && n.box != s.box:
		mismatch = say(ErrDatabaseChanged, s.offset)
	case noted && n.epoch > s.epoch:
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
