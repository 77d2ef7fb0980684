package evlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// BackupOptions are the choices of Reader.Backup. Nil and the zero value will do.
type BackupOptions struct {
	// Progress is called, on the caller's goroutine, with the bytes copied and with
	// those that are to be copied as far as is known: what retention or compaction
	// change meanwhile is copied again.
	Progress func(done, total int64)
}

// Backup copies the log, as it is at one moment while Backup runs, into the
// directory dir: a log of its own, with the same identity, offsets, indexes and
// cursors (consumers.json). It returns the offset after the last record that was
// durable at that moment. It takes no lock and nothing has to rest meanwhile:
// neither appends nor retention, compaction and commits of consumers, in any
// process.
//
// dir is created, and must be empty: fs.ErrExist. When Backup returns without an
// error the copy is durable. After an error, also that of ctx, what was copied is
// removed again, dir aside; a crash leaves a part that has no log.json and that
// Open refuses, or, of a log without records, makes a new log of.
//
// Damage is copied as it is: Verify tells of the copy. Where DURABLE is missing or
// damaged, or where it says that there are records which are not there, Backup
// fails. What lies beyond the durable position is in the copy too, and opening that
// for writing finds it, as it would here. What repair has kept (.torn) is not.
//
// By the rules of Windows, what it has open keeps compaction and retention from that
// file meanwhile.
//
// In a log whose segments change all the time, faster than one can be copied,
// Backup goes on until they do not, or ctx ends.
func (r *Reader) Backup(ctx context.Context, dir string, opts *BackupOptions) (next uint64, err error) {
	b := backup{r: r}
	if opts != nil {
		b.progress = opts.Progress
	}
	if err := r.usable(); err != nil {
		return 0, wrap("backup", err)
	}
	err = b.create(ctx, dir)
	if b.to == nil {
		return 0, wrap("backup", r.closedOr(err))
	}
	for done := false; err == nil && !done; {
		done, err = b.look(ctx)
	}
	if err != nil {
		b.discard()
	}
	if closing := b.to.Close(); err == nil {
		err = closing
	}
	return b.next, wrap("backup", r.closedOr(err))
}

// backup is a copy under way.
//
// What is copied is the state of one moment: that at which the durable position is
// read for the last time. Closed segments and their indexes are only ever replaced
// or removed. So if after that moment each name has the file that was copied before
// it, and none has come or gone, they all had them at that moment. All but the
// active segment is closed then. That one was active when it was opened, since it
// is the one that was read before, and of it no byte below the position changes.
//
// So the copy is what a process that is killed at that moment leaves, which is
// legal whatever it was doing: a roll, a merge, a removal, a repair.
type backup struct {
	r           *Reader
	to          vfs.Dir
	progress    func(done, total int64)
	done, total int64
	next        uint64
	marked      uint64 // next offset in the copy's DURABLE
	buf         []byte
	copied      []backupFile // in the copy, as it was where it was copied from
}

// backupFile is a closed segment or its index. Lists of them are in the order of
// their names.
type backupFile struct {
	base  uint64
	index bool
	stamp vfs.Stamp
}

func (f backupFile) name() string {
	if f.index {
		return format.IndexName(f.base)
	}
	return format.SegmentName(f.base)
}

func (f backupFile) compare(g backupFile) int {
	switch {
	case f.base == g.base && f.index == g.index:
		return 0
	case f.base < g.base || f.base == g.base && f.index:
		return -1
	}
	return 1
}

// create makes a directory with a DURABLE alone, so that it is neither a log nor,
// once there are records, the beginning of a new one: of what is copied first, a
// power failure might leave no more than an empty segment.
func (b *backup) create(ctx context.Context, dir string) error {
	d, err := b.durable(ctx)
	if err != nil {
		return err
	}
	fsys := vfs.FromContext(ctx)
	if err := fsys.MkdirAll(dir, dirPerm); err != nil {
		return err
	}
	to, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	names, err := to.Names()
	if err == nil && len(names) > 0 {
		err = &fs.PathError{Op: "backup", Path: dir, Err: fmt.Errorf("not empty: %w", fs.ErrExist)}
	}
	if err != nil {
		return errors.Join(err, to.Close())
	}
	b.to, b.buf = to, make([]byte, scanBytes)
	return b.publish(d)
}

func (b *backup) publish(d format.Durable) error {
	var p [format.DurableSize]byte
	d.Encode(&p)
	b.marked = d.NextOffset
	return writeFileDurably(b.to, format.DurableName, p[:])
}

// look brings the copy up to date, and completes it if nothing has changed
// meanwhile.
func (b *backup) look(ctx context.Context) (done bool, err error) {
	before, err := b.durable(ctx)
	if err != nil {
		return false, err
	}
	if b.marked == 0 && before.NextOffset > 0 {
		if err := b.publish(before); err != nil {
			return false, err
		}
	}
	if err := b.copyClosed(ctx, before.Base); err != nil {
		return false, err
	}
	active, err := openSegment(b.r.dir, before.Base)
	if gone(err) {
		return false, b.missing(ctx, before)
	}
	if err != nil {
		return false, err
	}
	defer active.Close()
	// Cursors from before the moment are not ahead of the copy; and while what is
	// copied stays the same, retention has removed nothing for newer ones.
	consumers, err := readFile(b.r.dir, format.ConsumersName, maxMetaBytes)
	if err != nil && !gone(err) {
		return false, err
	}
	meta, err := readFile(b.r.dir, format.MetaName, maxMetaBytes)
	if err != nil {
		return false, err
	}
	moment, err := b.durable(ctx)
	if err != nil {
		return false, err
	}
	if moment.Base != before.Base {
		return false, nil // what was opened is not the active segment of that moment
	}
	if same, err := b.unchanged(moment.Base, meta); err != nil || !same {
		return false, err
	}
	err = b.complete(ctx, moment, active, consumers, meta)
	if errors.Is(err, format.ErrShort) {
		return false, nil // a tail that was not durable has been cut
	}
	return true, err
}

// durable is the durable position. One that has to be assumed is no evidence of
// which segments are closed.
func (b *backup) durable(ctx context.Context) (format.Durable, error) {
	d, assumed, err := b.r.src.load(ctx)
	if err == nil && assumed != nil {
		err = fmt.Errorf("the durable position is not known before the log was opened for writing: %w", assumed)
	}
	return d, err
}

// missing decides about an active segment that is not there: it has been rolled and
// merged away since, or else it is lost.
func (b *backup) missing(ctx context.Context, d format.Durable) error {
	now, err := b.durable(ctx)
	if err == nil && now.Base == d.Base {
		err = corrupt(b.r.dir, d.Base, 0, d.Base, errSegmentMissing)
	}
	return err
}

// closedFiles lists the segments below the active one and their indexes.
func (b *backup) closedFiles(active uint64) (files []backupFile, err error) {
	names, err := allNames(b.r.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var f backupFile
		var ok bool
		if f.base, ok = format.ParseSegmentName(name); !ok {
			f.base, f.index = format.ParseIndexName(name)
			ok = f.index
		}
		if !ok || f.base >= active {
			continue
		}
		info, err := b.r.dir.Stat(name)
		switch {
		case gone(err):
		case err != nil:
			return nil, err
		case info.Mode().IsRegular() || !f.index:
			f.stamp = vfs.StampFrom(info)
			files = append(files, f)
		}
	}
	return files, nil
}

// copyClosed copies what has changed since it was copied last, and removes what is
// gone.
func (b *backup) copyClosed(ctx context.Context, active uint64) error {
	files, err := b.closedFiles(active)
	if err != nil {
		return err
	}
	for _, f := range b.copied {
		if _, ok := slices.BinarySearchFunc(files, f, backupFile.compare); !ok {
			if err := b.to.Remove(f.name()); err != nil && !gone(err) {
				return err
			}
		}
	}
	there := func(f backupFile) bool {
		i, ok := slices.BinarySearchFunc(b.copied, f, backupFile.compare)
		return ok && b.copied[i] == f
	}
	b.total = b.done
	for _, f := range files {
		if !there(f) {
			b.total += f.stamp.Size
		}
	}
	for i, f := range files {
		if there(f) {
			continue
		}
		if files[i].stamp, err = b.copyFile(ctx, f.name()); err != nil {
			return err
		}
	}
	b.copied = files
	return nil
}

// copyFile copies a closed segment or an index, with the time of its closing. The
// stamp is that of the file that was copied; what is gone has none, and will not be
// listed again.
func (b *backup) copyFile(ctx context.Context, name string) (vfs.Stamp, error) {
	f, err := b.r.dir.OpenFile(name, os.O_RDONLY, 0)
	if gone(err) {
		return vfs.Stamp{}, nil
	}
	if err != nil {
		return vfs.Stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return vfs.Stamp{}, err
	}
	return vfs.StampFrom(info), b.write(ctx, name, f, info.Size(), info.ModTime())
}

// write puts the first size bytes of a file into the copy, durably but for the
// name.
func (b *backup) write(ctx context.Context, name string, from vfs.File, size int64, modified time.Time) error {
	return writeTemp(b.to, name, func(to vfs.File) error {
		for pos, synced := int64(0), int64(0); pos < size; {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := b.buf[:min(int64(len(b.buf)), size-pos)]
			if err := readFull(from, part, pos); err != nil {
				return err
			}
			if _, err := to.WriteAt(part, pos); err != nil {
				return err
			}
			pos += int64(len(part))
			if pos-synced >= syncStep && pos < size {
				if err := to.SyncData(); err != nil {
					return err
				}
				synced = pos
			}
			b.count(int64(len(part)))
		}
		return b.to.Chtimes(name, modified)
	})
}

func (b *backup) count(n int64) {
	b.done += n
	if b.progress != nil {
		b.progress(b.done, max(b.done, b.total))
	}
}

// unchanged reports whether what was copied is still what stands under each name.
func (b *backup) unchanged(active uint64, meta []byte) (bool, error) {
	files, err := b.closedFiles(active)
	if err != nil || !slices.Equal(files, b.copied) {
		return false, err
	}
	now, err := readFile(b.r.dir, format.MetaName, maxMetaBytes)
	return bytes.Equal(now, meta), err
}

// complete adds the rest. log.json comes last: without it the directory is no log.
func (b *backup) complete(ctx context.Context, d format.Durable, active vfs.File, consumers, meta []byte) error {
	info, err := active.Stat()
	if err != nil {
		return err
	}
	if info.Size() < d.Position {
		return corrupt(b.r.dir, d.Base, info.Size(), d.NextOffset, errFileEnds)
	}
	end, err := validEnd(active, d, info.Size())
	if err != nil {
		return err
	}
	b.total = b.done + end
	if err := b.write(ctx, format.SegmentName(d.Base), active, end, info.ModTime()); err != nil {
		return err
	}
	if consumers != nil {
		if err := writeFileDurably(b.to, format.ConsumersName, consumers); err != nil {
			return err
		}
	}
	if err := b.publish(d); err != nil {
		return err
	}
	if err := writeFileDurably(b.to, format.MetaName, meta); err != nil {
		return err
	}
	b.next = d.NextOffset
	return b.to.SyncParent()
}

// validEnd is the position behind the last valid record at or beyond the durable
// position.
func validEnd(active vfs.File, d format.Durable, size int64) (int64, error) {
	fr := newFrames(active, d.Position, size, d.NextOffset)
	defer fr.release()
	for {
		_, _, err := fr.next()
		if err == io.EOF || err != nil && invalidRecord(err) { //nolint:errorlint // io.EOF is never wrapped
			return fr.pos, nil
		}
		if err != nil {
			return fr.pos, err
		}
	}
}

// discard removes what is in the copy: log.json first, so that what stays is no log.
func (b *backup) discard() {
	_ = b.to.Remove(format.MetaName)
	names, _ := b.to.Names()
	for _, name := range names {
		_ = b.to.Remove(name)
	}
	b.next = 0
}
