package main

import (
	"context"
	"slices"

	"github.com/evlog-go/evlog/evlog"
)

// logOptions say how long a log keeps what it has. What all other peers have
// acknowledged is not needed any more: the log drops each segment that is closed
// and that nobody holds. A peer that does not come to get it holds no more than
// holdBytes. The rest is dropped in spite of it, and it has to refetch.
func (p *peer) logOptions() *evlog.Options {
	const (
		segmentBytes = 16 << 10
		holdBytes    = 96 << 10
	)
	return &evlog.Options{
		OpenHook: p.box.Hook(), SegmentBytes: segmentBytes,
		MaxRecords: 1, HoldFor: p.others(), HoldBytes: holdBytes,
		OnEvent: func(e evlog.Event) {
			if e.Kind == evlog.EventRemoved {
				p.dropped.Add(1)
			}
		},
	}
}

func (p *peer) others() []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == p.name })
}

// retain drops now what the log would drop by itself a little later, and says how
// much that was since it was asked last.
func (p *peer) retain(ctx context.Context) error {
	if _, err := p.log.Retain(ctx, nil); err != nil {
		return err
	}
	return p.say(message{What: sayDropped, Segments: int(p.dropped.Swap(0))})
}
