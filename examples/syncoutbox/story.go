package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// story is the world of the peers: it plays the rounds, and keeps what it hears.
type story struct {
	out      io.Writer
	dir      string
	seed     uint64
	in       *input
	schedule *schedule
	hosts    map[string]*host

	result result

	mu       sync.Mutex // guards the rest while peers run
	timeline []moment
}

// moment is something that happened at a peer, in the order in which the parent
// heard of it.
type moment struct {
	peer  string
	round int
	message
}

// What the parent adds to what the peers say.
const (
	sayKilled  = "killed"
	sayOffline = "offline"
	sayRound   = "round"
)

func (s *story) say(topic, format string, args ...any) {
	fmt.Fprintf(s.out, "%-9s %s\n", topic, fmt.Sprintf(format, args...))
}

// hear returns what takes down what peers say in a round.
func (s *story) hear(round int) func(*host, message) {
	return func(h *host, m message) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timeline = append(s.timeline, moment{h.name, round, m})
	}
}

// play plays all rounds, and one more at the end in which everybody gets
// everything.
func (s *story) play(ctx context.Context) (err error) {
	s.hosts = map[string]*host{}
	for _, name := range names {
		if s.hosts[name], err = newHost(s.dir, name, nil); err != nil {
			return err
		}
	}
	defer func() {
		err = errors.Join(err, s.each(names, func(h *host) error { return h.quit() }))
	}()
	last := round{until: s.schedule.rounds[rounds-1].until, online: names}
	for i, r := range append(slices.Clone(s.schedule.rounds), last) {
		s.timeline = append(s.timeline, moment{round: i, message: message{What: sayRound, Text: s.title(i, r)}})
		for _, h := range s.hosts {
			h.heard = s.hear(i)
		}
		if err := s.playRound(ctx, r); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	s.reportRounds()
	return nil
}

// each does something with several peers at the same time.
func (s *story) each(names []string, do func(h *host) error) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = do(s.hosts[name]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *story) playRound(ctx context.Context, r round) error {
	if err := s.each(names, func(h *host) error { return s.work(ctx, r, h) }); err != nil {
		return err
	}
	online := func(h *host) error {
		if err := h.tell(ctx, command{Do: doDrain}); err != nil {
			return err
		}
		return h.tell(ctx, command{Do: doOnline})
	}
	if err := s.each(r.online, online); err != nil {
		return err
	}
	if err := s.each(r.online, func(h *host) error { return s.exchange(ctx, r, h) }); err != nil {
		return err
	}
	if err := s.each(r.online, func(h *host) error { return s.exchangeMissed(ctx, r, h) }); err != nil {
		return err
	}
	return s.each(r.online, func(h *host) error {
		if err := h.tell(ctx, command{Do: doOffline}); err != nil {
			return err
		}
		h.setURL("")
		h.heard(h, message{What: sayOffline})
		return h.tell(ctx, command{Do: doRetain})
	})
}

// work has the user of a peer make the saves of the round. After a kill the user
// looks what is there, and goes on.
func (s *story) work(ctx context.Context, r round, h *host) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	saves, begun := r.saves[h.name], h.saves
	k, killed := r.kills[h.name]
	killed = !killed || k.exchanging
	for h.saves-begun < len(saves) || !killed {
		i := min(h.saves-begun, len(saves))
		c := command{Do: doDrain} // it is killed when it is done, or nearly
		if i < len(saves) {
			c = command{Do: doSave, Now: saves[i].Time, Edits: saves[i].Edits}
			if r.wrong == h.name {
				c.Now = c.Now.Add(wrongClockBy)
			}
		}
		if !killed && i >= k.n {
			killed = true
			if err := s.kill(ctx, h, c, k.after); err != nil {
				return err
			}
			continue
		}
		if err := h.tell(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// kill kills a peer in the middle of a command, and starts it again.
func (s *story) kill(ctx context.Context, h *host, c command, after time.Duration) error {
	if err := h.tellAndKill(ctx, c, after); err != nil {
		return err
	}
	h.heard(h, message{What: sayKilled, Text: c.Do})
	return h.start(ctx)
}

// exchange has a peer get what the others have that are online. One that is
// killed meanwhile does not answer.
func (s *story) exchange(ctx context.Context, r round, h *host) error {
	k, killed := r.kills[h.name]
	killed = !killed || !k.exchanging
	for _, from := range r.online {
		if from == h.name {
			continue
		}
		if !killed {
			killed = true
			if err := s.kill(ctx, h, s.pullFrom(from, r), k.after); err != nil {
				return err
			}
			if err := h.tell(ctx, command{Do: doOnline}); err != nil {
				return err
			}
		}
		if err := h.tell(ctx, s.pullFrom(from, r)); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) pullFrom(from string, r round) command {
	return command{Do: doPull, Now: r.until, Peer: from, URL: s.hosts[from].address()}
}

// exchangeMissed has a peer try again with those who did not answer: they are
// back by now.
func (s *story) exchangeMissed(ctx context.Context, r round, h *host) error {
	for _, from := range slices.Sorted(maps.Keys(h.missed)) {
		if err := h.tell(ctx, s.pullFrom(from, r)); err != nil {
			return err
		}
	}
	clear(h.missed)
	return nil
}

// title says what a round is about.
func (s *story) title(i int, r round) string {
	form := time.DateOnly
	switch {
	case len(r.saves) == 0:
		return "the end"
	case !r.until.Before(s.in.typedAt) && !r.until.After(s.in.typedUntil):
		form += " 15:04"
	}
	return fmt.Sprintf("%d: until %s", i+1, r.until.Format(form))
}

// reportRounds tells what was heard.
func (s *story) reportRounds() {
	n := map[string]int{}
	segments, records := 0, 0
	var refetches, held []moment
	for _, m := range s.timeline {
		n[m.What+" "+m.Text]++
		segments += m.Segments
		switch m.What {
		case sayGot:
			records += m.Records
		case sayRefetch:
			refetches = append(refetches, m)
		case sayHeld:
			held = append(held, m)
		}
	}
	s.say("killed", "%d processes: %d while the user saved, %d when a save was done, %d while they got changes",
		kills, n["killed "+doSave], n["killed "+doDrain], n["killed "+doPull])
	s.say("exchanged", "%s records, applied once each, and acknowledged; %d segments of the logs were dropped", count(records), segments)
	more := 0
	for _, m := range refetches {
		if m.peer != s.schedule.traveller || m.round != returns {
			more++
			continue
		}
		s.say("refetched", "%s, away for %d rounds, from %s: %s fields (%s)", m.peer, returns-leaves, m.From, count(m.Records), m.Text)
	}
	if more > 0 {
		s.say("", "and %d times more, whoever had missed as much", more)
	}
	if len(held) > 0 {
		s.say("held", "the changes that %s made with a clock %s ahead, %d times by the others, until that time had come",
			held[0].From, wrongClockBy, len(held))
	}
}
