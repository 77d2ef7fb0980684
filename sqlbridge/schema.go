package sqlbridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// schemaVersion is what evlog_schema says of this package's tables.
const (
	schemaPart    = "sqlbridge"
	schemaVersion = 1
)

// One statement each: not every driver takes several in one Exec.
var createTables = []string{
	// Shared with other packages of evlog, so that each can tell its version.
	`CREATE TABLE IF NOT EXISTS main.evlog_schema (
		part    TEXT PRIMARY KEY,
		version INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`,
	// next is the first offset that is not done. claimed is NULL, but within a
	// guarded transaction, where it is the end of the batch that is applied: so
	// nobody ever sees anything else, unless a handler commits.
	`CREATE TABLE IF NOT EXISTS main.evlog_cursor (
		name       TEXT PRIMARY KEY,
		log_id     TEXT NOT NULL CHECK (log_id <> ''),
		next       INTEGER NOT NULL CHECK (next >= 0),
		claimed    INTEGER CHECK (claimed > next),
		updated_ms INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`,
	// The offsets [first, next) that a cursor passed without their being applied:
	// records that failed so many attempts, or, with attempts 0, what a reset
	// passed over, which may be nothing.
	`CREATE TABLE IF NOT EXISTS main.evlog_skipped (
		id       INTEGER PRIMARY KEY,
		name     TEXT NOT NULL,
		log_id   TEXT NOT NULL,
		first    INTEGER NOT NULL,
		next     INTEGER NOT NULL,
		attempts INTEGER NOT NULL,
		error    TEXT NOT NULL,
		at_ms    INTEGER NOT NULL
	) STRICT`,
}

// migrate creates the tables that are missing. Where all are there it only reads.
func (b *Bridge) migrate(ctx context.Context) error {
	err := b.checkVersion(ctx)
	if !errors.Is(err, ErrNoTables) {
		return err
	}
	if err := b.inTx(ctx, createSchema); err != nil {
		return fmt.Errorf("sqlbridge: create tables: %w", err)
	}
	return b.checkVersion(ctx) // another process may have been first, and newer
}

func (b *Bridge) checkVersion(ctx context.Context) error {
	return b.read(ctx, func() error {
		version, err := schemaVersionOf(ctx, b.db)
		if err == nil && version > schemaVersion {
			err = fmt.Errorf("sqlbridge: its tables have version %d: %w (it knows %d)", version, evlog.ErrVersion, schemaVersion)
		}
		return err
	})
}

func createSchema(u *unit) error {
	for _, query := range createTables {
		if _, err := u.exec(query); err != nil {
			return err
		}
	}
	_, err := u.exec(`INSERT INTO main.evlog_schema (part, version) VALUES (?1, ?2) ON CONFLICT (part) DO NOTHING`,
		schemaPart, schemaVersion)
	return err
}

func schemaVersionOf(ctx context.Context, q DBTX) (version int, err error) {
	err = q.QueryRowContext(ctx, `SELECT version FROM main.evlog_schema WHERE part = ?1`, schemaPart).Scan(&version)
	var tables int
	if err == nil { // somebody may have dropped one
		err = q.QueryRowContext(ctx, `SELECT count(*) FROM main.sqlite_schema
			WHERE type = 'table' AND name IN ('evlog_cursor', 'evlog_skipped')`).Scan(&tables)
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && tables < 2 {
		err = ErrNoTables
	}
	return version, tableError(err)
}

// tableError tells a database without the tables by the text of the error,
// which is SQLite's own and so the same in all drivers.
func tableError(err error) error {
	if sqldb.NoTable(err, "evlog_") {
		return fmt.Errorf("%w: %w", ErrNoTables, err)
	}
	return err
}
