package evlog

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A filter made in many passes, because few hashes fit into memory, passes for
// every key, and is as large and as good as one that is made at once.
func TestBuildIndex_ManyPassesAreAsGoodAsOne(t *testing.T) {
	const n, distinct = 30_000, 20_000
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("/log", 0o700))
	dir, err := fsys.OpenDir("/log")
	require.NoError(t, err)
	defer dir.Close()
	var raw []byte
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		k := i
		if i >= distinct {
			k = rng.IntN(distinct)
		}
		raw = format.Append(raw, uint64(2*i), 1, 0, fmt.Appendf(nil, "key-%d", k), []byte("v"))
		if i%10 == 0 {
			raw = format.Append(raw, uint64(2*i+1), 1, 0, nil, []byte("no key"))
		}
	}
	require.NoError(t, writeFileDurably(dir, format.SegmentName(0), raw))
	log, err := openSegment(dir, 0)
	require.NoError(t, err)
	defer log.Close()

	for _, maxHashes := range []int{maxKeyHashes, distinct, distinct - 1, 9000, 7500} {
		t.Run(fmt.Sprint(maxHashes), func(t *testing.T) {
			x, err := buildIndex(t.Context(), dir, log, 0, 4096, maxHashes, nil)
			require.NoError(t, err)
			require.LessOrEqual(t, cap(x.keys.list), max(2*maxHashes, 4), "memory") // I10
			require.NoError(t, x.finish())
			built, err := openIndex(dir, 0, log)
			require.NoError(t, err)
			defer built.close()
			require.NoError(t, built.checkFilter())
			h := built.header
			require.EqualValues(t, distinct, h.Keys)
			require.InDelta(t, 1.2*distinct, h.Filter.Size(), 0.03*distinct)
			passed := 0
			for i := range distinct {
				require.True(t, mayHoldKey(t, built, fmt.Appendf(nil, "key-%d", i)), i)
				if mayHoldKey(t, built, fmt.Appendf(nil, "other-%d", i)) {
					passed++
				}
			}
			require.Less(t, passed, distinct/200)
			names, err := dir.Names()
			require.NoError(t, err)
			require.ElementsMatch(t, []string{format.SegmentName(0), format.IndexName(0)}, names, "no temporary file stays")
		})
	}
}

func mayHoldKey(t *testing.T, x *index, key []byte) bool {
	h := format.KeyHash(key)
	b, err := x.filterBlock(x.header.Filter.Block(h), make([]byte, x.header.Filter.BlockBytes))
	require.NoError(t, err)
	return b.MayHold(h)
}
