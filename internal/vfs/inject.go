package vfs

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// Hook is called before each operation of an [Injected] file system. An error
// is returned in place of doing the operation. It may be called by many
// goroutines at once.
type Hook func(op Op) error

// ShortWrite is an error that a Hook may return for an OpWrite: the first N
// bytes are written, then Err is returned with the number of bytes written.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return "short write: " + e.Err.Error() }

func (e *ShortWrite) Unwrap() error { return e.Err }

// Injected is what [Inject] returns.
type Injected struct {
	fsys   FS
	before Hook
	after  func(op Op, err error)
	seq    atomic.Int64
}

// Inject wraps fsys and calls hook, if it is not nil, before each operation.
func Inject(fsys FS, hook Hook) *Injected {
	return &Injected{fsys: fsys, before: hook}
}

// After sets a function that is called after each operation with what it
// returned, injected errors included. Set it before the first operation. An
// operation that another goroutine begins later may be seen earlier; Op.Seq is
// the order in which they began.
func (i *Injected) After(fn func(op Op, err error)) *Injected {
	i.after = fn
	return i
}

// run does one operation between the hooks. What the first one returned is fn's
// to obey.
func (i *Injected) run(op Op, fn func(injected error) error) error {
	op.Seq = i.seq.Add(1)
	var injected error
	if i.before != nil {
		injected = i.before(op)
	}
	err := fn(injected)
	if i.after != nil {
		i.after(op, err)
	}
	return err
}

func (i *Injected) do(op Op, fn func() error) error {
	return i.run(op, func(injected error) error {
		if injected != nil {
			return injected
		}
		return fn()
	})
}

// MkdirAll implements [FS].
func (i *Injected) MkdirAll(path string, perm fs.FileMode) error {
	return i.do(Op{Kind: OpMkdir, Dir: path}, func() error { return i.fsys.MkdirAll(path, perm) })
}

// OpenDir implements [FS].
func (i *Injected) OpenDir(path string) (Dir, error) {
	var d Dir
	err := i.do(Op{Kind: OpOpen, Dir: path}, func() (err error) {
		d, err = i.fsys.OpenDir(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &injectedDir{Dir: d, i: i}, nil
}

// injectedDir passes on what has no kind: Path, Network, Close.
type injectedDir struct {
	Dir
	i *Injected
}

func (d *injectedDir) do(op Op, fn func() error) error {
	op.Dir = d.Path()
	return d.i.do(op, fn)
}

func (d *injectedDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	kind := OpOpen
	if flag&os.O_CREATE != 0 {
		kind = OpCreate
	}
	var f File
	err := d.do(Op{Kind: kind, Name: name}, func() (err error) {
		f, err = d.Dir.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &injectedFile{f: f, d: d, name: name}, nil
}

func (d *injectedDir) Remove(name string) error {
	return d.do(Op{Kind: OpRemove, Name: name}, func() error { return d.Dir.Remove(name) })
}

func (d *injectedDir) Rename(from, to string) error {
	return d.do(Op{Kind: OpRename, Name: from, To: to}, func() error { return d.Dir.Rename(from, to) })
}

func (d *injectedDir) Names() (names []string, err error) {
	err = d.do(Op{Kind: OpList}, func() (err error) {
		names, err = d.Dir.Names()
		return err
	})
	return names, err
}

func (d *injectedDir) Stat(name string) (info fs.FileInfo, err error) {
	err = d.do(Op{Kind: OpStat, Name: name}, func() (err error) {
		info, err = d.Dir.Stat(name)
		return err
	})
	return info, err
}

func (d *injectedDir) Same(name string, f File) (same bool, err error) {
	if wrapped, ok := f.(*injectedFile); ok {
		f = wrapped.f
	}
	err = d.do(Op{Kind: OpSame, Name: name}, func() (err error) {
		same, err = d.Dir.Same(name, f)
		return err
	})
	return same, err
}

func (d *injectedDir) Chtimes(name string, mtime time.Time) error {
	return d.do(Op{Kind: OpChtimes, Name: name}, func() error { return d.Dir.Chtimes(name, mtime) })
}

func (d *injectedDir) Sync() error { return d.do(Op{Kind: OpDirSync}, d.Dir.Sync) }

func (d *injectedDir) SyncParent() error { return d.do(Op{Kind: OpSyncParent}, d.Dir.SyncParent) }

func (d *injectedDir) Lock(name string) (lock Lock, err error) {
	err = d.do(Op{Kind: OpLock, Name: name}, func() (err error) {
		lock, err = d.Dir.Lock(name)
		return err
	})
	return lock, err
}

func (d *injectedDir) LockDir() (lock Lock, err error) {
	err = d.do(Op{Kind: OpLock}, func() (err error) {
		lock, err = d.Dir.LockDir()
		return err
	})
	return lock, err
}
