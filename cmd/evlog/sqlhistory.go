package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// historyEntries is how many are kept. The file is cut when it has twice as many.
const historyEntries = 1000

// sqlHistory is what was typed in the shell, in this one and earlier ones. It is
// the editor's term.History.
type sqlHistory struct {
	entries []string // the oldest first
	path    string   // empty: none is kept
	failed  func(error)
}

// openHistory reads the history. One that cannot be had is told and no reason to
// have no shell.
func (a *app) openHistory(off bool) *sqlHistory {
	h := &sqlHistory{failed: func(err error) { a.notice("the history is not kept: %v", err) }}
	if off || a.getenv("EVLOG_HISTORY") == "off" {
		return h
	}
	var err error
	if h.path, err = a.historyPath(); err == nil {
		err = h.load()
	}
	if err != nil {
		h.fail(err)
	}
	return h
}

// historyPath is where the system has the state of a user's programs.
func (a *app) historyPath() (string, error) {
	if path := a.getenv("EVLOG_HISTORY"); path != "" {
		return path, nil
	}
	base := a.getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // as the specification has it
		var err error
		switch runtime.GOOS {
		case "windows":
			base, err = os.UserCacheDir()
		case "darwin":
			base, err = os.UserConfigDir()
		default:
			base, err = os.UserHomeDir()
			base = filepath.Join(base, ".local", "state")
		}
		if err != nil {
			return "", err
		}
	}
	return filepath.Join(base, "evlog", "sql_history"), nil
}

// load reads the file, and cuts it if it has become long.
func (h *sqlHistory) load() error {
	f, err := os.Open(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxStatementBytes)
	n := 0
	for lines.Scan() {
		n++
		h.remember(lines.Text())
	}
	if err := errors.Join(lines.Err(), f.Close()); err != nil {
		return err
	}
	if n < 2*historyEntries {
		return nil
	}
	return h.rewrite()
}

// rewrite replaces the file by what is kept of it.
func (h *sqlHistory) rewrite() error {
	f, err := os.CreateTemp(filepath.Dir(h.path), filepath.Base(h.path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(h.entries, "\n") + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// add notes the lines of a statement: as one, if they mean the same on one line.
func (h *sqlHistory) add(lines []string) {
	for _, entry := range joined(lines) {
		if len(h.entries) > 0 && h.entries[len(h.entries)-1] == entry {
			continue
		}
		h.remember(entry)
		if h.path == "" {
			continue
		}
		if err := h.append(entry); err != nil {
			h.fail(err)
		}
	}
}

// joined makes one line of a statement's lines, unless the end of one is within
// quotes or behind the dashes of a comment.
func joined(lines []string) []string {
	in := newSQLInput()
	for i, line := range lines {
		in.add(line)
		if i < len(lines)-1 && (in.inside != 0 || strings.Contains(line, "--")) {
			return lines
		}
	}
	if len(lines) < 2 {
		return lines
	}
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return []string{strings.Join(lines, " ")}
}

func (h *sqlHistory) remember(entry string) {
	if h.entries = append(h.entries, entry); len(h.entries) > 2*historyEntries {
		h.entries = append(h.entries[:0], h.entries[len(h.entries)-historyEntries:]...)
	}
}

func (h *sqlHistory) append(entry string) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, entry)
	return errors.Join(err, ownersOnly(f), f.Close())
}

// ownersOnly closes a file that was there before to others: what is asked may be
// as private as the log.
func ownersOnly(f *os.File) error {
	const others = 0o077
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode()&others == 0 || runtime.GOOS == "windows" {
		return err
	}
	return f.Chmod(0o600)
}

func (h *sqlHistory) fail(err error) {
	h.path = ""
	h.failed(err)
}

// Add implements term.History. The editor adds lines; the shell adds statements.
func (h *sqlHistory) Add(string) {}

// Len implements term.History.
func (h *sqlHistory) Len() int { return len(h.entries) }

// At implements term.History: 0 is the newest.
func (h *sqlHistory) At(i int) string { return h.entries[len(h.entries)-1-i] }
