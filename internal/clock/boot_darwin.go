package clock

import "golang.org/x/sys/unix"

// bootClock goes on while the machine sleeps here, unlike on Linux.
const bootClock = unix.CLOCK_MONOTONIC
