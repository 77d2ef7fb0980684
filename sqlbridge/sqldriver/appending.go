package sqldriver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"modernc.org/sqlite/vtab"

	"github.com/evlog-go/evlog/evlog"
)

// appending is the transaction of a connection that inserts. The first INSERT
// takes the log's append gate, so that the offsets of all its rows are known; rows
// are collected; SQLite's commit calls Sync, which writes them as one batch, and
// whose failure makes the commit fail. Between the first INSERT and the end nobody
// else can append, so that time is limited.
type appending struct {
	records []evlog.Record
	bytes   int64 // of them, as they stand in the log
	arena   arena
	marks   map[int]int // savepoint: how many records there were

	mu    sync.Mutex // guards the rest; taken by the timer too
	gate  *evlog.Gate
	timer *time.Timer
	lost  error // the gate was taken away
}

// gateHolders is the one transaction of a source that has the gate, if any.
type gateHolders struct {
	mu     sync.Mutex // guards the rest
	holder *appending
	closed bool
}

// Insert collects a row.
func (t *logTable) Insert(values []vtab.Value, rowid *int64) (err error) {
	defer t.guard(&err)
	if t.why != "" {
		return notAllowed("INSERT: %s", t.why)
	}
	if *rowid != 0 { // modernc.org/sqlite makes 0 of none, so an explicit 0 is none
		return notAllowed("INSERT with a rowid: the log gives offsets")
	}
	*rowid, err = t.session.insert(values)
	return err
}

func (a *appending) add(rec evlog.Record) {
	a.records = append(a.records, rec)
	a.bytes += rec.Size()
}

// cut forgets all records but the first n.
func (a *appending) cut(n int) {
	for _, rec := range a.records[n:] {
		a.bytes -= rec.Size()
	}
	clear(a.records[n:])
	a.records = a.records[:n]
}

// insert collects a row, and returns the offset that it will have.
func (s *session) insert(values []vtab.Value) (int64, error) {
	rec, err := s.tx.arena.record(values)
	if err != nil {
		return 0, err
	}
	if err := s.log.Check(rec); err != nil {
		return 0, fmt.Errorf("sqldriver: INSERT: %w", err)
	}
	if size := s.tx.bytes + rec.Size(); size > s.config.most {
		return 0, fmt.Errorf("sqldriver: INSERT: a transaction of %d bytes: %w (at most %d)", size, evlog.ErrTooLarge, s.config.most)
	}
	next, err := s.offsetForInsert()
	if err != nil {
		return 0, err
	}
	s.tx.add(rec)
	return int64(next), nil
}

// Update is refused.
func (t *logTable) Update(int64, []vtab.Value, *int64) (err error) {
	defer t.guard(&err)
	return notAllowed("UPDATE: a log is only appended to")
}

// Delete is refused.
func (t *logTable) Delete(int64) (err error) {
	defer t.guard(&err)
	return notAllowed("DELETE: a log is only appended to; retention removes its old end")
}

// offsetForInsert is the offset that the next row gets. It takes the gate if this
// transaction does not have it yet.
func (s *session) offsetForInsert() (uint64, error) {
	a := &s.tx
	a.mu.Lock()
	gate, lost := a.gate, a.lost
	a.mu.Unlock()
	switch {
	case lost != nil:
		return 0, lost
	case gate == nil:
		var err error
		if gate, err = s.takeGate(); err != nil {
			return 0, err
		}
	}
	next := gate.Next() + uint64(len(a.records))
	if next > maxOffset {
		return 0, fmt.Errorf("sqldriver: offset %d: %w for an integer in SQL", next, evlog.ErrTooLarge)
	}
	return next, nil
}

func (s *session) takeGate() (*evlog.Gate, error) {
	gate, err := s.log.Gate(s.ctx, "sqldriver: a transaction with INSERT")
	if err != nil {
		return nil, err
	}
	a := &s.tx
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	if s.gates.closed {
		gate.Release()
		return nil, evlog.ErrClosed
	}
	s.gates.holder = a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gate = gate
	hold := s.config.hold
	a.timer = time.AfterFunc(hold, func() {
		a.lose(gate, fmt.Errorf("sqldriver: %w (%v)", ErrHeldTooLong, hold))
	})
	return gate, nil
}

// lose takes this gate, or with nil the one it has, away from a transaction that
// has not begun to commit.
func (a *appending) lose(gate *evlog.Gate, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gate == nil || gate != nil && gate != a.gate {
		return
	}
	a.gate.Release()
	a.gate, a.lost = nil, why
}

// seize takes the gate for the commit: from here on it is not lost.
func (a *appending) seize() (*evlog.Gate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gate := a.gate
	a.gate = nil
	if a.timer != nil {
		a.timer.Stop()
	}
	return gate, a.lost
}

// Begin begins a transaction.
func (t *logTable) Begin() error { return nil }

// Sync appends what was inserted, and waits until it is durable. Others may append
// as soon as it is written.
func (t *logTable) Sync() (err error) {
	defer t.guard(&err)
	a := &t.tx
	gate, err := a.seize()
	if gate == nil || err != nil {
		return err
	}
	defer gate.Release() // also in a panic
	if len(a.records) == 0 {
		return nil
	}
	if err := t.call.write(); err != nil {
		return err
	}
	ticket, err := gate.Write(a.records...)
	gate.Release()
	if err != nil {
		return err
	}
	// What is written cannot be taken back, so its outcome is waited for.
	return ticket.Wait(context.WithoutCancel(t.base))
}

// Commit ends a transaction whose Sync succeeded.
func (t *logTable) Commit() error {
	t.session.abandon()
	return nil
}

// Rollback ends a transaction and forgets what it has collected. Where nobody has
// asked for it, whoever holds the transaction does not know that it has ended: what
// is inserted next would be committed at once. So it is refused.
func (t *logTable) Rollback() error {
	if t.transaction == "BEGIN" || t.transaction == "" && t.held {
		t.dead = fmt.Errorf("sqldriver: %w", ErrRolledBack)
	}
	t.session.abandon()
	return nil
}

// abandon ends the transaction, whatever its state.
func (s *session) abandon() {
	a := &s.tx
	if gate, _ := a.seize(); gate != nil {
		gate.Release()
	}
	s.gates.mu.Lock()
	if s.gates.holder == a {
		s.gates.holder = nil
	}
	s.gates.mu.Unlock()
	a.mu.Lock()
	a.lost, a.timer = nil, nil
	a.mu.Unlock()
	a.cut(0)
	a.arena.reset()
	clear(a.marks)
}

// Savepoint marks how far the transaction is.
func (t *logTable) Savepoint(i int) error {
	if t.tx.marks == nil {
		t.tx.marks = map[int]int{}
	}
	t.tx.marks[i] = len(t.tx.records)
	return nil
}

// Release does nothing: the mark is overwritten when there is another one.
func (t *logTable) Release(int) error { return nil }

// RollbackTo forgets what was inserted behind a savepoint. One that is not known
// was there before the transaction's first INSERT.
func (t *logTable) RollbackTo(i int) error {
	a := &t.tx
	a.cut(min(a.marks[i], len(a.records)))
	return nil
}

// shut takes the gate from the transaction that has it, and lets no other one
// have it.
func (g *gateHolders) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.holder != nil {
		g.holder.lose(nil, fmt.Errorf("sqldriver: %w", evlog.ErrClosed))
		g.holder = nil
	}
}
