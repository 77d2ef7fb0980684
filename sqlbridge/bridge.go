package sqlbridge

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/clock"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// DBTX is what *sql.DB, *sql.Conn, *sql.Tx, Tx, and their wrappers have in
// common.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const defaultBusyFor = time.Minute

// Options are the choices of Open. Nil and the zero value mean defaults.
type Options struct {
	// BusyFor is how long a transaction is tried again, with growing pauses,
	// while other connections hold the lock, before the busy error is returned; if
	// it was a handler that met the lock, its record then counts as failed. Default
	// 1 minute; negative: as long as the context allows.
	//
	// The busy timeout of the connection comes on top of each try, and a context
	// that ends does not cut it short: nothing returns sooner. Some drivers have a
	// long one by default (ncruces a minute); one or two seconds are enough here.
	BusyFor time.Duration
	// Logger gets what Check finds, resets, and skipped records. Nil is silent.
	Logger *slog.Logger
	// Clock replaces the system's clock. Nil is the system's.
	Clock evlog.Clock
}

// Bridge keeps cursors in an SQLite database, next to the effects of what they
// have passed. One is enough for a database: it has a prepared statement, which
// is closed with the database. It holds no connection. Methods are safe for
// concurrent use.
type Bridge struct {
	db      *sql.DB
	wal     bool // as it was when the bridge was opened
	update  *sql.Stmt
	busyFor time.Duration
	logger  *slog.Logger
	clock   evlog.Clock
	rules   *sqlrule.Switches // nil, but in tests of the rules
}

// Open creates the tables evlog_cursor, evlog_skipped and evlog_schema in the
// main database of db, if they are not there, and logs what Check finds.
// Tables by a later version are evlog.ErrVersion; a database with
// journal_mode=OFF, which cannot roll back, is ErrUnsafe.
//
// db belongs to the caller. Its settings go into the data source name: a PRAGMA
// by db.Exec reaches one of its connections.
func Open(ctx context.Context, db *sql.DB, opts *Options) (*Bridge, error) {
	b := newBridge(ctx, db, opts)
	report, all, err := b.check(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if err := r.usable(); err != nil {
			return nil, err
		}
	}
	for _, text := range report.Unsafe {
		b.logger.WarnContext(ctx, "sqlbridge: "+text)
	}
	for _, text := range report.Notes {
		b.logger.InfoContext(ctx, "sqlbridge: "+text)
	}
	if err := b.migrate(ctx); err != nil {
		return nil, err
	}
	b.wal = report.JournalMode == "wal"
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// prepare prepares the statement that each transaction has.
func (b *Bridge) prepare(ctx context.Context) error {
	return b.read(ctx, func() (err error) {
		if b.update, err = b.db.PrepareContext(ctx, updateCursor); err != nil {
			err = fmt.Errorf("sqlbridge: prepare: %w", err)
		}
		return err
	})
}

func newBridge(ctx context.Context, db *sql.DB, opts *Options) *Bridge {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.BusyFor == 0 {
		o.BusyFor = defaultBusyFor
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.NewSystem()
	}
	return &Bridge{db: db, busyFor: o.BusyFor, logger: o.Logger, clock: o.Clock, rules: sqlrule.From(ctx)}
}

func (b *Bridge) nowMS() int64 { return b.clock.Now().UnixMilli() }

// maxOffset is the highest offset that a cursor can stand at: SQLite's integers
// have 63 bits.
const maxOffset = 1<<63 - 1

// offset makes an SQLite integer of an offset.
func (b *Bridge) offset(o uint64) (int64, error) {
	if o > maxOffset && !b.rules.Off(sqlrule.Int64) {
		return 0, fmt.Errorf("sqlbridge: offset %d: %w (at most %d)", o, evlog.ErrTooLarge, uint64(maxOffset))
	}
	return int64(o), nil
}
