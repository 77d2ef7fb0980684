package vfs

import "golang.org/x/sys/windows"

// Network goes by the kind of drive that the path is on.
func (d *osDir) Network() (string, error) {
	path, err := windows.UTF16PtrFromString(d.abs)
	if err != nil {
		return "", d.wrap("statfs", "", err)
	}
	// The volume's own path is never longer than the path on it, but may get a
	// separator at its end.
	volume := make([]uint16, len(d.abs)+2)
	if err := windows.GetVolumePathName(path, &volume[0], uint32(len(volume))); err != nil {
		return "", d.wrap("statfs", "", err)
	}
	if windows.GetDriveType(&volume[0]) == windows.DRIVE_REMOTE {
		return "network drive", nil
	}
	return "", nil
}
