package format_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

// The bytes were worked out by hand from FORMAT.md and the checksums by another
// program. They never change while the format is version 1.
var goldenRecords = []struct {
	name string
	rec  evtest.Rec
	hex  string
}{
	{
		name: "nothing in it",
		rec:  evtest.Rec{},
		hex:  "14000000 3e56c5bc 0000000000000000 0000000000000000 0000 0000",
	},
	{
		name: "key and value",
		rec: evtest.Rec{
			Offset: 4182917, TimeMS: 1758337200123, Schema: 0x0201,
			Key: []byte("doc:42"), Value: []byte("hello"),
		},
		hex: "1f000000 a09f3aa1 85d33f0000000000 fb6f106599010000 0102 0600 646f633a3432 68656c6c6f",
	},
	{
		name: "tombstone before 1970",
		rec:  evtest.Rec{Offset: 7, TimeMS: -1, Key: []byte("k")},
		hex:  "15000000 7276ddb7 0700000000000000 ffffffffffffffff 0000 0100 6b",
	},
	{
		name: "highest of everything",
		rec:  evtest.Rec{Offset: math.MaxUint64 - 1, TimeMS: math.MaxInt64, Schema: math.MaxUint16},
		hex:  "14000000 367cdf05 feffffffffffffff ffffffffffffff7f ffff 0000",
	},
	{
		name: "lowest time",
		rec:  evtest.Rec{Offset: 1, TimeMS: math.MinInt64, Value: []byte{0}},
		hex:  "15000000 aaaa58df 0100000000000000 0000000000000080 0000 0000 00",
	},
}

func TestRecord_GoldenBytes(t *testing.T) {
	for _, c := range goldenRecords {
		t.Run(c.name, func(t *testing.T) {
			want := unhex(t, c.hex)
			r := c.rec
			require.Equal(t, want, format.Append(nil, r.Offset, r.TimeMS, r.Schema, r.Key, r.Value))
			require.Equal(t, want, evtest.EncodeRec(r), "second implementation")

			h, err := format.Parse(want, r.Offset)
			require.NoError(t, err)
			require.Equal(t, r.Offset, h.Offset)
			require.Equal(t, r.TimeMS, h.TimeMS)
			require.Equal(t, r.Schema, h.Schema)
			require.EqualValues(t, len(want), h.Size())
			require.Equal(t, string(r.Key), string(h.Key(want)))
			require.Equal(t, string(r.Value), string(h.Value(want)))
			require.Equal(t, format.Size(len(r.Key), len(r.Value)), h.Size())
		})
	}
}

func TestRecord_AppendKeepsWhatIsThere(t *testing.T) {
	b := format.Append([]byte("before"), 1, 2, 3, []byte("k"), []byte("v"))
	require.Equal(t, "before", string(b[:6]))
	require.Equal(t, format.Append(nil, 1, 2, 3, []byte("k"), []byte("v")), b[6:])
}

func TestRecord_SlicesDoNotReachBeyondTheRecord(t *testing.T) {
	b := format.Append(nil, 1, 0, 0, []byte("key"), []byte("value"))
	b = format.Append(b, 2, 0, 0, []byte("next"), nil)
	h, err := format.Parse(b, 0)
	require.NoError(t, err)
	_ = append(h.Key(b), 'X')
	_ = append(h.Value(b), 'X')
	_, err = format.Parse(b, 0)
	require.NoError(t, err, "appending to a key or value must not write into the buffer")
	_, err = format.Parse(b[h.Size():], 2)
	require.NoError(t, err)
}

func TestRecord_Refuses(t *testing.T) {
	good := evtest.EncodeRec(evtest.Rec{Offset: 5, TimeMS: 9, Key: []byte("kk"), Value: []byte("vvv")})
	set := func(at int, bytes ...byte) []byte {
		b := append([]byte(nil), good...)
		copy(b[at:], bytes)
		return b
	}
	for _, c := range []struct {
		name   string
		b      []byte
		lowest uint64
		want   error
	}{
		{"nothing", nil, 0, format.ErrShort},
		{"27 bytes", good[:27], 0, format.ErrShort},
		{"header alone of a longer record", good[:28], 0, format.ErrShort},
		{"one byte short", good[:len(good)-1], 0, format.ErrShort},
		{"zeros", make([]byte, 64), 0, format.ErrZeros},
		{"length 0 with a crc", set(0, 0, 0, 0, 0), 0, format.ErrLength},
		{"length 19", set(0, 19), 0, format.ErrLength},
		{"length just above 1 GiB", set(0, 1, 0, 0, 0x40), 0, format.ErrLength},
		{"length all ones", set(0, 255, 255, 255, 255), 0, format.ErrLength},
		{"length 1 GiB in a small file", set(0, 0, 0, 0, 0x40), 0, format.ErrShort},
		{"key longer than the record", set(26, 6), 0, format.ErrKey},
		{"offset below the lowest", good, 6, format.ErrOrder},
		{"offset without one after it", unhex(t, "14000000 8b8b9c32 ffffffffffffffff ffffffffffffff7f ffff 0000"), 0, format.ErrOffset},
		{"value changed", set(len(good)-1, 'X'), 0, format.ErrCRC},
		{"crc changed", set(4, good[4]^1), 0, format.ErrCRC},
		{"offset changed", set(8, 6), 0, format.ErrCRC},
		{"time changed", set(16, 10), 0, format.ErrCRC},
		{"schema changed", set(24, 1), 0, format.ErrCRC},
		{"key length changed", set(26, 1), 0, format.ErrCRC},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := format.Parse(c.b, c.lowest)
			require.ErrorIs(t, err, c.want)
			_, _, err = evtest.DecodeRec(c.b, c.lowest)
			require.Error(t, err, "second implementation")
			requireRun(t, c.b, c.lowest)
		})
	}
	_, err := format.Parse(good, 5)
	require.NoError(t, err)
	_, err = format.Parse(set(26, 5), 0)
	require.ErrorIs(t, err, format.ErrCRC, "a key that fills the record is legal, only the crc is not")
}

func TestRecord_EveryBitFlipIsSeen(t *testing.T) {
	good := evtest.EncodeRecs(
		evtest.Rec{Offset: 5, TimeMS: 9, Key: []byte("kk"), Value: []byte("vvv")},
		evtest.Rec{Offset: 6, TimeMS: 9, Value: []byte("behind it")})
	h, err := format.Parse(good, 5)
	require.NoError(t, err)
	for bit := range int(h.Size()) * 8 {
		b := append([]byte(nil), good...)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := format.Parse(b, 5)
		require.Error(t, err, "bit %d", bit)
		requireRun(t, b, 5)
	}
	requireRun(t, good, 5)
}

// requireRun tests that Run goes as far as Parse does, record by record.
func requireRun(t *testing.T, b []byte, lowest uint64) {
	t.Helper()
	n, next := format.Run(b, lowest)
	at := 0
	for {
		h, err := format.Parse(b[at:], lowest)
		if err != nil {
			break
		}
		at += int(h.Size())
		lowest = h.Offset + 1
	}
	require.Equal(t, at, n)
	require.Equal(t, lowest, next)
}

func TestRecord_LargestLength(t *testing.T) {
	h := format.Header{Frame: format.Frame{Length: format.MaxLength, CRC: 1}}
	require.NoError(t, h.Check(h.Size(), 0))
	require.ErrorIs(t, h.Check(h.Size()-1, 0), format.ErrShort)
	h.Length++
	require.ErrorIs(t, h.Check(math.MaxInt64, 0), format.ErrLength)
	h = format.Header{Frame: format.Frame{Length: 20 + 65535}, Meta: format.Meta{KeyLen: 65535}}
	require.NoError(t, h.Check(h.Size(), 0))
	h.Length--
	require.ErrorIs(t, h.Check(h.Size(), 0), format.ErrKey)
}

// What decodes encodes back, both implementations agree, and nothing panics.
func FuzzRecord(f *testing.F) {
	for _, c := range goldenRecords {
		f.Add(unhex(f, c.hex), c.rec.Offset)
	}
	f.Add([]byte{}, uint64(0))
	f.Add(make([]byte, 100), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, lowest uint64) {
		h, err := format.Parse(b, lowest)
		r, n, refErr := evtest.DecodeRec(b, lowest)
		require.Equal(t, refErr == nil, err == nil, "format: %v, second implementation: %v", err, refErr)
		requireRun(t, b, lowest)
		if err != nil {
			return
		}
		require.Equal(t, n, h.Size())
		require.Equal(t, string(r.Key), string(h.Key(b)))
		require.Equal(t, string(r.Value), string(h.Value(b)))
		require.Equal(t, b[:n], format.Append(nil, h.Offset, h.TimeMS, h.Schema, h.Key(b), h.Value(b)))
	})
}

// What is encoded decodes to the same.
func FuzzRecordEncode(f *testing.F) {
	f.Add(uint64(0), int64(0), uint16(0), []byte(nil), []byte(nil))
	f.Add(uint64(math.MaxUint64), int64(math.MinInt64), uint16(9), []byte("k"), []byte("v"))
	f.Add(uint64(format.MaxOffset), int64(math.MinInt64), uint16(9), []byte("k"), []byte("v"))
	f.Fuzz(func(t *testing.T, offset uint64, ts int64, schema uint16, key, value []byte) {
		if len(key) > format.MaxKey {
			key = key[:format.MaxKey]
		}
		b := format.Append(nil, offset, ts, schema, key, value)
		require.Equal(t, evtest.EncodeRec(evtest.Rec{Offset: offset, TimeMS: ts, Schema: schema, Key: key, Value: value}), b)
		_, err := format.Parse(b, offset)
		if offset > format.MaxOffset {
			require.ErrorIs(t, err, format.ErrOffset)
			return
		}
		require.NoError(t, err)
		_, err = format.Parse(b, offset+1)
		require.ErrorIs(t, err, format.ErrOrder)
	})
}
