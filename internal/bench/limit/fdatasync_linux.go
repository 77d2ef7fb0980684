package limit

import (
	"os"

	"golang.org/x/sys/unix"
)

func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR { //nolint:errorlint // a bare errno
			return err
		}
	}
}
