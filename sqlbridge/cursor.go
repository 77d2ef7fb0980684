package sqlbridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// Position is where a consumer stands.
type Position struct {
	cursor.Position
	// Claimed is 0, except where a handler committed by itself: then it is the
	// end of the batch that is applied in part. See CommittedError.
	Claimed uint64
}

// committed is the error of a position that is claimed.
func (p *Position) committed() *CommittedError {
	return &CommittedError{Name: p.Name, From: p.Next, To: p.Claimed, Under: p.Claimed}
}

const selectCursor = `SELECT name, log_id, next, claimed, updated_ms FROM main.evlog_cursor`

// Cursor reads where the consumer name stands: Next is the first offset that it
// has not finished. One that never committed stands at 0 and has no LogID. q is
// the database, or the transaction that Advance will be called in.
//
// cursor.Resolve tells whether the position fits a log.
func (b *Bridge) Cursor(ctx context.Context, q DBTX, name string) (Position, error) {
	if err := cursor.CheckName(name); err != nil {
		return Position{}, err
	}
	p, _, err := position(ctx, q, name)
	return p, wrap("cursor", name, err)
}

func position(ctx context.Context, q DBTX, name string) (p Position, known bool, err error) {
	p, err = scanPosition(q.QueryRowContext(ctx, selectCursor+` WHERE name = ?1`, name))
	if errors.Is(err, sql.ErrNoRows) {
		return Position{Position: cursor.Position{Name: name}}, false, nil
	}
	return p, err == nil, tables.Error(err)
}

// Positions returns where all consumers stand, by name. It needs no Bridge, and
// so works on a database that is opened for reading only. ErrNoTables: no
// bridge was ever opened on it.
func Positions(ctx context.Context, q DBTX) ([]Position, error) {
	rows, err := q.QueryContext(ctx, selectCursor+` ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("sqlbridge: positions: %w", tables.Error(err))
	}
	defer func() { _ = rows.Close() }()
	var all []Position
	for rows.Next() {
		p, err := scanPosition(rows)
		if err != nil {
			return nil, fmt.Errorf("sqlbridge: positions: %w", err)
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlbridge: positions: %w", tables.Error(err))
	}
	return all, nil
}

func scanPosition(row interface{ Scan(...any) error }) (p Position, err error) {
	var claimed sql.NullInt64
	var updated int64
	err = row.Scan(&p.Name, &p.LogID, &p.Next, &claimed, &updated)
	p.Claimed = uint64(claimed.Int64)
	p.Updated = time.UnixMilli(updated).UTC()
	return p, err
}

// Advance moves the cursor of name from from to to, inside the transaction tx
// that applies what lies between: both are committed, or neither. For a consumer
// that never committed from is 0.
//
// Make it the first statement: it takes the write lock, which a transaction that
// has read before may find it cannot have any more (SQLITE_BUSY_SNAPSHOT).
//
// Where the cursor does not stand at from, another consumer has moved it: the
// error is a *cursor.MovedError, and the transaction has to be rolled back, as
// after every error. A cursor that was made for another log is a
// *cursor.LogError.
//
// tx is a *sql.Tx, a Tx, a *sql.Conn after BEGIN, or a wrapper of one of them.
// Anything that is not in a transaction is ErrNotInTx. SQLite is asked for that:
// by a BEGIN, which it refuses inside a transaction, or, of a wrapper that may
// have several connections behind it, by VACUUM INTO NULL, which changes nothing.
//
// No statement of it is cancelled when ctx ends: while another connection writes,
// the connection's busy timeout passes first.
//
// From there on it is the caller's transaction, and database/sql does not notice
// when SQLite rolls it back. So give its statements no context that ends, and
// after one that fails roll back, and execute nothing more in it: that would be
// committed on its own, without the cursor.
func (b *Bridge) Advance(ctx context.Context, tx DBTX, name, logID string, from, to uint64) error {
	m, err := b.move(name, logID, from, to)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Cancelled, a statement would take the caller's transaction with it.
	ctx = context.WithoutCancel(ctx)
	if !b.rules.Off(sqlrule.InTx) {
		if err := inTransaction(ctx, tx); err != nil {
			return wrap("advance", name, err)
		}
	}
	return wrap("advance", name, b.advance(ctx, tx, m))
}

// move is a change of a cursor, with everything checked that needs no database.
type move struct {
	name, logID string
	from, to    int64
	nowMS       int64
}

func (b *Bridge) move(name, logID string, from, to uint64) (move, error) {
	if err := cursor.CheckName(name); err != nil {
		return move{}, err
	}
	if logID == "" {
		return move{}, fmt.Errorf("sqlbridge: consumer %q: %w", name, cursor.ErrNoLogID)
	}
	if to < from {
		return move{}, fmt.Errorf("sqlbridge: consumer %q: from %d to %d: %w", name, from, to, ErrOrder)
	}
	f, err := b.offset(from)
	if err != nil {
		return move{}, err
	}
	t, err := b.offset(to)
	return move{name: name, logID: logID, from: f, to: t, nowMS: b.nowMS()}, err
}

const (
	updateCursor = `UPDATE main.evlog_cursor SET next = ?4, updated_ms = ?5
		WHERE name = ?1 AND log_id = ?2 AND next = ?3 AND claimed IS NULL`
	insertCursor = `INSERT INTO main.evlog_cursor (name, log_id, next, updated_ms) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (name) DO NOTHING`
)

func (b *Bridge) advance(ctx context.Context, tx DBTX, m move) error {
	b.loosen(ctx, tx, &m)
	ok, err := changed(tx.ExecContext(ctx, updateCursor, m.name, m.logID, m.from, m.to, m.nowMS))
	if err == nil && !ok && m.from == 0 {
		ok, err = changed(tx.ExecContext(ctx, insertCursor, m.name, m.logID, m.to, m.nowMS))
	}
	if err != nil || ok {
		return tables.Error(err)
	}
	return refusal(ctx, tx, m)
}

// refusal says why a move changed no row.
func refusal(ctx context.Context, q DBTX, m move) error {
	p, _, err := position(ctx, q, m.name)
	switch {
	case err != nil:
		return err
	case p.Claimed != 0:
		return p.committed()
	case p.LogID != "" && p.LogID != m.logID:
		return &cursor.LogError{Name: m.name, Cursor: p.Next, LogID: m.logID, CursorsLogID: p.LogID}
	}
	return &cursor.MovedError{Name: m.name, Want: uint64(m.from), Stored: p.Next}
}

// changed reports whether a statement changed a row.
func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
