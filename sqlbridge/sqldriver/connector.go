package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

func init() { sql.Register("evlog", &Driver{}) }

// Driver is the driver "evlog". Use it with sql.Open.
type Driver struct{}

// OpenConnector implements driver.DriverContext: the log is opened here, so that
// what is wrong with it is an error of sql.Open.
func (*Driver) OpenConnector(dsn string) (driver.Connector, error) {
	return NewConnector(context.Background(), dsn)
}

// Open implements driver.Driver. database/sql calls OpenConnector instead.
func (d *Driver) Open(dsn string) (driver.Conn, error) {
	c, err := NewConnector(context.Background(), dsn)
	if err != nil {
		return nil, err
	}
	cn, err := c.connect()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	cn.release = func() { _ = c.Close() } // of a reader, or of a writer whose log says more when opened
	return cn, nil
}

// Connector opens connections to one log, which they share: one reader, or with
// mode=rw one writer. It is for sql.OpenDB. Methods are safe for concurrent use.
type Connector struct {
	src   *source
	owned []func() error // closed with the connector

	close    sync.Once
	closeErr error
}

// NewConnector opens the log that a data source name leads to, as sql.Open does.
// ctx is for opening only. Close the connector, or the sql.DB that has it.
func NewConnector(ctx context.Context, dsn string) (*Connector, error) {
	config, err := parseDSN(dsn, time.Now())
	if err != nil {
		return nil, err
	}
	c := &Connector{src: &source{base: context.WithoutCancel(ctx), config: config}}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// NewLogConnector is NewConnector with mode=rw for a log that the program has
// open. It stays open when the connector is closed.
func NewLogConnector(ctx context.Context, l *evlog.Log) (*Connector, error) {
	return borrow(ctx, l.Reader(), l)
}

// NewReaderConnector is NewConnector for a reader that the program has open. It
// stays open when the connector is closed.
func NewReaderConnector(ctx context.Context, r *evlog.Reader) (*Connector, error) {
	return borrow(ctx, r, nil)
}

func borrow(ctx context.Context, r *evlog.Reader, l *evlog.Log) (*Connector, error) {
	status, err := r.Status(ctx)
	if err != nil {
		return nil, err
	}
	c := &Connector{src: &source{
		base: context.WithoutCancel(ctx), config: config{dir: status.Path, hold: DefaultHold, most: maxTransactionBytes}, reader: r, log: l,
	}}
	return c, c.openStore(ctx)
}

func (c *Connector) open(ctx context.Context) (err error) {
	s := c.src
	if s.config.write {
		s.log, err = evlog.Open(ctx, s.config.dir, &evlog.Options{MustExist: !s.config.create})
		if err != nil {
			return err
		}
		c.owned = append(c.owned, s.log.Close)
		s.reader = s.log.Reader()
	} else {
		s.reader, err = evlog.OpenReader(ctx, s.config.dir, nil)
		if err != nil {
			return err
		}
		c.owned = append(c.owned, s.reader.Close)
	}
	if err := c.openStore(ctx); err != nil {
		return err
	}
	if s.config.consumer != "" {
		// One whose cursor does not fit the log is seen now.
		_, err = (&session{source: s, ctx: ctx}).committed()
	}
	return err
}

func (c *Connector) openStore(ctx context.Context) (err error) {
	if errModule != nil {
		return fmt.Errorf("sqldriver: %w", errModule)
	}
	c.src.store, err = cursor.OpenFile(ctx, c.src.config.dir, nil)
	if err == nil {
		c.owned = append(c.owned, c.src.store.Close)
	}
	return err
}

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.connect()
}

// connect opens a private database in memory with the log's tables in it, and
// closes it against everything else.
func (c *Connector) connect() (*conn, error) {
	raw, err := engine.Open(":memory:")
	if err != nil {
		return nil, err
	}
	inner, ok := raw.(engineConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqldriver: %T is not what it was", raw), raw.Close())
	}
	s := &session{source: c.src, ctx: c.src.base}
	s.openEngine(inner)
	if s.log == nil {
		s.why = "the log is open for reading (mode=rw is for writing)"
	}
	cn := &conn{inner: inner, s: s, token: sessions.add(s)}
	for _, table := range tableNames {
		query := fmt.Sprintf("CREATE VIRTUAL TABLE %s USING %s(conn, %s, %s)", table, moduleName, cn.token, table)
		if _, err := cn.ExecContext(s.base, query, nil); err != nil {
			return nil, errors.Join(err, cn.Close())
		}
	}
	if err := inner.RegisterAuthorizer(s.authorize); err != nil {
		return nil, errors.Join(err, cn.Close())
	}
	return cn, nil
}

// Driver implements driver.Connector.
func (c *Connector) Driver() driver.Driver { return &Driver{} }

// Close releases the log; sql.DB.Close calls it. Queries that are under way fail
// with evlog.ErrClosed, and so does the commit of a transaction that has inserted.
func (c *Connector) Close() error {
	c.close.Do(func() {
		c.src.gates.shut()
		for i := len(c.owned) - 1; i >= 0; i-- {
			c.closeErr = errors.Join(c.closeErr, c.owned[i]())
		}
	})
	return c.closeErr
}
