package evlog

import (
	"errors"
	"os"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// readDurable reads DURABLE once. fs.ErrNotExist: it is missing;
// format.ErrDurable: it is damaged, or a writer was just overwriting it.
func readDurable(dir vfs.Dir) (format.Durable, error) {
	// One byte more, so that a longer file is seen.
	var b [format.DurableSize + 1]byte
	n, err := vfs.ReadStart(dir, format.DurableName, b[:])
	if err != nil {
		return format.Durable{}, err
	}
	return format.ParseDurable(b[:n])
}

// durableFile is the writer's hold on DURABLE. It belongs to whoever has the
// turn. Any error of it poisons the writer.
type durableFile struct {
	dir    vfs.Dir
	settle func() error // returns when the names in dir are durable; nil: they are
	f      vfs.File
	dirty  bool // written since the last sync
}

// at says in which directory DURABLE is.
func (d *durableFile) at(dir vfs.Dir) *durableFile {
	d.dir = dir
	return d
}

// publish overwrites DURABLE with one write. A file that was removed or
// replaced under the writer is written anew first, durably: an acknowledgement
// that no reader could see would be none.
//
// What takes DURABLE away may have taken more: stillThere says whether the
// active segment is in its place.
func (d *durableFile) publish(p format.Durable, stillThere func() error) error {
	if d.settle != nil {
		if err := d.settle(); err != nil {
			return err
		}
	}
	same, err := d.dir.Same(format.DurableName, d.f)
	if err != nil {
		return err
	}
	if !same {
		if err := stillThere(); err != nil {
			return err
		}
		return d.recreate(p)
	}
	var b [format.DurableSize]byte
	p.Encode(&b)
	d.dirty = true
	_, err = d.f.WriteAt(b[:], 0)
	return err
}

// recreate puts a new DURABLE with this content into place, durably.
func (d *durableFile) recreate(p format.Durable) error {
	var b [format.DurableSize]byte
	p.Encode(&b)
	// Closed first: Windows renames over no open file.
	if d.f != nil {
		if err := d.f.Close(); err != nil {
			return err
		}
		d.f = nil
	}
	if err := writeFileDurably(d.dir, format.DurableName, b[:]); err != nil {
		return err
	}
	f, err := d.dir.OpenFile(format.DurableName, os.O_RDWR, 0)
	d.f, d.dirty = f, false
	return err
}

// sync makes the published position survive a power failure.
func (d *durableFile) sync() error {
	if !d.dirty {
		return nil
	}
	d.dirty = false
	// Somebody may have made the file longer, which readers take for damage.
	if info, err := d.f.Stat(); err != nil {
		return err
	} else if info.Size() != format.DurableSize {
		if err := d.f.Truncate(format.DurableSize); err != nil {
			return err
		}
	}
	return d.f.SyncData()
}

func (d *durableFile) close() error {
	if d.f == nil {
		return nil
	}
	return d.f.Close()
}

// hold opens a DURABLE that says what it should already.
func (d *durableFile) hold() (err error) {
	d.f, err = d.dir.OpenFile(format.DurableName, os.O_RDWR, 0)
	return err
}

// open takes hold of DURABLE for opening a log: it overwrites the file that is
// there, or creates it, and syncs content and name.
func (d *durableFile) open(p format.Durable) error {
	f, err := d.dir.OpenFile(format.DurableName, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return d.recreate(p)
	}
	if err != nil {
		return err
	}
	d.f = f
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() != format.DurableSize {
		return d.recreate(p)
	}
	if err := d.publish(p, func() error { return nil }); err != nil {
		return err
	}
	return d.sync()
}
