package evlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	filePerm = 0o600
	dirPerm  = 0o700
)

// listing is the segments of a log at one moment: their bases, ascending.
// It is never changed once made.
type listing []uint64

// listSegments lists the directory. It may miss a name that is being replaced: who
// draws conclusions from what is not there takes allSegments.
func listSegments(dir vfs.Dir) (listing, error) {
	names, err := listNames(dir)
	if err != nil {
		return nil, err
	}
	return segmentsOf(names), nil
}

// maxEmpty is how often a directory has to look as if it held no segment before
// that is believed. While it is listed, a roll may add the next one and retention
// remove all before it: a listing may then have none of them.
const maxEmpty = 10

// listNames lists a log's directory.
func listNames(dir vfs.Dir) (names []string, err error) {
	for range maxEmpty {
		names, err = dir.Names()
		if err != nil || len(names) == 0 || slices.ContainsFunc(names, isSegment) {
			break
		}
	}
	return names, err
}

// allSegments lists the directory twice.
func allSegments(dir vfs.Dir) (listing, error) {
	names, err := allNames(dir)
	if err != nil {
		return nil, err
	}
	return segmentsOf(names), nil
}

// allNames lists a directory twice, and returns what stands in either. One listing
// may miss a name while others are changed; then a segment would be passed over,
// or stay behind ones that are removed, in the middle of the log.
func allNames(dir vfs.Dir) ([]string, error) {
	names, err := listNames(dir)
	if err != nil {
		return nil, err
	}
	again, err := dir.Names()
	names = append(names, again...)
	slices.Sort(names)
	return slices.Compact(names), err
}

func isSegment(name string) bool {
	_, ok := format.ParseSegmentName(name)
	return ok
}

func segmentsOf(names []string) listing {
	var l listing
	for _, name := range names {
		if base, ok := format.ParseSegmentName(name); ok {
			l = append(l, base)
		}
	}
	slices.Sort(l)
	return l
}

// covering returns the highest base at or below offset.
func (l listing) covering(offset uint64) (base uint64, ok bool) {
	i := sort.Search(len(l), func(i int) bool { return l[i] > offset })
	if i == 0 {
		return 0, false
	}
	return l[i-1], true
}

// above returns the lowest base above offset.
func (l listing) above(offset uint64) (base uint64, ok bool) {
	i := sort.Search(len(l), func(i int) bool { return l[i] > offset })
	if i == len(l) {
		return 0, false
	}
	return l[i], true
}

func (l listing) active() uint64 { return l[len(l)-1] }

// openSegment opens a segment for reading.
func openSegment(dir vfs.Dir, base uint64) (vfs.File, error) {
	return dir.OpenFile(format.SegmentName(base), os.O_RDONLY, 0)
}

// pathOf is a file's path for messages.
func pathOf(dir vfs.Dir, name string) string { return filepath.Join(dir.Path(), name) }

// corrupt makes the error for damage in a segment.
func corrupt(dir vfs.Dir, base uint64, pos int64, offset uint64, err error) error {
	return &CorruptError{Path: pathOf(dir, format.SegmentName(base)), Pos: pos, Offset: offset, Err: err}
}

// writeFileDurably puts content under name in one step: temp, fsync, rename,
// fsync directory.
func writeFileDurably(dir vfs.Dir, name string, content []byte) error {
	return replaceFile(dir, name, func(f vfs.File) error {
		_, err := f.WriteAt(content, 0)
		return err
	})
}

// replaceFile is writeFileDurably for content that fill writes.
func replaceFile(dir vfs.Dir, name string, fill func(vfs.File) error) error {
	tmp := name + format.TempSuffix
	if err := writeTemp(dir, tmp, fill); err != nil {
		return err
	}
	if err := renameTemp(dir, tmp, name); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("%w: %w", errSyncDir, err)
	}
	return nil
}

// writeTemp writes and syncs a file that is to be renamed.
func writeTemp(dir vfs.Dir, tmp string, fill func(vfs.File) error) error {
	f, err := dir.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = dir.Remove(tmp) // if not now, then by the next writer
	}
	return err
}

func renameTemp(dir vfs.Dir, tmp, name string) error {
	err := dir.Rename(tmp, name)
	if err != nil {
		_ = dir.Remove(tmp)
	}
	return err
}

// readFile reads a small file whole; more than limit bytes is an error.
func readFile(dir vfs.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, &fs.PathError{Op: "read", Path: pathOf(dir, name), Err: errors.New("file is too large to be what it should be")}
	}
	b := make([]byte, info.Size())
	if err := readFull(f, b, 0); err != nil {
		return nil, err
	}
	return b, nil
}
