//go:build !(linux || darwin || freebsd || windows)

package vfs

// Network cannot tell here.
func (d *osDir) Network() (string, error) { return "", nil }
