package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// remains is what a peer leaves: all of its database and of its log.
type remains struct {
	name      string
	fields    []change // in the order of note and name, tombstones included
	journal   []change // what was made here, in order
	saves     []int    // the save that each of them belongs to
	conflicts []conflict
	log       []change
	next      uint64            // of the log
	acked     map[string]uint64 // by the others
	applied   map[string]uint64 // of the others' logs: the cursors in the database
}

// conflict is a row of that table.
type conflict struct {
	winner, loser   stamp
	note, name      string
	winning, losing string
}

// readRemains reads it when the peer's process has ended.
func readRemains(ctx context.Context, dir string) (r *remains, err error) {
	r = &remains{name: filepath.Base(dir), acked: map[string]uint64{}, applied: map[string]uint64{}}
	db, err := openDatabase(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if r.fields, err = readFields(ctx, db, "ORDER BY note, name"); err != nil {
		return nil, err
	}
	err = eachRow(ctx, db, `SELECT save, change FROM journal ORDER BY seq`, func(rows *sql.Rows) error {
		var save int
		var text []byte
		var c change
		if err := rows.Scan(&save, &text); err != nil {
			return err
		}
		err := json.Unmarshal(text, &c)
		r.saves, r.journal = append(r.saves, save), append(r.journal, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = eachRow(ctx, db, `SELECT winner, loser, note, name, winning, losing FROM conflict`, func(rows *sql.Rows) error {
		var c conflict
		var winner, loser []byte
		if err := rows.Scan(&winner, &loser, &c.note, &c.name, &c.winning, &c.losing); err != nil {
			return err
		}
		r.conflicts = append(r.conflicts, c)
		last := &r.conflicts[len(r.conflicts)-1]
		return errors.Join(last.winner.UnmarshalText(winner), last.loser.UnmarshalText(loser))
	})
	if err != nil {
		return nil, err
	}
	positions, err := sqlbridge.Positions(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, p := range positions {
		r.applied[p.Name] = p.Next
	}
	return r, r.readLog(ctx, filepath.Join(dir, "log"))
}

func eachRow(ctx context.Context, db *sql.DB, query string, do func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *remains) readLog(ctx context.Context, dir string) (err error) {
	log, err := evlog.OpenReader(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	first, next, err := log.Bounds(ctx)
	if err != nil {
		return err
	}
	r.next = next
	for rec, err := range log.Records(ctx, first) {
		if err != nil {
			return err
		}
		c, err := readChange(rec)
		if err != nil {
			return err
		}
		r.log = append(r.log, c)
	}
	store, err := cursor.OpenFile(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	positions, err := store.List(ctx)
	for _, p := range positions {
		r.acked[p.Name] = p.Next
	}
	return err
}
