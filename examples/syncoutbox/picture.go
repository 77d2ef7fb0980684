package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed picture.html
var pictureHTML string

// Measures of the picture.
const (
	pictureWidth = 1500
	left, right  = 110, 90 // of the lanes
	top          = 64
	laneHeight   = 200
	laneGap      = 34
	barHeight    = 34 // the highest bar of conflicts, below a lane's curves
)

// pageData is what the template draws.
type pageData struct {
	Seed                      uint64
	Width, Height             int
	Changes, Conflicts, Notes string
	Sum                       string
	Names                     []string
	Rounds                    []label
	Lanes                     []lane
	Bands                     []band
	Curves                    []curve
	Arrows                    []arrow
	Marks                     []mark
	Bars                      []band
	Ends                      []label
	Examples                  []conflict
	Kills, Refetches, Held    int
}

type (
	lane struct {
		Name, Class         string
		X, Y, Width, Height float64
		Lines               []label
	}
	label struct {
		X, Y        float64
		Text, Class string
	}
	band struct {
		X, Y, Width, Height float64
		Class, Title        string
	}
	curve struct{ Points, Class string }
	arrow struct {
		X, From, To, Width float64
		Peer, Class, Title string
	}
	mark struct {
		X, Y               float64
		Text, Class, Title string
	}
)

// draw writes the picture of who had what when.
func (s *story) draw(path string) error {
	t, err := template.New("picture").Parse(pictureHTML)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := t.Execute(f, newPainter(s).paint()); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	s.say("picture", "%s", path)
	return nil
}

// painter goes through the timeline once.
type painter struct {
	s      *story
	data   pageData
	x      float64 // where it is, in steps of the timeline
	scale  float64 // pixels for a step
	most   float64 // changes of one peer
	have   map[string]map[string]uint64
	points map[string]map[string]*strings.Builder // by lane and origin
	online map[string]float64                     // since where
	wrong  map[string]float64
	pulls  []pulled
	worst  int // conflicts of one message
}

// pulled is what one peer got from another one in a row, from the moment on that
// is at x.
type pulled struct {
	moment
	x float64
}

// steps is how much room a moment takes. The picture has no scale of time: twelve
// years and fifty minutes are in it.
func (m moment) steps() float64 {
	switch m.What {
	case saySaved:
		return 1
	case sayRound:
		return 14
	case sayRefetch, sayKilled, sayHeld:
		return 10
	case sayGot:
		return 4
	case sayUp, sayDropped:
		return 0
	}
	return 3
}

func newPainter(s *story) *painter {
	p := &painter{
		s: s, have: map[string]map[string]uint64{}, points: map[string]map[string]*strings.Builder{},
		online: map[string]float64{}, wrong: map[string]float64{},
	}
	steps := 10.0
	for _, m := range s.timeline {
		steps += m.steps()
		p.worst = max(p.worst, m.Conflicts)
	}
	for _, c := range s.result.all {
		p.most = max(p.most, float64(c.Seq))
	}
	p.scale = (pictureWidth - left - right) / steps
	for _, name := range names {
		p.have[name], p.points[name] = map[string]uint64{}, map[string]*strings.Builder{}
		for _, origin := range names {
			p.points[name][origin] = &strings.Builder{}
		}
	}
	p.data = pageData{
		Seed: s.seed, Width: pictureWidth, Height: int(laneTop(len(names))) + 6, Names: names,
		Changes: count(len(s.result.all)), Conflicts: count(len(s.result.conflicts)), Notes: count(s.result.notes), Sum: s.result.sum,
	}
	return p
}

func laneTop(i int) float64 { return float64(top + i*(laneHeight+laneGap)) }

func laneOf(name string) int { return slices.Index(names, name) }

// px is where a moment is, and height where a number of changes is in a lane.
func (p *painter) px() float64 { return left + p.x*p.scale }

func (p *painter) height(name string, changes uint64) float64 {
	return laneTop(laneOf(name)) + laneHeight - barHeight - 4 - float64(changes)/p.most*(laneHeight-barHeight-22)
}

func (p *painter) paint() pageData {
	for _, name := range names {
		for _, origin := range names {
			p.point(name, origin)
		}
	}
	for _, m := range p.s.timeline {
		p.moment(m)
		p.x += m.steps()
	}
	for _, m := range p.pulls {
		p.arrow(m)
	}
	for i, name := range names {
		for _, origin := range names {
			p.point(name, origin)
			class := "curve " + origin
			if origin == name {
				class += " own"
			}
			p.data.Curves = append(p.data.Curves, curve{p.points[name][origin].String(), class})
		}
		p.ends(name)
		p.data.Lanes = append(p.data.Lanes, lane{
			Name: name, Class: name, X: left, Y: laneTop(i), Width: pictureWidth - left - right, Height: laneHeight, Lines: p.summary(name),
		})
	}
	p.examples()
	return p.data
}

func (p *painter) moment(m moment) {
	x := p.px()
	switch m.What {
	case sayRound:
		p.round(m, x)
		return
	case sayOnline:
		if _, ok := p.online[m.peer]; !ok {
			p.online[m.peer] = x
		}
	case sayOffline:
		p.endBand(p.online, m.peer, "online", m.peer+" is online")
	case sayKilled:
		p.data.Kills++
		p.endBand(p.online, m.peer, "online", m.peer+" is online")
		p.mark(m, "✕", "killed", 12, m.peer+" is killed while told to "+m.Text)
	case sayHeld:
		p.data.Held++
		p.mark(m, "◷", "held", 28, m.peer+" does not take what "+m.From+" has: "+m.Text)
	case sayRefetch:
		p.data.Refetches++
		p.mark(m, "◆", "refetch", 44, fmt.Sprintf("%s refetches from %s: %d fields, because %s", m.peer, m.From, m.Records, m.Text))
		p.got(m)
	case sayGot:
		p.got(m)
	}
	p.know(m)
	if m.Conflicts > 0 {
		h := max(2, barHeight*float64(m.Conflicts)/float64(p.worst))
		p.data.Bars = append(p.data.Bars, band{
			X: x - 1.5, Y: laneTop(laneOf(m.peer)) + laneHeight - h, Width: 4, Height: h, Class: "bar",
			Title: fmt.Sprintf("%d conflicts at %s with changes of %s", m.Conflicts, m.peer, m.From),
		})
	}
}

// round draws the line at which a round begins, and marks whose clock is wrong.
func (p *painter) round(m moment, x float64) {
	for _, name := range names {
		p.endBand(p.wrong, name, "wrong", fmt.Sprintf("the clock of %s is %s ahead", name, wrongClockBy))
	}
	if m.round < rounds {
		if name := p.s.schedule.rounds[m.round].wrong; name != "" {
			p.wrong[name] = x
		}
	}
	p.data.Rounds = append(p.data.Rounds, label{X: x + 4, Y: float64(top - 12 - 16*(m.round%2)), Text: m.Text})
}

// know moves the curves of a lane to what the peer says that it has.
func (p *painter) know(m moment) {
	for origin, seq := range m.Seen {
		if p.have[m.peer][origin] == seq {
			continue
		}
		p.point(m.peer, origin) // a step: it had the old number up to here
		p.have[m.peer][origin] = seq
		p.point(m.peer, origin)
	}
}

func (p *painter) point(name, origin string) {
	fmt.Fprintf(p.points[name][origin], "%.1f,%.1f ", p.px(), p.height(name, p.have[name][origin]))
}

func (p *painter) endBand(since map[string]float64, name, class, title string) {
	from, ok := since[name]
	if !ok {
		return
	}
	delete(since, name)
	b := band{X: from, Y: laneTop(laneOf(name)), Width: max(2, p.px()-from), Height: laneHeight, Class: class, Title: title}
	p.data.Bands = append(p.data.Bands, b)
}

func (p *painter) mark(m moment, text, class string, down float64, title string) {
	p.data.Marks = append(p.data.Marks, mark{p.px(), laneTop(laneOf(m.peer)) + down, text, class, title})
}

// got adds to the last pull, or begins a new one.
func (p *painter) got(m moment) {
	for i := len(p.pulls) - 1; i >= 0; i-- {
		if last := &p.pulls[i]; last.peer == m.peer {
			if last.round != m.round || last.From != m.From || last.What != m.What {
				break
			}
			last.Records += m.Records
			last.Conflicts += m.Conflicts
			return
		}
	}
	p.pulls = append(p.pulls, pulled{m, p.px()})
}

// arrow draws what came from one lane to another.
func (p *painter) arrow(m pulled) {
	from, to := laneTop(laneOf(m.From)), laneTop(laneOf(m.peer))
	if from < to {
		from += laneHeight
	} else {
		to += laneHeight
	}
	a := arrow{X: m.x, From: from, To: to, Width: 1.5 + min(2.5, float64(m.Records)/100), Peer: m.From, Class: "arrow"}
	a.Title = fmt.Sprintf("%s gets %d changes of %s, with %d conflicts", m.peer, m.Records, m.From, m.Conflicts)
	if m.What == sayRefetch {
		a.Class += " refetched"
		a.Title = fmt.Sprintf("%s refetches %d fields from %s, with %d conflicts", m.peer, m.Records, m.From, m.Conflicts)
	}
	if d := laneOf(m.From) - laneOf(m.peer); d*d > 1 {
		a.Class += " far" // it passes a lane that has nothing to do with it
	}
	p.data.Arrows = append(p.data.Arrows, a)
}

// ends writes at the right of a lane what it has in the end.
func (p *painter) ends(name string) {
	var ends []label
	for _, origin := range names {
		seq := p.have[name][origin]
		ends = append(ends, label{X: p.px() + 6, Y: p.height(name, seq) + 4, Text: origin + " " + count(seq), Class: origin})
	}
	slices.SortFunc(ends, func(a, b label) int { return int(b.Y - a.Y) })
	for i := 1; i < len(ends); i++ {
		ends[i].Y = min(ends[i].Y, ends[i-1].Y-13)
	}
	p.data.Ends = append(p.data.Ends, ends...)
}

// summary is what stands at the left of a lane.
func (p *painter) summary(name string) []label {
	killed := 0
	for _, m := range p.s.timeline {
		if m.peer == name && m.What == sayKilled {
			killed++
		}
	}
	lines := []label{{Text: count(len(p.s.in.perPeer[name])) + " saves"}, {Text: fmt.Sprintf("killed %d times", killed)}}
	for i := range lines {
		lines[i].Y = float64(52 + 18*i)
	}
	return lines
}

// examples are some conflicts of each kind, from all over the history.
func (p *painter) examples() {
	const each = 6
	byKind := map[string][]conflict{}
	for _, c := range p.s.result.conflicts {
		byKind[c.kind()] = append(byKind[c.kind()], c)
	}
	for _, kind := range []string{inLines, inFiles, withDeleted} {
		all := byKind[kind]
		for i := range min(each, len(all)) {
			p.data.Examples = append(p.data.Examples, all[i*len(all)/min(each, len(all))])
		}
	}
}

// What the template shows of a conflict.

func (c conflict) Where() string       { return c.note + ", " + c.name }
func (c conflict) Winner() string      { return c.winner.peer }
func (c conflict) Loser() string       { return c.loser.peer }
func (c conflict) WinnerTime() string  { return clockTime(c.winner) }
func (c conflict) LoserTime() string   { return clockTime(c.loser) }
func (c conflict) WinnerValue() string { w, _ := c.shown(); return w }
func (c conflict) LoserValue() string  { _, l := c.shown(); return l }
