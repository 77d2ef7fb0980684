// Package tablelog is a log in an SQLite table with an integer primary key: what
// one would use without evlog, behind the interface that consumers take
// (cursor.Log). A project can start with it and move to files when it has to:
// AppendExact of one and Records of the other copy a log either way, as the
// commands "evlog append --from-table" and "evlog cat --to-table" do.
//
// What it has that a directory of files has not: several processes may append,
// and AppendTx appends in a transaction of the application's own, together with
// other rows. What it lacks: one sync for many callers, readers that are woken
// across processes, and an old end that goes by deleting files.
//
// It is as durable as the database's settings. With synchronous=FULL a record
// that was appended survives a power failure, and readers see nothing that could
// still vanish; with WAL and NORMAL both are so after the next checkpoint only.
//
// It imports no driver, and works on plain database/sql.
package tablelog

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// DefaultTable is the default of Options.Table.
const DefaultTable = "evlog_table"

// Options are the choices of Open. Nil and the zero value mean defaults.
type Options struct {
	// Table is the name of the table: ASCII letters, digits and underscores.
	// Default evlog_table.
	Table string
	// PollInterval is how often a follower asks the database for what came by
	// AppendTx or from another process. Default 1 ms after activity, growing to
	// 100 ms when idle; set, it is fixed.
	PollInterval time.Duration
	// MustExist makes Open refuse to create the log: ErrNoTable. It writes nothing
	// then.
	MustExist bool
	// ID and FirstOffset are what a log begins with that Open creates, so that it
	// can be a copy of another one (see AppendExact, SkipTo): the other's identity,
	// 1 to 64 printable characters of ASCII without spaces and "/", and its first
	// offset. Default a random one, and 0. They mean nothing where there is a log
	// already. Two logs of one identity must not both be appended to.
	ID          string
	FirstOffset uint64
}

// Log is a log in a table. It holds no connection between calls. Methods are
// safe for concurrent use.
type Log struct {
	db    *sql.DB
	table string
	id    string
	opts  Options
	q     queries

	mu      sync.Mutex
	changed chan struct{} // closed when something was appended here
}

// Errors of Open.
var (
	// ErrTable: the table is there, and is none of this package.
	ErrTable = errors.New("not a table of tablelog")
	// ErrNoTable: there is no log with this name in the database (see
	// Options.MustExist).
	ErrNoTable = errors.New("no log in a table of this name")
)

// Open opens the log in a table of the main database of db, and creates it if it
// is not there. db belongs to the caller.
//
// Each column of a record is a column of the table: offset, ts_ms, schema, key,
// value, and two computed ones, tombstone and time, which is the time in RFC 3339,
// NULL outside the years 0 to 9999. Keys and values are stored as text where they
// are valid UTF-8, so that comparisons and json_extract work, and as blobs
// otherwise; empty ones are NULL. Query it as you like, and change it only
// through this package: the next offset and the first one left are in the table
// evlog_tablelog. Records are limited as a log's are by default
// (evlog.DefaultMaxRecordBytes).
func Open(ctx context.Context, db *sql.DB, opts *Options) (*Log, error) {
	l, err := newLog(db, opts)
	if err != nil {
		return nil, err
	}
	err = db.QueryRowContext(ctx, l.q.id, l.table).Scan(&l.id)
	switch missing := errors.Is(err, sql.ErrNoRows) || err != nil && strings.Contains(err.Error(), "no such table"); {
	case err == nil:
		return l, nil
	case missing && l.opts.MustExist:
		return nil, fmt.Errorf("tablelog: open %s: %w", l.table, ErrNoTable)
	case l.opts.MustExist:
		return nil, fmt.Errorf("tablelog: open %s: %w", l.table, err)
	}
	if err := l.inTx(ctx, l.create); err != nil {
		return nil, fmt.Errorf("tablelog: open %s: %w", l.table, err)
	}
	return l, nil
}

func newLog(db *sql.DB, opts *Options) (*Log, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if err := checkTable(o.Table); err != nil {
		return nil, err
	}
	o.Table = strings.ToLower(o.Table) // "Log" is the same table to SQLite as "log"
	if o.PollInterval < 0 {
		return nil, fmt.Errorf("tablelog: PollInterval is %v: %w", o.PollInterval, evlog.ErrBadOptions)
	}
	switch {
	case o.ID == "":
		o.ID = rand.Text()
	case !format.ValidID(o.ID):
		return nil, fmt.Errorf("tablelog: ID is %q: %w (1 to 64 printable characters of ASCII without spaces and \"/\")", o.ID, evlog.ErrBadOptions)
	}
	if o.FirstOffset > maxOffset {
		return nil, fmt.Errorf("tablelog: FirstOffset is %d: %w (at most %d)", o.FirstOffset, evlog.ErrBadOptions, uint64(maxOffset))
	}
	return &Log{db: db, table: o.Table, opts: o, q: queriesOf(o.Table), changed: make(chan struct{})}, nil
}

func checkTable(name string) error {
	for _, c := range []byte(name) {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("tablelog: Table is %q: %w (letters, digits and underscores)", name, evlog.ErrBadOptions)
		}
	}
	return nil
}

// create makes the tables, or finds that somebody else was first.
func (l *Log) create(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, createMeta); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, l.q.insertID, l.table, l.opts.ID, int64(l.opts.FirstOffset)); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, l.q.id, l.table).Scan(&l.id); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, l.q.create); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, l.q.probe); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	return nil
}

// ID names the log, as the id in log.json does.
func (l *Log) ID() string { return l.id }

// Append appends records as one transaction and returns the offset of the first;
// the others follow without holes. A zero Time is stamped.
func (l *Log) Append(ctx context.Context, records ...evlog.Record) (first uint64, err error) {
	err = l.inTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		first, err = l.AppendTx(ctx, tx, records...)
		return err
	})
	if err != nil {
		return 0, err
	}
	l.Notify()
	return first, nil
}

// AppendTx is Append in the caller's own transaction, which has to be one of the
// database that the log is in. The records are there, under these offsets, if it
// commits. Followers find them by polling, or at once after Notify.
//
// Let it come before what the transaction reads: it takes the write lock, which a
// transaction that has read already may not get any more.
func (l *Log) AppendTx(ctx context.Context, tx *sql.Tx, records ...evlog.Record) (first uint64, err error) {
	if err := check(records); err != nil {
		return 0, err
	}
	var next int64
	err = tx.QueryRowContext(ctx, l.q.take, l.table, len(records)).Scan(&next)
	if err != nil {
		return 0, fmt.Errorf("tablelog: append: %w", err)
	}
	first = uint64(next) - uint64(len(records))
	return first, l.insert(ctx, tx, records, func(i int) uint64 { return first + uint64(i) })
}

// AppendExact is Append for records that carry their offsets, each above the last
// one of the log: for copies of other logs. Offsets in between are holes. An
// offset that is too low is evlog.ErrOffsetOrder, and nothing is appended.
func (l *Log) AppendExact(ctx context.Context, records ...evlog.Record) error {
	err := l.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return l.appendExact(ctx, tx, records) })
	if err == nil {
		l.Notify()
	}
	return err
}

func (l *Log) appendExact(ctx context.Context, tx *sql.Tx, records []evlog.Record) error {
	if err := check(records); err != nil {
		return err
	}
	var next int64
	if err := tx.QueryRowContext(ctx, l.q.take, l.table, 0).Scan(&next); err != nil {
		return fmt.Errorf("tablelog: append: %w", err)
	}
	end := uint64(next)
	for _, r := range records {
		if r.Offset < end {
			return fmt.Errorf("tablelog: append offset %d where %d is next: %w", r.Offset, end, evlog.ErrOffsetOrder)
		}
		if r.Offset >= maxOffset {
			return fmt.Errorf("tablelog: append offset %d: %w (below %d)", r.Offset, evlog.ErrTooLarge, uint64(maxOffset))
		}
		end = r.Offset + 1
	}
	if _, err := tx.ExecContext(ctx, l.q.setNext, l.table, int64(end)); err != nil {
		return fmt.Errorf("tablelog: append: %w", err)
	}
	return l.insert(ctx, tx, records, func(i int) uint64 { return records[i].Offset })
}

// insert puts records under their offsets, which the transaction has taken.
func (l *Log) insert(ctx context.Context, tx *sql.Tx, records []evlog.Record, offset func(i int) uint64) (err error) {
	st, err := tx.PrepareContext(ctx, l.q.insert)
	if err != nil {
		return fmt.Errorf("tablelog: append: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	now := time.Now().UnixMilli()
	for i, r := range records {
		ms := now
		if !r.Time.IsZero() {
			ms = r.Time.UnixMilli()
		}
		_, err := st.ExecContext(ctx, int64(offset(i)), ms, r.Schema, bind(r.Key), bind(r.Value))
		if err != nil {
			return fmt.Errorf("tablelog: append: %w", err)
		}
	}
	return nil
}

// SkipTo leaves a hole: the next record gets the offset next, or a higher one. It
// makes the end of a log what it is in the log that this one is a copy of, if that
// has holes at its end. An offset below the next one is evlog.ErrOffsetOrder.
func (l *Log) SkipTo(ctx context.Context, next uint64) error {
	return l.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var old int64
		if err := tx.QueryRowContext(ctx, l.q.take, l.table, 0).Scan(&old); err != nil {
			return fmt.Errorf("tablelog: skip: %w", err)
		}
		switch {
		case next < uint64(old):
			return fmt.Errorf("tablelog: skip to %d where %d is next: %w", next, old, evlog.ErrOffsetOrder)
		case next > maxOffset:
			return fmt.Errorf("tablelog: skip to %d: %w (at most %d)", next, evlog.ErrTooLarge, uint64(maxOffset))
		}
		if _, err := tx.ExecContext(ctx, l.q.setNext, l.table, int64(next)); err != nil {
			return fmt.Errorf("tablelog: skip: %w", err)
		}
		return nil
	})
}

// RemoveBelow removes the records below offset, which must not be beyond the end.
// Their offsets are not given out again. The database file does not shrink: SQLite
// uses the space for what comes, or gives it back with VACUUM.
func (l *Log) RemoveBelow(ctx context.Context, offset uint64) error {
	return l.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var next int64
		if err := tx.QueryRowContext(ctx, l.q.take, l.table, 0).Scan(&next); err != nil {
			return fmt.Errorf("tablelog: remove: %w", err)
		}
		if offset > uint64(next) {
			return fmt.Errorf("tablelog: remove: %w", &evlog.OffsetError{Asked: offset, Next: uint64(next)})
		}
		_, err := tx.ExecContext(ctx, l.q.removeBelow, int64(offset))
		if err == nil {
			_, err = tx.ExecContext(ctx, l.q.setFirst, l.table, int64(offset))
		}
		if err != nil {
			return fmt.Errorf("tablelog: remove: %w", err)
		}
		return nil
	})
}

// Notify wakes the followers of this Log: after a transaction with AppendTx has
// committed.
func (l *Log) Notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Log) whenChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// inTx runs f in a transaction of its own. Whoever is in the way is waited for
// by the busy timeout of the connection.
func (l *Log) inTx(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

// ignoreDone: database/sql has rolled back already when the context ended.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// maxOffset: SQLite's integers have 63 bits, and next is one more.
const maxOffset = 1<<63 - 1

func check(records []evlog.Record) error {
	for _, r := range records {
		if len(r.Key) > evlog.MaxKeyBytes {
			return fmt.Errorf("tablelog: key of %d bytes: %w (at most %d)", len(r.Key), evlog.ErrTooLarge, evlog.MaxKeyBytes)
		}
		if size := r.Size(); size > evlog.DefaultMaxRecordBytes {
			return fmt.Errorf("tablelog: record of %d bytes: %w (at most %d)", size, evlog.ErrTooLarge, evlog.DefaultMaxRecordBytes)
		}
	}
	return nil
}

// bind makes an SQL value of a key or a value.
func bind(b []byte) any {
	switch {
	case len(b) == 0:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return b
}
