package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/format"
)

// settle is how long a writer may need to finish a record that was being
// written while it was read.
const settle = 100 * time.Millisecond

// logWalk goes through a .log, once, from pos on.
type logWalk struct {
	*dumper
	pos    int64
	lowest uint64 // lowest offset that may come at pos
	end    int64  // of the file at first; a writer may be appending

	runs   []stretch // valid records behind the first damage, nil before
	proper int64     // where the last of them begins that is no stray, -1 if all are
	waited int64     // where a writer was given time, -1 nowhere yet
	bad    bool      // the last item was damage or a stray record
}

// log prints the records of a .log and what stands between them.
func (d *dumper) log() error {
	if err := d.skipRest(); err != nil {
		return err
	}
	w := &logWalk{dumper: d, pos: d.at, lowest: baseOf(d.path), end: d.w.size, waited: -1}
	for w.pos < min(w.end, w.w.size) {
		err := w.step()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = w.shrunk(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skipRest moves a start in the middle of a record to the next one, if the records
// up to there follow each other: what the rest of one would be taken for is damage.
func (d *dumper) skipRest() error {
	lowest := baseOf(d.path)
	for pos := int64(0); pos < d.at && d.w.size-pos >= format.HeaderSize; {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		b, err := d.w.bytes(pos, format.HeaderSize)
		if err != nil {
			return err
		}
		h := format.ParseHeader(b)
		if h.Check(d.w.size-pos, lowest) != nil {
			return nil
		}
		end := pos + h.Size()
		if d.at < end {
			if _, err := d.check(pos, lowest); format.Invalid(err) {
				return nil
			} else if err != nil {
				return err
			}
			d.a.notice("byte %d is inside the record of offset %d, which begins at %d; the next one begins at %d", d.at, h.Offset, pos, end)
			d.at = end
		}
		pos, lowest = end, h.Offset+1
	}
	return nil
}

// step prints what stands at pos, and moves on.
func (w *logWalk) step() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if r := w.nextRun(); r.stray && r.pos == w.pos {
		return w.strays(r)
	}
	h, err := w.check(w.pos, w.lowest)
	switch {
	case err == nil:
		w.bad = false
		return w.record(h, kindRecord)
	case format.Invalid(err):
		return w.invalid(err)
	}
	return err
}

func (w *logWalk) record(h format.Header, kind string) error {
	if err := w.putRecord(w.pos, h, kind); err != nil {
		return err
	}
	w.pos += h.Size()
	if kind == kindRecord {
		w.lowest = h.Offset + 1
	}
	return nil
}

// invalid deals with bytes at pos that are no record in its place, why says why.
func (w *logWalk) invalid(why error) error {
	zeros, err := w.w.zerosUpTo(w.pos)
	if err != nil {
		return err
	}
	if zeros == w.w.size {
		pos := w.pos
		w.pos = zeros
		return w.putZeros(pos)
	}
	next, proper, err := w.ahead()
	if err != nil {
		return err
	}
	if !proper && w.waited != w.pos {
		// Nothing that was appended later: it may be what is being appended.
		w.waited, w.runs = w.pos, nil
		return w.pause()
	}
	// What was read before may be older than what was found behind it.
	if _, err := w.check(w.pos, w.lowest); !format.Invalid(err) {
		return err
	}
	if !w.bad {
		w.bad = true
		w.countDamage(w.pos, why)
	}
	if next.pos > w.pos {
		pos := w.pos
		w.pos = next.pos
		return w.putDamaged(pos, next.pos-pos, why)
	}
	return w.strays(next)
}

// strays prints valid records that are in nobody's place.
func (w *logWalk) strays(r stretch) error {
	for w.pos < r.end {
		h, err := w.check(w.pos, 0)
		if err != nil {
			return err
		}
		if err := w.record(h, kindStray); err != nil {
			return err
		}
	}
	return nil
}

// ahead returns the next run of valid records from pos on, an empty one at the
// end where there is none; proper: one of those to come is no stray.
func (w *logWalk) ahead() (next stretch, proper bool, err error) {
	if w.runs == nil {
		if w.runs, err = w.findRuns(w.pos, w.lowest); err != nil {
			return stretch{}, false, err
		}
		w.proper = -1
		for _, r := range w.runs {
			if !r.stray {
				w.proper = r.pos
			}
		}
	}
	return w.nextRun(), w.proper >= w.pos, nil
}

// nextRun is ahead for runs that are known.
func (w *logWalk) nextRun() stretch {
	for len(w.runs) > 0 && w.runs[0].pos < w.pos {
		w.runs = w.runs[1:]
	}
	if len(w.runs) == 0 {
		return stretch{pos: w.w.size, end: w.w.size}
	}
	return w.runs[0]
}

// shrunk is what an early end of the file comes to: a writer that rolls or
// closes cuts the zeros at the end off.
func (w *logWalk) shrunk(err error) error {
	old := w.w.size
	if err := w.w.refresh(); err != nil {
		return err
	}
	if w.w.size >= old {
		return err
	}
	w.buf, w.runs = w.buf[:0], nil
	return nil
}

// pause gives a writer the time to finish what it was writing.
func (d *dumper) pause() error {
	select {
	case <-time.After(d.settle):
		return d.w.refresh()
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// baseOf is the lowest offset that the file's name allows.
func baseOf(path string) uint64 {
	digits, _, _ := strings.Cut(filepath.Base(path), ".")
	base, ok := format.ParseSegmentName(digits + format.LogSuffix)
	if !ok {
		return 0
	}
	return base
}

// check reads and tests the record at pos.
func (d *dumper) check(pos int64, lowest uint64) (format.Header, error) {
	left := d.w.size - pos
	if left < format.HeaderSize {
		return format.Header{}, format.ErrShort
	}
	b, err := d.w.bytes(pos, format.HeaderSize)
	if err != nil {
		return format.Header{}, err
	}
	h := format.ParseHeader(b)
	if err := h.Check(left, lowest); err != nil {
		return h, err
	}
	const crcEnd = 8
	crc, err := d.w.sum(0, pos+crcEnd, pos+h.Size())
	if err == nil && crc != h.CRC {
		err = format.ErrCRC
	}
	return h, err
}

func (d *dumper) putZeros(pos int64) error {
	size := d.w.size - pos
	return d.putItem(pos, size, place{"zeros", pos, size}, "zeros up to the end")
}
