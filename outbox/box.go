package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// DBTX is what *sql.DB, *sql.Conn, *sql.Tx and their wrappers have in common.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Box is the outbox of a database. Methods are safe for concurrent use. It holds
// no connection, but for the relay while it runs.
type Box struct {
	db     *sql.DB
	opts   Options
	clock  evlog.Clock
	logger *slog.Logger
	file   string      // of the database
	info   os.FileInfo // of that file, nil if it is none of the system's
	rules  outboxrule.Rule
	// encodes: there is an Options.Encode, and a row is not yet the record.
	encodes bool
	rec     recorder
	wake    chan struct{} // has an element when there may be rows
	waits   waits
	// writing is how many calls of InTx have a transaction.
	writing atomic.Int32

	mu     sync.Mutex // guards opened
	opened opened
}

// opened is the log that the hook ran for last.
type opened struct {
	reader *evlog.Reader // tells one opening from another
	epoch  int64         // of this box's hold on the outbox
}

// Open creates the tables evlog_outbox, evlog_outbox_kept, evlog_outbox_relay and
// evlog_schema in the main database of db, if they are not there. Tables by a
// later version are evlog.ErrVersion. A database in memory, or with
// journal_mode=OFF or MEMORY, is ErrUnsafe: a crash leaves transactions in part.
//
// db belongs to the caller. Its settings go into the data source name: a PRAGMA
// by db.Exec reaches one of its connections. With a WAL the application may commit
// with synchronous=NORMAL: the relay's own transactions are synced, and what the
// application committed before with them. With a rollback journal SQLite itself
// does not survive every power failure then: Options.Logger is told.
func Open(ctx context.Context, db *sql.DB, opts *Options) (*Box, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Box{
		db: db, opts: o, clock: o.Clock, logger: o.Logger, rules: outboxrule.From(ctx),
		rec: recorder{onEvent: o.OnEvent}, wake: make(chan struct{}, 1), encodes: opts != nil && opts.Encode != nil,
	}
	if err := b.check(ctx); err != nil {
		return nil, wrap("open", err)
	}
	if err := b.migrate(ctx); err != nil {
		return nil, wrap("open", err)
	}
	return b, nil
}

// check refuses settings with which nothing can be promised.
func (b *Box) check(ctx context.Context) error {
	var s sqldb.Settings
	err := b.patiently(ctx, func() error {
		conn, err := b.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		s, err = sqldb.ReadSettings(ctx, conn)
		return err
	})
	switch {
	case err != nil:
		return err
	case !s.Version.HasStrict():
		return fmt.Errorf("SQLite %v: %w: STRICT tables need 3.37", s.Version, ErrUnsafe)
	case s.File == "":
		return fmt.Errorf("%w: the database is in memory or a temporary file", ErrUnsafe)
	}
	if err := safeJournal(s.JournalMode); err != nil {
		return err
	}
	b.file = s.File
	b.info, _ = os.Stat(s.File) // a VFS of the driver's may have it elsewhere
	if s.Synchronous == "OFF" {
		b.logger.Warn("outbox: with synchronous=OFF a power failure can damage the database")
	}
	if s.JournalMode != "wal" && s.Synchronous == "NORMAL" {
		b.logger.Warn("outbox: with synchronous=NORMAL and a rollback journal a power failure can damage the database; FULL and a WAL do not")
	}
	if s.JournalMode == "wal" && s.Version.LosesCommits() {
		b.logger.Warn("outbox: this SQLite can lose committed transactions in WAL mode (fixed in 3.51.3, 3.50.7 and 3.44.6)",
			"version", s.Version)
	}
	return nil
}

// safeJournal refuses journals with which a crash leaves transactions in part.
func safeJournal(mode string) error {
	if mode == "off" || mode == "memory" {
		return fmt.Errorf("%w: journal_mode=%s", ErrUnsafe, mode)
	}
	return nil
}

// present tests that the file is still there: connections go on without it, and
// nobody else sees what they commit.
func (b *Box) present() error {
	if b.info == nil {
		return nil
	}
	info, err := os.Stat(b.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", b.file, ErrDatabaseGone)
	case err == nil && !os.SameFile(info, b.info):
		return fmt.Errorf("%s: %w", b.file, ErrDatabaseGone)
	}
	return nil
}

// Notify tells the relay that something was committed. It never waits. Call it
// after the commit of a transaction with Put in it; InTx does. A relay that is
// not told finds out by itself, within Options.PollInterval.
func (b *Box) Notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Stats returns counters and the present state of the relay.
func (b *Box) Stats() Stats { return b.rec.get() }
