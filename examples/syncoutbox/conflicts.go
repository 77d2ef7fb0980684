package main

import (
	"fmt"
	"strings"
	"time"
)

// Kinds of conflicts.
const (
	inFiles     = "files"
	inLines     = "lines"
	withDeleted = "deletions"
)

func (c conflict) kind() string {
	switch {
	case c.winning == "deleted" || c.losing == "deleted":
		return withDeleted
	case strings.HasPrefix(c.note, repository):
		return inFiles
	}
	return inLines
}

// reportConflicts tells how many there were, with an example of each kind.
func (s *story) reportConflicts() {
	n, example, fields := map[string]int{}, map[string]conflict{}, map[[2]string]bool{}
	for _, c := range s.result.conflicts {
		fields[[2]string{c.note, c.name}] = true
		n[c.kind()]++
		example[c.kind()] = c
	}
	s.say("conflicts", "%s pairs of changes of %s fields did not know of each other: %s of lines, %s of files, %s with a deletion",
		count(len(s.result.conflicts)), count(len(fields)), count(n[inLines]), count(n[inFiles]), count(n[withDeleted]))
	for _, kind := range []string{inLines, inFiles, withDeleted} {
		if c, ok := example[kind]; ok {
			s.say("", "%s", c)
		}
	}
}

// shown is both values by the parts in which they differ.
func (c conflict) shown() (winning, losing string) {
	if c.kind() == withDeleted {
		return part([]rune(c.winning), 0, 0), part([]rune(c.losing), 0, 0)
	}
	return differing(c.winning, c.losing)
}

// String is the conflict in words.
func (c conflict) String() string {
	winning, losing := c.shown()
	return fmt.Sprintf("%s, %s: %s's %s (%s) stays, %s's %s (%s) goes", c.note, c.name,
		c.winner.peer, winning, clockTime(c.winner), c.loser.peer, losing, clockTime(c.loser))
}

func clockTime(s stamp) string { return time.UnixMilli(s.ms).UTC().Format("2006-01-02 15:04:05") }

// differing shows two values by the parts in which they differ.
func differing(a, b string) (string, string) {
	x, y := []rune(a), []rune(b)
	from := 0
	for from < min(len(x), len(y)) && x[from] == y[from] {
		from++
	}
	to := 0
	for to < min(len(x), len(y))-from && x[len(x)-1-to] == y[len(y)-1-to] {
		to++
	}
	return part(x, from, to), part(y, from, to)
}

// part is the middle of a text, at most a dozen characters of it.
func part(text []rune, from, to int) string {
	const most = 12
	shown, end := text[from:len(text)-to], ""
	if len(shown) > most {
		shown, to = shown[:most], 1
	}
	if to > 0 {
		end = "…"
	}
	if from > 0 {
		return fmt.Sprintf("%q", "…"+string(shown)+end)
	}
	return fmt.Sprintf("%q", string(shown)+end)
}
