package sqldriver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"modernc.org/sqlite/vtab"

	"github.com/evlog-go/evlog/cursor"
)

// The columns are those of the documents that the command line prints, but for what
// retention holds for a consumer.
const (
	segmentColumns = `base INTEGER, "end" INTEGER, records INTEGER, holes INTEGER, tombstones INTEGER, bytes INTEGER,
		file_bytes INTEGER, dirty_bytes INTEGER, oldest TEXT, newest TEXT, closed TEXT, cleaned TEXT, indexed INTEGER,
		state TEXT, error TEXT`
	consumerColumns = `name TEXT, committed INTEGER, log_start INTEGER, log_end INTEGER, lag INTEGER, updated TEXT,
		state TEXT, note TEXT`
)

// segmentRows lists the segments, once for a statement.
func (s *session) segmentRows() ([][]vtab.Value, error) {
	v, err := s.look()
	if err != nil {
		return nil, err
	}
	if v.segments != nil {
		return v.segments, nil
	}
	segments, err := s.reader.Segments(s.ctx)
	if err != nil {
		return nil, err
	}
	rows := make([][]vtab.Value, len(segments))
	for i := range segments {
		g := &segments[i]
		rows[i] = []vtab.Value{
			integer(g.Base), integer(g.End), integer(g.Records), integer(g.Holes), integer(g.Tombstones), g.Bytes,
			g.FileBytes, g.DirtyBytes, timeOrNull(g.Oldest), timeOrNull(g.Newest), timeOrNull(g.Closed), timeOrNull(g.Cleaned),
			g.Indexed, string(g.State), errorOrNull(g.Err),
		}
	}
	v.segments = rows
	return rows, nil
}

// consumerRow is a cursor of consumers.json and how it fits the log.
type consumerRow struct {
	cursor.Position
	first, next uint64
	state       string
	err         error
}

// consumerRows lists the consumers, once for a statement.
func (s *session) consumerRows() ([][]vtab.Value, error) {
	v, err := s.look()
	if err != nil {
		return nil, err
	}
	if v.consumers != nil {
		return v.consumers, nil
	}
	consumers, err := s.consumers()
	if err != nil {
		return nil, err
	}
	rows := make([][]vtab.Value, len(consumers))
	for i := range consumers {
		c := &consumers[i]
		var lag vtab.Value
		if c.state == "ok" || c.state == "behind" {
			lag = integer(cursor.Lag(c.first, c.next, c.Next))
		}
		rows[i] = []vtab.Value{
			c.Name, integer(c.Next), integer(c.first), integer(c.next), lag, timeOrNull(c.Updated), c.state,
			errorOrNull(c.err),
		}
	}
	v.consumers = rows
	return rows, nil
}

func (s *session) consumers() ([]consumerRow, error) {
	// The positions first: the log's end, looked at later, is not below them.
	positions, err := s.store.List(s.ctx)
	if err != nil {
		return nil, err
	}
	first, next, err := s.reader.Bounds(s.ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]consumerRow, len(positions))
	for i, p := range positions {
		row := consumerRow{Position: p, first: first, next: next, state: "ok"}
		_, row.err = cursor.Resolve(s.ctx, s.reader, p.Name, p.Next, p.LogID, cursor.Fail)
		switch {
		case row.err == nil:
		case errors.Is(row.err, cursor.ErrWrongLog):
			row.state = "other log"
		case errors.Is(row.err, cursor.ErrBehind):
			row.state = "behind"
		case errors.Is(row.err, cursor.ErrAhead):
			row.state = "ahead"
		case errors.Is(row.err, cursor.ErrNoLogID):
			row.state = "unknown"
		default:
			return nil, row.err
		}
		rows[i] = row
	}
	return rows, nil
}

// integer is a number in SQL. One that does not fit is shown as the text of it,
// and is no number of ours unless somebody made it so.
func integer(n uint64) vtab.Value {
	if n > maxOffset {
		return fmt.Sprint(n)
	}
	return int64(n)
}

func timeOrNull(t time.Time) vtab.Value {
	if t.IsZero() {
		return nil
	}
	return textTime(t.UnixMilli())
}

func errorOrNull(err error) vtab.Value {
	if err == nil {
		return nil
	}
	return err.Error()
}

// listTable is a table of few rows that are made when a scan begins.
type listTable struct {
	*session
	load func(*session) ([][]vtab.Value, error)
}

func (s *session) listTable(
	ctx vtab.Context, columns string, load func(*session) ([][]vtab.Value, error),
) (vtab.Table, error) {
	if err := ctx.Declare("CREATE TABLE x(" + columns + ")"); err != nil {
		return nil, err
	}
	return &listTable{session: s, load: load}, nil
}

// listByFirst is the plan that looks for a value of the first column; the other one
// is all rows.
const listByFirst = 1

// BestIndex chooses a plan.
func (t *listTable) BestIndex(in *vtab.IndexInfo) error {
	in.EstimatedCost, in.EstimatedRows = 1000, 100
	for i := range in.Constraints {
		c := &in.Constraints[i]
		if c.Usable && c.Column == 0 && c.Op == vtab.OpEQ {
			c.ArgIndex = 0
			in.IdxNum, in.EstimatedCost, in.EstimatedRows = listByFirst, 10, 1
			break
		}
	}
	return nil
}

// Open makes a cursor.
func (t *listTable) Open() (vtab.Cursor, error) {
	t.pin()
	return &listCursor{t: t}, nil
}

// Disconnect ends the table on this connection.
func (t *listTable) Disconnect() error { return nil }

// Destroy ends the table on this connection.
func (t *listTable) Destroy() error { return nil }

type listCursor struct {
	t      *listTable
	rows   [][]vtab.Value
	at     int
	closed bool
}

// Filter loads the rows.
func (c *listCursor) Filter(plan int, _ string, values []vtab.Value) (err error) {
	defer c.t.guard(&err)
	c.at = 0
	if c.rows, err = c.t.load(c.t.session); err == nil && plan == listByFirst {
		c.rows = equalTo(c.rows, values[0])
	}
	return err
}

// equalTo returns the row whose first value is this integer, of rows that ascend by
// it, or all of them where values of another type are concerned: they may be equal
// to SQLite.
func equalTo(rows [][]vtab.Value, value vtab.Value) [][]vtab.Value {
	v, ok := value.(int64)
	if !ok || len(rows) == 0 {
		return rows
	}
	if _, ok := rows[len(rows)-1][0].(int64); !ok {
		return rows
	}
	i, found := slices.BinarySearchFunc(rows, v, func(row []vtab.Value, v int64) int { return cmp.Compare(row[0].(int64), v) })
	if !found {
		return nil
	}
	return rows[i : i+1]
}

// Next goes to the next row.
func (c *listCursor) Next() error {
	c.at++
	return nil
}

// Eof reports whether there is no row.
func (c *listCursor) Eof() bool { return c.at >= len(c.rows) }

// Column returns one value of the row.
func (c *listCursor) Column(i int) (vtab.Value, error) {
	if i < 0 || i >= len(c.rows[c.at]) {
		return nil, nil
	}
	return c.rows[c.at][i], nil
}

// Rowid numbers the rows.
func (c *listCursor) Rowid() (int64, error) { return int64(c.at), nil }

// Close ends the scan.
func (c *listCursor) Close() error {
	if !c.closed {
		c.closed = true
		c.t.unpin()
	}
	return nil
}
