package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/evlog-go/evlog/cursor"
)

// keepBytes is what a log may hold for a peer that does not come to get it. The
// rest is dropped in spite of it, and it has to refetch.
const keepBytes = 64 << 10

// retain drops the segments of this peer's log that every other peer has
// acknowledged, and the oldest ones where it is too large all the same.
func (p *peer) retain(ctx context.Context) error {
	below := uint64(math.MaxUint64)
	for _, name := range names {
		if name == p.name {
			continue
		}
		pos, err := p.acked.Load(ctx, name)
		if err != nil && !errors.Is(err, cursor.ErrUnknownConsumer) { // who never came has nothing: 0
			return err
		}
		below = min(below, pos.Next)
	}
	n, err := p.dropSegments(ctx, below, keepBytes)
	if err != nil || n == 0 {
		return err
	}
	return p.say(message{What: sayDropped, Segments: n})
}

// dropSegments stands in for retention of the log itself, which is being built:
// it closes the log, deletes files, and opens it again. The active segment stays.
func (p *peer) dropSegments(ctx context.Context, below uint64, keepBytes int64) (dropped int, err error) {
	segments, err := p.log.Reader().Segments(ctx)
	if err != nil {
		return 0, err
	}
	bytes := int64(0)
	for _, s := range segments {
		bytes += s.Bytes
	}
	if err := p.closeLog(); err != nil {
		return 0, err
	}
	for _, s := range segments[:len(segments)-1] {
		if s.End > below && bytes <= keepBytes {
			break
		}
		bytes -= s.Bytes
		dropped++
		file := filepath.Join(p.dir, "log", fmt.Sprintf("%020d", s.Base))
		_ = os.Remove(file + ".idx")
		if err := os.Remove(file + ".log"); err != nil {
			return dropped, err
		}
	}
	return dropped, p.openLog(ctx)
}
