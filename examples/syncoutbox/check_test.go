package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// twoPeers is what two peers leave that have edited the same note.
func twoPeers() (*story, []*remains) {
	at := func(ms int64, peer string) stamp { return stamp{ms, 0, peer} }
	note := repository + "README"
	created := change{note, "mode", "100644", at(1, "ada"), 1, map[string]uint64{}}
	first := change{note, "blob", "aa", at(2, "ada"), 2, map[string]uint64{}}
	theirs := change{note, "blob", "bb", at(5, "ben"), 1, map[string]uint64{"ada": 2}}
	later := change{note, "blob", "cc", at(9, "ada"), 3, map[string]uint64{}}
	typed := change{"page", "line", "hey", at(10, "ada"), 4, map[string]uint64{}}
	s := &story{out: &strings.Builder{}, in: &input{
		perPeer: map[string][]save{
			"ada": {
				{Edits: []edit{{Note: note, Field: "mode", Value: "100644"}, {Note: note, Field: "blob", Value: "aa"}}},
				{Edits: []edit{{Note: note, Field: "blob", Value: "cc"}, {Note: "page", Field: "line", Patches: []patch{{0, 0, "hey"}}}}},
			},
			"ben": {{Edits: []edit{{Note: note, Field: "blob", Value: "bb"}}}},
		},
		final: map[string]string{"README": "cc"},
	}}
	fields := []change{later, created, typed}
	found := []conflict{{later.Stamp, theirs.Stamp, note, "blob", "cc", "bb"}}
	return s, []*remains{
		{
			name: "ada", fields: slices.Clone(fields), journal: []change{created, first, later, typed}, saves: []int{1, 1, 2, 2},
			conflicts: found, log: []change{created, first, later, typed}, next: 4, acked: map[string]uint64{"ben": 4}, applied: map[string]uint64{"ben": 1},
		},
		{
			name: "ben", fields: slices.Clone(fields), journal: []change{theirs}, saves: []int{1},
			log: []change{theirs}, next: 1, acked: map[string]uint64{"ada": 1}, applied: map[string]uint64{"ada": 4},
		},
	}
}

// The checks at the end find what they are there to find.
func TestCompare(t *testing.T) {
	tests := []struct {
		name    string
		spoil   func(s *story, ada, ben *remains)
		wantErr string
	}{
		{"nothing is wrong", func(*story, *remains, *remains) {}, ""},
		{"dropped", func(_ *story, ada, _ *remains) { ada.log = ada.log[2:] }, ""},
		{"echoed", func(_ *story, ada, ben *remains) { ben.log = append(ben.log, ada.log[0]) }, "the log of ben"},
		{"twice in the log", func(_ *story, ada, _ *remains) { ada.log = append(ada.log, ada.log[3]) }, "the log of ada"},
		{"twice, and dropped", func(_ *story, ada, _ *remains) { ada.next = 5 }, "5 changes of ada went into its log, not 4"},
		{"not in the log", func(_ *story, _, ben *remains) { ben.log, ben.next = nil, 0 }, "the log of ben"},
		{"not acknowledged", func(_ *story, _, ben *remains) { ben.acked["ada"] = 0 }, "ada has acknowledged 0 of ben and applied 1, not 1"},
		{"cursor behind", func(_ *story, ada, _ *remains) { ada.applied["ben"] = 0 }, "ada has acknowledged 1 of ben and applied 0, not 1"},
		{"same stamp", func(_ *story, ada, ben *remains) {
			ben.journal[0].Stamp = ada.journal[2].Stamp
			ben.log = ben.journal
		}, "two changes with stamp"},
		{"stamp below what it knew", func(_ *story, _, ben *remains) {
			ben.journal[0].Stamp.ms = 1
			ben.log = ben.journal
		}, "was made in knowledge of"},
		{"save in part", func(s *story, _, _ *remains) {
			s.in.perPeer["ada"][1].Edits = append(s.in.perPeer["ada"][1].Edits, edit{Note: "x"})
		}, "save 2 of ada was not made, or not whole"},
		{"save twice", func(s *story, _, _ *remains) { s.in.perPeer["ben"] = nil }, "ben made 1 changes, its user only 0"},
		{"typed into something else", func(s *story, _, _ *remains) {
			s.in.perPeer["ada"][1].Edits[1].Patches[0].Inserted = "hi"
		}, "save 2 of ada made"},
		{"loser stays", func(_ *story, ada, ben *remains) {
			ada.fields[0], ben.fields[0] = ben.journal[0], ben.journal[0]
		}, "the notes of ada are not what the rule gives"},
		{"one is different", func(_ *story, _, ben *remains) { ben.fields[2].Value = "" }, "the notes of ben are not what the rule gives"},
		{"tombstones differ", func(_ *story, _, ben *remains) {
			ben.fields = append(ben.fields, change{Note: "gone", Stamp: stamp{1, 1, "ben"}})
		}, "differ in their tombstones"},
		{"not the repository", func(s *story, _, _ *remains) { s.in.final["README"] = "bb" }, "not those of the repository"},
		{"no conflict", func(_ *story, ada, _ *remains) { ada.conflicts[0].loser = ada.journal[1].Stamp }, "a conflict that is none"},
		{"wrong winner", func(_ *story, ada, _ *remains) {
			c := &ada.conflicts[0]
			c.winner, c.loser = c.loser, c.winner
		}, "a conflict that is none"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, peers := twoPeers()
			test.spoil(s, peers[0], peers[1])
			err := s.compare(peers)
			if test.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.wantErr)
		})
	}
}

// The schedule has in it what the story needs, whatever the seed.
func TestSchedule(t *testing.T) {
	in, err := loadInput(oneIn)
	require.NoError(t, err)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	for i := range uint64(200) {
		s := newSchedule(in, seed+i)
		n, killed := 0, 0
		for i, r := range s.rounds {
			require.GreaterOrEqual(t, len(r.online), 2)
			require.False(t, i >= leaves && i < returns && slices.Contains(r.online, s.traveller))
			killed += len(r.kills)
			for _, saves := range r.saves {
				n += len(saves)
			}
			if i == s.wrongClockRound {
				require.NotEmpty(t, r.saves[r.wrong])
				require.Len(t, r.online, 3)
				require.True(t, !r.until.After(in.typedUntil) && r.until.After(in.typedAt), "all typing")
			}
		}
		require.Equal(t, kills, killed)
		require.Equal(t, len(in.saves), n)
		require.Len(t, s.rounds[returns].online, 3)
	}
}

func TestDiffering(t *testing.T) {
	for _, test := range []struct{ a, b, wantA, wantB string }{
		{"one two three", "one 2 three", `"…two…"`, `"…2…"`},
		{"same", "same and more", `"…"`, `"… and more"`},
		{"a", "b", `"a"`, `"b"`},
		{"aa", "a", `"…a"`, `"…"`},
		{"0123456789abcdef", "x", `"0123456789ab…"`, `"x"`},
		{"äöü", "äxü", `"…ö…"`, `"…x…"`},
	} {
		a, b := differing(test.a, test.b)
		require.Equal(t, test.wantA, a)
		require.Equal(t, test.wantB, b)
	}
	winning, losing := conflict{winning: "deleted", losing: "deadbeef"}.shown()
	require.Equal(t, []string{`"deleted"`, `"deadbeef"`}, []string{winning, losing})
}
