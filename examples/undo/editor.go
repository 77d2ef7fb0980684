package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/evlog-go/evlog/evlog"
)

// The schema id of a record says what its value is. A change to one of these
// forms gets a new id, and replay goes on understanding the old ones.
const (
	schemaEdit = 1 // {"patches":[[position,deleted,"inserted"],...]}
	schemaUndo = 2 // {"edit":OFFSET}: the edit with this offset was taken back
	schemaRedo = 3 // {"edit":OFFSET}: it was made again
)

// Errors of an editor.
var (
	errNothing = errors.New("nothing there to undo or redo")
	errPatch   = errors.New("patch lies outside the text")
)

// patch replaces Deleted code points at Position by Inserted.
type patch struct {
	Position int
	Deleted  int
	Inserted string
}

// UnmarshalJSON reads [position, deleted, "inserted"].
func (p *patch) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&p.Position, &p.Deleted, &p.Inserted})
}

// MarshalJSON writes what UnmarshalJSON reads.
func (p patch) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.Position, p.Deleted, p.Inserted})
}

// edit is the value of a schemaEdit record.
type edit struct {
	Patches []patch `json:"patches"`
}

// step is the value of a schemaUndo or schemaRedo record.
type step struct {
	Edit uint64 `json:"edit"`
}

// change is an edit that was made, and what takes it back.
type change struct {
	offset   uint64
	do, undo []patch
}

// document is a text with its undo history: what replaying the log gives.
type document struct {
	text   []rune
	done   []change // can be undone, last one first
	undone []change // can be redone, last one first
}

// String is the text.
func (d *document) String() string { return string(d.text) }

// apply replays one record.
func (d *document) apply(rec evlog.Record) error {
	switch rec.Schema {
	case schemaEdit:
		var e edit
		if err := json.Unmarshal(rec.Value, &e); err != nil {
			return err
		}
		undo, err := d.patch(e.Patches)
		if err != nil {
			return err
		}
		d.made(change{rec.Offset, e.Patches, undo})
		return nil
	case schemaUndo, schemaRedo:
		var s step
		if err := json.Unmarshal(rec.Value, &s); err != nil {
			return err
		}
		from, to := &d.done, &d.undone
		if rec.Schema == schemaRedo {
			from, to = to, from
		}
		if len(*from) == 0 || last(*from).offset != s.Edit {
			return fmt.Errorf("edit %d: %w", s.Edit, errNothing)
		}
		return d.move(from, to, rec.Schema == schemaUndo)
	}
	return fmt.Errorf("schema %d is not known", rec.Schema)
}

// made notes a change. It ends what could be redone.
func (d *document) made(c change) {
	d.done = append(d.done, c)
	d.undone = nil
}

// move takes the last change from one list to the other.
func (d *document) move(from, to *[]change, undo bool) error {
	c := last(*from)
	patches := c.do
	if undo {
		patches = c.undo
	}
	if _, err := d.patch(patches); err != nil {
		return err
	}
	*from = (*from)[:len(*from)-1]
	*to = append(*to, c)
	return nil
}

// patch changes the text and returns what changes it back. After an error the
// text is as before.
func (d *document) patch(patches []patch) (undo []patch, err error) {
	for _, p := range patches {
		if p.Position < 0 || p.Deleted < 0 || p.Deleted > len(d.text)-p.Position {
			slices.Reverse(undo)
			_, back := d.patch(undo)
			return nil, errors.Join(errPatch, back)
		}
		inserted := []rune(p.Inserted)
		deleted := string(d.text[p.Position : p.Position+p.Deleted])
		d.text = slices.Replace(d.text, p.Position, p.Position+p.Deleted, inserted...)
		undo = append(undo, patch{p.Position, len(inserted), deleted})
	}
	slices.Reverse(undo)
	return undo, nil
}

func last(c []change) change { return c[len(c)-1] }

// replay builds the document from the log.
func replay(ctx context.Context, r *evlog.Reader) (*document, error) {
	d := &document{}
	for rec, err := range r.Records(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if err := d.apply(rec); err != nil {
			return nil, fmt.Errorf("record %d: %w", rec.Offset, err)
		}
	}
	return d, nil
}

// editor is a document that is being worked on: each change goes into the log
// as it is made.
type editor struct {
	*document
	log *evlog.Log
	key []byte
}

// openEditor opens the log and brings the document to where it was.
//
// With SyncInterval an edit costs no wait: it is on disk a tenth of a second
// later, or when save returns.
func openEditor(ctx context.Context, dir, name string) (*editor, error) {
	log, err := evlog.Open(ctx, dir, &evlog.Options{Sync: evlog.SyncInterval})
	if err != nil {
		return nil, err
	}
	doc, err := replay(ctx, log.Reader())
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &editor{document: doc, log: log, key: []byte("doc:" + name)}, nil
}

// write makes an edit. The record's value says which.
func (e *editor) write(ctx context.Context, rec evlog.Record) error {
	var in edit
	if err := json.Unmarshal(rec.Value, &in); err != nil {
		return err
	}
	undo, err := e.patch(in.Patches)
	if err != nil {
		return err
	}
	rec.Schema = schemaEdit
	offset, err := e.log.Enqueue(ctx, rec)
	if err != nil {
		_, back := e.patch(undo)
		return errors.Join(err, back)
	}
	e.made(change{offset, in.Patches, undo})
	return nil
}

func (e *editor) undo(ctx context.Context) error {
	return e.step(ctx, schemaUndo, &e.done, &e.undone)
}

func (e *editor) redo(ctx context.Context) error {
	return e.step(ctx, schemaRedo, &e.undone, &e.done)
}

func (e *editor) step(ctx context.Context, schema uint16, from, to *[]change) error {
	if len(*from) == 0 {
		return errNothing
	}
	value, err := json.Marshal(step{last(*from).offset})
	if err != nil {
		return err
	}
	if _, err := e.log.Enqueue(ctx, evlog.Record{Schema: schema, Key: e.key, Value: value}); err != nil {
		return err
	}
	return e.move(from, to, schema == schemaUndo)
}

// save returns when everything typed so far is on disk.
func (e *editor) save(ctx context.Context) error { return e.log.Flush(ctx) }

func (e *editor) close() error { return e.log.Close() }
