package main

import (
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Work from which a bar is worth showing: less is done before one can read it.
const (
	bigBytes = 8 << 20
	bigCount = 4
)

const isWindows = runtime.GOOS == "windows"

// progress is a bar on a terminal's standard error; the zero value shows
// nothing. set may be called on another goroutine than end, also after it.
type progress struct {
	w       *os.File // nil: show nothing
	what    string
	isBytes bool
	every   time.Duration // how often it is drawn at most

	mu    sync.Mutex
	bar   *progressbar.ProgressBar // made when the work is known to be big
	last  int64
	ended bool
}

// newProgress starts a bar if standard error is a terminal. isBytes says that the
// numbers will be bytes; otherwise they count something: segments, indexes, offsets.
// Until end, notices go above the bar.
func (a *app) newProgress(what string, isBytes bool) *progress {
	p := &progress{what: what, isBytes: isBytes, every: 100 * time.Millisecond}
	if f, ok := a.err.(*os.File); ok && !a.quiet && isTerminal(f) && a.getenv("TERM") != "dumb" {
		p.w = f
		a.bar.Store(p)
	}
	return p
}

// set moves the bar; the total may become known on the way.
func (p *progress) set(done, total int64) {
	if p.w == nil || total < bigCount || p.isBytes && total < bigBytes {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended, p.bar != nil && done == p.last:
		return
	case p.bar == nil:
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowBytes(p.isBytes),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(p.every),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionUseANSICodes(!isWindows), // a window may be made narrower
			progressbar.OptionFullWidth(),
		)
		p.bar.StartWithoutRender() // it has no rate before some time has gone by
		return
	case total != p.bar.GetMax64():
		p.bar.ChangeMax64(total)
	}
	p.last = done
	_ = p.bar.Set64(done) // a bar that cannot be drawn is no reason to stop
}

// end removes the bar, so that what is printed next stands alone.
func (p *progress) end() { p.aside(func() { p.ended = true }) }

// aside does something while the bar is not on the screen; it comes back when it
// moves on.
func (p *progress) aside(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil && !p.ended {
		_ = p.bar.Clear()
		if isWindows { // there Clear only goes back to the start of the line
			if width, _, err := term.GetSize(int(p.w.Fd())); err == nil {
				_, _ = p.w.WriteString(strings.Repeat(" ", width-1) + "\r")
			}
		}
	}
	f()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
