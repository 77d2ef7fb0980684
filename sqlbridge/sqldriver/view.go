package sqldriver

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"modernc.org/libc"
	"modernc.org/sqlite/vtab"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// source is a log as tables see it. Safe for concurrent use.
type source struct {
	reader *evlog.Reader
	log    *evlog.Log      // nil: nothing can be inserted
	base   context.Context // has the file system; never ends
	store  *cursor.File    // nil where no consumers are shown
	config config
	gates  gateHolders
}

// session is what the tables of one connection share. A connection is used by
// one goroutine at a time, and so is its session.
type session struct {
	*source
	engine engineConn      // the connection; nil in an attached table
	handle uintptr         // SQLite's, of it; 0 where it is not known
	tls    *libc.TLS       // for calls with the handle
	ctx    context.Context // of the call under way
	call   *callContext    // the same for a call that may append; nil where it does not end
	err    error           // why a callback failed in the call under way
	exact  bool            // keys are compared byte by byte, by the statement's text
	loose  bool            // collations of unknown rules may be at work: text is not looked up

	attached bool   // the table is in somebody else's connection
	why      string // INSERT is refused for this reason; empty if it is not

	inserts     bool   // the statement being compiled inserts, and what it reads may be for RETURNING
	returning   bool   // the text has the word RETURNING
	transaction string // the last of BEGIN, COMMIT and ROLLBACK in the statements under way

	// pins counts the open cursors and transactions. While there are any, view
	// stays as it is: a statement keeps at least one cursor until it ends, also
	// where it reads the log in several places, so all of it sees one state.
	pins int
	held bool  // one of them is that of a transaction
	dead error // why that transaction can only be ended
	view view
	last evlog.Prefix // the last one that was looked at, by whichever statement

	tx appending
}

// view is the state of the log that a statement sees: the records of a prefix
// from low on.
type view struct {
	taken bool
	evlog.Prefix
	low   uint64 // nothing below is shown
	begun uint64 // the lowest offset from which something was read, plus one; 0 before that

	bases     []uint64
	segments  [][]vtab.Value // the rows of these tables
	consumers [][]vtab.Value
}

func (s *session) pin() { s.pins++ }

func (s *session) unpin() {
	if s.pins--; s.pins == 0 {
		s.view = view{}
	}
}

// hold keeps the view for a transaction.
func (s *session) hold() {
	if !s.held {
		s.held = true
		s.pin()
	}
}

// release ends that, if there is a transaction.
func (s *session) release() {
	if s.held {
		s.held, s.dead = false, nil
		s.unpin()
	}
}

// look returns the view, which is taken with the first look at it.
func (s *session) look() (*view, error) {
	if s.view.taken {
		return &s.view, nil
	}
	v := view{taken: true, begun: s.view.begun}
	var err error
	if s.config.consumer != "" {
		// Before the end: what is committed never lies above it then.
		if v.low, err = s.committed(); err != nil {
			return nil, err
		}
	}
	if v.Prefix, err = s.reader.Prefix(s.ctx); err != nil {
		return nil, err
	}
	s.last = v.Prefix
	if !s.config.since.IsZero() {
		at, err := s.reader.OffsetAt(s.ctx, s.config.since)
		if err != nil && !errors.Is(err, evlog.ErrNotFound) {
			return nil, err
		}
		v.low = max(v.low, at)
	}
	s.view = v
	return &s.view, nil
}

// known returns a prefix that answers for this offset as the one that is durable
// now would: a record, or a hole, stays. That spares the look at what is durable
// now, a third of what a look-up costs in another process than the writer's.
func (s *session) known(offset uint64) (p evlog.Prefix, ok bool) {
	return s.last, !s.view.taken && offset < s.last.Next() &&
		s.config.consumer == "" && s.config.since.IsZero()
}

// committed is where the consumer of the option stands. One that has not committed
// yet has all before it, as for cursor.Run.
func (s *session) committed() (uint64, error) {
	p, err := s.store.Load(s.ctx, s.config.consumer)
	switch {
	case errors.Is(err, cursor.ErrUnknownConsumer):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("sqldriver: %w", err)
	}
	start, err := cursor.Resolve(s.ctx, s.reader, p.Name, p.Next, p.LogID, cursor.Fail)
	if err != nil {
		return 0, fmt.Errorf("sqldriver: %w", err)
	}
	return start.Next, nil
}

// segmentOf is the base of the segment that holds an offset, as the log was
// divided when the statement first asked.
func (s *session) segmentOf(offset uint64) (uint64, error) {
	bases, err := s.basesOf()
	if err != nil {
		return 0, err
	}
	i := sort.Search(len(bases), func(i int) bool { return bases[i] > offset })
	if i == 0 {
		return 0, s.removed(offset, bases[0])
	}
	return bases[i-1], nil
}

func (s *session) basesOf() ([]uint64, error) {
	v, err := s.look()
	if err != nil {
		return nil, err
	}
	if v.bases == nil {
		v.bases, err = s.reader.Bases(s.ctx)
	}
	return v.bases, err
}

// began notes that something was read from an offset on.
func (v *view) began(from uint64) {
	if v.begun == 0 || from < v.begun-1 {
		v.begun = from + 1
	}
}

// retryAt says where to begin in place of an offset that reading refused with err:
// at the first record left.
func (s *session) retryAt(err error) (uint64, error) {
	var below *evlog.OffsetError
	if !errors.As(err, &below) || below.Asked >= below.First {
		return 0, err
	}
	err = s.goOn(below.Asked, below.First)
	return s.view.low, err
}

// goOn lets reading that was to begin at from do so at first, which is what
// retention has left. That is refused where this statement has read lower ones, or
// would see nothing of a log that has records: it would see a state that never was.
func (s *session) goOn(from, first uint64) error {
	v := &s.view
	if from >= first {
		return nil
	}
	overtaken := v.begun != 0 && v.begun-1 < first || v.taken && first > v.Next()
	if v.taken && first == v.Next() {
		now, err := s.reader.Prefix(s.ctx)
		if err != nil {
			return err
		}
		overtaken = overtaken || now.Next() > v.Next()
	}
	if overtaken {
		return s.removed(from, first)
	}
	v.low = max(v.low, first)
	return nil
}

// removed is the error where retention has removed what was to be read.
func (s *session) removed(from, first uint64) error {
	return fmt.Errorf("sqldriver: %w", &evlog.OffsetError{Asked: from, First: first, Next: s.view.Next()})
}
