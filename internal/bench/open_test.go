package bench

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/internal/format"
)

// BenchmarkOpen opens for writing. SQLite has a table of as many rows, and reads the
// newest one, since evlog knows the next offset once it is open.
func BenchmarkOpen(b *testing.B) {
	for _, records := range []int64{1_000_000, 5_000_000} {
		b.Run(fmt.Sprintf("records=%d/end=clean", records), func(b *testing.B) {
			m := makeLong(b, records)
			turns.Take(b, 0, m.evlog(false), m.limit(false), m.sqlite(false))
		})
	}
	for _, segments := range []int{24, 10_000} {
		for _, end := range []string{"clean", "crashed"} {
			b.Run(fmt.Sprintf("segments=%d/end=%s", segments, end), func(b *testing.B) {
				m := makeMany(b, segments, activeBytes)
				crashed := end == "crashed"
				turns.Take(b, 0, m.evlog(crashed), m.limit(crashed), m.sqlite(crashed))
			})
		}
	}
}

// BenchmarkOpenReader opens for reading, and reads the first and the last record.
func BenchmarkOpenReader(b *testing.B) {
	for _, segments := range []int{24, 10_000} {
		b.Run(fmt.Sprintf("segments=%d", segments), func(b *testing.B) {
			m := makeMany(b, segments, activeBytes)
			turns.Take(b, 0, m.reader(), m.limit(false))
		})
	}
}

const (
	// activeBytes is how much the active segment has.
	activeBytes = 8 << 20
	// closedRecords is how many records each closed segment of makeMany has.
	closedRecords = 8
	// walRecords is how many records are in the WAL of a killed SQLite: about 1,000
	// pages, as many as there can be before a checkpoint.
	walRecords = 30_000
)

// many is a log of many segments.
type many struct {
	b        testing.TB
	dir      string
	segments int
	records  []evlog.Record
	next     uint64
	active   string // path without suffix
	durable  format.Durable
	idx      []byte // of the active segment, as a clean close leaves it
}

// makeMany writes the segments by hand: by rolling it would take minutes.
func makeMany(b testing.TB, segments int, activeBytes int64) *many {
	m := &many{b: b, dir: b.TempDir(), segments: segments, records: limit.Records(1000, 100)}
	l, err := evlog.Open(background, m.dir, nil)
	require.NoError(b, err)
	require.NoError(b, l.Close()) // for log.json
	for range segments - 1 {
		m.segment(closedRecords, true)
	}
	m.segment(int(activeBytes/limit.RecordSize(100)), false)
	return m
}

// segment writes the next segment and its index, and DURABLE behind it.
func (m *many) segment(records int, closed bool) {
	h := format.IndexHeader{Base: m.next, Records: uint64(records), FirstOffset: m.next, MinTimeMS: 1, MaxTimeMS: 1}
	var entries []format.IndexEntry
	var buf []byte
	for i := range records {
		pos := int64(len(buf))
		buf = limit.Encode(buf, m.next, 1, &m.records[i%len(m.records)])
		if i%28 == 0 { // about 4 KiB
			entries = append(entries, format.IndexEntry{Offset: m.next, Pos: pos, MaxTimeMS: 1})
		}
		h.LastOffset, h.LastPos, h.LastCRC = m.next, pos, format.ParseHeader(buf[pos:]).CRC
		m.next++
	}
	h.FirstCRC, h.LogSize = format.ParseHeader(buf).CRC, int64(len(buf))
	if closed {
		h.ClosedMS, h.End = time.Now().UnixMilli(), m.next
	}
	m.idx = format.EncodeIndex(h, entries)
	m.active = filepath.Join(m.dir, fmt.Sprintf("%020d", h.Base))
	m.durable = format.Durable{NextOffset: m.next, Base: h.Base, Position: h.LogSize}
	m.write(m.active+format.LogSuffix, buf)
	m.write(m.active+format.IndexSuffix, m.idx)
	m.publish(m.durable)
}

func (m *many) write(path string, content []byte) {
	require.NoError(m.b, os.WriteFile(path, content, 0o600))
}

func (m *many) publish(d format.Durable) {
	var b [format.DurableSize]byte
	d.Encode(&b)
	m.write(filepath.Join(m.dir, format.DurableName), b[:])
}

// crash leaves a torn record behind the active segment, no index of it, and a
// DURABLE that is not the last one.
func (m *many) crash() {
	log, err := os.OpenFile(m.active+format.LogSuffix, os.O_WRONLY, 0)
	require.NoError(m.b, err)
	torn := limit.Encode(nil, m.next, 1, &m.records[0])
	_, err = log.WriteAt(torn[:100], m.durable.Position)
	require.NoError(m.b, err)
	require.NoError(m.b, log.Close())
	if err := os.Remove(m.active + format.IndexSuffix); err != nil {
		require.ErrorIs(m.b, err, fs.ErrNotExist)
	}
	older := m.durable
	behind := uint64(100)
	older.NextOffset -= behind
	older.Position -= int64(behind) * limit.RecordSize(100)
	m.publish(older)
}

// evlog opens; closing is not timed.
func (m *many) evlog(crashed bool) *turns.Side {
	var l *evlog.Log
	s := &turns.Side{Name: "evlog", Ops: 1}
	if crashed {
		s.Before = m.crash
	}
	s.Run = func(int) {
		var err error
		l, err = evlog.Open(background, m.dir, nil)
		require.NoError(m.b, err)
	}
	s.After = func() {
		require.Equal(m.b, m.next, l.Stats().NextOffset)
		require.NoError(m.b, l.Close())
	}
	s.Run(1) // warm
	s.After()
	return s
}

func (m *many) reader() *turns.Side {
	var r *evlog.Reader
	s := &turns.Side{Name: "evlog", Ops: 1}
	s.Run = func(int) {
		var err error
		r, err = evlog.OpenReader(background, m.dir, nil)
		require.NoError(m.b, err)
		for _, offset := range []uint64{0, m.next - 1} {
			rec, err := r.Get(background, offset)
			require.NoError(m.b, err)
			require.Equal(m.b, offset, rec.Offset)
		}
	}
	s.After = func() { require.NoError(m.b, r.Close()) }
	return s
}

// limit lists the directory and reads DURABLE and log.json, and of the active
// segment the last record or, after a crash, all.
func (m *many) limit(crashed bool) *turns.Side {
	buf := make([]byte, limit.Buffer)
	s := &turns.Side{Name: "limit", Ops: 1}
	s.Run = func(int) {
		dir, err := os.Open(m.dir)
		require.NoError(m.b, err)
		names, err := dir.Readdirnames(-1)
		require.NoError(m.b, err)
		require.NoError(m.b, dir.Close())
		bases := 0
		for _, name := range names {
			if _, ok := format.ParseSegmentName(name); ok {
				bases++
			}
		}
		require.Equal(m.b, m.segments, bases)
		for _, name := range []string{format.DurableName, format.MetaName} {
			_, err := os.ReadFile(filepath.Join(m.dir, name))
			require.NoError(m.b, err)
		}
		f, err := os.Open(m.active + format.LogSuffix)
		require.NoError(m.b, err)
		if crashed {
			limit.Scan(m.b, f, buf, func(uint64, int64, []byte, []byte) {})
		} else {
			_, err := f.ReadAt(buf[:limit.RecordSize(100)], m.durable.Position-limit.RecordSize(100))
			require.NoError(m.b, err)
			limit.Parse(m.b, buf[:limit.RecordSize(100)], 0)
		}
		require.NoError(m.b, f.Close())
	}
	return s
}

// sqlite opens a table and reads its newest row; closing is not timed.
func (m *many) sqlite(crashed bool) *turns.Side {
	s := &turns.Side{Name: "sqlite", Ops: 1}
	var path string
	if crashed {
		path, s.Before = m.killed()
	} else {
		made := newSQLite(m.b)
		path = made.path()
		made.build(m.records, int(m.next))
		require.NoError(m.b, made.db.Close())
	}
	var db *sql.DB
	var offset uint64
	s.Run = func(int) {
		var err error
		db, err = reopenSQLite(path)
		require.NoError(m.b, err)
		var ts, schema int64
		var key, value []byte
		require.NoError(m.b, db.QueryRow(`SELECT offset, ts_ms, schema, key, value FROM log ORDER BY offset DESC LIMIT 1`).
			Scan(&offset, &ts, &schema, &key, &value))
	}
	s.After = func() {
		require.Equal(m.b, m.next, offset) // offsets in the table begin at 1
		require.NoError(m.b, db.Close())
	}
	return s
}

// killed returns where put puts what there is of a database when its process has
// been killed, as a copy of one in use: it has a full WAL, and no index of that.
func (m *many) killed() (path string, put func()) {
	inUse := newSQLite(m.b)
	inUse.build(m.records, int(m.next)-walRecords)
	inUse.exec(`PRAGMA wal_autocheckpoint = 0`)
	for range walRecords / len(m.records) {
		inUse.fill(m.records, len(m.records), 1)
	}
	wal, err := os.Stat(inUse.path() + "-wal")
	require.NoError(m.b, err)
	require.InEpsilon(m.b, 1000*4096, wal.Size(), 0.1)
	path = filepath.Join(m.b.TempDir(), "killed.db")
	return path, func() {
		for _, suffix := range []string{"", "-wal"} {
			content, err := os.ReadFile(inUse.path() + suffix)
			require.NoError(m.b, err)
			m.write(path+suffix, content)
			syncFile(m.b, path+suffix)
		}
	}
}
