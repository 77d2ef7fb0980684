package evlog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// What a reader makes in place of an index has an entry for each interval of a segment
// of the default size, and gets coarser in a larger one, but never larger.
func TestSparse_IsAsFineAsAnIndex(t *testing.T) {
	const whole = DefaultSegmentBytes / DefaultIndexBytes
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("/log", 0o700))
	dir, err := fsys.OpenDir("/log")
	require.NoError(t, err)
	defer dir.Close()
	var raw []byte
	size := format.Size(0, 1)
	for i := range 5 * whole {
		raw = format.Append(raw, uint64(i), 1, 0, nil, []byte("v"))
	}
	require.NoError(t, writeFileDurably(dir, format.SegmentName(0), raw))
	log, err := openSegment(dir, 0)
	require.NoError(t, err)
	defer log.Close()

	x := &sparse{interval: size}
	list, err := x.extend(log, whole*size)
	require.NoError(t, err)
	require.Equal(t, whole, len(list)) // and not the list, if it fails
	list, err = x.extend(log, int64(len(raw)))
	require.NoError(t, err)
	require.Less(t, len(list), maxSparse)
	require.Greater(t, len(list), maxSparse/4)
	for i := range list[1:] {
		require.Equal(t, list[i].Pos/size, int64(list[i].Offset))
		require.Less(t, list[i].Pos, list[i+1].Pos)
	}
	require.GreaterOrEqual(t, x.list[len(x.list)-1].Pos, int64(len(raw))-x.interval)
}
