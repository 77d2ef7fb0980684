package vfs

import (
	"errors"
	"io/fs"
)

// injectedFile is an open file of an Injected file system.
type injectedFile struct {
	f    File
	d    *injectedDir
	name string
}

func (f *injectedFile) op(kind OpKind, off, n int64) Op {
	return Op{Kind: kind, Dir: f.d.Path(), Name: f.name, Off: off, Len: n}
}

func (f *injectedFile) do(kind OpKind, off, n int64, fn func() error) error {
	return f.d.i.do(f.op(kind, off, n), fn)
}

func (f *injectedFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do(OpRead, off, int64(len(p)), func() (err error) {
		n, err = f.f.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *injectedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.d.i.run(f.op(OpWrite, off, int64(len(p))), func(injected error) error {
		var short *ShortWrite
		if injected != nil && !errors.As(injected, &short) {
			return injected
		}
		if short == nil {
			n, err = f.f.WriteAt(p, off)
			return err
		}
		n, err = f.f.WriteAt(p[:min(len(p), short.N)], off)
		if err != nil {
			return err
		}
		return short.Err
	})
	return n, err
}

func (f *injectedFile) Stat() (info fs.FileInfo, err error) {
	err = f.do(OpStat, 0, 0, func() (err error) {
		info, err = f.f.Stat()
		return err
	})
	return info, err
}

func (f *injectedFile) Truncate(size int64) error {
	return f.do(OpTruncate, size, 0, func() error { return f.f.Truncate(size) })
}

func (f *injectedFile) Allocate(off, n int64) error {
	return f.do(OpAllocate, off, n, func() error { return f.f.Allocate(off, n) })
}

func (f *injectedFile) Sync() error { return f.do(OpSync, 0, 0, f.f.Sync) }

func (f *injectedFile) SyncData() error { return f.do(OpSyncData, 0, 0, f.f.SyncData) }

// Close closes the file in any case: an injected error is one that close
// reports, not a descriptor that stays open.
func (f *injectedFile) Close() error {
	return f.d.i.run(f.op(OpClose, 0, 0), func(injected error) error {
		return errors.Join(injected, f.f.Close())
	})
}
