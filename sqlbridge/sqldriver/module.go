package sqldriver

import (
	"context"
	"crypto/rand"
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

// module creates the tables. Its arguments say for whom: (conn, token, table) for a
// connection of the driver, (attach, token) for a table by Attach. Every SQLite
// connection of the process reaches the module, with statements and with schemas
// of files that were handed in, so the tokens cannot be guessed. That of a
// connection cannot be read either (see authorize), and that of Attach opens the
// directory that its reader has before him anyway.
type module struct{}

// VolatileArgs lets SQLite hand over texts and blobs without copying them.
func (module) VolatileArgs() bool { return true }

// Create makes a table.
func (module) Create(ctx vtab.Context, args []string) (_ vtab.Table, err error) {
	defer func() { caught(recover(), &err) }()
	args = args[min(3, len(args)):]
	switch {
	case len(args) == 3 && args[0] == "conn":
		if s, ok := sessions.get(args[1]); ok {
			defer s.guard(&err)
			return s.table(ctx, args[2])
		}
	case len(args) == 2 && args[0] == "attach":
		if log, ok := attached.get(args[1]); ok {
			return log.table(ctx)
		}
	}
	return nil, notAllowed("this module's tables are made by sqldriver.Attach")
}

// Connect is Create: nothing is stored.
func (m module) Connect(ctx vtab.Context, args []string) (vtab.Table, error) {
	return m.Create(ctx, args)
}

// sessions are the open connections of the driver. SQLite creates their tables
// again when it reads its schema again.
var sessions registry[*session]

// attached are the logs that Attach was called for, each once. They stay, for the
// same reason.
var attached registry[attachedLog]

// registry keeps values by tokens that nobody guesses.
type registry[V comparable] struct {
	mu  sync.Mutex // guards the rest
	all map[string]V
}

// add returns the token of v, which is there once.
func (r *registry[V]) add(v V) (token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for token, known := range r.all {
		if known == v {
			return token
		}
	}
	if r.all == nil {
		r.all = map[string]V{}
	}
	token = "t" + rand.Text() // words of SQL begin with a letter
	r.all[token] = v
	return token
}

func (r *registry[V]) get(token string) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok = r.all[token]
	return v, ok
}

func (r *registry[V]) remove(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, token)
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

// attachedLog is a log inside somebody else's connection.
type attachedLog struct {
	dir   string // absolute
	loose bool   // collations of the application's own may be at work
}

func (a attachedLog) table(ctx vtab.Context) (vtab.Table, error) {
	background := context.Background()
	r, err := evlog.OpenReader(background, a.dir, nil)
	if err != nil {
		return nil, err
	}
	s := &session{
		source: &source{reader: r, base: background},
		ctx:    background,
		loose:  a.loose, attached: true,
		why: "an INSERT could not be atomic with this database's transaction; package outbox can",
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
