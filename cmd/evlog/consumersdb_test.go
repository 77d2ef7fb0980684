package main

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/sqlbridge"
)

func TestConsumersFromDB(t *testing.T) {
	ctx := t.Context()
	log := evlogtest.OpenMem(t, nil)
	_, err := log.Append(ctx, make([]evlog.Record, 10)...)
	require.NoError(t, err)
	id := log.Reader().ID()

	// A name that means something in a URI.
	path := filepath.Join(t.TempDir(), "app 100%#?.sqlite")
	db, err := sql.Open("sqlite", dsn(path, "rwc"))
	require.NoError(t, err)
	b, err := sqlbridge.Open(ctx, db, nil)
	require.NoError(t, err)
	require.NoError(t, b.Reset(ctx, "search", id, 4, "test"))
	require.NoError(t, b.Reset(ctx, "ahead", id, 40, "test"))
	require.NoError(t, b.Reset(ctx, "moved", "another", 4, "test"))
	require.NoError(t, b.Reset(ctx, "broken", id, 2, "test"))
	_, err = db.Exec(`UPDATE evlog_cursor SET claimed = 8 WHERE name = 'broken'`)
	require.NoError(t, err)

	for range 2 { // while it is in use, and when it is not
		rows, err := consumersFromDB(ctx, log.Reader(), path)
		require.NoError(t, err)
		got := map[string]string{}
		for _, r := range rows {
			got[r.Name] = r.state
			if r.Name == "search" {
				require.EqualValues(t, 6, *r.lag())
			}
		}
		require.Equal(t, map[string]string{
			"ahead": stateAhead, "broken": stateHalfApplied, "moved": stateOtherLog, "search": stateOK,
		}, got)
		require.NoError(t, db.Close())
	}
}

func TestConsumersFromDB_Refused(t *testing.T) {
	ctx := t.Context()
	log := evlogtest.OpenMem(t, nil)
	dir := t.TempDir()
	_, err := consumersFromDB(ctx, log.Reader(), filepath.Join(dir, "missing.sqlite"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is created")

	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("this is no database, whatever its length may be"), 0o600))
	_, err = consumersFromDB(ctx, log.Reader(), text)
	require.ErrorContains(t, err, "not an SQLite database")
	require.ErrorContains(t, err, text)

	path := filepath.Join(dir, "app.sqlite")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE mine (x)`)
	require.NoError(t, err)
	_, err = consumersFromDB(ctx, log.Reader(), path)
	require.ErrorIs(t, err, sqlbridge.ErrNoTables)
}

// cmdBridge puts a cursor of package sqlbridge into a database, which it
// creates, as in bridge LOG DB NAME OFFSET.
func cmdBridge(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	r, err := evlog.OpenReader(ctx, ts.MkAbs(args[0]), nil)
	ts.Check(err)
	defer r.Close()
	db, err := sql.Open("sqlite", dsn(ts.MkAbs(args[1]), "rwc"))
	ts.Check(err)
	defer db.Close()
	b, err := sqlbridge.Open(ctx, db, nil)
	ts.Check(err)
	ts.Check(b.Reset(ctx, args[2], r.ID(), uint64(position(ts, args[3], 0)), "test"))
}
