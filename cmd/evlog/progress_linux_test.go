package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ctrl-C in the middle of long work leaves a clean line, and what was read in the
// log.
func TestProgress_CtrlC(t *testing.T) {
	dir := t.TempDir()
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	path := filepath.Join(dir, "in.txt")
	require.NoError(t, os.WriteFile(path, bytes.Repeat(line, 1_000_000), 0o600))
	in, err := os.Open(path)
	require.NoError(t, err)
	defer in.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Args = []string{"evlog", "append", "log"}
	cmd.Dir = dir
	cmd.Stdin = in
	p := startCommandOnTerminal(t, 80, cmd)
	p.expect("append   ")
	p.keys("\x03")
	p.end(exitSignal + 2)
	require.Empty(t, screen(p.all()))
	out, err := exec.Command("evlog", "verify", filepath.Join(dir, "log")).CombinedOutput()
	require.NoError(t, err, string(out))
}
