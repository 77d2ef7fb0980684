package sqlbridge

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/evlog-go/evlog/internal/sqldb"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// unit is one transaction, on a connection that belongs to it until close.
//
// Its statements are never cancelled: SQLite answers an interrupted write by
// rolling the whole transaction back, and database/sql, which does not know,
// runs what follows outside of any. A cancelled BEGIN can leave a transaction
// open in the pool.
type unit struct {
	b    *Bridge
	ctx  context.Context // for statements
	conn *sql.Conn
	tx   *sql.Tx
	done bool // committed
}

// begin waits for a connection as long as ctx allows, and from there on for
// nothing but locks.
func (b *Bridge) begin(ctx context.Context) (*unit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	u := &unit{b: b, ctx: b.statementContext(ctx), conn: conn}
	if u.tx, err = conn.BeginTx(u.ctx, nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return u, nil
}

// inTx runs f in a transaction and commits, and does it again while the
// database is locked.
func (b *Bridge) inTx(ctx context.Context, f func(u *unit) error) error {
	return b.retry(ctx, func(p *patience) error {
		u, err := b.begin(ctx)
		if err != nil {
			return err
		}
		defer u.close()
		if err := f(u); err != nil {
			return err
		}
		return u.commit(ctx, p)
	})
}

func (u *unit) exec(query string, args ...any) (sql.Result, error) {
	return u.tx.ExecContext(u.ctx, query, args...)
}

// prepared runs a prepared statement in the transaction.
func (u *unit) prepared(st *sql.Stmt, args ...any) (sql.Result, error) {
	return u.tx.StmtContext(u.ctx, st).ExecContext(u.ctx, args...)
}

// commit commits. After an error that is not about a lock, the cursor in the
// database tells whether it was committed all the same.
func (u *unit) commit(ctx context.Context, p *patience) error {
	if u.b.wal {
		err := u.tx.Commit()
		u.done = err == nil
		return err
	}
	// With a rollback journal a reader can be in the way of a COMMIT, which then
	// leaves the transaction open. The COMMIT is tried again, and SQLite lets no
	// new reader in meanwhile. Tx.Commit cannot do that: drivers have to roll
	// back when it fails.
	for {
		_, err := u.exec(`COMMIT`)
		u.done = err == nil
		if u.done || u.b.rules.Off(sqlrule.CommitRetry) {
			return err
		}
		if err := p.again(ctx, err); err != nil {
			return err
		}
	}
}

// close ends the transaction if it has not ended, and gives the connection
// back. A connection that may still be in a transaction does not go back to the
// pool, whoever is to blame.
func (u *unit) close() {
	if !u.leave() {
		u.cleanUp()
	}
}

func (u *unit) cleanUp() {
	// After a COMMIT by exec this only tells the *sql.Tx.
	err := u.tx.Rollback()
	if !u.done && err != nil && !sqldb.IsNoTx(err) {
		_, err = u.conn.ExecContext(u.ctx, `ROLLBACK`)
		if err != nil && !sqldb.IsNoTx(err) {
			_ = u.conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	_ = u.conn.Close()
}
