package evlogtest

import (
	"os"
	"testing"
)

// FlipByte damages a file of a directory in memory.
func FlipByte(t testing.TB, d *Dir, name string, pos int64) {
	t.Helper()
	dir, err := d.mem.OpenDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], pos); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], pos); err != nil {
		t.Fatal(err)
	}
}
