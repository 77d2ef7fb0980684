package vfs_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

func TestCrash_Names(t *testing.T) {
	t.Parallel()
	list := func(image *vfs.Mem) string {
		d, err := image.OpenDir("/d")
		if err != nil {
			return missing
		}
		defer d.Close()
		var all []string
		for _, name := range names(t, d) {
			all = append(all, name+"="+read(t, d, name))
		}
		return strings.Join(all, " ")
	}
	tests := []struct {
		name  string
		steps func(d vfs.Dir)
		want  []string // exactly these results, over all seeds
	}{
		{"synced", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
		}, []string{"a=1"}},
		{"content synced, name not", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
		}, []string{"", "a=1"}},
		{"name synced, content not", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", false)
			require.NoError(t, d.Sync())
		}, []string{"a=", "a=\x00", "a=1"}},
		{"name synced before the second file", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
			writeFile(t, d, "b", "2", true)
		}, []string{"a=1", "a=1 b=2"}},
		{"independent names", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			writeFile(t, d, "b", "2", true)
		}, []string{"", "a=1", "a=1 b=2", "b=2"}},
		{"removed", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
			require.NoError(t, d.Remove("a"))
		}, []string{"", "a=1"}},
		{"removed and synced", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
			require.NoError(t, d.Remove("a"))
			require.NoError(t, d.Sync())
		}, []string{""}},
		{"removed and made again", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
			require.NoError(t, d.Remove("a"))
			writeFile(t, d, "a", "2", true)
		}, []string{"", "a=1", "a=2"}},
		{"replaced by rename: old or new, never none", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			writeFile(t, d, "a.tmp", "2", true)
			require.NoError(t, d.Sync())
			require.NoError(t, d.Rename("a.tmp", "a"))
		}, []string{"a=1 a.tmp=2", "a=2"}},
		{"replaced by rename, all of it unsynced", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
			writeFile(t, d, "a.tmp", "2", true)
			require.NoError(t, d.Rename("a.tmp", "a"))
		}, []string{"a=1", "a=1 a.tmp=2", "a=2"}},
		{"replaced without syncing the content", func(d vfs.Dir) {
			writeFile(t, d, "a", "1", true)
			require.NoError(t, d.Sync())
			writeFile(t, d, "a.tmp", "2", false)
			require.NoError(t, d.Rename("a.tmp", "a"))
			require.NoError(t, d.Sync())
		}, []string{"a=", "a=\x00", "a=2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := vfs.NewMem()
			test.steps(openDir(t, m, "/d"))
			require.Equal(t, test.want, keys(outcomes(m, list)))
			require.Contains(t, test.want, list(m.SyncedImage()))
		})
	}
}

func TestCrash_NestedDirectories(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/a/b/c")
	writeFile(t, d, "f", "x", true)
	require.NoError(t, d.Sync())
	got := func(image *vfs.Mem) string { return readIn(t, image, "/a/b/c", "f") }
	require.Equal(t, []string{"x"}, keys(outcomes(m, got)), "MkdirAll syncs what it makes")

	// A directory that was moved is at its old or new name, with all it holds.
	b := openDir(t, m, "/a/b")
	require.NoError(t, b.Rename("c", "moved"))
	where := func(image *vfs.Mem) string {
		return readIn(t, image, "/a/b/c", "f") + readIn(t, image, "/a/b/moved", "f")
	}
	require.Equal(t, []string{missing + "x", "x" + missing}, keys(outcomes(m, where)))
	require.NoError(t, d.SyncParent())
	require.Equal(t, []string{missing + "x"}, keys(outcomes(m, where)))
}

// TestCrash_MkdirCut: a process that dies between the mkdir and its sync
// leaves a name that is not durable; the next MkdirAll or SyncParent mends it.
func TestCrash_MkdirCut(t *testing.T) {
	t.Parallel()
	exists := func(path string) func(image *vfs.Mem) string {
		return func(image *vfs.Mem) string {
			_, err := image.OpenDir(path)
			return fmt.Sprint(err == nil)
		}
	}
	m := vfs.NewMem()
	m.SetCut(1)
	require.ErrorIs(t, m.MkdirAll("/a", 0o755), vfs.ErrCut)
	m = m.KillImage()
	require.Equal(t, []string{"false", "true"}, keys(outcomes(m, exists("/a"))))

	again := m.KillImage()
	require.NoError(t, again.MkdirAll("/a", 0o755), "is there already, so nothing is synced")
	require.Equal(t, []string{"false", "true"}, keys(outcomes(again, exists("/a"))))
	require.NoError(t, openDir(t, again, "/a").SyncParent())
	require.Equal(t, []string{"true"}, keys(outcomes(again, exists("/a"))))

	require.NoError(t, m.MkdirAll("/a/b", 0o755))
	require.Equal(t, []string{"true"}, keys(outcomes(m, exists("/a/b"))))
}

func TestCrash_SectorsAreWholeAndOldBytesStay(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	write(t, f, 0, strings.Repeat("a", 2048))
	require.NoError(t, f.SyncData())
	require.NoError(t, d.Sync())
	write(t, f, 500, strings.Repeat("b", 1024)) // sectors 0 to 2, the outer ones in part
	write(t, f, 600, strings.Repeat("c", 10))   // in sector 1

	sectors := []map[string]int{{}, {}, {}, {}}
	for image := range outcomes(m, func(image *vfs.Mem) string { return readIn(t, image, "/d", "f") }) {
		require.Len(t, image, 2048)
		for i := range sectors {
			sectors[i][image[i*512:(i+1)*512]]++
		}
	}
	a, b := strings.Repeat("a", 512), strings.Repeat("b", 512)
	require.ElementsMatch(t, []string{a, a[:500] + b[:12]}, keys(sectors[0]))
	require.ElementsMatch(t, []string{a, b, b[:88] + "cccccccccc" + b[98:]}, keys(sectors[1]))
	require.ElementsMatch(t, []string{a, b[:500] + a[:12]}, keys(sectors[2]))
	require.ElementsMatch(t, []string{a}, keys(sectors[3]))
}

func TestCrash_SizeAndDataAreIndependent(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	write(t, f, 0, "aaaa")
	require.NoError(t, f.SyncData())
	require.NoError(t, d.Sync())
	write(t, f, 4, "bbbb")
	got := func(image *vfs.Mem) string { return readIn(t, image, "/d", "f") }
	require.Equal(t, []string{"aaaa", "aaaa\x00\x00\x00\x00", "aaaabbbb"}, keys(outcomes(m, got)))

	// A truncate that was not synced before new data came: old bytes may come
	// back behind the new ones.
	require.NoError(t, f.SyncData())
	require.NoError(t, f.Truncate(2))
	write(t, f, 2, "c")
	require.ElementsMatch(t, []string{
		"aaaabbbb",                   // nothing
		"aa", "aac", "aa\x00", "aaa", // new sizes
		"aac\x00\x00\x00\x00\x00", "aa\x00\x00\x00\x00\x00\x00", // old size
	}, keys(outcomes(m, got)))
	require.NoError(t, f.SyncData())
	require.Equal(t, []string{"aac"}, keys(outcomes(m, got)))

	// Many sectors at once: the extremes are there too.
	write(t, f, 3, strings.Repeat("d", 100_000))
	seen := outcomes(m, got)
	require.Contains(t, seen, "aac")
	require.Contains(t, seen, "aac"+strings.Repeat("\x00", 100_000))
	require.Contains(t, seen, "aac"+strings.Repeat("d", 100_000))
	require.Greater(t, len(seen), 50)
}

func TestCrash_UpToOneMoment(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	require.NoError(t, d.Sync())
	for i := range 5 {
		write(t, f, int64(i*1000), strings.Repeat("x", 1000))
	}
	seen := outcomes(m, func(image *vfs.Mem) string { return readIn(t, image, "/d", "f") })
	for i := range 6 {
		require.Contains(t, seen, strings.Repeat("x", i*1000))
	}
}

// TestCrash_OverwrittenOften: a file that is overwritten in place and hardly
// ever synced may not keep every version for ever.
func TestCrash_OverwrittenOften(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	require.NoError(t, d.Sync())
	for i := range 5000 {
		write(t, f, 0, fmt.Sprintf("%04d", i))
	}
	seen := outcomes(m, func(image *vfs.Mem) string { return readIn(t, image, "/d", "f") })
	require.Contains(t, seen, "")
	require.Contains(t, seen, "4999")
	require.Less(t, len(seen), 300)
	require.Equal(t, "4999", readIn(t, m.KillImage(), "/d", "f"))
	require.NoError(t, f.SyncData())
	require.Equal(t, "4999", readIn(t, m.SyncedImage(), "/d", "f"))
}

func TestCrash_ModificationTime(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	m.SetNow(func() time.Time { return time.UnixMilli(1000) })
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	require.NoError(t, d.Sync())
	require.NoError(t, d.Chtimes("f", time.UnixMilli(5)))
	mtime := func(image *vfs.Mem) string {
		info, err := openDir(t, image, "/d").Stat("f")
		require.NoError(t, err)
		return fmt.Sprint(info.ModTime().UnixMilli())
	}
	require.Equal(t, []string{"1000", "5"}, keys(outcomes(m, mtime)))
	require.NoError(t, f.SyncData())
	require.Equal(t, []string{"1000", "5"}, keys(outcomes(m, mtime)), "fdatasync leaves times out")
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"5"}, keys(outcomes(m, mtime)))
}

func TestCrash_SameSeedSameImage(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	for i := range 20 {
		writeFile(t, d, fmt.Sprint(i), strings.Repeat("x", 3000), i%2 == 0)
	}
	for seed := range uint64(20) {
		require.Equal(t, dump(t, m.Crash(seed)), dump(t, m.Crash(seed)))
		require.Equal(t, dump(t, m.Crash(seed)), dump(t, m.KillImage().Crash(seed)))
	}
	require.NotEqual(t, dump(t, m.Crash(3)), dump(t, m.Crash(2)))
	require.Empty(t, dump(t, m.Crash(0)))
	require.Equal(t, dump(t, m), dump(t, m.Crash(1)))
}

// dump is all that is in /d.
func dump(t *testing.T, fsys vfs.FS) map[string]string {
	t.Helper()
	d := openDir(t, fsys, "/d")
	all := map[string]string{}
	for _, name := range names(t, d) {
		all[name] = read(t, d, name)
	}
	return all
}

func TestCrash_ImageIsSyncedAndSeparate(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	writeFile(t, d, "f", "one", true)
	require.NoError(t, d.Sync())
	lock, err := d.Lock("LOCK")
	require.NoError(t, err)
	dirLock, err := d.LockDir()
	require.NoError(t, err)

	for name, image := range map[string]*vfs.Mem{
		"crash": m.Crash(0), "kill": m.KillImage(), "synced": m.SyncedImage(),
	} {
		d2 := openDir(t, image, "/d")
		lock, err := d2.Lock("LOCK")
		require.NoError(t, err, "%s: the process with the lock is gone", name)
		require.NoError(t, lock.Unlock())
		dirLock, err := d2.LockDir()
		require.NoError(t, err, name)
		require.NoError(t, dirLock.Unlock())
		writeFile(t, d2, "f", "two", false)
		require.Equal(t, "one", read(t, d, "f"), name)
	}
	require.NoError(t, lock.Unlock())
	require.NoError(t, dirLock.Unlock())

	image := m.Crash(3)
	again := outcomes(image, func(i *vfs.Mem) string { return fmt.Sprint(dump(t, i)) })
	require.Len(t, again, 1, "what survived is durable")
}

func TestKillImage_KeepsWhatIsUnsynced(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	writeFile(t, d, "f", "unsynced", false)
	removed := openFile(t, d, "gone", create)
	require.NoError(t, d.Sync())
	require.NoError(t, d.Remove("gone"))
	write(t, removed, 0, "x")

	image := m.KillImage()
	require.Equal(t, map[string]string{"f": "unsynced"}, dump(t, image), "the page cache outlives the process")
	got := func(i *vfs.Mem) string { return readIn(t, i, "/d", "f") + readIn(t, i, "/d", "gone") }
	require.Equal(t, keys(outcomes(m, got)), keys(outcomes(image, got)))
	require.Contains(t, outcomes(image, got), "", "removed without a sync: may come back")

	f := openFile(t, openDir(t, image, "/d"), "f", readWrite)
	require.NoError(t, f.SyncData())
	require.Equal(t, "unsynced", readIn(t, image.SyncedImage(), "/d", "f"),
		"a later sync by another process covers it")
}

// TestCrash_RandomSteps checks against a model that what was synced is always
// there: bytes that no later write touched, under names that no later step took.
func TestCrash_RandomSteps(t *testing.T) {
	t.Parallel()
	for run := range uint64(60) {
		rnd := rand.New(rand.NewPCG(run, 0))
		m := vfs.NewMem()
		d := openDir(t, m, "/d")
		f := openFile(t, d, "f", create)
		require.NoError(t, d.Sync())
		var live, synced []byte
		dirty := 0 // from here on nothing is promised; below it nothing was written since the sync
		for range 40 {
			switch rnd.IntN(6) {
			case 0:
				require.NoError(t, f.SyncData())
				synced = bytes.Clone(live)
				dirty = len(live)
			case 1:
				size := rnd.IntN(6000)
				require.NoError(t, f.Truncate(int64(size)))
				live = append(live, make([]byte, max(0, size-len(live)))...)[:size]
				dirty = min(dirty, size)
			default:
				off, data := rnd.IntN(6000), bytes.Repeat([]byte{byte(rnd.IntN(255) + 1)}, 1+rnd.IntN(3000))
				write(t, f, int64(off), string(data))
				live = append(live, make([]byte, max(0, off+len(data)-len(live)))...)
				copy(live[off:], data)
				dirty = min(dirty, off)
			}
			require.Equal(t, string(live), content(t, f))
			require.Equal(t, string(synced), readIn(t, m.SyncedImage(), "/d", "f"))
			got := readIn(t, m.Crash(rnd.Uint64()), "/d", "f")
			keep := min(dirty, len(synced))
			require.GreaterOrEqual(t, len(got), keep)
			require.Equal(t, string(synced[:keep]), got[:keep])
		}
		require.Equal(t, string(live), readIn(t, m.KillImage(), "/d", "f"))
	}
}

func TestCrash_EmptyFileSystem(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	image := m.Crash(0)
	_, err := image.OpenDir("/d")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, image.MkdirAll("/d", 0o755))
}
