package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
)

// Schema is what one package has in a database: its part of the table
// evlog_schema, which says in which version it is there, and objects of its own.
type Schema struct {
	Part     string
	Version  int
	Objects  []Object
	NoTables error // what Check and Error say of a database that lacks an object
}

// Object is a table or an index.
type Object struct {
	Kind string // TABLE, INDEX, UNIQUE INDEX
	Name string
	As   string // what follows the name in its CREATE
}

// partsTable is shared, so that each package can tell its version.
var partsTable = Object{Kind: "TABLE", Name: "evlog_schema", As: `(
		part    TEXT PRIMARY KEY,
		version INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`}

// create is a statement of its own: not every driver takes several in one Exec.
// The names are in main, so that no temporary or attached table can stand in
// their place.
func (o *Object) create() string {
	return fmt.Sprintf("CREATE %s IF NOT EXISTS main.%s %s", o.Kind, o.Name, o.As)
}

// Check refuses a database without the objects, or without one of them: somebody
// may have dropped it. And it refuses those that a later version of the package
// has made, or changed while this one was at work: it would not know what they
// mean.
func (s *Schema) Check(ctx context.Context, q DBTX) error {
	var version int
	err := q.QueryRowContext(ctx, `SELECT version FROM main.evlog_schema WHERE part = ?1`, s.Part).Scan(&version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.NoTables
	case err != nil:
		return s.Error(err)
	case version > s.Version:
		return fmt.Errorf("its tables have version %d: %w (it knows %d)", version, evlog.ErrVersion, s.Version)
	}
	there, err := names(ctx, q)
	if err != nil {
		return err
	}
	for _, o := range s.Objects {
		if !there[o.Name] {
			return fmt.Errorf("%w: %s is missing", s.NoTables, o.Name)
		}
	}
	return nil
}

// names are those of all objects of this module's packages.
func names(ctx context.Context, q DBTX) (map[string]bool, error) {
	rows, err := q.QueryContext(ctx, `SELECT name FROM main.sqlite_schema WHERE name GLOB 'evlog_*'`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	there := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		there[name] = true
	}
	return there, rows.Err()
}

// Create makes what is missing, within a transaction that exec belongs to.
func (s *Schema) Create(exec func(query string, args ...any) (sql.Result, error)) error {
	for _, o := range append([]Object{partsTable}, s.Objects...) {
		if _, err := exec(o.create()); err != nil {
			return err
		}
	}
	_, err := exec(`INSERT INTO main.evlog_schema (part, version) VALUES (?1, ?2) ON CONFLICT (part) DO NOTHING`, s.Part, s.Version)
	return err
}

// Error tells an error of a statement that did not find a table. It goes by the
// text, which is SQLite's own and so the same in all drivers.
func (s *Schema) Error(err error) error {
	if NoTable(err, "evlog_") {
		return fmt.Errorf("%w: %w", s.NoTables, err)
	}
	return err
}
