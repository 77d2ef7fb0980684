package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// tables is what this package has in a database.
var tables = sqldb.Schema{Part: "outbox", Version: 1, NoTables: ErrNoTables, Objects: []sqldb.Object{
	// The rows that are to be appended, in the order of id, which is the order of
	// commits: whoever inserts has the write lock until it commits. Another
	// language needs no more than INSERT INTO evlog_outbox (key, value).
	// parked is why a row cannot be appended, and attempts how often it was tried.
	{Kind: "TABLE", Name: "evlog_outbox", As: `(
		id       INTEGER PRIMARY KEY AUTOINCREMENT,
		uid      BLOB NOT NULL DEFAULT (randomblob(16)) CHECK (length(uid) = 16),
		schema   INTEGER NOT NULL DEFAULT 0 CHECK (schema BETWEEN 0 AND 65535),
		ts_ms    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
		attempts INTEGER NOT NULL DEFAULT 0,
		parked   TEXT,
		dedupe   TEXT,
		key      BLOB,
		value    BLOB
	) STRICT`},
	{Kind: "UNIQUE INDEX", Name: "evlog_outbox_dedupe", As: `ON evlog_outbox (dedupe) WHERE dedupe IS NOT NULL`},
	// The rows that were relayed, or dropped by a policy, if they are kept for a
	// while. The offset is -1 of those that were dropped: nobody knows whether they
	// are in a log.
	{Kind: "TABLE", Name: "evlog_outbox_kept", As: `(
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
	) STRICT`},
	{Kind: "INDEX", Name: "evlog_outbox_kept_dedupe", As: `ON evlog_outbox_kept (dedupe) WHERE dedupe IS NOT NULL`},
	{Kind: "INDEX", Name: "evlog_outbox_kept_relayed", As: `ON evlog_outbox_kept (relayed_ms)`},
	// One row: who relays, into which log, and the intent, which is open where n
	// is above 0: the n rows with these ids and uids are about to be appended at
	// "offset", or were; sums are those of their records. Where n is 0, sums is some
	// random bytes. log_end is where the log ended when the relay looked last.
	{Kind: "TABLE", Name: "evlog_outbox_relay", As: `(
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
	) STRICT`},
}}

// migrate creates what is missing. Where all is there it only reads.
func (b *Box) migrate(ctx context.Context) error {
	err := b.checkTables(ctx)
	if !errors.Is(err, ErrNoTables) {
		return err
	}
	if err := b.inOwnTx(ctx, createTables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return b.checkTables(ctx) // another process may have been first, and newer
}

// checkTables also finds that the row of the relay is gone. It gets another id
// then: what the log was fed by is ErrDatabaseChanged, since nobody knows any more
// which rows were in an intent.
func (b *Box) checkTables(ctx context.Context) error {
	return b.patiently(ctx, func() error {
		if err := tables.Check(ctx, b.db); err != nil {
			return err
		}
		var one int
		err := b.db.QueryRowContext(ctx, `SELECT one FROM main.evlog_outbox_relay WHERE one = 1`).Scan(&one)
		return relayRowError(err)
	})
}

func createTables(t *tx) error {
	if err := tables.Create(t.exec); err != nil {
		return err
	}
	var id [16]byte
	rand.Read(id[:]) // never fails
	_, err := t.exec(`INSERT INTO main.evlog_outbox_relay (one, box, epoch, log_id, log_end, "offset", n, ids, uids, sums)
		VALUES (1, ?1, 0, '', 0, 0, 0, '', x'', x'') ON CONFLICT (one) DO NOTHING`, hex.EncodeToString(id[:]))
	return err
}

// relayRowError tells that the row of the relay is missing, or its table.
func relayRowError(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errNoRelayRow
	}
	return tables.Error(err)
}

// errNoRelayRow: somebody has deleted it.
var errNoRelayRow = fmt.Errorf("%w: evlog_outbox_relay has no row", ErrNoTables)
