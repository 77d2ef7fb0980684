package main

import (
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// throttle is how often a bar is drawn at most.
const throttle = 100 * time.Millisecond

// progress is a bar on a terminal's standard error; the zero value shows
// nothing. set may be called on another goroutine than end, also after it.
type progress struct {
	bar *progressbar.ProgressBar

	mu    sync.Mutex
	last  int64
	ended bool
}

// newProgress starts a bar if standard error is a terminal. bytes says that
// the numbers are bytes.
func (a *app) newProgress(what string, total int64, bytes bool) *progress {
	f, ok := a.err.(*os.File)
	if a.quiet || !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{bar: progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(throttle),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionFullWidth(),
	)}
}

// set moves the bar; the total may become known on the way.
func (p *progress) set(done, total int64) {
	if p.bar == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || done == p.last {
		return
	}
	p.last = done
	if total != p.bar.GetMax64() {
		p.bar.ChangeMax64(total)
	}
	_ = p.bar.Set64(done) // a bar that cannot be drawn is no reason to stop
}

// end removes the bar, so that what is printed next stands alone.
func (p *progress) end() {
	if p.bar != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}
