package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal is an evlog that runs on a terminal of its own.
type onTerminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	modes  unix.Termios // as they were before the process began
	ended  chan error
	read   chan struct{} // closed when there is nothing more to be read

	mu     sync.Mutex // guards the rest
	output strings.Builder
	seen   int // how much of it was expected already
}

// startOnTerminal starts evlog in dir. Standard output is the terminal as well,
// unless a file is given.
func startOnTerminal(t *testing.T, dir string, width uint16, stdout *os.File, env []string, args ...string) *onTerminal {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Args = append([]string{"evlog"}, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append([]string{"GORACE=atexit_sleep_ms=0"}, env...)...)
	if stdout != nil {
		cmd.Stdout = stdout
	}
	return startCommandOnTerminal(t, width, cmd)
}

// startCommandOnTerminal starts a program with a terminal of its own for those of
// its streams that lead nowhere else.
func startCommandOnTerminal(t *testing.T, width uint16, cmd *exec.Cmd) *onTerminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, master.Close()) })
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}))
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()

	if cmd.Stdin == nil {
		cmd.Stdin = slave
	}
	if cmd.Stdout == nil {
		cmd.Stdout = slave
	}
	cmd.Stderr = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	p := &onTerminal{t: t, master: master, cmd: cmd, ended: make(chan error, 1), read: make(chan struct{})}
	p.modes = terminalModes(t, p)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.read)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.output.Write(b[:n])
			p.mu.Unlock()
			if err != nil { // EIO when the last process has gone
				return
			}
		}
	}()
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.read
	})
	return p
}

// keys types.
func (p *onTerminal) keys(s string) {
	p.t.Helper()
	_, err := p.master.WriteString(s)
	require.NoError(p.t, err)
}

// expect waits until the terminal shows text, behind what was expected before, and
// returns what came up to its end.
func (p *onTerminal) expect(text string) string {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		p.mu.Lock()
		rest := p.output.String()[p.seen:]
		if at := strings.Index(rest, text); at >= 0 {
			p.seen += at + len(text)
			p.mu.Unlock()
			return rest[:at+len(text)]
		}
		p.mu.Unlock()
		if time.Now().After(deadline) {
			p.t.Fatalf("the terminal never showed %q:\n%q", text, rest)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// end waits until the process has ended with this status; -1 is by a signal.
func (p *onTerminal) end(status int) {
	p.t.Helper()
	select {
	case <-p.ended:
		require.Equal(p.t, status, p.cmd.ProcessState.ExitCode())
	case <-time.After(patience):
		p.t.Fatal("the process does not end")
	}
}

// terminalModes are the terminal's settings, to be compared.
func terminalModes(t *testing.T, p *onTerminal) unix.Termios {
	t.Helper()
	modes, err := unix.IoctlGetTermios(int(p.master.Fd()), unix.TCGETS)
	require.NoError(t, err)
	return *modes
}

// all is everything that the terminal was given, once the process has ended.
func (p *onTerminal) all() string {
	<-p.read
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}
