package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// peerVar tells a process that it is a peer, and which one: its directory, of
// which the last element is its name.
const peerVar = "EVLOG_SYNCOUTBOX_PEER"

// host is the parent's view of a peer: it starts the process, tells it what to
// do, and kills it.
type host struct {
	name, dir string
	heard     func(h *host, m message) // everything that the peer says

	cmd   *exec.Cmd // nil: not running
	in    io.WriteCloser
	lines *json.Decoder

	saves  int             // that the peer has committed, as far as it has said
	missed map[string]bool // who did not answer it

	mu  sync.Mutex // guards url, which the other peers' goroutines ask for
	url string     // empty: offline
}

func newHost(parent, name string, heard func(*host, message)) (*host, error) {
	h := &host{name: name, dir: filepath.Join(parent, name), heard: heard, missed: map[string]bool{}}
	return h, os.Mkdir(h.dir, 0o777)
}

// start runs a process where none does.
func (h *host) start(ctx context.Context) error {
	if h.cmd != nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), peerVar+"="+h.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if h.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	h.cmd, h.lines = cmd, json.NewDecoder(out)
	return h.listen() // it says that it is up
}

// listen hears what the peer says until it is done.
func (h *host) listen() error {
	for {
		var m message
		if err := h.lines.Decode(&m); err != nil {
			return fmt.Errorf("%s has ended early: %w", h.name, errors.Join(err, h.wait()))
		}
		h.take(m)
		if m.Done {
			return nil
		}
	}
}

func (h *host) take(m message) {
	if m.Saves > 0 {
		h.saves = m.Saves
	}
	if m.What == sayOnline {
		h.setURL(m.URL)
	}
	if m.What == sayGone {
		h.missed[m.From] = true
	}
	if m.What != "" {
		h.heard(h, m)
	}
}

// tell gives the peer a command and waits until it has done it.
func (h *host) tell(ctx context.Context, c command) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	if err := json.NewEncoder(h.in).Encode(c); err != nil {
		return errors.Join(err, h.wait())
	}
	return h.listen()
}

// tellAndKill gives the peer a command and kills it a moment later, whatever it
// is doing then.
func (h *host) tellAndKill(ctx context.Context, c command, moment time.Duration) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	if err := json.NewEncoder(h.in).Encode(c); err != nil {
		return errors.Join(err, h.wait())
	}
	time.Sleep(moment)
	if err := h.cmd.Process.Kill(); err != nil {
		return err
	}
	h.setURL("")
	for {
		var m message
		if err := h.lines.Decode(&m); err != nil {
			break // the kill cut it off
		}
		if m.What != sayOnline {
			h.take(m)
		}
	}
	if err := h.wait(); err == nil {
		return fmt.Errorf("%s was to be killed and has finished", h.name)
	}
	return nil // the error says that it was killed
}

// quit lets the peer end by itself.
func (h *host) quit() error {
	if h.cmd == nil {
		return nil
	}
	h.setURL("")
	err := h.in.Close()
	for err == nil {
		var m message
		if err = h.lines.Decode(&m); err == nil {
			h.take(m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, h.wait())
}

// wait waits for the end of the process. If there was an error it may be still
// alive: it ends with its input.
func (h *host) wait() error {
	cmd := h.cmd
	if cmd == nil {
		return nil
	}
	h.cmd = nil
	h.setURL("")
	_ = h.in.Close() // may be closed already
	return cmd.Wait()
}

func (h *host) setURL(url string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.url = url
}

func (h *host) address() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.url
}
