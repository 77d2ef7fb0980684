package evlog_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
)

var update = flag.Bool("update", false, "write the golden logs that are missing")

const goldenDir = "../testdata/golden/v1"

// expected is what must come of a golden log.
type expected struct {
	About  string        `json:"about"`
	Verify bool          `json:"verify_ok"`
	Reader goldenOutcome `json:"reader"`
	Writer goldenOutcome `json:"writer"`
}

// goldenOutcome is what reading everything gives: the records in front of the
// error, if there is one.
type goldenOutcome struct {
	// Error is the kind: "corrupt", "version" or "" for none. Where a writer is
	// refused nothing can be read through it.
	Error   string         `json:"error,omitempty"`
	File    string         `json:"file,omitempty"`
	Pos     int64          `json:"pos,omitempty"`
	Refused bool           `json:"refused,omitempty"`
	Next    uint64         `json:"next"`
	Beyond  uint64         `json:"beyond_durable,omitempty"`
	Torn    int            `json:"torn_files,omitempty"`
	Records []goldenRecord `json:"records"`
}

type goldenRecord struct {
	Offset uint64 `json:"offset"`
	TimeMS int64  `json:"ts_ms"`
	Schema uint16 `json:"schema"`
	Key    []byte `json:"key_b64,omitempty"`
	Value  []byte `json:"value_b64,omitempty"`
}

func goldenRecords(recs []evtest.Rec) []goldenRecord {
	list := make([]goldenRecord, len(recs))
	for i, r := range recs {
		list[i] = goldenRecord(r)
	}
	return list
}

func (o goldenOutcome) recs() []evtest.Rec {
	list := make([]evtest.Rec, len(o.Records))
	for i, r := range o.Records {
		list[i] = evtest.Rec(r)
	}
	return list
}

type goldenCase struct {
	name, about string
	im          evtest.Image
}

// goldenCases are one kind of damage each. All bytes but those of the indexes
// come from the second implementation.
func goldenCases(t *testing.T) []goldenCase {
	var cases []goldenCase
	add := func(name, about string, b *builder) { cases = append(cases, goldenCase{name, about, b.im}) }
	whole := func() *builder {
		return build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 8)...).segment(8, upTo(8, 12)...).durable(12, 8)
	}
	flip := func(b *builder, base uint64, pos int) *builder {
		b.im[evtest.SegmentFile(base)][pos] ^= 0x10
		return b
	}
	size := int(small(0).Size())
	drop := func(b *builder, name string) *builder {
		delete(b.im, name)
		return b
	}

	add("clean", "three segments, nothing wrong", whole())
	add("torn_header", "the last write got no further than into a header", whole().tail(8, evtest.EncodeRec(small(12))[:11]...))
	add("torn_value", "the last write got no further than into a value", whole().tail(8, evtest.EncodeRec(small(12))[:33]...))
	add("torn_crc", "the last record's bytes are not what its crc says", whole().tail(8, func() []byte {
		b := evtest.EncodeRec(small(12))
		b[len(b)-1] ^= 1
		return b
	}()...))
	add("preallocated", "zeros behind the records, as a writer that was killed leaves them", whole().tail(8, make([]byte, 700)...))
	add("zero_hole", "zeros, and valid records behind them: kept aside", whole().tail(8, make([]byte, 64)...).tail(8, evtest.EncodeRecs(small(14), small(15))...))
	add("garbage_length", "a length of almost 1 GiB in the tail", whole().tail(8, 0xff, 0xff, 0xff, 0x3f).tail(8, []byte("nothing that belongs to it, but longer than a header")...))
	add("crc_flip_closed", "a bit flipped in a closed segment", flip(whole(), 4, size+30))
	add("crc_flip_active_below_durable", "a bit flipped in an acknowledged record of the active segment", flip(whole(), 8, size+30))
	add("crc_flip_active_beyond_durable", "a bit flipped beyond the durable position: a torn tail", flip(whole().durable(10, 8), 8, 3*size+30))
	add("closed_cut_short", "a closed segment that ends inside a record", func() *builder {
		b := whole()
		b.im[evtest.SegmentFile(4)] = b.im[evtest.SegmentFile(4)][:3*size+7]
		return b
	}())
	add("closed_zero_tail", "a closed segment with zeros behind its records", whole().tail(0, make([]byte, 40)...))
	add("overlap", "a merge was interrupted: the first segment holds all of the second", build().segment(0, upTo(0, 8)...).segment(4, upTo(4, 8)...).segment(8, upTo(8, 12)...).durable(12, 8))
	add("overlap_compacted", "the same after compaction: what only the second has is not wanted", build().segment(0, 1, 6, 7).segment(4, upTo(4, 8)...).segment(8, upTo(8, 12)...).durable(12, 8))
	add("missing_durable", "DURABLE is not there", drop(whole(), "DURABLE"))
	add("damaged_durable", "DURABLE has a bit flipped", func() *builder {
		b := whole()
		b.im["DURABLE"][20] ^= 2
		return b
	}())
	add("old_durable", "DURABLE is of before the last records", whole().durable(10, 8))
	add("old_durable_segment_before", "DURABLE is of the segment before", whole().durable(7, 4))
	add("durable_ahead", "DURABLE counts records that are not there", whole().durableAt(evtest.Durable{Next: 14, Base: 8, Pos: int64(6 * size)}))
	add("durable_names_missing_segment", "the active segment is gone", drop(whole(), evtest.SegmentFile(8)))
	add("no_segment", "every segment is gone", drop(drop(drop(whole(), evtest.SegmentFile(0)), evtest.SegmentFile(4)), evtest.SegmentFile(8)))
	add("empty_active", "a roll was just done", build().segment(0, upTo(0, 4)...).segment(4).durable(4, 4))
	add("empty_active_unpublished", "a roll stopped before DURABLE", build().segment(0, upTo(0, 4)...).segment(4).durable(4, 0))
	add("empty_log", "no record yet", build().segment(0).durable(0, 0))
	add("holes", "offsets with gaps of every size", build().segment(0, 2, 3, 1000).segment(2000, 5000, 1<<33).segment(1<<40, 1<<40+7).durable(1<<40+8, 1<<40))
	add("big_base", "the first offset is far from 0", build().segment(1<<62, 1<<62, 1<<62+9).segment(1<<62+10, 1<<62+10).durable(1<<62+11, 1<<62+10))
	add("missing_meta", "log.json is not there", drop(whole(), "log.json"))
	add("damaged_meta", "log.json is cut off", whole().file("log.json", []byte(`{"format":1,"id":"0b5e`)))
	add("version_2", "written by a later version", whole().file("log.json", []byte(`{"format":2,"id":"`+builtID+`"}`)))
	add("corners", "every kind of record", func() *builder {
		b := build()
		b.im[evtest.SegmentFile(0)] = evtest.EncodeRecs(
			evtest.Rec{Offset: 0},
			evtest.Rec{Offset: 1, TimeMS: -1, Key: []byte("only a key")},
			evtest.Rec{Offset: 2, TimeMS: 1<<63 - 1, Schema: 65535, Value: []byte("only a value")},
			evtest.Rec{Offset: 3, TimeMS: -1 << 63, Key: []byte{0, 0xff}, Value: []byte{0}},
			evtest.Rec{Offset: 4, TimeMS: time.Time{}.UnixMilli(), Key: []byte("k"), Value: []byte("the zero time's millisecond")},
			evtest.Rec{Offset: 5, TimeMS: 5, Key: []byte(strings.Repeat("k", 300)), Value: []byte(strings.Repeat("v", 300))})
		return b.durable(6, 0)
	}())
	add("strangers", "files that are not evlog's, and unfinished writes", whole().file("README.txt", []byte("x")).file("1.log", []byte("x")).file("log.json.tmp", []byte("{")).file("00000000000000000004.idx.tmp", []byte("x")))

	return append(cases, indexCases(t)...)
}

// indexCases are logs with indexes, which only evlog's writer makes.
func indexCases(t *testing.T) []goldenCase {
	im, _ := logWith(t, &evlog.Options{SegmentBytes: 250, IndexBytes: 60, NoPreallocate: true}, 20)
	im["LOCK"] = []byte("\n")
	im["log.json"] = []byte(`{"format":1,"id":"` + builtID + `","created_ms":1700000000000,"config":{"segment_bytes":250,"index_bytes":60}}` + "\n")
	bases := im.Bases()
	without := im.Clone()
	for _, base := range bases {
		delete(without, evtest.IndexFile(base))
	}
	stale := im.Clone()
	stale[evtest.IndexFile(bases[1])] = im[evtest.IndexFile(bases[0])]
	damaged := im.Clone()
	for _, base := range bases {
		damaged[evtest.IndexFile(base)][170] ^= 1
	}
	gone := im.Clone()
	delete(gone, evtest.SegmentFile(bases[1]))
	return []goldenCase{
		{"with_index", "as a clean close leaves it", im},
		{"no_index", "the same log without its indexes", without},
		{"stale_index", "an index of another segment", stale},
		{"damaged_index", "a bit flipped in each index", damaged},
		{"missing_segment", "a segment in the middle is gone; the index before it knows", gone},
	}
}

// TestGolden_Update writes the cases that are missing, when -update is given.
// What is there stays as it is: it is the format, version 1.
func TestGolden_Update(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	for _, c := range goldenCases(t) {
		dir := filepath.Join(goldenDir, c.name)
		if _, err := os.Stat(filepath.Join(dir, "expected.json")); err == nil {
			continue
		}
		require.NoError(t, c.im.WriteTo(dir))
		b, err := json.MarshalIndent(expect(c), "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "expected.json"), append(b, '\n'), 0o600))
	}
}

// expect asks the second implementation, not the code under test.
func expect(c goldenCase) expected {
	e := expected{About: c.about, Verify: c.name != "closed_zero_tail"}
	r, w := c.im.Reader(), c.im.Writer()
	e.Reader = goldenOutcome{Records: goldenRecords(r.Recs), Next: r.Next, Beyond: uint64(r.Beyond), File: r.File, Pos: r.Pos}
	e.Writer = goldenOutcome{Records: goldenRecords(w.Recs), Next: w.Next, File: w.File}
	if r.Err != nil {
		e.Reader.Error = "corrupt"
		e.Verify = false
	} else {
		e.Reader.File, e.Reader.Pos = "", 0
	}
	switch {
	case w.Err == nil:
		e.Writer.File = ""
	case w.Next == 0 && len(w.Recs) == 0: // before anything was read
		e.Writer = goldenOutcome{Error: "corrupt", Refused: true, File: w.File, Pos: w.Pos, Records: []goldenRecord{}}
	default:
		e.Writer.Error, e.Writer.Pos = "corrupt", w.Pos
	}
	if w.Keep {
		e.Writer.Torn = 1
	}
	switch c.name {
	case "missing_meta", "damaged_meta":
		e.Writer = goldenOutcome{Error: "corrupt", Refused: true, File: "log.json", Records: []goldenRecord{}}
	case "version_2":
		e.Verify = false
		e.Reader = goldenOutcome{Error: "version", Refused: true, Records: []goldenRecord{}}
		e.Writer = e.Reader
	}
	return e
}

func TestGolden(t *testing.T) {
	dirs, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, d := range dirs {
		t.Run(d.Name(), func(t *testing.T) {
			im, err := evtest.ReadDir(filepath.Join(goldenDir, d.Name()))
			require.NoError(t, err)
			var want expected
			require.NoError(t, json.Unmarshal(im["expected.json"], &want))
			delete(im, "expected.json")
			p := onDisk(t)
			require.NoError(t, im.WriteTo(p.dir))
			checkGoldenReader(t, p, want.Reader, want.Verify)
			sameImage(t, im, p.image(t), "a reader changed something")
			checkGoldenWriter(t, p, im, want.Writer, want.Verify)
		})
	}
}

// TestGolden_IsComplete fails when a case was added and never written.
func TestGolden_IsComplete(t *testing.T) {
	for _, c := range goldenCases(t) {
		_, err := os.Stat(filepath.Join(goldenDir, c.name, "expected.json"))
		require.NoError(t, err, "go test ./evlog -run TestGolden_Update -update")
	}
}

func checkGoldenReader(t *testing.T, p place, want goldenOutcome, verifyOK bool) {
	t.Helper()
	clock := evlogtest.NewClock(time.UnixMilli(0))
	defer keepAdvancing(clock)()
	r, err := evlog.OpenReader(p.ctx, p.dir, &evlog.ReaderOptions{Clock: clock})
	var got []evtest.Rec
	if err == nil {
		defer r.Close()
		got, err = readAll(p.ctx, r)
	}
	goldenError(t, want, err)
	sameRecs(t, want.recs(), got)
	if want.Refused || r == nil {
		return
	}
	_, next, err := r.Bounds(p.ctx)
	if err == nil {
		require.Equal(t, want.Next, next)
	}
	s, err := r.Status(p.ctx)
	require.NoError(t, err)
	require.Equal(t, want.Beyond, s.BeyondDurable)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.Equal(t, verifyOK, rep.OK(), "%+v", rep.Problems)
}

func goldenError(t *testing.T, want goldenOutcome, err error) {
	t.Helper()
	switch want.Error {
	case "":
		require.NoError(t, err)
	case "corrupt":
		require.ErrorIs(t, err, evlog.ErrCorrupt)
		var c *evlog.CorruptError
		require.True(t, errors.As(err, &c))
		if want.File != "" && strings.HasSuffix(want.File, ".log") && !strings.Contains(err.Error(), "every segment is missing") {
			require.Equal(t, want.File, filepath.Base(c.Path))
			require.Equal(t, want.Pos, c.Pos)
		}
	case "version":
		require.ErrorIs(t, err, evlog.ErrVersion)
	default:
		require.FailNow(t, "expected.json names an unknown error", want.Error)
	}
}

func checkGoldenWriter(t *testing.T, p place, im evtest.Image, want goldenOutcome, verifyOK bool) {
	t.Helper()
	l, err := evlog.Open(p.ctx, p.dir, nil)
	if want.Refused {
		goldenError(t, want, err)
		require.Error(t, err)
		sameImage(t, withoutLock(im), withoutLock(p.image(t)), "a refused writer changed something")
		return
	}
	require.NoError(t, err)
	got, err := readAll(p.ctx, l.Reader())
	goldenError(t, want, err)
	sameRecs(t, want.recs(), got)
	require.Equal(t, want.Next, l.Stats().NextOffset)
	require.Equal(t, builtID, l.ID())
	off, err := l.Append(p.ctx, rec("k", "appended"))
	require.NoError(t, err)
	require.Equal(t, want.Next, off)
	require.NoError(t, l.Close())
	torn := 0
	for name := range p.image(t) {
		require.False(t, strings.HasSuffix(name, ".tmp"), name)
		if strings.HasSuffix(name, ".torn") {
			torn++
		}
	}
	require.Equal(t, want.Torn, torn)
	if want.Error == "" && verifyOK {
		p.verified(t)
		l = p.open(t, &evlog.Options{Verify: evlog.VerifyAll})
		got, err = readAll(p.ctx, l.Reader())
		require.NoError(t, err)
		sameRecs(t, append(want.recs(), recsAt(off, rec("k", "appended"))...), got)
		require.NoError(t, l.Close())
	}
}
