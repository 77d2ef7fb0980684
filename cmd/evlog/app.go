package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

// app is what the commands share.
type app struct {
	in     io.Reader
	stdout io.Writer
	out    *bufio.Writer // to stdout; run flushes it at the end
	err    io.Writer
	now    func() time.Time
	getenv func(string) string
	quiet  bool

	bar atomic.Pointer[progress] // that notices must not run into

	warnMu   sync.Mutex // warnings come from goroutines of the log
	lastWarn string
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{
		in:     stdin,
		stdout: stdout,
		out:    bufio.NewWriterSize(outputWriter{stdout}, 64<<10),
		err:    stderr,
		now:    time.Now,
		getenv: os.Getenv,
	}
}

// outputError is a failed write to standard output. It is told apart because
// a reader that went away is no failure of the command.
type outputError struct{ err error }

func (e *outputError) Error() string { return fmt.Sprintf("write standard output: %v", e.err) }
func (e *outputError) Unwrap() error { return e.err }

// readerGone reports whether err says that nobody reads standard output any
// more, as in "evlog cat events | head -1".
func readerGone(err error) bool {
	var out *outputError
	return errors.As(err, &out) && errors.Is(err, syscall.EPIPE)
}

type outputWriter struct{ w io.Writer }

func (o outputWriter) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err == nil {
		return n, nil
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // "/dev/stdout" says nothing more
	}
	return n, &outputError{err}
}

// notice tells something that is neither data nor an error.
func (a *app) notice(format string, args ...any) {
	if a.quiet {
		return
	}
	write := func() { fmt.Fprintf(a.err, "%% %s\n", oneLine(fmt.Sprintf(format, args...))) }
	if bar := a.bar.Load(); bar != nil {
		bar.aside(write)
		return
	}
	write()
}

// logger turns the log's warnings into notices.
func (a *app) logger() *slog.Logger { return slog.New(noticeHandler{a: a}) }

// warn is notice for what the log repeats at each attempt: once is enough.
func (a *app) warn(text string) {
	a.warnMu.Lock()
	defer a.warnMu.Unlock()
	if text != a.lastWarn {
		a.lastWarn = text
		a.notice("%s", text)
	}
}

type noticeHandler struct {
	a     *app
	attrs string
}

func (h noticeHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h noticeHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	r.Attrs(func(at slog.Attr) bool {
		writeAttr(&b, at)
		return true
	})
	h.a.warn(strings.ReplaceAll(b.String(), " evlog: ", " "))
	return nil
}

func (h noticeHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, at := range attrs {
		writeAttr(&b, at)
	}
	h.attrs += b.String()
	return h
}

func (h noticeHandler) WithGroup(string) slog.Handler { return h }

func writeAttr(b *strings.Builder, at slog.Attr) {
	switch at.Key {
	case "err", "error":
		fmt.Fprintf(b, ": %v", at.Value)
	default:
		fmt.Fprintf(b, ", %s %v", strings.ReplaceAll(at.Key, "_", " "), at.Value)
	}
}

// dirAnd splits the positional arguments into DIR and exactly n more, named
// for the message.
func (a *app) dirAnd(cmd *cobra.Command, args []string, more ...string) (dir string, rest []string, err error) {
	n := len(more)
	switch {
	case len(args) == n+1:
		dir, rest = args[0], args[1:]
	case len(args) == n && a.getenv("EVLOG_DIR") != "":
		return a.getenv("EVLOG_DIR"), args, nil
	case len(args) > n+1:
		return "", nil, usagef(cmd, "unexpected argument %q", args[n+1])
	case len(args) == 0:
		return "", nil, usagef(cmd, "DIR is missing, and EVLOG_DIR is not set")
	default:
		return "", nil, usagef(cmd, "%s is missing", more[len(args)-1])
	}
	if dir == "" {
		return "", nil, usagef(cmd, "DIR is empty")
	}
	return dir, rest, nil
}

// openReader opens the log for reading and tells what a power failure left
// behind the durable mark, which readers leave out.
func (a *app) openReader(ctx context.Context, dir string, beyondDurable bool) (*evlog.Reader, error) {
	r, err := evlog.OpenReader(ctx, dir, &evlog.ReaderOptions{BeyondDurable: beyondDurable, Logger: a.logger()})
	if err != nil || beyondDurable || a.quiet {
		return r, err
	}
	if err := a.noticeBeyond(ctx, r); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// noticeBeyond tells of records that nobody is about to publish. Beside a live
// writer there are nearly always some, and a moment later they are published.
func (a *app) noticeBeyond(ctx context.Context, r *evlog.Reader) error {
	n, err := r.BeyondDurable(ctx)
	if err != nil || n == 0 {
		return err
	}
	_, before, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	holder := r.Holder()
	if holder.Alive {
		if err := pause(ctx, publishing); err != nil {
			return err
		}
		if n, err = r.BeyondDurable(ctx); err != nil || n == 0 {
			return err
		}
		if _, after, err := r.Bounds(ctx); err != nil || after > before {
			return err
		}
		// A policy other than always leaves the sync for later, or to a caller.
		a.notice("%d more records are written and not durable yet; the writer, pid %d, publishes them when it syncs", n, holder.PID)
		return nil
	}
	a.notice("%d more records are readable beyond the durable mark; opening for writing will publish them", n)
	return nil
}

// publishing is longer than a live writer takes to publish what it wrote.
const publishing = 100 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closing closes c at the end of a command; its error counts if there was none.
func closing(c io.Closer, err *error) {
	if closeErr := c.Close(); *err == nil {
		*err = closeErr
	}
}
