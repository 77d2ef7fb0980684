package evtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evlog-go/evlog/internal/vfs"
)

// Image is every file of a log directory, in memory.
type Image map[string][]byte

// ReadDir reads the directory dir of the real file system.
func ReadDir(dir string) (Image, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	im := Image{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		im[e.Name()] = b
	}
	return im, nil
}

// ReadFS reads the directory dir of fsys.
func ReadFS(fsys vfs.FS, dir string) (Image, error) {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	im := Image{}
	for _, name := range names {
		b, err := readFile(d, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		im[name] = b
	}
	return im, nil
}

func readFile(d vfs.Dir, name string) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, st.Size())
	if len(b) == 0 {
		return b, nil
	}
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// Clone returns a deep copy.
func (im Image) Clone() Image {
	c := maps.Clone(im)
	for name, b := range c {
		c[name] = bytes.Clone(b)
	}
	return c
}

// WriteDir writes the image into a new directory below t.TempDir.
func (im Image) WriteDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	if err := im.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// WriteTo writes the image into dir, which it creates.
func (im Image) WriteTo(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, b := range im {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// WriteFS writes the image into the directory dir of fsys and makes all of it
// durable there.
func (im Image) WriteFS(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	for _, name := range slices.Sorted(maps.Keys(im)) {
		if err := writeFile(d, name, im[name]); err != nil {
			return err
		}
	}
	return errors.Join(d.Sync(), d.SyncParent())
}

func writeFile(d vfs.Dir, name string, b []byte) error {
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

// SegmentFile is the name of the segment with this base.
func SegmentFile(base uint64) string { return fmt.Sprintf("%020d.log", base) }

// IndexFile is the name of that segment's index.
func IndexFile(base uint64) string { return fmt.Sprintf("%020d.idx", base) }

// Segment is one .log file, decoded.
type Segment struct {
	Base uint64
	Name string
	Recs []Rec
	Pos  []int64 // where Recs stand
	End  int64   // end of the valid prefix
	Size int64   // of the file
	Err  error   // why the prefix ends before the file does; nil if it does not
}

// Next is the offset after the last valid record, or the base.
func (s Segment) Next() uint64 {
	if len(s.Recs) == 0 {
		return s.Base
	}
	return s.Recs[len(s.Recs)-1].Offset + 1
}

// DecodeSegment reads the valid prefix of a segment.
func DecodeSegment(base uint64, b []byte) Segment {
	s := Segment{Base: base, Name: SegmentFile(base), Size: int64(len(b))}
	lowest := base
	for s.End < s.Size {
		r, n, err := DecodeRec(b[s.End:], lowest)
		if err != nil {
			s.Err = err
			return s
		}
		s.Recs = append(s.Recs, r)
		s.Pos = append(s.Pos, s.End)
		s.End += n
		lowest = r.Offset + 1
		if lowest == 0 { // after the highest offset there is none
			break
		}
	}
	return s
}

// Bases returns the base of each segment, ascending.
func (im Image) Bases() []uint64 {
	var bases []uint64
	for name := range im {
		digits, ok := strings.CutSuffix(name, ".log")
		if !ok || len(digits) != 20 || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		if base, err := strconv.ParseUint(digits, 10, 64); err == nil {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases
}

// Segments decodes every segment, ascending.
func (im Image) Segments() []Segment {
	var all []Segment
	for _, base := range im.Bases() {
		all = append(all, DecodeSegment(base, im[SegmentFile(base)]))
	}
	return all
}

// Active decodes the active segment.
func (im Image) Active() (Segment, bool) {
	bases := im.Bases()
	if len(bases) == 0 {
		return Segment{}, false
	}
	base := bases[len(bases)-1]
	return DecodeSegment(base, im[SegmentFile(base)]), true
}

// Durable decodes DURABLE.
func (im Image) Durable() (Durable, error) {
	b, ok := im["DURABLE"]
	if !ok {
		return Durable{}, fs.ErrNotExist
	}
	return DecodeDurable(b)
}

// ErrDamaged is what the second implementation says of damage below the
// durable position and of files that are missing.
var ErrDamaged = errors.New("acknowledged data is damaged or missing")

// Outcome is what FORMAT.md demands of an opening.
type Outcome struct {
	// Err is ErrDamaged where the log must be refused, or where a read through
	// all of it ends early; File and Pos say where.
	Err  error
	File string
	Pos  int64
	// Create: unfinished creation, the writer starts from nothing.
	Create bool
	// Recs are the records that can be read, up to Err.
	Recs []Rec
	// Next is the next offset (of the writer, or the durable one of a reader).
	Next uint64
	// Cut is what a writer cuts off the active segment, from Pos on; Keep says
	// that a valid record follows the damage, so that the bytes are kept.
	Cut  []byte
	Keep bool
	// Beyond is the number of valid records that a reader must not deliver.
	Beyond int
}

func (o Outcome) damaged(file string, pos int64, why string, args ...any) Outcome {
	o.Err = fmt.Errorf("%s: byte %d: %w: %s", file, pos, ErrDamaged, fmt.Sprintf(why, args...))
	o.File, o.Pos = file, pos
	return o
}

// Writer says what opening this image for writing must come to.
func (im Image) Writer() Outcome {
	var o Outcome
	d, derr := im.Durable()
	a, ok := im.Active()
	if !ok {
		if derr == nil && d.Next > 0 {
			return o.damaged(SegmentFile(d.Base), 0, "no segment, though DURABLE says next is %d", d.Next)
		}
		if im.committed() > 0 {
			return o.damaged("consumers.json", 0, "no segment, though a consumer has read")
		}
		o.Create = true
		return o
	}
	if derr == nil {
		switch {
		case d.Base > a.Base:
			return o.damaged(SegmentFile(d.Base), 0, "the segment that DURABLE names is missing")
		case d.Base == a.Base && a.Next() < d.Next:
			return o.damaged(a.Name, a.End, "valid up to %d, durable up to %d", a.Next(), d.Next)
		case d.Base < a.Base && d.Next > a.Base:
			return o.damaged(a.Name, 0, "DURABLE counts %d in the segment before", d.Next)
		}
	}
	o.Next = a.Next()
	o.Cut = im[a.Name][a.End:]
	o.Pos = a.End
	o.Keep = followed(im[a.Name], a.End, a.Next())
	return o.read(im, a.Next())
}

// Reader says what a reader of this image gets while no writer lives.
func (im Image) Reader() Outcome {
	var o Outcome
	a, ok := im.Active()
	if !ok {
		return im.Writer()
	}
	d, err := im.Durable()
	next := d.Next
	if err != nil {
		next = a.Base
	}
	for _, r := range a.Recs {
		if r.Offset >= next {
			o.Beyond++
		}
	}
	o.Next = next
	return o.read(im, next)
}

// read walks the segments as FORMAT.md tells a reader, up to end.
func (o Outcome) read(im Image, end uint64) Outcome {
	bases := im.Bases()
	active := bases[len(bases)-1]
	next := bases[0]
	for next < end {
		i := len(bases) - 1
		for bases[i] > next {
			i--
		}
		s := DecodeSegment(bases[i], im[SegmentFile(bases[i])])
		before := next
		for _, r := range s.Recs {
			if r.Offset >= next && r.Offset < end {
				o.Recs = append(o.Recs, r)
				next = r.Offset + 1
			}
		}
		switch {
		case next >= end:
			return o
		case s.Base == active:
			// DURABLE promises more than there is, unless what is left is a hole.
			if s.Next() < end {
				return o.damaged(s.Name, s.End, "valid up to %d, durable up to %d", s.Next(), end)
			}
			return o
		case s.Err != nil && next < bases[i+1]:
			// Behind it is nothing to be missed where the next one begins.
			return o.damaged(s.Name, s.End, "%v", s.Err)
		case next == before:
			if e := im.claimedEnd(s.Base); e > 0 && bases[i+1] > e && !im.gap(e, bases[i+1]) {
				return o.damaged(s.Name, s.End, "it ends at %d, and the segment from there on is missing", e)
			}
			next = bases[i+1]
		}
	}
	return o
}

// followed reports whether a valid record stands anywhere beyond pos.
func followed(b []byte, pos int64, lowest uint64) bool {
	for p := pos + 1; p+28 <= int64(len(b)); p++ {
		if _, _, err := DecodeRec(b[p:], lowest); err == nil {
			return true
		}
	}
	return false
}

// committed is the highest offset in consumers.json that may be this log's: not
// that of a cursor for a log with another id.
func (im Image) committed() (highest uint64) {
	type cursors map[string]struct {
		Next uint64 `json:"next_offset"`
	}
	var c struct {
		LogID     string             `json:"log_id"`
		Consumers cursors            `json:"consumers"`
		Others    map[string]cursors `json:"other_logs"`
	}
	var m struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(im["consumers.json"], &c) != nil {
		return 0
	}
	_ = json.Unmarshal(im["log.json"], &m) // without an id, all of them count
	count := func(id string, of cursors) {
		for _, v := range of {
			if id == m.ID || id == "" || m.ID == "" {
				highest = max(highest, v.Next)
			}
		}
	}
	count(c.LogID, c.Consumers)
	for id, of := range c.Others {
		count(id, of)
	}
	return highest
}

// claimedEnd is the segment's end as its index claims it, 0 for no claim.
func (im Image) claimedEnd(base uint64) uint64 {
	b := im[IndexFile(base)]
	if len(b) < 160 || string(b[:4]) != "EVI1" || crc(b[8:160]) != le32(b[4:]) || le64(b[8:]) != base {
		return 0
	}
	if le64(b[16:]) != uint64(len(im[SegmentFile(base)])) {
		return 0
	}
	return le64(b[104:])
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func le64(b []byte) uint64 { return uint64(le32(b)) | uint64(le32(b[4:]))<<32 }

// gap reports whether log.json's gaps cover [from, to).
func (im Image) gap(from, to uint64) bool {
	var meta struct {
		Gaps [][2]uint64 `json:"gaps"`
	}
	if json.Unmarshal(im["log.json"], &meta) != nil {
		return false
	}
	for _, g := range meta.Gaps {
		if g[0] <= from && to <= g[1] {
			return true
		}
	}
	return false
}

// Describe shows an image in a failure.
func (im Image) Describe() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(im)) {
		fmt.Fprintf(&b, "%s: %d B", name, len(im[name]))
		switch {
		case name == "DURABLE":
			d, err := im.Durable()
			fmt.Fprintf(&b, " next=%d base=%d pos=%d err=%v", d.Next, d.Base, d.Pos, err)
		case strings.HasSuffix(name, ".log"):
			base, _ := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
			s := DecodeSegment(base, im[name])
			fmt.Fprintf(&b, " valid=%d next=%d err=%v", s.End, s.Next(), s.Err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
