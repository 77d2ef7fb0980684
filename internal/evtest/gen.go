package evtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// RecOf turns a record of evlog into the second implementation's, without
// keeping its bytes.
func RecOf(r evlog.Record) Rec {
	r = r.Clone()
	return Rec{Offset: r.Offset, TimeMS: r.Time.UnixMilli(), Schema: r.Schema, Key: r.Key, Value: r.Value}
}

// RecordOf is the other way.
func RecordOf(r Rec) evlog.Record {
	return evlog.Record{Offset: r.Offset, Time: Time(r.TimeMS), Schema: r.Schema, Key: r.Key, Value: r.Value}
}

// zeroTimeMS is the millisecond of the zero Time.
var zeroTimeMS = time.Time{}.UnixMilli()

// Time is a time of that millisecond that is not taken for "stamp it".
func Time(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if ms == zeroTimeMS {
		t = t.Add(time.Nanosecond)
	}
	return t
}

// MaxMS is the highest and MinMS the lowest time in the generated records.
const (
	MaxMS = math.MaxInt64
	MinMS = math.MinInt64
)

// Gen makes records that meet the corners: empty keys and values, tombstones,
// sizes from nothing to larger than a buffer, times of every kind. The value of
// a record that is long enough starts with a serial number, so that two records
// of one generator are hardly ever equal.
type Gen struct {
	Rng *rand.Rand
	// Max is the largest value that is made. Default 300.
	Max int
	// Keys is the number of different keys. Default 8.
	Keys int
	// Mild keeps times inside the years 1 to 9999.
	Mild bool

	serial int
	clock  int64
}

// NewGen returns the generator of a seed.
func NewGen(seed uint64) *Gen {
	return &Gen{Rng: Rand(seed), Max: 300, Keys: 8, clock: 1_700_000_000_000}
}

// Record returns the next record. Its time is always set.
func (g *Gen) Record() evlog.Record {
	g.serial++
	r := evlog.Record{Time: Time(g.timeMS()), Key: g.key(), Value: g.value()}
	if g.Rng.IntN(3) == 0 {
		r.Schema = uint16(g.Rng.Uint32())
	}
	return r
}

// SetClock has the times of the next records follow ms.
func (g *Gen) SetClock(ms int64) { g.clock = ms }

// Records returns n of them.
func (g *Gen) Records(n int) []evlog.Record {
	recs := make([]evlog.Record, n)
	for i := range recs {
		recs[i] = g.Record()
	}
	return recs
}

// Batch returns from 1 to n of them.
func (g *Gen) Batch(n int) []evlog.Record { return g.Records(1 + g.Rng.IntN(n)) }

// Deletes returns n tombstones.
func (g *Gen) Deletes(n int) []evlog.Record {
	recs := g.Records(n)
	for i := range recs {
		recs[i].Key, recs[i].Value = fmt.Appendf(nil, "key-%d", g.Rng.IntN(max(1, g.Keys))), nil
	}
	return recs
}

func (g *Gen) timeMS() int64 {
	switch g.Rng.IntN(16) {
	case 0:
		return 0
	case 1:
		return -1 - g.Rng.Int64N(1_000_000)
	case 2:
		return zeroTimeMS
	case 3:
		g.clock -= g.Rng.Int64N(100_000) // the clock was set back
		return g.clock
	case 4:
		if !g.Mild {
			// As far out as a Time's milliseconds fit an int64.
			return []int64{MaxMS, MinMS, MaxMS - g.Rng.Int64N(5000), MinMS + g.Rng.Int64N(5000)}[g.Rng.IntN(4)]
		}
	}
	g.clock += g.Rng.Int64N(50)
	return g.clock
}

func (g *Gen) key() []byte {
	switch g.Rng.IntN(10) {
	case 0, 1:
		return nil
	case 2:
		return []byte{}
	case 3:
		return []byte{0, 255, byte(g.Rng.IntN(3))}
	}
	return fmt.Appendf(nil, "key-%d", g.Rng.IntN(max(1, g.Keys)))
}

// AllKeys returns all keys that records may have, the empty one aside.
func (g *Gen) AllKeys() [][]byte {
	all := [][]byte{{0, 255, 0}, {0, 255, 1}, {0, 255, 2}}
	for i := range max(1, g.Keys) {
		all = append(all, fmt.Appendf(nil, "key-%d", i))
	}
	return all
}

// Key returns one of them.
func (g *Gen) Key() []byte {
	all := g.AllKeys()
	return all[g.Rng.IntN(len(all))]
}

func (g *Gen) value() []byte {
	var size int
	switch g.Rng.IntN(10) {
	case 0:
		return nil
	case 1:
		size = g.Rng.IntN(8)
	case 2:
		size = g.Rng.IntN(g.Max + 1)
	default:
		size = g.Rng.IntN(min(g.Max, 60) + 1)
	}
	v := fmt.Appendf(make([]byte, 0, size+12), "#%d ", g.serial)
	for len(v) < size {
		v = append(v, byte(g.Rng.Uint32()))
	}
	return v[:max(size, min(len(v), size))]
}
