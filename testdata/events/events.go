// Package events embeds the recorded event streams that tests and examples
// append to logs. README.md beside it says where each one comes from.
package events

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"
)

//go:embed *.jsonl.gz raw
var files embed.FS

// suffix ends the file name of a stream.
const suffix = ".jsonl.gz"

// Event is one recorded event.
type Event struct {
	Time  time.Time // as recorded, in UTC; may repeat or go backwards
	Key   []byte
	Value []byte // empty: the key was deleted
}

// Names lists the streams in alphabetical order.
func Names() []string {
	paths, err := fs.Glob(files, "*"+suffix)
	if err != nil {
		panic(err) // the pattern is ours
	}
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(p, suffix)
	}
	return paths
}

// Open returns the JSON lines of a stream.
func Open(name string) (io.ReadCloser, error) { return open(name + suffix) }

// All yields the events of a stream in the order in which they were appended.
func All(name string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines, err := Open(name)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer lines.Close()
		in := bufio.NewReader(lines)
		for n := 1; ; n++ {
			line, err := in.ReadBytes('\n')
			if err == io.EOF && len(line) == 0 {
				return
			}
			var e Event
			if err == nil || err == io.EOF {
				e, err = parse(line)
			}
			if err != nil {
				err = fmt.Errorf("events: %s, line %d: %w", name, n, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Load returns all events of a stream.
func Load(name string) ([]Event, error) {
	var all []Event
	for e, err := range All(name) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// EndContent returns the text that replaying the edits of a document must give:
// "sveltecomponent" or "seph-blog1".
func EndContent(document string) (string, error) {
	f, err := open(path.Join("raw", document+".json.gz"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	var trace struct{ EndContent string }
	if err := json.NewDecoder(f).Decode(&trace); err != nil {
		return "", fmt.Errorf("events: %s: %w", document, err)
	}
	return trace.EndContent, nil
}

// FinalTree returns what must be left of git_bbolt_paths: each path that still
// exists at the end, with the id of its content.
func FinalTree() (map[string]string, error) {
	b, err := files.ReadFile("raw/git_bbolt_final_tree.tsv")
	if err != nil {
		return nil, err
	}
	tree := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, blob, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			return nil, fmt.Errorf("events: final tree: no tab in %q", line)
		}
		tree[name] = blob
	}
	return tree, nil
}

type zipped struct {
	*gzip.Reader
	file fs.File
}

func (z zipped) Close() error { return z.file.Close() }

func open(name string) (io.ReadCloser, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("events: %s: %w", name, err)
	}
	return zipped{z, f}, nil
}

// parse reads one line. A string's payload is its text, null is no payload, and
// anything else is kept exactly as it stands.
func parse(line []byte) (Event, error) {
	var in struct {
		TimeMS   int64           `json:"ts_ms"`
		Key      string          `json:"key"`
		KeyB64   []byte          `json:"key_b64"`
		Value    json.RawMessage `json:"value"`
		ValueB64 []byte          `json:"value_b64"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return Event{}, err
	}
	e := Event{Time: time.UnixMilli(in.TimeMS).UTC(), Key: in.KeyB64, Value: in.ValueB64}
	if in.Key != "" {
		e.Key = []byte(in.Key)
	}
	switch {
	case len(in.Value) == 0 || bytes.Equal(in.Value, []byte("null")):
	case in.Value[0] == '"':
		var text string
		if err := json.Unmarshal(in.Value, &text); err != nil {
			return Event{}, err
		}
		e.Value = []byte(text)
	default:
		e.Value = in.Value
	}
	return e, nil
}
