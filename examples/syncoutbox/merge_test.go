package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inNotes runs fn in a transaction on the notes of a database.
func inNotes(t *testing.T, db *sql.DB, fn func(ctx context.Context, n *notes)) {
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	n, err := load(t.Context(), tx, "ada")
	require.NoError(t, err)
	fn(t.Context(), n)
	require.NoError(t, n.store(t.Context()))
	require.NoError(t, tx.Commit())
}

func newDatabase(t *testing.T) *sql.DB {
	db, err := openDatabase(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func fieldsIn(t *testing.T, db *sql.DB) []change {
	fields, err := readFields(t.Context(), db, "ORDER BY note, name")
	require.NoError(t, err)
	return fields
}

// write and remove make changes of note n whose authors knew of nothing.
func write(ms int64, peer, field, value string) change {
	return change{Note: "n", Field: field, Value: value, Stamp: stamp{ms, 0, peer}, Seq: uint64(ms), Seen: map[string]uint64{}}
}

func remove(ms int64, peer string) change { return write(ms, peer, "", "") }

func TestMerge(t *testing.T) {
	tests := []struct {
		name          string
		changes       []change
		want          map[string]string // without tombstones
		wantConflicts int
	}{
		{"later one stays", []change{write(1, "ada", "f", "old"), write(2, "ben", "f", "new")}, map[string]string{"f": "new"}, 1},
		{"of two at the same time the higher name", []change{write(1, "ada", "f", "a"), write(1, "ben", "f", "b")}, map[string]string{"f": "b"}, 1},
		{"fields are apart", []change{write(1, "ada", "f", "a"), write(2, "ben", "g", "b")}, map[string]string{"f": "a", "g": "b"}, 0},
		{"own changes are no conflict", []change{write(1, "ada", "f", "a"), write(2, "ada", "f", "b")}, map[string]string{"f": "b"}, 0},
		{"deleted", []change{write(1, "ada", "f", "a"), write(2, "ben", "g", "b"), remove(3, "ben")}, map[string]string{}, 1},
		{"written after the deletion", []change{write(1, "ada", "f", "a"), remove(2, "ben"), write(3, "ada", "g", "b")}, map[string]string{"g": "b"}, 2},
		{"deleted twice", []change{remove(1, "ada"), write(2, "cyd", "f", "a"), remove(3, "ben")}, map[string]string{}, 3},
		{"comes twice", []change{write(1, "ada", "f", "a"), write(1, "ada", "f", "a")}, map[string]string{"f": "a"}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			db := newDatabase(t)
			conflicts := 0
			inNotes(t, db, func(ctx context.Context, n *notes) {
				for _, c := range test.changes {
					found, err := n.merge(ctx, c)
					require.NoError(t, err)
					conflicts += found
				}
			})
			got := map[string]string{}
			for _, c := range fieldsIn(t, db) {
				if !c.deletes() {
					got[c.Field] = c.Value
				}
			}
			require.Equal(t, test.want, got)
			require.Equal(t, test.wantConflicts, conflicts)
		})
	}
}

// In whatever order changes come, and however often, the same is left.
func TestMerge_OrderMakesNoDifference(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var changes []change
	for i := range 60 {
		c := write(rng.Int64N(30), names[rng.IntN(3)], []string{"", "f", "g", "h"}[rng.IntN(4)], fmt.Sprint(i))
		if c.deletes() {
			c.Value = ""
		}
		c.Note, c.Stamp.n = fmt.Sprint(rng.IntN(3)), uint16(i)
		changes = append(changes, c)
	}
	var want []change
	for i := range 6 {
		db := newDatabase(t)
		inNotes(t, db, func(ctx context.Context, n *notes) {
			for _, k := range append(rng.Perm(len(changes)), rng.Perm(len(changes))[:10]...) {
				_, err := n.merge(ctx, changes[k])
				require.NoError(t, err)
			}
		})
		if i == 0 {
			want = fieldsIn(t, db)
		}
		require.Equal(t, want, fieldsIn(t, db))
	}
}

func TestReceive(t *testing.T) {
	db := newDatabase(t)
	now := time.UnixMilli(1000)
	inNotes(t, db, func(ctx context.Context, n *notes) {
		receive := func(from string, c change) error {
			_, err := n.receive(ctx, now, from, c)
			return err
		}
		require.NoError(t, receive("ben", write(1, "ben", "f", "a")))
		require.ErrorContains(t, receive("ben", write(3, "ben", "f", "c")), "after change 1 of ben came 3", "one is missing")
		require.ErrorContains(t, receive("ben", write(1, "cyd", "f", "x")), "the log of ben has a change by cyd", "an echo")
		require.NoError(t, receive("ben", write(1, "ben", "f", "again")), "passed over")
		require.NoError(t, receive("ben", write(2, "ben", "f", "b")))
		ahead := write(3, "ben", "f", "c")
		ahead.Stamp.ms += now.UnixMilli() + maxAhead.Milliseconds()
		require.ErrorIs(t, receive("ben", ahead), errAhead)
		require.Equal(t, map[string]uint64{"ben": 2}, n.seen)
		require.Equal(t, clock{ms: 2}, n.clock)
	})
	fields := fieldsIn(t, db)
	require.Len(t, fields, 1)
	require.Equal(t, "b", fields[0].Value)
}

func TestTypeInto(t *testing.T) {
	require.Equal(t, "hello", typeInto("", []patch{{0, 0, "hllo"}, {1, 0, "e"}}))
	require.Equal(t, "häuser", typeInto("haus", []patch{{1, 1, "ä"}, {4, 0, "er"}}))
	require.Equal(t, "ab", typeInto("a", []patch{{50, 3, "b"}}), "beyond the end is the end")
	require.Equal(t, "a", typeInto("abc", []patch{{1, 50, ""}}))
}
