package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver; any other one would do

	"github.com/evlog-go/evlog/outbox"
)

// tables are the application's own. The outbox and sqlbridge have theirs beside
// them, in the same database.
var tables = []string{
	// What the notes say: the last change of each field. The row with the empty
	// name is the note's tombstone. Stamps sort as text.
	`CREATE TABLE IF NOT EXISTS field (
		note TEXT, name TEXT, value TEXT NOT NULL, stamp TEXT NOT NULL, seq INTEGER NOT NULL, seen TEXT NOT NULL,
		PRIMARY KEY (note, name)
	) STRICT, WITHOUT ROWID`,
	// How many changes of each peer are in here, this one's own included.
	`CREATE TABLE IF NOT EXISTS seen (peer TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID`,
	// The hybrid logical clock, and how often the user has saved.
	`CREATE TABLE IF NOT EXISTS own (one INTEGER PRIMARY KEY, ms INTEGER NOT NULL, n INTEGER NOT NULL, saves INTEGER NOT NULL) STRICT`,
	`INSERT INTO own (one, ms, n, saves) VALUES (1, 0, 0, 0) ON CONFLICT DO NOTHING`,
	// Two changes of the same thing, neither made in knowledge of the other.
	`CREATE TABLE IF NOT EXISTS conflict (
		winner TEXT, loser TEXT, note TEXT NOT NULL, name TEXT NOT NULL, winning TEXT NOT NULL, losing TEXT NOT NULL,
		PRIMARY KEY (winner, loser)
	) STRICT, WITHOUT ROWID`,
	// Every change that was made here. The application has no use for it: the
	// check at the end computes from it what all databases must say.
	`CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, save INTEGER NOT NULL, change TEXT NOT NULL) STRICT`,
}

// openDatabase opens the database of the peer whose directory it is. NORMAL
// means that a commit does not wait for the disk. The outbox allows it: no change
// gets into the log, and so to another peer, that a power failure takes back here.
func openDatabase(ctx context.Context, dir string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(dir, "notes.db"))+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	for _, query := range tables {
		if _, err := db.ExecContext(ctx, query); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// edit is what the user does to one field of a note: give it a value, or type in
// it, or delete the note.
type edit struct {
	Note    string  `json:"note"`
	Field   string  `json:"field,omitempty"`
	Value   string  `json:"value,omitempty"`
	Patches []patch `json:"patches,omitempty"`
}

// saved is what one call of save has committed.
type saved struct {
	saves   int    // by the user, this one included
	changes uint64 // of this peer, these included
}

// save is the application's ordinary transaction: the user's edits go into the
// notes, and what the other peers have to know into the outbox.
func (p *peer) save(ctx context.Context, now time.Time, edits []edit) (done saved, err error) {
	err = p.box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := load(ctx, tx, p.name)
		if err != nil {
			return err
		}
		n.saves++
		for _, e := range edits {
			c, err := n.change(ctx, now, e)
			if err != nil {
				return err
			}
			if _, err := n.merge(ctx, c); err != nil {
				return err
			}
			rec, err := c.record(now)
			if err != nil {
				return err
			}
			if _, err := p.box.Put(ctx, tx, rec); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO journal (seq, save, change) VALUES (?1, ?2, ?3)`,
				c.Seq, n.saves, string(rec.Value)); err != nil {
				return err
			}
		}
		done = saved{n.saves, n.seen[p.name]}
		return n.store(ctx)
	})
	return done, err
}

// notes is the state that a transaction works with, beside the fields.
type notes struct {
	tx    outbox.DBTX
	self  string
	clock clock
	saves int
	seen  map[string]uint64

	stored struct { // what the database has of these
		clock clock
		saves int
		seen  map[string]uint64
	}
}

func load(ctx context.Context, tx outbox.DBTX, self string) (*notes, error) {
	n := &notes{tx: tx, self: self, seen: map[string]uint64{}}
	if err := tx.QueryRowContext(ctx, `SELECT ms, n, saves FROM own`).Scan(&n.clock.ms, &n.clock.n, &n.saves); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, `SELECT peer, seq FROM seen`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var peer string
		var seq uint64
		if err := rows.Scan(&peer, &seq); err != nil {
			return nil, err
		}
		n.seen[peer] = seq
	}
	n.stored.clock, n.stored.saves, n.stored.seen = n.clock, n.saves, maps.Clone(n.seen)
	return n, rows.Err()
}

func (n *notes) store(ctx context.Context) error {
	if n.clock != n.stored.clock || n.saves != n.stored.saves {
		if _, err := n.tx.ExecContext(ctx, `UPDATE own SET ms = ?1, n = ?2, saves = ?3`, n.clock.ms, n.clock.n, n.saves); err != nil {
			return err
		}
	}
	for peer, seq := range n.seen {
		if seq == n.stored.seen[peer] {
			continue
		}
		if _, err := n.tx.ExecContext(ctx, `INSERT INTO seen (peer, seq) VALUES (?1, ?2)
			ON CONFLICT (peer) DO UPDATE SET seq = excluded.seq`, peer, seq); err != nil {
			return err
		}
	}
	return nil
}

// change makes an edit a change: it gets its stamp, its number, and what this
// peer knows of the others.
func (n *notes) change(ctx context.Context, now time.Time, e edit) (change, error) {
	c := change{Note: e.Note, Field: e.Field, Value: e.Value, Stamp: stamp{peer: n.self}, Seen: map[string]uint64{}}
	if len(e.Patches) > 0 {
		old, err := n.value(ctx, e.Note, e.Field)
		if err != nil {
			return c, err
		}
		c.Value = typeInto(old, e.Patches)
	}
	c.Stamp.ms, c.Stamp.n = n.clock.tick(now)
	n.seen[n.self]++
	c.Seq = n.seen[n.self]
	for peer, seq := range n.seen {
		if peer != n.self {
			c.Seen[peer] = seq
		}
	}
	return c, nil
}

func (n *notes) value(ctx context.Context, note, field string) (value string, err error) {
	err = n.tx.QueryRowContext(ctx, `SELECT value FROM field WHERE note = ?1 AND name = ?2`, note, field).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}

// receive is for the next change of another peer. One that is here already, from
// a refetch, is passed over; one too many is a loss and an error.
func (n *notes) receive(ctx context.Context, now time.Time, from string, c change) (conflicts int, err error) {
	switch {
	case c.Stamp.peer != from:
		return 0, fmt.Errorf("the log of %s has a change by %s", from, c.Stamp.peer)
	case c.Seq <= n.seen[from]:
		return 0, nil
	case c.Seq > n.seen[from]+1:
		return 0, fmt.Errorf("after change %d of %s came %d", n.seen[from], from, c.Seq)
	}
	if err := n.clock.see(c.Stamp, now); err != nil {
		return 0, err
	}
	n.seen[from] = c.Seq
	return n.merge(ctx, c)
}

// fieldsOf reads the rows that a change of the field meets: the field and the
// tombstone. For a tombstone, named "", it is all of the note.
func (n *notes) fieldsOf(ctx context.Context, note, name string) ([]change, error) {
	return readFields(ctx, n.tx, `WHERE note = ?1 AND (name = ?2 OR name = '' OR ?2 = '')`, note, name)
}

func readFields(ctx context.Context, q outbox.DBTX, where string, args ...any) (fields []change, err error) {
	rows, err := q.QueryContext(ctx, `SELECT note, name, value, stamp, seq, seen FROM field `+where, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c change
		var stamp, seen []byte
		if err := rows.Scan(&c.Note, &c.Field, &c.Value, &stamp, &c.Seq, &seen); err != nil {
			return nil, err
		}
		if err := errors.Join(c.Stamp.UnmarshalText(stamp), json.Unmarshal(seen, &c.Seen)); err != nil {
			return nil, err
		}
		fields = append(fields, c)
	}
	return fields, rows.Err()
}
