package sqldriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	sqlite "modernc.org/sqlite"
	"modernc.org/sqlite/vtab"

	"github.com/evlog-go/evlog/evlog"
)

// moduleName is the module that makes our tables. It is registered once, for all
// connections of the process that package modernc.org/sqlite opens, because a
// connection has the modules that were there when it was opened, and what is
// registered on a driver of one's own is never given back.
const moduleName = "evlog"

// engine opens the connections of the driver "evlog". It is a driver of its own so
// that functions, collations and hooks of the application do not reach them.
var engine = &sqlite.Driver{}

// errModule says why the module could not be registered; nil if it could.
var errModule = vtab.RegisterModule(nil, moduleName, module{})

// module creates the tables. Its arguments say for whom, and are known only to
// this package, so that no statement, and no schema of a file that was handed in,
// opens a directory: (conn, number, table) for a connection of the driver,
// (attach, secret, directory, collations) for a table by Attach.
type module struct{}

// Arguments begin with a letter, as words of SQL do.
var attachSecret = "s" + rand.Text()

// VolatileArgs lets SQLite hand over texts and blobs without copying them.
func (module) VolatileArgs() bool { return true }

// Create makes a table.
func (module) Create(ctx vtab.Context, args []string) (_ vtab.Table, err error) {
	defer func() { caught(recover(), &err) }()
	args = args[min(3, len(args)):]
	switch {
	case len(args) == 3 && args[0] == "conn":
		if s := sessions.get(args[1]); s != nil {
			defer s.guard(&err)
			return s.table(ctx, args[2])
		}
	case len(args) == 4 && args[0] == "attach" && args[1] == attachSecret:
		return attachedTable(ctx, args[2], args[3])
	}
	return nil, notAllowed("this module's tables are made by sqldriver.Attach")
}

// Connect is Create: nothing is stored.
func (m module) Connect(ctx vtab.Context, args []string) (vtab.Table, error) {
	return m.Create(ctx, args)
}

// sessions are the open connections of the driver, by what their tables are
// created with.
var sessions registry

type registry struct {
	mu   sync.Mutex // guards the rest
	last uint64
	all  map[string]*session
}

func (r *registry) add(s *session) (name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*session{}
	}
	r.last++
	name = fmt.Sprint(r.last)
	r.all[name] = s
	return name
}

func (r *registry) get(name string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[name]
}

func (r *registry) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, name)
}

// Tables of a connection of the driver.
const (
	tableLog       = "log"
	tableSegments  = "segments"
	tableConsumers = "consumers"
)

var tableNames = []string{tableLog, tableSegments, tableConsumers}

func (s *session) table(ctx vtab.Context, name string) (vtab.Table, error) {
	switch name {
	case tableLog:
		return s.logTable(ctx)
	case tableSegments:
		return s.listTable(ctx, segmentColumns, (*session).segmentRows)
	case tableConsumers:
		return s.listTable(ctx, consumerColumns, (*session).consumerRows)
	}
	return nil, fmt.Errorf("sqldriver: no table %q", name)
}

func (s *session) logTable(ctx vtab.Context) (vtab.Table, error) {
	if err := ctx.Declare("CREATE TABLE x(" + logColumns + ")"); err != nil {
		return nil, err
	}
	first, next, err := s.reader.Bounds(s.ctx)
	if err != nil {
		return nil, err
	}
	return &logTable{session: s, records: float64(next - first)}, nil
}

// attachedTable is a log inside somebody else's connection.
func attachedTable(ctx vtab.Context, hexDir, collations string) (vtab.Table, error) {
	dir, err := hex.DecodeString(strings.TrimPrefix(hexDir, "d"))
	if err != nil {
		return nil, err
	}
	background := context.Background()
	r, err := evlog.OpenReader(background, string(dir), nil)
	if err != nil {
		return nil, err
	}
	s := &session{
		source: &source{reader: r, base: background},
		ctx:    background,
		loose:  collations != builtinCollations,
		why:    "an INSERT could not be atomic with this database's transaction; package outbox can",
	}
	t, err := s.logTable(ctx)
	if err != nil {
		_ = r.Close() // the error that matters is the one before
		return nil, err
	}
	t.(*logTable).done = func() { _ = r.Close() } // nothing was written
	return t, nil
}

// quoted is an identifier in SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
