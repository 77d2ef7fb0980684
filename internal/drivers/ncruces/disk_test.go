package ncruces

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"
	sqlitevfs "github.com/ncruces/go-sqlite3/vfs"

	"github.com/evlog-go/evlog/internal/vfs"
)

// disk lets SQLite work on the file system that evlog's own crash tests use: in
// memory, with what is synced and what is not kept apart. A power failure then
// meets database and log at the same moment, and what is durable of either was
// synced by its own code.
type disk struct {
	name string
	mem  *vfs.Mem
	dir  vfs.Dir
	shm  string // the file that connections share the WAL's index in
	// synced, if it is set, is called when SQLite has synced a file.
	synced func()
	// committing, if it is set, is called when a commit has been written, and is
	// about to be made durable: by the sync of a WAL, or that of the directory which
	// a journal was removed from. The sync fails with its error.
	committing func() error

	mu    sync.Mutex // guards locks
	locks map[string]*locks
}

const dbDir = "/data/db"

// newDisk registers a file system of its own with SQLite under the name name.
func newDisk(t testing.TB, name string, mem *vfs.Mem) *disk {
	t.Helper()
	if err := mem.MkdirAll(dbDir, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := mem.OpenDir(dbDir)
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{name: name, mem: mem, dir: dir, shm: filepath.Join(shmDir(t), name+"-shm"), locks: map[string]*locks{}}
	sqlitevfs.Register(name, d)
	return d
}

// shmDir is where a file costs no disk: it is thrown away with the connections.
func shmDir(t testing.TB) string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		dir, err := os.MkdirTemp("/dev/shm", "evlog")
		if err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

func (d *disk) close() {
	sqlitevfs.Unregister(d.name)
	_ = os.Remove(d.shm)
	_ = d.dir.Close()
}

// Open implements sqlitevfs.VFS.
func (d *disk) Open(name string, flags sqlitevfs.OpenFlag) (sqlitevfs.File, sqlitevfs.OpenFlag, error) {
	if name == "" || flags&(sqlitevfs.OPEN_TEMP_DB|sqlitevfs.OPEN_TEMP_JOURNAL|sqlitevfs.OPEN_SUBJOURNAL|sqlitevfs.OPEN_TRANSIENT_DB) != 0 {
		return nil, flags, fmt.Errorf("a temporary file %q: %w", name, sqlite3.CANTOPEN)
	}
	how := os.O_RDWR
	if flags&sqlitevfs.OPEN_CREATE != 0 {
		how |= os.O_CREATE
	}
	base := path.Base(name)
	f, err := d.dir.OpenFile(base, how, 0o600)
	if err != nil {
		return nil, flags, sqlite3.CANTOPEN
	}
	file := &diskFile{d: d, f: f, wal: flags&sqlitevfs.OPEN_WAL != 0}
	if flags&sqlitevfs.OPEN_MAIN_DB != 0 {
		file.shm = sqlitevfs.NewSharedMemory(d.shm, flags)
		d.mu.Lock()
		if d.locks[base] == nil {
			d.locks[base] = &locks{}
		}
		file.locks = d.locks[base]
		d.mu.Unlock()
	}
	return file, flags, nil
}

// Delete implements sqlitevfs.VFS.
func (d *disk) Delete(name string, syncDir bool) error {
	err := d.dir.Remove(path.Base(name))
	if errors.Is(err, fs.ErrNotExist) {
		return sqlite3.IOERR_DELETE_NOENT
	}
	if err == nil && syncDir {
		if err = d.commit(); err == nil {
			err = d.dir.Sync()
		}
	}
	return ioError(err, sqlite3.IOERR_DELETE)
}

func (d *disk) commit() error {
	if d.committing == nil {
		return nil
	}
	return d.committing()
}

// Access implements sqlitevfs.VFS.
func (d *disk) Access(name string, _ sqlitevfs.AccessFlag) (bool, error) {
	info, err := d.dir.Stat(path.Base(name))
	return err == nil && info.Size() > 0, nil
}

// FullPathname implements sqlitevfs.VFS. Two disks have no path in common, since
// a process knows its relays by the path of the database.
func (d *disk) FullPathname(name string) (string, error) {
	return path.Join("/", d.name, path.Base(name)), nil
}

func ioError(err error, code sqlite3.ExtendedErrorCode) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return sqlite3.FULL
	}
	return code
}

// diskFile is an open file.
type diskFile struct {
	d     *disk
	f     vfs.File
	shm   sqlitevfs.SharedMemory
	locks *locks
	lock  sqlitevfs.LockLevel
	named bool // its name is durable
	wal   bool
}

func (f *diskFile) Close() error {
	_ = f.Unlock(sqlitevfs.LOCK_NONE)
	if f.shm != nil {
		_ = f.shm.Close()
	}
	return f.f.Close()
}

// SharedMemory implements sqlitevfs.FileSharedMemory.
func (f *diskFile) SharedMemory() sqlitevfs.SharedMemory { return f.shm }

func (f *diskFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(b, off)
	if err != nil && err != io.EOF { //nolint:errorlint // it is never wrapped
		return n, sqlite3.IOERR_READ
	}
	return n, err
}

func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(b, off)
	return n, ioError(err, sqlite3.IOERR_WRITE)
}

func (f *diskFile) Truncate(size int64) error {
	return ioError(f.f.Truncate(size), sqlite3.IOERR_TRUNCATE)
}

// Sync syncs the directory too the first time, as SQLite's own does on Unix.
func (f *diskFile) Sync(flags sqlitevfs.SyncFlag) error {
	if f.wal {
		if err := f.d.commit(); err != nil {
			return ioError(err, sqlite3.IOERR_FSYNC)
		}
	}
	err := f.f.Sync()
	if err == nil && !f.named {
		if err = f.d.dir.Sync(); err == nil {
			f.named = true
		}
	}
	if err == nil && f.d.synced != nil {
		f.d.synced()
	}
	return ioError(err, sqlite3.IOERR_FSYNC)
}

func (f *diskFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, sqlite3.IOERR_FSTAT
	}
	return info.Size(), nil
}

func (f *diskFile) SectorSize() int { return 512 }

func (f *diskFile) DeviceCharacteristics() sqlitevfs.DeviceCharacteristic {
	return sqlitevfs.IOCAP_POWERSAFE_OVERWRITE // D3 of docs/DESIGN.md
}

// locks are the locks on one database, which its open files take.
type locks struct {
	mu                sync.Mutex // guards all below
	shared            int
	reserved, pending bool
}

func (f *diskFile) Lock(level sqlitevfs.LockLevel) error {
	if f.lock >= level {
		return nil
	}
	l := f.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	switch level {
	case sqlitevfs.LOCK_SHARED:
		if l.pending {
			return sqlite3.BUSY
		}
		l.shared++
	case sqlitevfs.LOCK_RESERVED:
		if l.reserved {
			return sqlite3.BUSY
		}
		l.reserved = true
	case sqlitevfs.LOCK_EXCLUSIVE:
		if f.lock < sqlitevfs.LOCK_PENDING {
			if f.lock < sqlitevfs.LOCK_RESERVED && (l.reserved || l.pending) {
				return sqlite3.BUSY // a hot journal is being rolled back by another one
			}
			l.reserved, l.pending = true, true
			f.lock = sqlitevfs.LOCK_PENDING
		}
		if l.shared > 1 {
			return sqlite3.BUSY
		}
	}
	f.lock = level
	return nil
}

func (f *diskFile) Unlock(level sqlitevfs.LockLevel) error {
	if f.locks == nil || f.lock <= level {
		return nil
	}
	l := f.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.lock >= sqlitevfs.LOCK_RESERVED {
		l.reserved = false
	}
	if f.lock >= sqlitevfs.LOCK_PENDING {
		l.pending = false
	}
	if level < sqlitevfs.LOCK_SHARED {
		l.shared--
	}
	f.lock = level
	return nil
}

func (f *diskFile) CheckReservedLock() (bool, error) {
	f.locks.mu.Lock()
	defer f.locks.mu.Unlock()
	return f.locks.reserved, nil
}

// LockState implements sqlitevfs.FileLockState.
func (f *diskFile) LockState() sqlitevfs.LockLevel { return f.lock }
