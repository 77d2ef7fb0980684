package vfs_test

import (
	"errors"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

func TestInject_TraceShowsTheOrder(t *testing.T) {
	t.Parallel()
	trace := vfs.NewTrace(vfs.OpAny)
	fsys := vfs.Inject(vfs.NewMem(), nil).After(trace.Record)
	d := openDir(t, fsys, "/log")
	f := openFile(t, d, "0.log", create)
	write(t, f, 0, "record")
	require.NoError(t, f.SyncData())
	writeFile(t, d, "DURABLE", "6", false)
	_, err := f.ReadAt(make([]byte, 10), 2)
	require.Equal(t, io.EOF, err)
	_, err = d.OpenFile("gone", readWrite, 0)
	require.Error(t, err)
	require.NoError(t, f.Truncate(3))
	require.NoError(t, f.Allocate(3, 7))
	require.NoError(t, d.Rename("0.log", "1.log"))
	require.NoError(t, d.Chtimes("1.log", time.Now()))
	same, err := d.Same("1.log", f)
	require.NoError(t, err)
	require.True(t, same)
	_, err = d.Stat("1.log")
	require.NoError(t, err)
	lock, err := d.Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
	lock, err = d.LockDir()
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
	require.NoError(t, d.Remove("1.log"))
	require.Equal(t, []string{"DURABLE", "LOCK"}, names(t, d))
	require.NoError(t, d.Sync())
	require.NoError(t, d.SyncParent())
	require.NoError(t, f.Sync())

	require.Equal(t, []string{
		"mkdir", "open",
		"create 0.log", "write 0.log [0,6)", "syncdata 0.log",
		"create DURABLE", "write DURABLE [0,1)", "close DURABLE",
		"read 0.log [2,12)", "truncate 0.log 3", "allocate 0.log [3,10)",
		"rename 0.log -> 1.log", "chtimes 1.log", "same 1.log", "stat 1.log",
		"lock LOCK", "lock", "remove 1.log", "list", "dirsync", "syncparent", "sync 0.log",
	}, trace.Strings(), "without the open that failed")
	last := trace.Ops()[21]
	require.Equal(t, vfs.Op{Kind: vfs.OpSync, Seq: 23, Dir: "/log", Name: "0.log"}, last)

	trace.Reset()
	require.Empty(t, trace.Ops())
}

func TestInject_FailsInPlaceOfDoing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tests := []struct {
		kind vfs.OpKind
		do   func(fsys vfs.FS, d vfs.Dir, f vfs.File) error
	}{
		{vfs.OpMkdir, func(fsys vfs.FS, _ vfs.Dir, _ vfs.File) error { return fsys.MkdirAll("/new", 0o755) }},
		{vfs.OpOpen, func(fsys vfs.FS, _ vfs.Dir, _ vfs.File) error { _, err := fsys.OpenDir("/d"); return err }},
		{vfs.OpOpen, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { _, err := d.OpenFile("f", readWrite, 0); return err }},
		{vfs.OpCreate, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { _, err := d.OpenFile("g", create, 0); return err }},
		{vfs.OpRead, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		{vfs.OpWrite, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { _, err := f.WriteAt([]byte("new"), 0); return err }},
		{vfs.OpTruncate, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { return f.Truncate(0) }},
		{vfs.OpAllocate, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { return f.Allocate(0, 100) }},
		{vfs.OpSync, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { return f.Sync() }},
		{vfs.OpSyncData, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { return f.SyncData() }},
		{vfs.OpStat, func(_ vfs.FS, _ vfs.Dir, f vfs.File) error { _, err := f.Stat(); return err }},
		{vfs.OpStat, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { _, err := d.Stat("f"); return err }},
		{vfs.OpSame, func(_ vfs.FS, d vfs.Dir, f vfs.File) error { _, err := d.Same("f", f); return err }},
		{vfs.OpDirSync, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { return d.Sync() }},
		{vfs.OpSyncParent, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { return d.SyncParent() }},
		{vfs.OpRename, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { return d.Rename("f", "g") }},
		{vfs.OpRemove, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { return d.Remove("f") }},
		{vfs.OpList, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { _, err := d.Names(); return err }},
		{vfs.OpChtimes, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { return d.Chtimes("f", time.Now()) }},
		{vfs.OpLock, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { _, err := d.Lock("LOCK"); return err }},
		{vfs.OpLock, func(_ vfs.FS, d vfs.Dir, _ vfs.File) error { _, err := d.LockDir(); return err }},
	}
	for _, test := range tests {
		t.Run(test.kind.String(), func(t *testing.T) {
			t.Parallel()
			m := vfs.NewMem()
			var mu sync.Mutex
			var on bool
			var got []vfs.Op
			fsys := vfs.Inject(m, func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if on {
					got = append(got, op)
					return boom
				}
				return nil
			})
			d := openDir(t, fsys, "/d")
			f := openFile(t, d, "f", create)
			write(t, f, 0, "content")
			before := m.Ops()

			on = true
			require.ErrorIs(t, test.do(fsys, d, f), boom)
			on = false
			require.Len(t, got, 1)
			require.Equal(t, test.kind, got[0].Kind)
			require.Equal(t, before, m.Ops())
			require.Equal(t, map[string]string{"f": "content"}, dump(t, m))
		})
	}
}

func TestInject_ShortWrite(t *testing.T) {
	t.Parallel()
	short := &vfs.ShortWrite{N: 3, Err: syscall.ENOSPC}
	fsys := vfs.Inject(vfs.NewMem(), vfs.FailNth(vfs.OpWrite, "*.log", 2, short))
	f := openFile(t, openDir(t, fsys, "/d"), "a.log", create)
	write(t, f, 0, "12345")
	n, err := f.WriteAt([]byte("67890"), 5)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 3, n)
	require.Equal(t, "12345678", content(t, f))
}

func TestInject_CloseAlwaysCloses(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	fsys := vfs.Inject(m, vfs.FailNth(vfs.OpClose, "", 1, syscall.EIO))
	d := openDir(t, fsys, "/d")
	f := openFile(t, d, "f", create)
	require.ErrorIs(t, f.Close(), syscall.EIO)
	require.Error(t, f.SyncData())
}

func TestHooks(t *testing.T) {
	t.Parallel()
	op := func(kind vfs.OpKind, name string) vfs.Op { return vfs.Op{Kind: kind, Name: name} }
	nth := vfs.FailNth(vfs.OpSync|vfs.OpSyncData, "*.log", 2, syscall.EIO)
	require.NoError(t, nth(op(vfs.OpSync, "a.log")))
	require.NoError(t, nth(op(vfs.OpSync, "a.idx")))
	require.NoError(t, nth(op(vfs.OpWrite, "a.log")))
	require.ErrorIs(t, nth(op(vfs.OpSyncData, "b.log")), syscall.EIO)
	require.NoError(t, nth(op(vfs.OpSyncData, "b.log")))

	from := vfs.FailFrom(vfs.OpAny, "", 2, syscall.EROFS)
	both := vfs.Hooks(from, vfs.FailNth(vfs.OpDirSync, "", 1, syscall.EIO))
	require.ErrorIs(t, both(op(vfs.OpDirSync, "")), syscall.EIO)
	require.ErrorIs(t, both(op(vfs.OpDirSync, "")), syscall.EROFS)
	require.ErrorIs(t, both(op(vfs.OpRead, "x")), syscall.EROFS)

	require.Panics(t, func() { _ = vfs.FailNth(vfs.OpAny, "[", 1, syscall.EIO)(op(vfs.OpRead, "x")) })
}

func TestOpKind_String(t *testing.T) {
	t.Parallel()
	require.Equal(t, "sync|syncdata|dirsync|syncparent", vfs.OpAnySync.String())
	require.Equal(t, "close", vfs.OpClose.String())
	require.Empty(t, vfs.OpKind(0).String())
	require.NotContains(t, vfs.OpAny.String(), "||")
	require.Equal(t, vfs.OpClose<<1-1, vfs.OpAny)
}
