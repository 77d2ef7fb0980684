package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/sqlbridge"
)

// stateHalfApplied is a consumer whose handler committed by itself.
const stateHalfApplied = "half applied"

// consumersFromDB returns the consumers whose cursors package sqlbridge keeps in
// the SQLite database at path, judged against the log. The database is opened
// for reading; it may be in use.
func consumersFromDB(ctx context.Context, r cursor.Log, path string) ([]consumerRow, error) {
	positions, err := readPositions(ctx, path)
	if err != nil {
		return nil, err
	}
	plain := make([]cursor.Position, len(positions))
	for i, p := range positions {
		plain[i] = p.Position
	}
	rows, err := consumerRows(ctx, r, plain)
	if err != nil {
		return nil, err
	}
	for i, p := range positions {
		if p.Claimed != 0 {
			rows[i].state = stateHalfApplied
			rows[i].note = fmt.Sprintf("half applied: a handler committed within offsets %d to %d", p.Next, p.Claimed-1)
		}
	}
	return rows, nil
}

// readPositions reads the cursors of a database.
func readPositions(ctx context.Context, path string) (positions []sqlbridge.Position, err error) {
	err = readDatabase(ctx, path, func(db *sql.DB) (err error) {
		positions, err = sqlbridge.Positions(ctx, db)
		if errors.Is(err, sqlbridge.ErrNoTables) {
			return &hinted{sqlbridge.ErrNoTables, "sqlbridge.Open creates its tables"}
		}
		return err
	})
	return positions, err
}
