package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// Exit status.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitCorrupt = 3
	exitSignal  = 128 // plus the signal's number
)

// usageError is a call that cannot be meant.
type usageError struct {
	command string // as typed: "evlog cat"
	err     error
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%s: %v; see %s --help", strings.TrimPrefix(e.command, "evlog "), e.err, e.command)
}

func (e *usageError) Unwrap() error { return e.err }

func usageOf(cmd *cobra.Command, err error) error {
	return &usageError{command: cmd.CommandPath(), err: err}
}

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return usageOf(cmd, fmt.Errorf(format, args...))
}

// damageError says that a command did its work and found damage, which it has
// printed. It is evlog.ErrCorrupt.
type damageError struct{ text string }

func (e *damageError) Error() string { return e.text }
func (e *damageError) Unwrap() error { return evlog.ErrCorrupt }

// hinted is an error with its own advice.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// endedBy is the signal that err, the error of a command, comes from; nil if it
// comes from something else.
func endedBy(ctx context.Context, err error) *signalError {
	var sig, told *signalError
	if errors.As(context.Cause(ctx), &sig) && (errors.Is(err, context.Canceled) || errors.As(err, &told)) {
		return sig
	}
	return nil
}

// noticeEnded tells what a command did that changes or judges the log, if a
// signal ended it.
func (a *app) noticeEnded(ctx context.Context, err error, done string) {
	if sig := endedBy(ctx, err); sig != nil {
		a.notice("%v: %s", sig, done)
	}
}

// report prints the error, if it is one to be told, and returns the exit
// status.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil || readerGone(err) {
		return exitOK
	}
	if sig := endedBy(ctx, err); sig != nil {
		return exitSignal + sig.number
	}
	a.tell(err)
	return exitCode(err)
}

// packageNames are in the texts of errors, and say nothing to people.
var packageNames = strings.NewReplacer(": evlog: ", ": ", ": tablelog: ", ": ", ": sqldriver: ", ": ", ": sqlbridge: ", ": ")

// tell prints an error.
func (a *app) tell(err error) {
	text := oneLine(err.Error())
	text = packageNames.Replace(strings.TrimPrefix(text, "evlog: "))
	if h := hint(err); h != "" {
		text += "; " + h
	}
	fmt.Fprintf(a.err, "evlog: %s\n", text)
}

func exitCode(err error) int {
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, evlog.ErrCorrupt):
		return exitCorrupt
	}
	return exitError
}

// hint says what to do about an error.
func hint(err error) string {
	var own *hinted
	var usage *usageError
	var damage *damageError
	var line *lineError
	var corrupt *evlog.CorruptError
	switch {
	case errors.As(err, &usage):
		return ""
	case errors.As(err, &own):
		return own.hint
	case errors.As(err, &line):
		return line.hint()
	case errors.Is(err, evlog.ErrLocked):
		return "a second process writes through the outbox"
	case errors.Is(err, evlog.ErrHookRequired):
		return "append from the program that has the hook, so that nothing is lost or doubled"
	case errors.As(err, &damage):
		return ""
	case errors.As(err, &corrupt) && filepath.Base(corrupt.Path) == format.ConsumersName:
		return "mend the file by hand, or move it away: all consumers then start anew"
	case errors.As(err, &corrupt) && filepath.Base(corrupt.Path) == format.MetaName:
		return "evlog repair gives the log a new id"
	case errors.Is(err, evlog.ErrCorrupt):
		return "evlog verify shows what is damaged, evlog repair what it would cut"
	case errors.Is(err, evlog.ErrNoLog):
		return "evlog append creates one"
	case errors.Is(err, evlog.ErrVersion):
		return "use a newer evlog"
	case errors.Is(err, evlog.ErrNetworkFS):
		return "keep the log on a local disk"
	case strings.HasSuffix(err.Error(), "not a directory"): // which each system has its own error for
		return "the log is the directory that its files are in"
	case errors.Is(err, fs.ErrPermission):
		return "check owner and mode"
	case errors.Is(err, evlog.ErrPoisoned):
		return "what was not acknowledged may be missing, opening again finds out"
	case errors.Is(err, syscall.ENOSPC):
		return "make room on the disk"
	}
	return ""
}

// lockedHint gives the command's own advice where another writer has the log,
// before what every locked log says.
func lockedHint(err error, help string) error {
	if errors.Is(err, evlog.ErrLocked) {
		return &hinted{err, help + "; " + hint(err)}
	}
	return err
}

// oneLine keeps a message on its line.
func oneLine(s string) string {
	s = strings.TrimRight(s, "\n")
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", "", "\n", "; ").Replace(s)
}

// inDir adds the log's name to errors that do not carry it.
func inDir(dir string, err error) error {
	var offset *evlog.OffsetError
	if errors.As(err, &offset) || errors.Is(err, evlog.ErrNotFound) {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return err
}
