package outbox

import (
	"context"

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
	done, err := b.takeOver(ctx, hs)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.opened = opened{reader: hs.Reader, epoch: done.epoch}
	b.mu.Unlock()
	if done.mismatch != nil {
		b.logger.Warn("outbox: log and database do not belong together; going on", "err", done.mismatch)
		b.rec.event(Event{Kind: EventMismatch, Err: done.mismatch})
	}
	if len(done.rows) > 0 {
		b.logger.Info("outbox: resolved an open intent", "offset", done.offset,
			"relayed", done.there, "again", done.again(), "dropped", done.dropped)
		b.rec.event(done.event())
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
func (b *Box) takeOver(ctx context.Context, hs evlog.HookState) (done taken, err error) {
	var s *session
	err = b.patiently(ctx, func() (err error) {
		s, err = b.session(ctx)
		return err
	})
	if err != nil {
		return done, err
	}
	defer s.close()
	err = b.patiently(ctx, func() error {
		return b.transact(ctx, &s.connection, func(t *tx) (err error) {
			done, err = b.takeOverIn(ctx, t, hs)
			return err
		})
	})
	return done, err
}

// takeOverIn is takeOver within its transaction.
func (b *Box) takeOverIn(ctx context.Context, t *tx, hs evlog.HookState) (taken, error) {
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
		done.resolution, err = b.resolveAstray(t, s)
	} else {
		done.resolution, err = b.resolve(t, s, in)
	}
	if err != nil {
		return taken{}, err
	}
	return done, t.store(state{epoch: done.epoch, logID: hs.LogID, logEnd: int64(hs.Next)})
}

// inLog tells which rows of the intent are in the log.
func (b *Box) inLog(s state, hs evlog.HookState) func(i int) bool {
	gaps := hs.Gaps
	if b.rules.Off(outboxrule.Gaps) {
		gaps = nil
	}
	return func(i int) bool { return s.in(i, hs.Next, gaps) }
}
