package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// FuzzDump: whatever stands in a file, dump ends without a panic, and of a .log
// it accounts for every byte.
func FuzzDump(f *testing.F) {
	var log []byte
	for i := range uint64(4) {
		log = format.Append(log, i, int64(seedTime+i), uint16(i), []byte("key")[:i], []byte("value")[:4-i])
	}
	index := format.EncodeIndex(format.IndexHeader{LogSize: int64(len(log)), Records: 4}, make([]format.IndexEntry, 175))
	var durable [format.DurableSize]byte
	format.Durable{NextOffset: 4, Position: int64(len(log))}.Encode(&durable)
	f.Add(log, uint16(0))
	f.Add(append(bytes.Clone(log[:70]), log[60:]...), uint16(1))
	f.Add(append(bytes.Clone(log), make([]byte, 100)...), uint16(30))
	f.Add(format.Append(nil, 1, seedTime, 1, []byte("k"), []byte("val")), uint16(21)) // inside the record
	f.Add(index, uint16(0))
	f.Add(append(bytes.Clone(index[:100]), index[101:]...), uint16(200))
	f.Add(durable[:], uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		for _, name := range []string{"00000000000000000001.log", "00000000000000000001.idx", "DURABLE"} {
			from := min(int64(at), int64(len(data)))
			items, pos := dumpFrom(t, name, data, from)
			for _, it := range items {
				if filepath.Ext(name) != format.LogSuffix {
					break
				}
				require.Equal(t, pos, it.Pos, "a gap")
				pos += it.Size
			}
			if filepath.Ext(name) == format.LogSuffix {
				require.Equal(t, int64(len(data)), pos)
			}
		}
	})
}

// dumpItems dumps data as the file of that name, as text and as JSON, and
// returns the JSON's items.
func dumpItems(t *testing.T, name string, data []byte, at int64) []place {
	t.Helper()
	items, _ := dumpFrom(t, name, data, at)
	return items
}

// dumpFrom is dumpItems, and returns where they begin: not at a byte inside a record.
func dumpFrom(t *testing.T, name string, data []byte, at int64) (items []place, from int64) {
	t.Helper()
	var doc struct {
		File  string
		Items []place
	}
	for _, structured := range []bool{false, true} {
		var out, notices bytes.Buffer
		a := newApp(nil, &out, &notices)
		d := &dumper{
			a: a, ctx: t.Context(), path: name, w: newWindow(bytes.NewReader(data), int64(len(data))), at: at,
			structured: structured, document: structured,
		}
		kinds := map[string]func() error{format.LogSuffix: d.log, format.IndexSuffix: d.index, "": d.durable}
		err := d.run(kinds[filepath.Ext(name)])
		require.Equal(t, d.damage > 0, errors.Is(err, evlog.ErrCorrupt), "%v", err)
		require.NoError(t, a.out.Flush())
		from = d.at
		if said := notices.String(); said == "" {
			require.Equal(t, at, from)
		} else {
			require.Greater(t, from, at)
			require.Regexp(t, `^% byte \d+ is inside the record of offset \d+, which begins at \d+; the next one begins at \d+\n$`, said)
		}
		if structured {
			require.NoError(t, json.Unmarshal(out.Bytes(), &doc), out.String())
		}
	}
	return doc.Items, from
}

// An empty or tiny file of each kind.
func TestDump_TinyFiles(t *testing.T) {
	for _, size := range []int{0, 1, 27, 31, 159} {
		data := bytes.Repeat([]byte{1}, size)
		for _, name := range []string{"00000000000000000001.log", "00000000000000000001.idx", "DURABLE"} {
			dumpItems(t, name, data, 0)
		}
	}
}

const seedTime = 1_600_000_000_000

// Records larger than what is in memory at once, whole and damaged, and the
// highest offset there is, behind which nothing can come, not even the number
// after it.
func TestDump_LargeRecordsAndHighestOffset(t *testing.T) {
	const name = "00000000000000000000.log"
	large := bytes.Repeat([]byte("0123456789"), 3*windowBytes/10)
	file := format.Append(nil, 0, seedTime, 0, nil, large)
	second := int64(len(file))
	file = format.Append(file, 1, seedTime, 0, []byte("key"), large)
	third := int64(len(file))
	file = format.Append(file, format.MaxOffset, seedTime, 0, nil, nil)
	end := int64(len(file))
	record := func(pos, end int64) place { return place{"record", pos, end - pos} }

	require.Equal(t, []place{record(0, second), record(second, third), record(third, end)}, dumpItems(t, name, file, 0))

	file[second-1] ^= 1
	file = append(file, make([]byte, 10)...)
	require.Equal(t, []place{
		{"damage", 0, second}, record(second, third), record(third, end), {"zeros", end, 10},
	}, dumpItems(t, name, file, 0))

	file = format.Append(file[:end], 2, seedTime, 0, nil, nil)
	require.Equal(t, place{"stray", end, format.HeaderSize}, dumpItems(t, name, file, third)[1])
	file = format.Append(file[:end], math.MaxUint64, seedTime, 0, nil, nil)
	require.Equal(t, place{"damage", end, format.HeaderSize}, dumpItems(t, name, file, third)[1])
}
