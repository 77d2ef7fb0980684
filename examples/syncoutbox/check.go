package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// result is what the check found, for the report and the picture.
type result struct {
	all       []change // by all peers, in the order of their stamps
	conflicts []conflict
	notes     int
	sum       string
}

// check compares what the peers have left with what the users did.
func (s *story) check(ctx context.Context) error {
	var peers []*remains
	for _, name := range names {
		r, err := readRemains(ctx, filepath.Join(s.dir, name))
		if err != nil {
			return err
		}
		peers = append(peers, r)
	}
	return s.compare(peers)
}

func (s *story) compare(peers []*remains) error {
	s.result = result{}
	for _, step := range []func([]*remains) error{s.checkLogs, s.checkStamps, s.checkJournals, s.checkNotes, s.checkTree, s.checkConflicts} {
		if err := step(peers); err != nil {
			return err
		}
	}
	return nil
}

// checkLogs: what a peer did is in its own log and in no other, each change once
// and in order, and the others have all of it.
func (s *story) checkLogs(peers []*remains) error {
	dropped := 0
	for _, p := range peers {
		gone := len(p.journal) - len(p.log)
		dropped += gone
		if len(p.log) == 0 || gone < 0 || !reflect.DeepEqual(p.log, p.journal[gone:]) {
			return fmt.Errorf("the log of %s, %d changes, is not the end of what its user did, %d", p.name, len(p.log), len(p.journal))
		}
		if p.next != uint64(len(p.journal)) {
			return fmt.Errorf("%d changes of %s went into its log, not %d", p.next, p.name, len(p.journal))
		}
		for _, other := range peers {
			if acked, applied := p.acked[other.name], other.applied[p.name]; other != p && (acked != p.next || applied != p.next) {
				return fmt.Errorf("%s has acknowledged %d of %s and applied %d, not %d", other.name, acked, p.name, applied, p.next)
			}
		}
		s.result.all = append(s.result.all, p.journal...)
	}
	slices.SortFunc(s.result.all, func(a, b change) int { return a.Stamp.compare(b.Stamp) })
	s.say("logs", "%s changes, each once and in order in the log of its peer and in no other; %s of them have been dropped since",
		count(len(s.result.all)), count(dropped))
	return nil
}

// checkStamps: no two stamps are the same, those of a peer ascend, and who knew
// a change has the higher one.
func (s *story) checkStamps(peers []*remains) error {
	made := map[string][]change{}
	for _, p := range peers {
		made[p.name] = p.journal
	}
	for i, c := range s.result.all {
		if i > 0 && c.Stamp.compare(s.result.all[i-1].Stamp) == 0 {
			return fmt.Errorf("there are two changes with stamp %s", c.Stamp)
		}
		knew := maps.Clone(c.Seen)
		knew[c.Stamp.peer] = c.Seq - 1
		for peer, seq := range knew {
			if seq > 0 && made[peer][seq-1].Stamp.compare(c.Stamp) >= 0 {
				return fmt.Errorf("change %s was made in knowledge of %s", c.Stamp, made[peer][seq-1].Stamp)
			}
		}
	}
	return nil
}

// checkJournals: every save of every user was made once, whole and in order, and
// typing changed the line that the user saw.
func (s *story) checkJournals(peers []*remains) error {
	history := map[string][]change{}
	for _, c := range s.result.all {
		history[c.Note+"\n"+c.Field] = append(history[c.Note+"\n"+c.Field], c)
	}
	for _, p := range peers {
		i := 0
		for n, save := range s.in.perPeer[p.name] {
			for _, e := range save.Edits {
				if i == len(p.journal) || p.saves[i] != n+1 {
					return fmt.Errorf("save %d of %s was not made, or not whole", n+1, p.name)
				}
				c := p.journal[i]
				want := change{Note: e.Note, Field: e.Field, Value: e.Value, Stamp: c.Stamp, Seq: uint64(i + 1), Seen: c.Seen}
				if len(e.Patches) > 0 {
					want.Value = typeInto(seenBy(c, history[e.Note+"\n"+e.Field]), e.Patches)
				}
				if !reflect.DeepEqual(c, want) {
					return fmt.Errorf("save %d of %s made %+v, not %+v", n+1, p.name, c, want)
				}
				i++
			}
		}
		if i != len(p.journal) {
			return fmt.Errorf("%s made %d changes, its user only %d", p.name, len(p.journal), i)
		}
	}
	return nil
}

// seenBy is the text of a line as the user saw it who made the change: the last
// one, by stamp, of those that were there.
func seenBy(c change, history []change) (value string) {
	for _, o := range history {
		if o.Stamp != c.Stamp && c.knew(o) {
			value = o.Value
		}
	}
	return value
}

// checkNotes: the databases are equal, and say what comes out when the changes of
// all users are simply done one after the other, in the order of their stamps.
func (s *story) checkNotes(peers []*remains) error {
	want := map[string]map[string]change{}
	for _, c := range s.result.all {
		switch {
		case c.deletes():
			delete(want, c.Note)
		case want[c.Note] == nil:
			want[c.Note] = map[string]change{c.Field: c}
		default:
			want[c.Note][c.Field] = c
		}
	}
	for _, p := range peers {
		got := map[string]map[string]change{}
		for _, c := range p.fields {
			if c.deletes() {
				continue
			}
			if got[c.Note] == nil {
				got[c.Note] = map[string]change{}
			}
			got[c.Note][c.Field] = c
		}
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("the notes of %s are not what the rule gives", p.name)
		}
		text, err := json.Marshal(p.fields)
		if err != nil {
			return err
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(text))[:16]
		if s.result.sum = cmp.Or(s.result.sum, sum); sum != s.result.sum {
			return fmt.Errorf("%s and %s differ in their tombstones", p.name, peers[0].name)
		}
	}
	s.result.notes = len(want)
	s.say("equal", "the 3 databases: %s notes, sha256 %s…; and equal to all %s changes done in the order of their stamps",
		count(len(want)), s.result.sum, count(len(s.result.all)))
	return nil
}

// checkTree: stamps follow the recorded times, so the notes of the repository
// must be the files that it really had in the end.
func (s *story) checkTree(peers []*remains) error {
	got := map[string]string{}
	for _, c := range peers[0].fields {
		if path, ok := strings.CutPrefix(c.Note, repository); ok && c.Field == "blob" {
			got[path] = c.Value
		}
	}
	if !maps.Equal(got, s.in.final) {
		return fmt.Errorf("the notes have %d files, and are not those of the repository: %d", len(got), len(s.in.final))
	}
	s.say("files", "%d notes are files, exactly those of the repository's last commit", len(got))
	return nil
}

// checkConflicts: neither side of a conflict knew of the other one, and the one
// with the higher stamp won.
func (s *story) checkConflicts(peers []*remains) error {
	made := map[stamp]change{}
	for _, c := range s.result.all {
		made[c.Stamp] = c
	}
	found := map[[2]stamp]conflict{}
	for _, p := range peers {
		for _, c := range p.conflicts {
			winner, ok1 := made[c.winner]
			loser, ok2 := made[c.loser]
			if !ok1 || !ok2 || !winner.conflicts(loser) || winner.Stamp.compare(loser.Stamp) <= 0 || winner.Note != loser.Note {
				return fmt.Errorf("%s has noted a conflict that is none: %+v", p.name, c)
			}
			found[[2]stamp{c.winner, c.loser}] = c
		}
	}
	s.result.conflicts = slices.SortedFunc(maps.Values(found), func(a, b conflict) int {
		return cmp.Or(a.winner.compare(b.winner), a.loser.compare(b.loser))
	})
	if len(found) == 0 {
		return errors.New("there were no conflicts")
	}
	s.reportConflicts()
	return nil
}
