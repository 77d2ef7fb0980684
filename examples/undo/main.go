// Undo keeps the undo history of a document in a log, so that it survives a
// crash: an editor is killed while somebody types, and the next one takes back
// what was typed in the one that is gone.
//
//	go run ./examples/undo
//
// The edits are a recorded editing history, 18,335 keystrokes and pastes. The
// text at the end must be the one that was recorded with it.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/testdata/events"
)

const (
	title = "sveltecomponent"
	// pause is how many edits are made between two pauses, in which the editor
	// saves.
	pause = 100
	// steps is how many edits the second editor takes back.
	steps = 500

	// dirVar tells the child, the editor that gets killed, where its log is.
	dirVar = "EVLOG_UNDO_DIR"
)

func main() {
	ctx := context.Background()
	var err error
	if dir := os.Getenv(dirVar); dir != "" {
		err = typeAndSave(ctx, dir, os.Stdout)
	} else {
		err = run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "undo:", err)
		os.Exit(1)
	}
}

// history is the recorded edits.
func history() ([]evlog.Record, error) {
	var all []evlog.Record
	for e, err := range events.All("edits_" + title) {
		if err != nil {
			return nil, err
		}
		all = append(all, evlog.Record{Time: e.Time, Key: e.Key, Value: e.Value})
	}
	return all, nil
}

// typeAndSave is the editor that gets killed. Each time it has saved it prints
// how many edits are safe. Now and then it takes some back and makes them again.
func typeAndSave(ctx context.Context, dir string, out io.Writer) error {
	edits, err := history()
	if err != nil {
		return err
	}
	ed, err := openEditor(ctx, dir, title)
	if err != nil {
		return err
	}
	for i, e := range edits[:len(edits)-len(edits)/4] {
		if err := ed.write(ctx, e); err != nil {
			return err
		}
		if (i+1)%pause > 0 {
			continue
		}
		for range 3 {
			err = errors.Join(err, ed.undo(ctx))
		}
		for range 3 {
			err = errors.Join(err, ed.redo(ctx))
		}
		if err = errors.Join(err, ed.save(ctx)); err != nil {
			return err
		}
		fmt.Fprintln(out, i+1)
	}
	time.Sleep(time.Minute) // never closes the log: it is killed first
	return errors.New("the editor was not killed")
}

func run(ctx context.Context, out io.Writer) (err error) {
	parent, err := os.MkdirTemp("", "evlog-undo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(parent)) }()
	dir := filepath.Join(parent, "events")
	edits, err := history()
	if err != nil {
		return err
	}
	saved, err := killEditor(ctx, dir, len(edits)/2)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "killed    an editor in the middle of typing; it had saved %d edits\n", saved)
	if err := carryOn(ctx, dir, edits, saved, out); err != nil {
		return err
	}
	return readBack(ctx, dir, out)
}

// killEditor starts the first editor and kills it once it has saved enough.
func killEditor(ctx context.Context, dir string, enough int) (saved int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), dirVar+"="+dir)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	killed := false
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if saved, err = strconv.Atoi(lines.Text()); err != nil {
			break
		}
		if saved >= enough && !killed {
			killed = true
			if err = cmd.Process.Kill(); err != nil {
				break
			}
		}
	}
	waitErr := cmd.Wait()
	if err == nil && !killed {
		err = fmt.Errorf("the editor ended before it was killed: %w", waitErr)
	}
	return saved, err
}

// carryOn is the second editor: it takes back edits of the first, makes them
// again, and types the rest.
func carryOn(ctx context.Context, dir string, edits []evlog.Record, saved int, out io.Writer) (err error) {
	began := time.Now()
	ed, err := openEditor(ctx, dir, title)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ed.close()) }()
	made := len(ed.done)
	fmt.Fprintf(out, "reopened  in %v: %d edits are there, %d more than were saved; the text has %d characters\n",
		time.Since(began).Round(time.Millisecond), made, made-saved, len(ed.text))
	if made < saved-3 { // it may have been killed between taking back and making again
		return fmt.Errorf("%d edits were saved, %d are there", saved, made)
	}

	before := ed.String()
	for range steps {
		if err := ed.undo(ctx); err != nil {
			return err
		}
	}
	want, err := textAfter(edits[:made-steps])
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "undone    %d edits of the editor that is gone: %s\n", steps, same(ed.String(), want, "the text of that time"))
	for range steps {
		if err := ed.redo(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "redone    all of them: %s\n", same(ed.String(), before, "the text from before"))

	for _, e := range edits[made:] {
		if err := ed.write(ctx, e); err != nil {
			return err
		}
	}
	if err := ed.save(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "typed     the other %d edits\n", len(edits)-made)
	return nil
}

// readBack replays the whole log and compares with the recorded end.
func readBack(ctx context.Context, dir string, out io.Writer) (err error) {
	want, err := events.EndContent(title)
	if err != nil {
		return err
	}
	r, err := evlog.OpenReader(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	doc, err := replay(ctx, r)
	if err != nil {
		return err
	}
	_, next, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "replayed  %d events: %s, %d characters; %d edits can be undone\n",
		next, same(doc.String(), want, "the recorded final text"), len(doc.text), len(doc.done))
	return nil
}

// textAfter is the text that these edits give, without a log.
func textAfter(edits []evlog.Record) (string, error) {
	var d document
	for _, e := range edits {
		e.Schema = schemaEdit
		if err := d.apply(e); err != nil {
			return "", err
		}
	}
	return d.String(), nil
}

func same(got, want, what string) string {
	if got == want {
		return "exactly " + what
	}
	return "NOT " + what
}
