package sqlbridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// tables is what this package has in a database.
var tables = sqldb.Schema{Part: "sqlbridge", Version: 1, NoTables: ErrNoTables, Objects: []sqldb.Object{
	// next is the first offset that is not done. claimed is NULL, but within a
	// guarded transaction, where it is the end of the batch that is applied: so
	// nobody ever sees anything else, unless a handler commits.
	{Kind: "TABLE", Name: "evlog_cursor", As: `(
		name       TEXT PRIMARY KEY,
		log_id     TEXT NOT NULL CHECK (log_id <> ''),
		next       INTEGER NOT NULL CHECK (next >= 0),
		claimed    INTEGER CHECK (claimed > next),
		updated_ms INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`},
	// The offsets [first, next) that a cursor passed without their being applied:
	// records that failed so many attempts, or, with attempts 0, what a reset
	// passed over, which may be nothing.
	{Kind: "TABLE", Name: "evlog_skipped", As: `(
		id       INTEGER PRIMARY KEY,
		name     TEXT NOT NULL,
		log_id   TEXT NOT NULL,
		first    INTEGER NOT NULL,
		next     INTEGER NOT NULL,
		attempts INTEGER NOT NULL,
		error    TEXT NOT NULL,
		at_ms    INTEGER NOT NULL
	) STRICT`},
}}

// migrate creates what is missing. Where all is there it only reads.
func (b *Bridge) migrate(ctx context.Context) error {
	err := b.checkTables(ctx)
	if errors.Is(err, ErrNoTables) {
		if err := b.inTx(ctx, func(u *unit) error { return tables.Create(u.exec) }); err != nil {
			return fmt.Errorf("sqlbridge: create tables: %w", err)
		}
		err = b.checkTables(ctx) // another process may have been first, and newer
	}
	if err != nil {
		err = fmt.Errorf("sqlbridge: %w", err)
	}
	return err
}

func (b *Bridge) checkTables(ctx context.Context) error {
	return b.read(ctx, func() error { return tables.Check(ctx, b.db) })
}
