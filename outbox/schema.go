package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
)

// schemaVersion is what evlog_schema says of this package's tables.
const (
	schemaPart    = "outbox"
	schemaVersion = 1
)

// One statement each: not every driver takes several in one Exec. The names are
// in main, so that no temporary or attached table can stand in their place.
var createTables = []string{
	// Shared with other packages of evlog, so that each can tell its version.
	`CREATE TABLE IF NOT EXISTS main.evlog_schema (
		part    TEXT PRIMARY KEY,
		version INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`,
	// The rows that are to be appended, in the order of id, which is the order of
	// commits: whoever inserts has the write lock until it commits. Another
	// language needs no more than INSERT INTO evlog_outbox (key, value).
	// parked is why a row cannot be appended, and attempts how often it was tried.
	`CREATE TABLE IF NOT EXISTS main.evlog_outbox (
		id       INTEGER PRIMARY KEY AUTOINCREMENT,
		uid      BLOB NOT NULL DEFAULT (randomblob(16)) CHECK (length(uid) = 16),
		schema   INTEGER NOT NULL DEFAULT 0 CHECK (schema BETWEEN 0 AND 65535),
		ts_ms    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
		attempts INTEGER NOT NULL DEFAULT 0,
		parked   TEXT,
		dedupe   TEXT,
		key      BLOB,
		value    BLOB
	) STRICT`,
	`CREATE UNIQUE INDEX IF NOT EXISTS main.evlog_outbox_dedupe ON evlog_outbox (dedupe) WHERE dedupe IS NOT NULL`,
	// The rows that were relayed, if they are kept for a while.
	`CREATE TABLE IF NOT EXISTS main.evlog_outbox_kept (
		id         INTEGER NOT NULL,
		uid        BLOB PRIMARY KEY,
		schema     INTEGER NOT NULL,
		ts_ms      INTEGER NOT NULL,
		dedupe     TEXT,
		key        BLOB,
		value      BLOB,
		log_id     TEXT NOT NULL,
		"offset"   INTEGER NOT NULL,
		relayed_ms INTEGER NOT NULL
	) STRICT`,
	`CREATE INDEX IF NOT EXISTS main.evlog_outbox_kept_dedupe ON evlog_outbox_kept (dedupe) WHERE dedupe IS NOT NULL`,
	`CREATE INDEX IF NOT EXISTS main.evlog_outbox_kept_relayed ON evlog_outbox_kept (relayed_ms)`,
	// One row: who relays, into which log, and the intent, which is open where n
	// is above 0: the n rows with these ids and uids are about to be appended at
	// "offset", or were; sums are those of their records. Where n is 0, sums is some
	// random bytes. log_end is where the log ended when the relay looked last.
	`CREATE TABLE IF NOT EXISTS main.evlog_outbox_relay (
		one      INTEGER PRIMARY KEY CHECK (one = 1),
		box      TEXT NOT NULL,
		epoch    INTEGER NOT NULL,
		log_id   TEXT NOT NULL,
		log_end  INTEGER NOT NULL,
		"offset" INTEGER NOT NULL,
		n        INTEGER NOT NULL,
		ids      TEXT NOT NULL,
		uids     BLOB NOT NULL,
		sums     BLOB NOT NULL
	) STRICT`,
}

// migrate creates the tables. Where they are there already it only reads.
func (b *Box) migrate(ctx context.Context) error {
	err := b.checkTables(ctx)
	if !errors.Is(err, ErrNoTables) {
		return err
	}
	if err := b.inOwnTx(ctx, createSchema); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return b.checkTables(ctx) // another process may have been first, and newer
}

// checkTables also finds that the row of the relay is gone. It gets another id
// then: what the log was fed by is ErrDatabaseChanged, since nobody knows any more
// which rows were in an intent.
func (b *Box) checkTables(ctx context.Context) error {
	return b.patiently(ctx, func() error {
		if err := checkVersion(ctx, b.db); err != nil {
			return err
		}
		var one int
		err := b.db.QueryRowContext(ctx, `SELECT one FROM main.evlog_outbox_relay WHERE one = 1`).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return errNoRelayRow
		}
		return tableError(err)
	})
}

// checkVersion refuses tables that a later version of this package has made, or
// changed while this one was at work: it would not know what they mean.
func checkVersion(ctx context.Context, q DBTX) error {
	version, err := schemaVersionOf(ctx, q)
	if err == nil && version > schemaVersion {
		err = fmt.Errorf("its tables have version %d: %w (it knows %d)", version, evlog.ErrVersion, schemaVersion)
	}
	return err
}

func createSchema(t *tx) error {
	for _, query := range createTables {
		if _, err := t.exec(query); err != nil {
			return err
		}
	}
	var id [16]byte
	rand.Read(id[:]) // never fails
	_, err := t.exec(`INSERT INTO main.evlog_outbox_relay (one, box, epoch, log_id, log_end, "offset", n, ids, uids, sums)
		VALUES (1, ?1, 0, '', 0, 0, 0, '', x'', x'') ON CONFLICT (one) DO NOTHING`, hex.EncodeToString(id[:]))
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO main.evlog_schema (part, version) VALUES (?1, ?2) ON CONFLICT (part) DO NOTHING`,
		schemaPart, schemaVersion)
	return err
}

func schemaVersionOf(ctx context.Context, q DBTX) (version int, err error) {
	err = q.QueryRowContext(ctx, `SELECT version FROM main.evlog_schema WHERE part = ?1`, schemaPart).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrNoTables
	}
	return version, tableError(err)
}
