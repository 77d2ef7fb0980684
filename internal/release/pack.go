package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file in an archive, below a directory with the archive's name.
type file struct {
	name string
	data []byte
	mode int64
}

// sorted is by name, so that equal files make equal archives.
func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}

func tarGz(dir string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range sorted(files) {
		err := t.WriteHeader(&tar.Header{Name: dir + "/" + f.name, Size: int64(len(f.data)), Mode: f.mode, ModTime: at, Format: tar.FormatUSTAR})
		if err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	err := z.Close() // before the bytes are looked at
	return b.Bytes(), err
}

func zipped(dir string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range sorted(files) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: dir + "/" + f.name, Method: zip.Deflate, Modified: at})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// writeSums writes SHA256SUMS, as "sha256sum -c" reads it.
func writeSums(dir string, names []string) error {
	var sums strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o666)
}
