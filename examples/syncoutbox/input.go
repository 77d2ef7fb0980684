package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evlog-go/evlog/testdata/events"
)

// names are the peers.
var names = []string{"ada", "ben", "cyd"}

// save is what a user does at once: the edits of one transaction.
type save struct {
	Time  time.Time
	Peer  string
	Edits []edit
}

// input is what the users do, in the order in which it happened.
type input struct {
	saves   []save
	perPeer map[string][]save

	changes, commits    int // of paths, and the saves that they are
	keystrokes, typed   int // and the saves that they are
	typedAt, typedUntil time.Time

	final map[string]string // the repository in the end: the content's id of each path

	oneIn uint32
}

// loadInput makes saves of two recorded histories. It takes one in so many notes
// and leaves out the others: 1 for all. Not every number leaves a round of typing.
func loadInput(oneIn uint32) (*input, error) {
	in := &input{perPeer: map[string][]save{}, oneIn: oneIn}
	if err := in.loadPaths(); err != nil {
		return nil, err
	}
	if err := in.loadTyping(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(in.saves, func(a, b save) int { return a.Time.Compare(b.Time) })
	for _, s := range in.saves {
		in.perPeer[s.Peer] = append(in.perPeer[s.Peer], s)
	}
	var err error
	if in.final, err = events.FinalTree(); err != nil {
		return nil, err
	}
	maps.DeleteFunc(in.final, func(path, _ string) bool { return !in.takes(repository + path) })
	return in, nil
}

func (in *input) takes(note string) bool { return crc32.ChecksumIEEE([]byte(note))%in.oneIn == 0 }

// repository begins the names of the notes that are files of the repository.
const repository = "bbolt/"

// loadPaths makes a note of each path of a repository, and a save of each
// commit. The commits are dealt to the peers by their ids.
func (in *input) loadPaths() error {
	last := ""
	for e, err := range events.All("git_bbolt_paths") {
		if err != nil {
			return err
		}
		note := repository + string(e.Key)
		if !in.takes(note) {
			continue
		}
		in.changes++
		var c struct{ Op, Mode, Blob, Commit string }
		if len(e.Value) > 0 {
			if err := json.Unmarshal(e.Value, &c); err != nil {
				return err
			}
		}
		n := len(in.saves)
		// A deletion does not name its commit: it belongs to the others of its time.
		if n == 0 || !in.saves[n-1].Time.Equal(e.Time) || c.Commit != "" && last != "" && c.Commit != last {
			in.commits++
			in.saves = append(in.saves, save{Time: e.Time})
			n, last = n+1, ""
		}
		s := &in.saves[n-1]
		if last = cmp.Or(c.Commit, last); last != "" {
			s.Peer = names[int(last[0])%len(names)]
		}
		switch c.Op {
		case "":
			s.Edits = append(s.Edits, edit{Note: note})
		case "A":
			s.Edits = append(s.Edits, edit{Note: note, Field: "mode", Value: c.Mode})
			fallthrough
		default: // modes do not change in this history
			s.Edits = append(s.Edits, edit{Note: note, Field: "blob", Value: c.Blob})
		}
	}
	for i := range in.saves {
		in.saves[i].Peer = cmp.Or(in.saves[i].Peer, names[0])
	}
	return nil
}

// The text that three authors write is cut into lines, which are the fields of
// notes that are pages. autosave is how often their editor saves.
const (
	lineLength   = 100
	linesPerPage = 20
	autosave     = 10 * time.Second
)

// loadTyping makes saves of what three authors type at the same time, each on a
// peer. An edit is typed into the line in which it was in the author's text.
func (in *input) loadTyping() error {
	current := map[string]int{} // the last save of each author
	for e, err := range events.All("edits_clownschool") {
		if err != nil {
			return err
		}
		var v struct{ Patches []patch }
		if err := json.Unmarshal(e.Value, &v); err != nil {
			return err
		}
		v.Patches = slices.DeleteFunc(v.Patches, func(p patch) bool { return !in.takes(p.page()) })
		if len(v.Patches) == 0 {
			continue
		}
		in.keystrokes++
		_, agent, ok := strings.Cut(string(e.Key), "agent:")
		if !ok || len(agent) != 1 {
			return fmt.Errorf("edits_clownschool: author %q", e.Key)
		}
		peer := names[int(agent[0]-'0')%len(names)]
		if i, ok := current[peer]; !ok || !in.saves[i].Time.Truncate(autosave).Equal(e.Time.Truncate(autosave)) {
			current[peer] = len(in.saves)
			in.saves = append(in.saves, save{Peer: peer})
			in.typed++
		}
		s := &in.saves[current[peer]]
		s.Time = e.Time
		for _, p := range v.Patches {
			s.typeOne(p)
		}
		if in.typedAt.IsZero() {
			in.typedAt = e.Time
		}
		in.typedUntil = e.Time
	}
	return nil
}

// page is the note that a patch of the whole text falls into.
func (p patch) page() string {
	return fmt.Sprintf("clownschool/page %d", 1+p.Position/lineLength/linesPerPage)
}

// typeOne adds a patch to the edit of its line.
func (s *save) typeOne(p patch) {
	note, field := p.page(), fmt.Sprintf("line %02d", 1+p.Position/lineLength%linesPerPage)
	p.Position %= lineLength
	for i, e := range s.Edits {
		if e.Note == note && e.Field == field {
			s.Edits[i].Patches = append(e.Patches, p)
			return
		}
	}
	s.Edits = append(s.Edits, edit{Note: note, Field: field, Patches: []patch{p}})
}
