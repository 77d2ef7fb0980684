//go:build !linux

package vfs

import "errors"

// names lists the directory on a descriptor of its own: the read position belongs to
// this call. Reading the entries is the library's: golang.org/x/sys has no such call on
// macOS, and what it has in its place misses names while others go.
func (d *osDir) names() ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}
