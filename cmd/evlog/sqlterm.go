package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// sqlTerminal is a terminal with a line editor. The prompt and what is typed go to
// standard error, so that standard output has data only.
type sqlTerminal struct {
	in, err *os.File
	keys    *keyReader
	editor  *term.Terminal
	history term.History
}

// newSQLTerminal returns nil where standard input and error are no terminals.
func newSQLTerminal(a *app) *sqlTerminal {
	in, isFile := a.in.(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	out, isFile := a.err.(*os.File)
	if !isFile || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &sqlTerminal{in: in, err: out, keys: &keyReader{r: in}}
}

// maxTyped is the length in characters of a line that has all that was typed, plus
// one: the editor drops what is beyond, without a word.
const maxTyped = 4096

// line reads one line. The terminal is as it was while none is read, so that
// Ctrl-C is a signal there.
func (t *sqlTerminal) line(ctx context.Context, prompt string) (_ string, err error) {
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return "", err
	}
	defer func() {
		if restoreErr := term.Restore(int(t.in.Fd()), state); err == nil {
			err = restoreErr
		}
	}()
	if t.editor == nil {
		t.newEditor()
	}
	t.editor.SetPrompt(prompt)
	if width, height, err := term.GetSize(int(t.err.Fd())); err == nil && width > 0 {
		_ = t.editor.SetSize(width, height) // an error of writing is seen when the prompt is
	}
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := t.editor.ReadLine()
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		if r.err == nil && utf8.RuneCountInString(r.line) >= maxTyped {
			_, err := fmt.Fprintf(t.err, "a line of %d characters or more is cut there, and was not taken: give it by a pipe\r\n", maxTyped)
			return "", cmp.Or(err, errInterrupted)
		}
		return r.line, t.ended(r.err)
	case <-ctx.Done(): // the process ends, and with it the goroutine
		return "", ctx.Err()
	}
}

func (t *sqlTerminal) newEditor() {
	t.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{t.keys, t.err}, "")
	if t.history != nil {
		t.editor.History = t.history
	}
}

// ended tells Ctrl-C from the end of the input, which the editor does not, and
// keeps what was typed.
func (t *sqlTerminal) ended(err error) error {
	if err == nil {
		return nil
	}
	t.editor = nil
	interrupted := errors.Is(err, io.EOF) && t.keys.last == ctrlC
	text := "\r\n"
	if interrupted {
		text = "^C\r\n"
		err = errInterrupted
	}
	if _, writeErr := io.WriteString(t.err, text); writeErr != nil {
		return writeErr
	}
	return err
}

const ctrlC = 3

// keyReader hands out one byte at a time, so that the last one is the key that
// ended the editor, and what was typed ahead is there for the next one. A tab is a
// space: the editor drops it, and what is pasted would lose it between two words.
type keyReader struct {
	r    io.Reader
	buf  [256]byte
	rest []byte
	last byte
}

// Read implements io.Reader.
func (k *keyReader) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		n, err := k.r.Read(k.buf[:])
		if n == 0 {
			k.last = 0
			return 0, err
		}
		k.rest = k.buf[:n]
	}
	k.last, k.rest = k.rest[0], k.rest[1:]
	if p[0] = k.last; p[0] == '\t' {
		p[0] = ' '
	}
	return 1, nil
}
