package outbox

import (
	"context"
	"fmt"

	"github.com/evlog-go/evlog/internal/outboxrule"
)

// session is a connection set up for the relay: its commits are synced, whatever
// the application's settings are, it does not wait long for locks, and it leaves
// checkpoints to the application.
type session struct {
	connection
	old [len(relayPragmas)]int // what close restores
}

var relayPragmas = [...]struct {
	name  string
	value func(was int) int
}{
	// EXTRA is FULL where there is a WAL. With a rollback journal it also syncs the
	// directory after the journal is gone, which is what commits.
	{"synchronous", to(3)},
	// On macOS an fsync is none without this. Elsewhere it does nothing.
	{"fullfsync", to(1)},
	{"checkpoint_fullfsync", to(1)},
	// A relay that is told to stop must not sit in SQLite's own waiting.
	{"busy_timeout", to(20)},
	// Whoever checkpoints waits for the disk, and meanwhile the WAL grows by what
	// the others commit: by tens of MB, if they do not wait for it. The application
	// does it as it commits, and so waits itself. The relay does it when the WAL has
	// grown to twice that, because nobody else commits; and never where the
	// application has switched it off (0).
	{"wal_autocheckpoint", func(was int) int { return 2 * max(0, was) }},
}

func to(value int) func(int) int { return func(int) int { return value } }

func (b *Box) session(ctx context.Context) (*session, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{connection: connection{conn: conn}}
	nc := context.WithoutCancel(ctx)
	for i, p := range relayPragmas {
		err := conn.QueryRowContext(nc, `PRAGMA `+p.name).Scan(&s.old[i])
		value := p.value(s.old[i])
		if p.name == "synchronous" && b.rules.Off(outboxrule.Extra) {
			value = 1
		}
		if err == nil {
			_, err = conn.ExecContext(nc, fmt.Sprintf(`PRAGMA %s = %d`, p.name, value))
		}
		if err != nil {
			s.discard()
			return nil, fmt.Errorf("PRAGMA %s: %w", p.name, err)
		}
	}
	// The journal is a setting of the connection, and the pool makes new ones.
	var journal string
	err = conn.QueryRowContext(nc, `PRAGMA journal_mode`).Scan(&journal)
	if err == nil {
		err = safeJournal(journal)
	}
	if err == nil {
		err = b.present()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close gives the connection back as it was.
func (s *session) close() {
	s.unprepare()
	for i, p := range relayPragmas {
		if _, err := s.conn.ExecContext(context.Background(), fmt.Sprintf(`PRAGMA %s = %d`, p.name, s.old[i])); err != nil {
			s.discard()
			break
		}
	}
	_ = s.conn.Close()
}

// renew takes another connection in the place of one that is broken. If there is
// none, s stays broken. It does not wait for a pool for ever: who has the others
// may be waiting for the gate.
func (b *Box) renew(ctx context.Context, s *session) error {
	s.discard()
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	fresh, err := b.session(ctx)
	if err != nil {
		return err
	}
	fresh.keeps = s.keeps
	*s = *fresh
	return nil
}
