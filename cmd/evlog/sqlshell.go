package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
)

// lineSource gives the shell its lines.
type lineSource interface {
	// line returns the next line: io.EOF at the end, errInterrupted where Ctrl-C
	// gave it up.
	line(ctx context.Context, prompt string) (string, error)
}

// errInterrupted is Ctrl-C while a line is written.
var errInterrupted = errors.New("interrupted")

const (
	promptFirst = "evlog> "
	promptMore  = "  ...> "
)

// shell runs what is typed until it ends. An error of a statement ends nothing.
func (s *sqlSession) shell(ctx context.Context, lines lineSource, h *sqlHistory) error {
	// Ctrl-C is for a query from here on, and no longer for the command.
	signal.Reset(os.Interrupt)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	s.a.notice(".help lists the commands of the shell; a statement ends with a semicolon")
	in := newSQLInput()
	var typed []string // the lines of the statement that has begun
	for {
		prompt := promptFirst
		if in.begun() {
			prompt = promptMore
		}
		line, err := lines.line(ctx, prompt)
		switch {
		case errors.Is(err, errInterrupted):
			in.reset()
			typed = nil
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if dot, ok := otherHabits[strings.TrimRight(strings.TrimSpace(line), ";")]; ok && !in.begun() {
			line = dot
		}
		statements := in.add(line)
		if strings.TrimSpace(line) != "" {
			typed = append(typed, line)
		}
		if !in.begun() {
			h.add(typed)
			typed = nil
		}
		if err := s.runTyped(ctx, statements, interrupts); err != nil {
			if errors.Is(err, errQuit) {
				return nil
			}
			return err
		}
	}
}

// otherHabits are what people type who know other shells.
var otherHabits = map[string]string{
	"quit": ".quit", "exit": ".quit", `\q`: ".quit", "help": ".help", `\?`: ".help", `\d`: ".schema", `\dt`: ".tables",
}

// runTyped runs the statements of a line up to the first one that fails, which is
// told. It returns what ends the shell.
func (s *sqlSession) runTyped(ctx context.Context, statements []sqlStatement, interrupts chan os.Signal) error {
	for _, st := range statements {
		err := s.runInterruptible(ctx, st.text, interrupts)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errQuit), readerGone(err):
			return err
		}
		if flushErr := s.flush(); flushErr != nil {
			return flushErr
		}
		if errors.Is(err, context.Canceled) {
			err = errInterrupted
		}
		s.a.tell(err)
		return nil
	}
	return nil
}

// runInterruptible runs a statement that Ctrl-C ends. A second Ctrl-C ends the
// process, as it does everywhere: for a query that SQLite cannot be got out of.
func (s *sqlSession) runInterruptible(ctx context.Context, text string, interrupts chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	select {
	case <-interrupts: // one that came before there was something to interrupt
	default:
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-interrupts:
			signal.Stop(interrupts)
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.run(ctx, text)
	cancel()
	<-watched
	signal.Notify(interrupts, os.Interrupt)
	return err
}
