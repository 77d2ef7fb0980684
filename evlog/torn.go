package evlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// keepTorn saves the bytes beyond the valid prefix, if a valid record stands
// somewhere among them: somebody may want to have them. A tail that was merely
// torn is not worth a file, nor the space for it on a full disk.
func keepTorn(ctx context.Context, dir vfs.Dir, f vfs.File, base uint64, res scanResult) (cut cutOff, err error) {
	if zerosBetween(ctx, f, res.end, res.size) {
		return cut, nil
	}
	cut.bytes = res.size - res.end
	follows, err := recordFollows(ctx, f, res)
	if err != nil {
		return cut, wrap(fmt.Sprintf("read what follows the damage in segment %d", base), err)
	}
	if !follows {
		return cut, nil
	}
	cut.keptAs, err = saveTorn(ctx, dir, f, base, res.end, res.size)
	return cut, wrap(fmt.Sprintf("save what follows the damage in segment %d, byte %d", base, res.end), err)
}

// saveTorn copies the bytes [pos, end) of a segment into a file of their own,
// durably, and returns its name. A file that has these bytes already is enough.
func saveTorn(ctx context.Context, dir vfs.Dir, f vfs.File, base uint64, pos, end int64) (name string, err error) {
	names, err := dir.Names()
	if err != nil {
		return "", err
	}
	there := map[string]bool{}
	for _, n := range names {
		there[n] = true
	}
	for n := 0; ; n++ {
		name = format.TornName(base, pos, n)
		if !there[name] {
			break
		}
		same, err := sameBytes(dir, name, f, pos, end)
		if err != nil {
			return "", err
		}
		if same {
			return name, nil
		}
	}
	return name, replaceFile(dir, name, func(to vfs.File) error {
		return copyBytes(ctx, to, f, pos, end)
	})
}

// copyBytes copies [pos, end) of from to the start of to.
func copyBytes(ctx context.Context, to, from vfs.File, pos, end int64) error {
	buf := make([]byte, scanBytes)
	for at := pos; at < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(int64(len(buf)), end-at)]
		if err := readFull(from, b, at); err != nil {
			return err
		}
		if _, err := to.WriteAt(b, at-pos); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// sameBytes reports whether the file name is [pos, end) of f.
func sameBytes(dir vfs.Dir, name string, f vfs.File, pos, end int64) (bool, error) {
	kept, err := dir.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer kept.Close()
	info, err := kept.Stat()
	if err != nil || info.Size() != end-pos {
		return false, err
	}
	a, b := make([]byte, scanBytes), make([]byte, scanBytes)
	for at := pos; at < end; {
		n := min(int64(len(a)), end-at)
		if err := readFull(f, a[:n], at); err != nil {
			return false, err
		}
		if err := readFull(kept, b[:n], at-pos); err != nil {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
		at += n
	}
	return true, nil
}

// recordFollows reports whether a valid record begins anywhere behind the
// valid prefix.
func recordFollows(ctx context.Context, f vfs.File, res scanResult) (bool, error) {
	_, found, err := format.NewFinder(f, res.size).Find(ctx, res.end+1, res.next)
	return found, err
}

// countIntact counts the valid records behind the valid prefix.
func countIntact(ctx context.Context, f vfs.File, res scanResult) (n uint64, err error) {
	finder := format.NewFinder(f, res.size)
	pos, lowest := res.end+1, res.next
	for {
		at, found, err := finder.Find(ctx, pos, lowest)
		if err != nil || !found {
			return n, err
		}
		fr := newFrames(f, at, res.size, lowest)
		for {
			if _, _, err = fr.next(); err != nil {
				break
			}
			n++
		}
		pos, lowest = max(at, fr.pos), fr.lowest
		fr.release()
		if err == io.EOF {
			return n, nil
		}
		if !invalidRecord(err) {
			return n, err
		}
	}
}

// onlyZeros reports whether the first n bytes of f are all zero.
func onlyZeros(ctx context.Context, f vfs.File, n int64) bool { return zerosBetween(ctx, f, 0, n) }

// zerosBetween reports whether the bytes [pos, end) of f are all zero; false
// also where they
// cannot be read or ctx has ended.
func zerosBetween(ctx context.Context, f vfs.File, pos, end int64) bool {
	buf := make([]byte, min(end-pos, scanBytes))
	for pos < end {
		b := buf[:min(int64(len(buf)), end-pos)]
		if ctx.Err() != nil || readFull(f, b, pos) != nil || !allZero(b) {
			return false
		}
		pos += int64(len(b))
	}
	return true
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
