package evlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

const otherID = "11111111-2222-4333-8444-555555555555"

// consumersAt is a consumers.json bound to a log, with one cursor, and one more
// that was set aside for another log.
func consumersAt(id string, next uint64, asideID string, aside uint64) []byte {
	return fmt.Appendf(nil, `{"version":1,"log_id":%q,"consumers":{"a":{"next_offset":%d,"updated_ms":1}},`+
		`"other_logs":{%q:{"b":{"next_offset":%d,"updated_ms":1}}}}`, id, next, asideID, aside)
}

// A consumers.json proves that records are missing only with cursors that were
// made for this log. Which log it is must be known for that. (I3)
func TestOpen_CountsCursorsOfThisLogOnly(t *testing.T) {
	for _, c := range []struct {
		name      string
		consumers []byte
		noMeta    bool
		wantNext  uint64 // after repair; 4 is what the records say
	}{
		{"of this log", consumersAt(builtID, 9, otherID, 0), false, 9},
		{"of another log", consumersAt(otherID, 9, otherID+"x", 8), false, 4},
		{"set aside for another log", consumersAt(builtID, 0, otherID, 9), false, 4},
		{"set aside for this log", consumersAt(otherID, 9, builtID, 7), false, 7},
		{"of an unknown log", []byte(`{"version":1,"consumers":{"a":{"next_offset":9}}}`), false, 9},
		{"of another log, while this one's id is lost", consumersAt(otherID, 9, otherID+"x", 11), true, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build().segment(0, upTo(0, 4)...).file("consumers.json", c.consumers)
			empty := build().file("consumers.json", c.consumers)
			if c.noMeta {
				delete(b.im, "log.json")
				delete(empty.im, "log.json")
			}
			missing := c.wantNext > 4 || c.noMeta

			p := placeWith(t, b.im)
			rep, err := evlog.Verify(p.ctx, p.dir, nil)
			require.NoError(t, err)
			require.Equal(t, c.wantNext <= 4, rep.OK(), "%+v", rep.Problems)
			repair, err := evlog.Repair(p.ctx, p.dir, nil)
			require.NoError(t, err)
			require.Equal(t, missing, len(repair.Steps) > 0, "%+v", repair.Steps)
			if missing {
				require.ErrorIs(t, p.refused(t, nil), evlog.ErrCorrupt)
				sameImage(t, withoutLock(b.im), withoutLock(p.image(t)))
				_, err = evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
				require.NoError(t, err)
			}
			l := p.open(t, nil)
			require.Equal(t, c.wantNext, l.Stats().NextOffset)
			require.NoError(t, l.Close())
			require.Equal(t, c.consumers, p.image(t)["consumers.json"])

			// Without any segment they decide whether there ever was a log.
			p = placeWith(t, empty.im)
			if missing {
				require.ErrorIs(t, p.refused(t, nil), evlog.ErrCorrupt)
				return
			}
			l = p.open(t, nil)
			require.Zero(t, l.Stats().NextOffset)
			require.Equal(t, builtID, l.ID())
		})
	}
}

// The second implementation decides alike.
func TestOpen_CursorsOfAnotherLogInTheSecondImplementation(t *testing.T) {
	ours := build().file("consumers.json", consumersAt(builtID, 3, otherID, 0))
	require.ErrorIs(t, ours.im.Writer().Err, evtest.ErrDamaged)
	theirs := build().file("consumers.json", consumersAt(otherID, 3, otherID+"x", 5))
	require.True(t, theirs.im.Writer().Create)
}
