package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	sqlite "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
)

// Attach makes the log in dir a table of an application's own connection, so that
// events and its tables meet in one query. The table is called name, has the
// columns of the driver's table log, and is there until the connection is closed
// or the table is dropped. It is in the schema temp: nothing of it is stored in the
// database file, and other connections do not see it. A name that a table or view
// of the application has is refused. For all connections of a pool, see
// AttachConnector.
//
// The connection has to be one of modernc.org/sqlite, by its driver "sqlite" or by
// another one of its type. Reading takes no lock of the log.
//
// INSERT is refused: the log could not commit together with the database. Package
// outbox brings events from an application's transaction to a log.
//
// The connection is modernc.org/sqlite's, so some of what the driver's own ones do
// is not there. Each statement sees one state of the log, but the statements of a
// transaction may see more than the one before. A statement ends with its context
// up to its first row only. Errors have the log's text at most, and are SQLite's:
// errors.Is does not find evlog's. A comparison of key is made with each record,
// without the key filters, since the text of the statement is not known. Arguments
// are not converted. PRAGMA temp_store drops the table.
func Attach(ctx context.Context, c *sql.Conn, dir, name string) error {
	return c.Raw(func(driverConn any) error { return attach(ctx, driverConn, dir, name) })
}

// AttachConnector wraps a connector of modernc.org/sqlite (sqlite.NewConnector) so
// that each connection it opens has the log in dir as a table, as by Attach. It is
// for sql.OpenDB.
func AttachConnector(ctx context.Context, base driver.Connector, dir, name string) (driver.Connector, error) {
	dir, err := checkAttach(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &attachConnector{Connector: base, dir: dir, name: name}, nil
}

type attachConnector struct {
	driver.Connector
	dir, name string
}

// Connect implements driver.Connector.
func (a *attachConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := attach(ctx, c, a.dir, a.name); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close closes the connector that is wrapped, if it can be closed.
func (a *attachConnector) Close() error {
	if c, ok := a.Connector.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// checkAttach finds out what is wrong while errors are still Go's, and makes the
// path one that does not depend on the working directory.
func checkAttach(ctx context.Context, dir string) (string, error) {
	if errModule != nil {
		return "", fmt.Errorf("sqldriver: %w", errModule)
	}
	r, err := evlog.OpenReader(ctx, dir, nil)
	if err != nil {
		return "", err
	}
	if err := r.Close(); err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func attach(ctx context.Context, driverConn any, dir, name string) error {
	inner, ours := unwrapped(driverConn)
	if ours {
		return notAllowed("attach: the connection is one of the driver evlog, which has its own log only; use one of modernc.org/sqlite")
	}
	c, ok := inner.(sqlite.ExecQuerierContext)
	if _, known := c.(sqlite.AuthorizerRegisterer); !ok || !known {
		return fmt.Errorf("sqldriver: attach: the connection is a %T, not one of modernc.org/sqlite", driverConn)
	}
	dir, err := checkAttach(ctx, dir)
	if err != nil {
		return err
	}
	if err := freeName(ctx, c, name); err != nil {
		return fmt.Errorf("sqldriver: attach: %w", err)
	}
	loose, err := hasCollations(ctx, c)
	if err != nil {
		return fmt.Errorf("sqldriver: attach: %w", err)
	}
	query := fmt.Sprintf("CREATE VIRTUAL TABLE temp.%s USING %s(attach, %s)",
		quoted(name), moduleName, attached.add(attachedLog{dir, loose}))
	if _, err := c.ExecContext(ctx, query, nil); err != nil {
		return fmt.Errorf("sqldriver: attach: %w", err)
	}
	return nil
}

// unwrapped is the connection beneath the application's own wrappers, up to one of
// this driver.
func unwrapped(c any) (inner any, ours bool) {
	for {
		if _, ours := c.(*conn); ours {
			return c, true
		}
		w, ok := c.(interface{ Unwrap() driver.Conn })
		if !ok {
			return c, false
		}
		c = w.Unwrap()
	}
}

// freeName refuses a name that the connection knows: in the schema temp it would
// hide the application's own table.
func freeName(ctx context.Context, c sqlite.ExecQuerierContext, name string) (err error) {
	rows, err := c.QueryContext(ctx, "SELECT schema, type FROM pragma_table_list WHERE name = ?1 COLLATE NOCASE",
		[]driver.NamedValue{{Ordinal: 1, Value: name}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, 2)
	switch err := rows.Next(row); {
	case err == io.EOF: //nolint:errorlint // drivers return it as it is
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%q already exists in schema %v (%v); give the log another name: %w", name, row[0], row[1], evlog.ErrBadOptions)
}

// hasCollations tells whether collations of the application's own may be at work
// in comparisons. A connection gets them when it is opened.
func hasCollations(ctx context.Context, c sqlite.ExecQuerierContext) (_ bool, err error) {
	rows, err := c.QueryContext(ctx, "SELECT name FROM pragma_collation_list", nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, 1)
	for {
		switch err := rows.Next(row); {
		case err == io.EOF: //nolint:errorlint // drivers return it as it is
			return false, nil
		case err != nil:
			return false, err
		}
		switch row[0] {
		case "BINARY", "NOCASE", "RTRIM":
		default:
			return true, nil
		}
	}
}
