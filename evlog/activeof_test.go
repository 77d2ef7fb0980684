package evlog

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A look-up that comes late, to a segment that was the active one when it began and
// that compaction has replaced since, is told nothing, and what is remembered of the
// segment that is the active one now stays.
func TestNewestIn_LateForTheActiveSegment(t *testing.T) {
	ctx := vfs.NewContext(context.Background(), vfs.NewMem())
	l, err := Open(ctx, "/log", &Options{NoPreallocate: true})
	require.NoError(t, err)
	defer l.Close()
	put := func(keys ...string) {
		for _, key := range keys {
			_, err := l.Append(ctx, Record{Key: []byte(key), Value: []byte("v")})
			require.NoError(t, err)
		}
	}
	r := l.Reader()
	enter := func(base uint64) *segFile {
		s, err := r.acquire(base)
		require.NoError(t, err)
		s.searched.Store(true)
		return s
	}
	hash := format.KeyHash([]byte("a"))

	put("a", "a", "b")
	end := l.pub.load().Position
	require.NoError(t, l.Roll(ctx))
	_, err = l.Compact(ctx, &CompactOptions{MinLag: -1, BytesPerSecond: -1})
	require.NoError(t, err)
	put("a", "c")
	now := enter(3)
	pos, found, known, err := r.newestIn(ctx, now, hash, l.pub.load().Position)
	require.NoError(t, err)
	require.True(t, known && found && pos == 0)

	replaced := enter(0)
	info, err := replaced.f.Stat()
	require.NoError(t, err)
	for _, upTo := range []int64{end, info.Size()} {
		_, _, known, err = r.newestIn(ctx, replaced, hash, upTo)
		require.NoError(t, err)
		require.False(t, known)
		require.Same(t, now, r.active.of)
	}
	r.release(replaced)
	r.release(now)
}
