package sqldriver

import (
	"context"
	"database/sql/driver"
	"math"
	"strings"

	"modernc.org/sqlite/vtab"
)

// A transaction that inserts row after row by
//
//	INSERT INTO log (key, value) VALUES (?, ?)
//
// does not need SQLite for each of them: SQLite would bind the arguments, and hand
// them to Insert as they are. Its first INSERT goes there, so that SQLite knows
// that the table takes part in the transaction; those behind it go directly to
// where the rows are collected. What SQLite could tell about them is refused
// (last_insert_rowid, changes, total_changes).

// plainInsert is an INSERT whose values are parameters and nothing else: the column
// of each.
type plainInsert []int

// parsePlainInsert returns nil for every other statement.
func parsePlainInsert(query string) plainInsert {
	l := lexer{rest: query}
	if !l.word("insert") || !l.word("into") || !l.word(tableLog) || !l.sign('(') {
		return nil
	}
	var columns plainInsert
	given := map[int]bool{}
	for {
		column, ok := insertable[l.next()]
		if !ok || given[column] {
			return nil
		}
		given[column] = true
		columns = append(columns, column)
		if !l.sign(',') {
			break
		}
	}
	if !l.sign(')') || !l.word("values") || !l.sign('(') {
		return nil
	}
	for i := range columns {
		if i > 0 && !l.sign(',') || !l.sign('?') {
			return nil
		}
	}
	if !l.sign(')') {
		return nil
	}
	l.sign(';')
	if l.next() != "" || l.rest != "" {
		return nil
	}
	return columns
}

// insertable are the columns that an INSERT can give.
var insertable = map[string]int{"ts_ms": colTSMS, "time": colTime, "schema": colSchema, "key": colKey, "value": colValue}

// lexer takes words and signs from the beginning of a text. It knows nothing of
// quotes and comments, so it does not get past them.
type lexer struct{ rest string }

// next takes a word, in lower case. It is empty where there is none.
func (l *lexer) next() string {
	l.rest = strings.TrimLeft(l.rest, " \t\r\n")
	end := 0
	for end < len(l.rest) && isWord(l.rest[end]) {
		end++
	}
	word := l.rest[:end]
	l.rest = l.rest[end:]
	return strings.ToLower(word)
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}

func (l *lexer) word(want string) bool { return l.next() == want }

// sign takes one character if it is this one.
func (l *lexer) sign(want byte) bool {
	l.rest = strings.TrimLeft(l.rest, " \t\r\n")
	if l.rest == "" || l.rest[0] != want {
		return false
	}
	l.rest = l.rest[1:]
	return true
}

// directly inserts a row without SQLite. It does nothing and returns false where
// the statement has to go there.
func (s *session) directly(ctx context.Context, columns plainInsert, args []driver.NamedValue) (r driver.Result, err error, done bool) {
	// Records are there if the transaction has inserted by SQLite, and has not ended
	// in a way that SQLite alone knows.
	if columns == nil || !s.held || len(s.tx.records) == 0 || len(args) != len(columns) {
		return nil, nil, false
	}
	var values [colSegment + 1]vtab.Value
	for i, column := range columns {
		v, ok := bound(args[i])
		if !ok {
			return nil, nil, false
		}
		values[column] = v
	}
	if err := ctx.Err(); err != nil {
		return nil, err, true
	}
	s.enter(ctx)
	defer s.guard(&err)
	offset, err := s.insert(values[:])
	return inserted(offset), err, true
}

// bound is an argument as SQLite hands it over.
func bound(arg driver.NamedValue) (v vtab.Value, ok bool) {
	if arg.Name != "" {
		return nil, false
	}
	switch x := arg.Value.(type) {
	case nil, int64, string:
		return x, true
	case float64:
		if math.IsNaN(x) {
			return nil, true
		}
		return x, true
	case []byte:
		return x, x != nil
	}
	return nil, false
}

// inserted is the result of an INSERT of one row.
type inserted int64

// LastInsertId implements driver.Result.
func (r inserted) LastInsertId() (int64, error) { return int64(r), nil }

// RowsAffected implements driver.Result.
func (r inserted) RowsAffected() (int64, error) { return 1, nil }
