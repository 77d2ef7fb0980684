package cursor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

const memPath = "/log"

// memLog returns a file system with a log that is closed and synced.
func memLog(t testing.TB) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	ctx := vfs.NewContext(t.Context(), mem)
	l, err := evlog.Open(ctx, memPath, nil)
	require.NoError(t, err)
	fill(t, ctx, l, 3)
	require.NoError(t, l.Close())
	return mem.SyncedImage()
}

// step is one change of consumers.json.
type step struct {
	name     string
	from, to uint64
	remove   bool
}

// changes are of every kind, by consumers that do not know of each other.
var changes = []step{
	{name: "a", from: 0, to: 3},
	{name: "b", from: 0, to: 0},
	{name: "a", from: 3, to: 7},
	{name: "c", from: 0, to: 5},
	{name: "b", from: 0, to: 100},
	{name: "c", from: 5, to: 2}, // a reset
	{name: "a", remove: true},
	{name: "a", from: 0, to: 9},
}

const absent = ^uint64(0)

// images is how many power failures each moment is tested with.
func images() uint64 { return uint64(max(8, evtest.Count(200))) }

func (s step) do(ctx context.Context, f *cursor.File) error {
	switch {
	case s.remove:
		return f.Remove(ctx, s.name)
	case s.to < s.from:
		return f.Reset(ctx, s.name, s.from, s.to)
	}
	return f.Commit(ctx, s.name, s.from, s.to)
}

func (s step) result() uint64 {
	if s.remove {
		return absent
	}
	return s.to
}

// expectation is where each consumer may stand: where it was acknowledged to
// stand, or where a change since then that failed would have put it.
type expectation map[string][]uint64

func newExpectation() expectation {
	return expectation{"a": {absent}, "b": {absent}, "c": {absent}}
}

func (e expectation) note(s step, err error) {
	if err == nil {
		e[s.name] = []uint64{s.result()}
	} else {
		e[s.name] = append(e[s.name], s.result())
	}
}

// check compares an image with the expectation, and that the consumers can go
// on from there.
func (e expectation) check(t *testing.T, image *vfs.Mem, what string) {
	t.Helper()
	ctx := vfs.NewContext(t.Context(), image)
	f := openFile(t, ctx, memPath)
	for name, allowed := range e {
		at := position(t, ctx, f, name, what)
		require.Contains(t, allowed, at, "%s: consumer %s", what, name)
	}
	at := position(t, ctx, f, "a", what)
	if at == absent {
		at = 0
	}
	require.NoError(t, f.Commit(ctx, "a", at, at+1), what)
	after := vfs.NewContext(t.Context(), image.SyncedImage())
	require.Equal(t, at+1, position(t, after, openFile(t, after, memPath), "a", what), "%s: commit after the crash", what)
	require.NoError(t, f.Close())
}

func position(t *testing.T, ctx context.Context, f *cursor.File, name, what string) uint64 {
	t.Helper()
	p, err := f.Load(ctx, name)
	if errors.Is(err, cursor.ErrUnknownConsumer) {
		return absent
	}
	require.NoError(t, err, "%s: consumer %s", what, name)
	return p.Next
}

// The power fails before every single operation of a series of changes, and the
// unsynced rest survives or not in many ways: each consumer stands where it was
// acknowledged to stand, or where the change under way would have put it, and
// the file can always be read.
func TestFile_PowerFailsAtEveryOperation(t *testing.T) {
	base := memLog(t)
	for cut := int64(0); ; cut++ {
		mem := base.KillImage()
		ctx := vfs.NewContext(t.Context(), mem)
		f := openFile(t, ctx, memPath)
		want := newExpectation()
		mem.SetTornCut(cut, int(cut%40))
		for _, s := range changes {
			err := s.do(ctx, f)
			want.note(s, err)
			if err != nil {
				require.ErrorIs(t, err, vfs.ErrCut)
				break
			}
		}
		require.NoError(t, f.Close())
		want.check(t, mem.KillImage(), fmt.Sprintf("killed before operation %d", cut))
		for seed := range images() {
			want.check(t, mem.Crash(seed), fmt.Sprintf("power failed before operation %d, seed %d", cut, seed))
		}
		if !mem.WasCut() {
			require.Greater(t, cut, int64(4*len(changes)), "each change has its own operations")
			return
		}
	}
}

// Each sync fails once. Its caller gets the error; whoever changes the file
// next starts from what can be read, and what is acknowledged then is on the
// disk although an earlier sync lost what it covered.
func TestFile_SyncFails(t *testing.T) {
	base := memLog(t)
	for n := 1; ; n++ {
		mem := base.KillImage()
		ctx := vfs.NewContext(t.Context(), mem)
		f := openFile(t, ctx, memPath)
		want, failed := newExpectation(), 0
		mem.FailSync(vfs.OpAnySync, "", n, syscall.EIO)
		for i, s := range changes {
			// Where it stands is what it reads now.
			if at := position(t, ctx, f, s.name, "live"); at != absent {
				s.to = max(s.to, at)
				if s.from > s.to {
					s.to = s.from
				}
				s.from = at
			} else if s.remove {
				continue
			} else {
				s.from = 0
			}
			err := s.do(ctx, f)
			want.note(s, err)
			if err != nil {
				require.ErrorIs(t, err, syscall.EIO)
				failed++
			}
			for seed := range images() {
				want.check(t, mem.Crash(seed), fmt.Sprintf("sync %d failed, after change %d, seed %d", n, i, seed))
			}
		}
		require.NoError(t, f.Close())
		if failed == 0 {
			require.Greater(t, n, 2*len(changes)-2, "each change syncs a file and the directory")
			return
		}
		require.Equal(t, 1, failed)
	}
}

// A commit of the position that is stored already acknowledges it all the same:
// where the sync of the one before failed, it is not on the disk yet.
func TestFile_SamePositionIsMadeDurable(t *testing.T) {
	mem := memLog(t)
	ctx := vfs.NewContext(t.Context(), mem)
	f := openFile(t, ctx, memPath)
	mem.FailSync(vfs.OpDirSync, "", 1, syscall.EIO)
	require.ErrorIs(t, f.Commit(ctx, "a", 0, 5), syscall.EIO)
	require.EqualValues(t, 5, standsAt(t, ctx, f, "a"), "as the page cache has it")
	require.NoError(t, f.Commit(ctx, "a", 5, 5))
	after := vfs.NewContext(t.Context(), mem.SyncedImage())
	require.EqualValues(t, 5, standsAt(t, after, openFile(t, after, memPath), "a"))
}

// Each operation of a commit fails once, of whatever kind it is: the caller gets
// the error, or the commit is durable without it; the next one works; nothing is
// left behind.
func TestFile_EachOperationFails(t *testing.T) {
	base := memLog(t)
	{
		ctx := vfs.NewContext(t.Context(), base)
		require.NoError(t, openFile(t, ctx, memPath).Commit(ctx, "a", 0, 3))
	}
	for n := 1; ; n++ {
		mem := base.KillImage()
		var met string
		fails := false
		ops := 0
		fsys := vfs.Inject(mem, func(op vfs.Op) error {
			if !fails {
				return nil
			}
			if ops++; ops == n {
				met = op.String()
				return syscall.EIO
			}
			return nil
		})
		ctx := vfs.NewContext(t.Context(), fsys)
		f := openFile(t, ctx, memPath)
		fails = true
		err := f.Commit(ctx, "a", 3, 7)
		fails = false
		if met == "" {
			require.Greater(t, n, 10)
			return
		}
		at := standsAt(t, ctx, f, "a")
		if err == nil {
			require.EqualValues(t, 7, at, met)
			after := vfs.NewContext(t.Context(), mem.SyncedImage())
			require.EqualValues(t, 7, standsAt(t, after, openFile(t, after, memPath), "a"), met)
		} else {
			require.ErrorIs(t, err, syscall.EIO, met)
			require.Contains(t, []uint64{3, 7}, at, met)
		}
		require.NoError(t, f.Commit(ctx, "a", at, 8), met)
		require.Empty(t, readFile(t, ctx, memPath, "consumers.json.tmp"), met)
		names, err := openDir(t, ctx, memPath).Names()
		require.NoError(t, err)
		require.NotContains(t, names, "consumers.json.tmp", met)
	}
}

func TestFile_DiskFull(t *testing.T) {
	mem := memLog(t)
	ctx := vfs.NewContext(t.Context(), mem)
	f := openFile(t, ctx, memPath)
	require.NoError(t, f.Commit(ctx, "a", 0, 3))
	used := mem.Used()
	for room := range int64(600) {
		mem.SetCapacity(used + room)
		err := f.Commit(ctx, "a", 3, 3)
		if err == nil {
			require.Greater(t, room, int64(512), "a file takes room")
			break
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, used, mem.Used(), "nothing is left behind")
		require.EqualValues(t, 3, standsAt(t, ctx, f, "a"))
	}
	mem.SetCapacity(-1)
	require.NoError(t, f.Commit(ctx, "a", 3, 4))
}

// Random changes by several openings, with failing syncs and power failures in
// between, against the expectation.
func TestFile_RandomFaults(t *testing.T) {
	evtest.Seeds(t, 2000, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		mem := memLog(t)
		want := newExpectation()
		for step := range 60 {
			ctx := vfs.NewContext(t.Context(), mem)
			f := openFile(t, ctx, memPath)
			switch rng.IntN(6) {
			case 0:
				mem.FailSync(vfs.OpAnySync, "", 1+rng.IntN(4), syscall.EIO)
			case 1:
				mem.SetTornCut(rng.Int64N(8), rng.IntN(60))
			}
			s := randomStep(t, ctx, f, rng)
			want.note(s, s.do(ctx, f))
			require.NoError(t, f.Close())
			what := fmt.Sprintf("step %d", step)
			switch rng.IntN(4) {
			case 0:
				mem = mem.Crash(rng.Uint64())
			case 1:
				mem = mem.KillImage()
			default:
				mem.SetCut(-1)
			}
			ctx = vfs.NewContext(t.Context(), mem)
			f = openFile(t, ctx, memPath)
			for name, allowed := range want {
				require.Contains(t, allowed, position(t, ctx, f, name, what), "%s: consumer %s", what, name)
			}
			require.NoError(t, f.Close())
		}
	})
}

// randomStep is a change that fits where a consumer stands now.
func randomStep(t *testing.T, ctx context.Context, f *cursor.File, rng *rand.Rand) step {
	s := step{name: string(rune('a' + rng.IntN(3)))}
	s.from = position(t, ctx, f, s.name, "now")
	if s.from == absent {
		s.from, s.to = 0, rng.Uint64N(100)
		return s
	}
	switch rng.IntN(5) {
	case 0:
		s.remove = true
	case 1:
		s.to = rng.Uint64N(100)
	default:
		s.to = s.from + rng.Uint64N(10)
	}
	return s
}
