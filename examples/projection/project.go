package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver; any other one would do

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
	"github.com/evlog-go/evlog/testdata/events"
)

const consumer = "files"

// openDatabase opens the application's database.
func openDatabase(ctx context.Context, dir string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(dir, "app.db"))+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	for _, query := range []string{
		`CREATE TABLE IF NOT EXISTS file (path TEXT PRIMARY KEY, blob TEXT NOT NULL) STRICT`,
		// How many changes were applied. Adding is what must not happen twice.
		`CREATE TABLE IF NOT EXISTS applied (one INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT`,
		`INSERT INTO applied (one, n) VALUES (1, 0) ON CONFLICT DO NOTHING`,
	} {
		if _, err := db.ExecContext(ctx, query); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// project is the process that gets killed: it goes on where the last one
// committed. It says on out which record it handles, and after each window of
// them waits for a word on in.
func project(ctx context.Context, dir string, in io.Reader, out io.Writer) (err error) {
	log, err := evlog.OpenReader(ctx, filepath.Join(dir, "log"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	db, err := openDatabase(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	handled := 0
	return bridge.Run(ctx, log, consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if _, err := fmt.Fprintln(out, rec.Offset); err != nil { // no transaction takes this back
			return err
		}
		if handled++; handled%window == 0 {
			if _, err := in.Read(make([]byte, 1)); err != nil {
				return err
			}
		}
		return apply(ctx, tx, rec)
	}, &sqlbridge.RunOptions{BatchRecords: 25, UntilEnd: true})
}

// apply makes one change of the table. An empty value says that the path was
// deleted.
func apply(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
	if _, err := tx.ExecContext(ctx, `UPDATE applied SET n = n + 1`); err != nil {
		return err
	}
	if rec.Tombstone() {
		_, err := tx.ExecContext(ctx, `DELETE FROM file WHERE path = ?1`, string(rec.Key))
		return err
	}
	blob, err := blobOf(rec.Value)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO file (path, blob) VALUES (?1, ?2)
		ON CONFLICT (path) DO UPDATE SET blob = excluded.blob`, string(rec.Key), blob)
	return err
}

func blobOf(value []byte) (string, error) {
	var change struct{ Blob string }
	err := json.Unmarshal(value, &change)
	return change.Blob, err
}

// progress is what the database says.
type progress struct {
	next, applied int
	files         map[string]string
}

// look reads the database, and compares the table with what the changes below
// the cursor give.
func look(ctx context.Context, dir string, changes []events.Event) (p progress, err error) {
	db, err := openDatabase(ctx, dir)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	if err != nil {
		return p, err
	}
	pos, err := bridge.Cursor(ctx, db, consumer)
	if err != nil {
		return p, err
	}
	p.next = int(pos.Next)
	if err := db.QueryRowContext(ctx, `SELECT n FROM applied`).Scan(&p.applied); err != nil {
		return p, err
	}
	if p.applied != p.next {
		return p, fmt.Errorf("%d changes were applied, and the cursor stands at %d", p.applied, p.next)
	}
	if p.files, err = readTable(ctx, db); err != nil {
		return p, err
	}
	want := map[string]string{}
	for _, c := range changes[:p.next] {
		if len(c.Value) == 0 {
			delete(want, string(c.Key))
		} else if want[string(c.Key)], err = blobOf(c.Value); err != nil {
			return p, err
		}
	}
	return p, sameTree(p.files, want)
}

func readTable(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT path, blob FROM file`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	files := map[string]string{}
	for rows.Next() {
		var path, blob string
		if err := rows.Scan(&path, &blob); err != nil {
			return nil, err
		}
		files[path] = blob
	}
	return files, rows.Err()
}

func sameTree(got, want map[string]string) error {
	if !maps.Equal(got, want) {
		return fmt.Errorf("the table has %d files, and is not what the log says: %d", len(got), len(want))
	}
	return nil
}
