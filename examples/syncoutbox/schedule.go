package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	rounds = 12
	// kills is how many processes are killed.
	kills = 10
	// The traveller is away in these rounds, and back in the next.
	leaves, returns = 2, 6
	// wrongClockBy is how much somebody's clock is ahead, in a round that is all
	// typing: there it cannot change what the repository's files are in the end.
	wrongClockBy = 2 * time.Hour
)

// round is a part of the history: first everybody saves what is theirs, offline,
// and then those that are online exchange.
type round struct {
	saves  map[string][]save
	until  time.Time // the wall clock in the end
	online []string
	kills  map[string]kill
	wrong  string // whose clock is ahead
}

// kill says when a peer is killed: so long after it was told to make the n-th
// save of the round, or, while it exchanges, to pull.
type kill struct {
	exchanging bool
	n          int
	after      time.Duration
}

// schedule decides by the seed what happens when.
type schedule struct {
	rounds          []round
	traveller       string
	wrongClockRound int
}

func (in *input) round(i int) []save {
	return in.saves[i*len(in.saves)/rounds : (i+1)*len(in.saves)/rounds]
}

// middleOfTyping is a round that is all typing.
func (in *input) middleOfTyping() int {
	var all []int
	for i := range rounds {
		if part := in.round(i); !part[0].Time.Before(in.typedAt) && !part[len(part)-1].Time.After(in.typedUntil) {
			all = append(all, i)
		}
	}
	return all[len(all)/2]
}

func newSchedule(in *input, seed uint64) *schedule {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &schedule{traveller: names[rng.IntN(len(names))], wrongClockRound: in.middleOfTyping()}
	for i := range rounds {
		r := round{saves: map[string][]save{}, kills: map[string]kill{}}
		for _, save := range in.round(i) {
			r.saves[save.Peer] = append(r.saves[save.Peer], save)
			if save.Time.After(r.until) {
				r.until = save.Time
			}
		}
		r.online = s.whoIsOnline(i, rng)
		if i == s.wrongClockRound {
			typing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(r.saves[name]) == 0 })
			r.wrong = typing[rng.IntN(len(typing))]
		}
		s.rounds = append(s.rounds, r)
	}
	for _, k := range rng.Perm(rounds * len(names))[:kills] {
		i, name := k/len(names), names[k%len(names)]
		k := kill{
			exchanging: slices.Contains(s.rounds[i].online, name) && rng.IntN(2) == 0,
			n:          rng.IntN(1 + len(s.rounds[i].saves[name])),
			after:      time.Duration(rng.IntN(8000)) * time.Microsecond,
		}
		if i == returns && name == s.traveller {
			k.exchanging = false // a peer that is killed may not have said that it has refetched
		}
		s.rounds[i].kills[name] = k
	}
	return s
}

// whoIsOnline: mostly two of them, and everybody when the traveller is back and
// one clock is wrong.
func (s *schedule) whoIsOnline(i int, rng *rand.Rand) []string {
	missing := names[rng.IntN(len(names))]
	switch {
	case i >= leaves && i < returns:
		missing = s.traveller
	case i == leaves-1, i == returns, i == s.wrongClockRound, rng.IntN(4) == 0:
		missing = ""
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == missing })
}
