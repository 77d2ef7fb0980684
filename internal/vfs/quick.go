package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// quickDir is a directory with shorter ways for what is done to each of a thousand
// files in turn. They answer where everything is as expected, and leave anything
// else to the calls that have the words for it.
type quickDir interface {
	readName(name string, b []byte, off int64) (n int, ok bool)
	stamp(name string) (Stamp, bool)
}

// quick returns d, or what it wraps, as a directory with shorter ways.
func quick(d Dir) (quickDir, bool) {
	if w, ok := d.(interface{ Unwrap() Dir }); ok {
		d = w.Unwrap()
	}
	q, ok := d.(quickDir)
	return q, ok
}

// ReadName fills b from off on of the regular file called name, which is open for
// this one read only. io.ErrUnexpectedEOF: the file ends before.
func ReadName(d Dir, name string, b []byte, off int64) error {
	n, err := readUpTo(d, name, b, off)
	if err == nil && n < len(b) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// ReadStart is ReadName from the start on of a file that may be shorter. It returns
// how much there was.
func ReadStart(d Dir, name string, b []byte) (n int, err error) {
	return readUpTo(d, name, b, 0)
}

func readUpTo(d Dir, name string, b []byte, off int64) (n int, err error) {
	if q, ok := quick(d); ok {
		if n, ok := q.readName(name, b, off); ok {
			return n, nil
		}
	}
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	n, err = f.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, errors.Join(err, f.Close())
}

// Stamp tells a file from what it was before it was written to or replaced, as far
// as its size and its modification time, in nanoseconds since 1970, do.
type Stamp struct {
	Size, Modified int64
}

// StampFrom returns the stamp that info holds.
func StampFrom(info fs.FileInfo) Stamp {
	return Stamp{Size: info.Size(), Modified: info.ModTime().UnixNano()}
}

// StampOf returns the stamp of the file called name.
func StampOf(d Dir, name string) (Stamp, error) {
	if q, ok := quick(d); ok {
		if s, ok := q.stamp(name); ok {
			return s, nil
		}
	}
	info, err := d.Stat(name)
	if err != nil {
		return Stamp{}, err
	}
	return StampFrom(info), nil
}
