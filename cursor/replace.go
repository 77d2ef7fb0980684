package cursor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// read reads the file; without one there are no consumers. It is open for as
// short as can be, since Windows replaces no open file.
func (f *File) read(ctx context.Context) (*table, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := f.readBytes(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return newTable(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path(), err)
	}
	t, err := decodeTable(b)
	switch {
	case errors.Is(err, evlog.ErrVersion):
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	case err != nil:
		return nil, &evlog.CorruptError{Path: f.Path(), Pos: positionOf(err), Err: err}
	}
	return t, nil
}

func (f *File) readBytes(ctx context.Context) ([]byte, error) {
	file, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%d bytes are too large to be what it should be", info.Size())
	}
	b := make([]byte, info.Size())
	n, err := file.ReadAt(b, 0)
	if err == io.EOF {
		err = nil // shorter than it was: no JSON
	}
	return b[:n], err
}

// open opens the file, and tries again where Windows is just replacing it.
func (f *File) open(ctx context.Context) (vfs.File, error) {
	for wait := newBackoff(inUseWait); ; {
		file, err := f.dir.OpenFile(format.ConsumersName, os.O_RDONLY, 0)
		if err == nil || runtime.GOOS != "windows" || !inUse(err) || !wait.sleep(ctx) {
			return file, err
		}
	}
}

// replace puts b in the file's place and makes it durable. The temporary file
// is always a new one: one that a crash left may be known under both names, and
// to truncate it would empty the file itself.
func (f *File) replace(ctx context.Context, b []byte) error {
	const tmp = format.ConsumersName + format.TempSuffix
	if len(b) > maxFileBytes {
		return fmt.Errorf("it would have %d bytes (at most %d): remove consumers that are no longer used", len(b), maxFileBytes)
	}
	err := f.dir.Remove(tmp)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = f.writeNew(tmp, b)
	if err == nil {
		err = f.rename(ctx, tmp)
	}
	if err != nil {
		// Best effort: the next change, or the next writer, removes what is left.
		_ = f.dir.Remove(tmp)
		return err
	}
	return f.dir.Sync()
}

func (f *File) writeNew(name string, b []byte) error {
	perm := fs.FileMode(0o600)
	if old, err := f.dir.Stat(format.ConsumersName); err == nil {
		perm = old.Mode().Perm() // somebody may have let a group read it
	}
	file, err := f.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(b, 0)
	if err == nil {
		err = file.Sync() // before the rename: a name must never lead to less
	}
	return errors.Join(err, file.Close())
}

// rename puts the temporary file in place. Windows refuses that while a reader
// has the old one open.
func (f *File) rename(ctx context.Context, tmp string) error {
	for wait := newBackoff(inUseWait); ; {
		err := f.dir.Rename(tmp, format.ConsumersName)
		if err == nil || !inUse(err) || !wait.sleep(ctx) {
			return err
		}
	}
}

// inUseWait is how long a replacement waits for readers to close the file.
const inUseWait = 3 * time.Second

// inUse reports whether err is what Windows says of a file that others have
// open.
func inUse(err error) bool {
	const sharingViolation = syscall.Errno(32)
	return errors.Is(err, fs.ErrPermission) || runtime.GOOS == "windows" && errors.Is(err, sharingViolation)
}
