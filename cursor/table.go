package cursor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evlog-go/evlog/evlog"
)

const (
	fileVersion = 1
	// maxFileBytes bounds consumers.json. The log itself reads no larger one.
	maxFileBytes = 16 << 20
)

// table is the content of consumers.json. Fields that this version does not
// know are kept.
type table struct {
	logID     string // "" while the file has never been written
	consumers map[string]entry
	// others are cursors that were made for other logs, by log id: those that
	// stood here when the file was bound to the log it has now.
	others map[string]map[string]entry
	extra  map[string]json.RawMessage
}

// entry is one consumer.
type entry struct {
	next      uint64
	updatedMS int64
	extra     map[string]json.RawMessage
}

// Names of the fields.
const (
	fieldVersion   = "version"
	fieldLogID     = "log_id"
	fieldConsumers = "consumers"
	fieldOthers    = "other_logs"
	fieldNext      = "next_offset"
	fieldUpdated   = "updated_ms"
)

func newTable() *table {
	return &table{consumers: map[string]entry{}, others: map[string]map[string]entry{}}
}

// errNull is what encoding/json takes for "leave it as it is", which would make
// an offset 0 of it.
var errNull = errors.New("is null")

// decodeTable reads consumers.json. Whatever is not wholly understood is an
// error, so that a damaged file is never taken for consumers that start anew.
// A later version is evlog.ErrVersion.
func decodeTable(b []byte) (*table, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not UTF-8")
	}
	if err := checkNames(b); err != nil {
		return nil, err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		return nil, notOfType(err, "an object")
	}
	var version uint64 // decides whether anything else can be understood
	if err := take(top, fieldVersion, &version); err != nil {
		return nil, err
	}
	if version > fileVersion {
		return nil, fmt.Errorf("version %d: %w (it knows %d)", version, evlog.ErrVersion, fileVersion)
	}
	t := newTable()
	var own map[string]json.RawMessage
	err := errors.Join(take(top, fieldLogID, &t.logID), take(top, fieldConsumers, &own))
	switch {
	case err != nil:
		return nil, err
	case version < 1 || t.logID == "":
		return nil, errors.New("no version or no log id")
	}
	if t.consumers, err = decodeEntries(own); err != nil {
		return nil, err
	}
	if err := t.decodeOthers(top); err != nil {
		return nil, err
	}
	t.extra = top
	return t, nil
}

func (t *table) decodeOthers(top map[string]json.RawMessage) error {
	if _, ok := top[fieldOthers]; !ok {
		return nil
	}
	var logs map[string]map[string]json.RawMessage
	if err := take(top, fieldOthers, &logs); err != nil {
		return err
	}
	for id, raw := range logs {
		entries, err := decodeEntries(raw)
		if err != nil {
			return err
		}
		t.others[id] = entries
	}
	return nil
}

func decodeEntries(all map[string]json.RawMessage) (map[string]entry, error) {
	entries := make(map[string]entry, len(all))
	for name, raw := range all {
		e, err := decodeEntry(raw)
		if err != nil {
			return nil, fmt.Errorf("consumer %q: %w", name, err)
		}
		entries[name] = e
	}
	return entries, nil
}

func decodeEntry(raw json.RawMessage) (e entry, err error) {
	if err := json.Unmarshal(raw, &e.extra); err != nil {
		return e, notOfType(err, "an object")
	}
	return e, errors.Join(take(e.extra, fieldNext, &e.next), take(e.extra, fieldUpdated, &e.updatedMS))
}

// take decodes a field that must be there, and removes it from fields.
func take(fields map[string]json.RawMessage, name string, into any) error {
	raw, ok := fields[name]
	switch {
	case !ok:
		return fmt.Errorf("no field %s", name)
	case string(raw) == "null":
		return fmt.Errorf("field %s %w", name, errNull)
	}
	delete(fields, name)
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("field %s: %w", name, notOfType(err, "a "+typeWords[reflect.TypeOf(into).Elem().Kind()]))
	}
	return nil
}

// typeWords says what a field has to hold.
var typeWords = map[reflect.Kind]string{
	reflect.Uint64: "number from 0 to 2^64-1",
	reflect.Int64:  "whole number",
	reflect.String: "string",
	reflect.Map:    "JSON object",
}

// notOfType puts an error of encoding/json about types into words.
func notOfType(err error, want string) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("a JSON %s is not %s", wrong.Value, want)
	}
	return err
}

// checkNames finds a name that stands twice in one object. encoding/json takes
// the last one, and others the first: two cursors for one consumer.
func checkNames(b []byte) error {
	type object struct {
		names map[string]bool // nil in an array
		value bool            // a name was read, its value comes next
	}
	var open []object
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		token, err := d.Token()
		if err != nil {
			return nil // its end, or no JSON: for Unmarshal to say
		}
		in := len(open) - 1
		switch token {
		case json.Delim('{'), json.Delim('['):
			if in >= 0 {
				open[in].value = false
			}
			o := object{}
			if token == json.Delim('{') {
				o.names = map[string]bool{}
			}
			open = append(open, o)
		case json.Delim('}'), json.Delim(']'):
			open = open[:in]
		default:
			if in < 0 || open[in].names == nil || open[in].value {
				if in >= 0 {
					open[in].value = false
				}
				continue
			}
			name, _ := token.(string)
			if open[in].names[name] {
				return &positionError{d.InputOffset(), fmt.Errorf("the name %q is there twice", name)}
			}
			open[in].names[name], open[in].value = true, true
		}
	}
}

// positionError is an error with the byte behind which it was found.
type positionError struct {
	pos int64
	err error
}

func (e *positionError) Error() string { return e.err.Error() }
func (e *positionError) Unwrap() error { return e.err }

// positionOf is the byte to which a decoding error points, 0 where it points
// nowhere.
func positionOf(err error) int64 {
	var at *positionError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &at):
		return at.pos
	case errors.As(err, &syntax):
		return syntax.Offset
	}
	return 0
}

// encode is the file's content, in the order in which docs/FORMAT.md shows it.
func (t *table) encode() []byte {
	b := []byte(`{"` + fieldVersion + `":` + strconv.Itoa(fileVersion) + `,"` + fieldLogID + `":`)
	b = appendString(b, t.logID)
	b = append(b, `,"`+fieldConsumers+`":`...)
	b = appendEntries(b, t.consumers)
	if len(t.others) > 0 {
		b = append(b, `,"`+fieldOthers+`":`...)
		b = appendObject(b, t.others, appendEntries)
	}
	b = appendExtra(b, t.extra)
	return append(b, '}', '\n')
}

func appendEntries(b []byte, entries map[string]entry) []byte {
	return appendObject(b, entries, func(b []byte, e entry) []byte {
		b = append(b, `{"`+fieldNext+`":`...)
		b = strconv.AppendUint(b, e.next, 10)
		b = append(b, `,"`+fieldUpdated+`":`...)
		b = strconv.AppendInt(b, e.updatedMS, 10)
		b = appendExtra(b, e.extra)
		return append(b, '}')
	})
}

func appendObject[V any](b []byte, fields map[string]V, value func([]byte, V) []byte) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
		b = append(b, ':')
		b = value(b, fields[name])
	}
	return append(b, '}')
}

// appendExtra writes the fields that were read and not understood, behind
// others.
func appendExtra(b []byte, extra map[string]json.RawMessage) []byte {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		b = append(b, ',')
		b = appendString(b, name)
		b = append(b, ':')
		var compact bytes.Buffer
		if json.Compact(&compact, extra[name]) != nil {
			panic("cursor: a field that was decoded is no JSON") // never
		}
		b = append(b, compact.Bytes()...)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		panic("cursor: a string is no JSON") // never
	}
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// find returns where a consumer of the log logID stands.
func (t *table) find(name, logID string) (entry, error) {
	e, ok := t.consumers[name]
	switch {
	case t.foreign(logID):
		// Somebody put another log's file here. Also a consumer that is not in
		// it must not go on as if it were new: its cursor is elsewhere.
		return e, &LogError{Name: name, Cursor: e.next, LogID: logID, CursorsLogID: t.logID, NoCursor: !ok}
	case ok:
		return e, nil
	}
	for _, id := range slices.Sorted(maps.Keys(t.others)) {
		if e, ok := t.others[id][name]; ok {
			return e, &LogError{Name: name, Cursor: e.next, LogID: logID, CursorsLogID: id}
		}
	}
	return entry{}, fmt.Errorf("consumer %q: %w", name, ErrUnknownConsumer)
}

// foreign reports whether the cursors here belong to another log. A file
// without any belongs to nobody.
func (t *table) foreign(logID string) bool { return t.logID != logID && len(t.consumers) > 0 }

// bind makes the file that of the log logID, with the cursors of the one
// before set aside: each of their consumers has to decide for itself.
func (t *table) bind(logID string) {
	if t.logID == logID {
		return
	}
	if len(t.consumers) > 0 {
		t.others[t.logID] = t.consumers
	}
	t.consumers = t.others[logID]
	if t.consumers == nil {
		t.consumers = map[string]entry{}
	}
	delete(t.others, logID)
	t.logID = logID
}

// put sets a consumer's position in the log that the table is bound to.
func (t *table) put(name string, e entry) {
	t.drop(name)
	t.consumers[name] = e
}

// drop forgets a consumer, in whichever log its cursor was. It reports whether
// there was one.
func (t *table) drop(name string) bool {
	_, found := t.consumers[name]
	delete(t.consumers, name)
	for id, entries := range t.others {
		if _, ok := entries[name]; ok {
			found = true
			delete(entries, name)
		}
		if len(entries) == 0 {
			delete(t.others, id)
		}
	}
	return found
}

// positions lists all consumers by name.
func (t *table) positions() []Position {
	var all []Position
	add := func(logID string, entries map[string]entry) {
		for name, e := range entries {
			all = append(all, e.position(name, logID))
		}
	}
	add(t.logID, t.consumers)
	for id, entries := range t.others {
		add(id, entries)
	}
	slices.SortFunc(all, func(a, b Position) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.LogID, b.LogID)
	})
	return all
}

func (e entry) position(name, logID string) Position {
	return Position{Name: name, Next: e.next, Updated: time.UnixMilli(e.updatedMS).UTC(), LogID: logID}
}
