//go:build !linux

package limit

import "os"

func fdatasync(f *os.File) error { return f.Sync() }
