package sqldriver

import (
	"unicode/utf8"
	"unsafe"

	"modernc.org/sqlite/vtab"
)

// logTable is the table log on one connection.
type logTable struct {
	*session
	records float64    // how many there were when the connection was opened, for the planner
	done    func()     // called when the table goes; nil is nothing
	spare   *logCursor // one that was closed, with its memory and its plan: most statements need just one
}

// BestIndex chooses a plan.
func (t *logTable) BestIndex(in *vtab.IndexInfo) (err error) {
	defer t.guard(&err)
	t.choose(in, t.records)
	return nil
}

// Open makes a cursor.
func (t *logTable) Open() (vtab.Cursor, error) {
	t.pin()
	c := t.spare
	if t.spare = nil; c == nil {
		c = &logCursor{t: t, scan: scan{s: t.session}}
	}
	c.closed = false
	return c, nil
}

// Disconnect and Destroy end the table on this connection.
func (t *logTable) Disconnect() error { return t.Destroy() }

// Destroy ends the table on this connection.
func (t *logTable) Destroy() error {
	if t.done != nil {
		t.done()
		t.done = nil
	}
	return nil
}

// guard turns a panic of a callback into an error, and notes the error for those
// to whom SQLite will give only its text, or not even that.
func (s *session) guard(err *error) {
	caught(recover(), err)
	if *err != nil {
		s.err = *err
	}
}

// logCursor is a scan as SQLite sees it. An error of Next loses its text on the
// way, which a connection of the driver puts back. In an attached table there is a
// row instead, and who asks for a column of it gets the error with its text. That
// must not be done where nobody may ask: the row would count as one.
type logCursor struct {
	t      *logTable
	text   string // of plan, which is mostly the last one's
	plan   plan
	scan   scan
	failed error
	closed bool
	asks   bool // SQLite compares each row with what the plan was made of
	asked  bool // it has asked for a column of the row, and so will of the next one
}

// Filter begins a scan.
func (c *logCursor) Filter(_ int, idxStr string, values []vtab.Value) (err error) {
	defer c.t.guard(&err)
	c.failed = nil
	if idxStr != c.text {
		c.text, c.plan = idxStr, parsePlan(idxStr)
	}
	c.asks, c.asked = len(c.plan.terms) > 0, false
	w, err := c.t.window(&c.plan, values)
	if err != nil {
		return err
	}
	return c.scan.start(w, c.plan.desc)
}

// Next goes to the next record.
func (c *logCursor) Next() (err error) {
	if c.failed != nil {
		c.t.err = c.failed
		return c.failed
	}
	asked := c.asks || c.asked
	c.asked = false
	err = c.step()
	if err != nil && c.t.attached && asked {
		c.failed = err
		return nil
	}
	c.t.err = err
	return err
}

func (c *logCursor) step() (err error) {
	defer func() { caught(recover(), &err) }()
	return c.scan.step()
}

// Eof reports whether there is no row.
func (c *logCursor) Eof() bool { return !c.scan.more && c.failed == nil }

// Rowid is the record's offset.
func (c *logCursor) Rowid() (_ int64, err error) {
	c.asked = true
	if c.failed != nil {
		c.t.err = c.failed
		return 0, c.failed
	}
	return int64(c.scan.rec.Offset), nil
}

// Column returns one value of the row. Bytes are copied by SQLite before it
// returns to the scan, so the text points into the reader's buffer.
func (c *logCursor) Column(i int) (_ vtab.Value, err error) {
	c.asked = true
	if c.failed != nil {
		c.t.err = c.failed
		return nil, c.failed
	}
	r := &c.scan.rec
	switch i {
	case colOffset:
		return int64(r.Offset), nil
	case colTSMS:
		return r.Time.UnixMilli(), nil
	case colTime:
		return textTime(r.Time.UnixMilli()), nil
	case colSchema:
		return int64(r.Schema), nil
	case colKey:
		return textOrBlob(r.Key), nil
	case colValue:
		return textOrBlob(r.Value), nil
	case colTombstone:
		return r.Tombstone(), nil
	case colSegment:
		return c.segment()
	}
	return nil, nil
}

func (c *logCursor) segment() (_ vtab.Value, err error) {
	defer c.t.guard(&err)
	base, err := c.t.segmentOf(c.scan.rec.Offset)
	return int64(base), err
}

// textOrBlob is how keys and values appear in SQL.
func textOrBlob(b []byte) vtab.Value {
	switch {
	case len(b) == 0:
		return nil
	case utf8.Valid(b):
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	return b
}

// Close ends the scan.
func (c *logCursor) Close() error {
	if !c.closed {
		c.closed = true
		c.scan.close()
		c.scan = scan{s: c.scan.s, ranges: c.scan.ranges[:0]}
		c.failed = nil
		c.t.spare = c
		c.t.unpin()
	}
	return nil
}
