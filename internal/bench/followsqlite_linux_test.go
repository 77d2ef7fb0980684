package bench

import (
	"database/sql"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evlog-go/evlog/evlog"
)

// pollPause is how long who follows a table rests between two looks at it.
const pollPause = 100 * time.Microsecond

// followSQLite has rows committed one by one, and somebody with a connection of his
// own poll for them, in this process or in another. He polls from when a row begins
// to be written, and not while other sides have their turn, who would have one
// processor less.
func followSQLite(b *testing.B, records []evlog.Record, process string) (write func(i int), seen func() time.Duration) {
	db := newSQLite(b).grown(records)
	var last int64
	require.NoError(b, db.db.QueryRow(`SELECT max(offset) FROM log`).Scan(&last))
	poll := pollOther
	if process == "own" {
		poll = pollOwn
	}
	more, seen := poll(b, db.path(), last)
	write = func(i int) {
		more()
		db.append(records[i%len(records)], 1)
	}
	return write, seen
}

// pollOwn polls in this process, for one row each time that more is called.
func pollOwn(b *testing.B, path string, last int64) (more func(), seen func() time.Duration) {
	p, err := openPoller(path, last)
	require.NoError(b, err)
	wanted := make(chan struct{})
	times := make(chan time.Duration)
	go func() {
		defer close(times)
		for range wanted {
			if err := p.await(); err != nil {
				b.Error(err)
				return
			}
			times <- monotonic()
		}
	}()
	b.Cleanup(func() {
		close(wanted)
		for range times { // until it has ended
		}
		require.NoError(b, p.Close())
	})
	more = func() {
		select {
		case wanted <- struct{}{}:
		case <-times: // it has ended, with an error
		}
	}
	return more, func() time.Duration { return <-times }
}

// pollOther is pollOwn in a process of its own, which is told by a byte.
func pollOther(b *testing.B, path string, last int64) (more func(), seen func() time.Duration) {
	f := startFollower(b, "follow-sqlite", path, strconv.FormatInt(last, 10))
	return func() {
		_, err := f.in.Write([]byte{0})
		require.NoError(b, err)
	}, f.seen
}

func init() {
	children["follow-sqlite"] = func(args []string) error {
		last, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		p, err := openPoller(args[0], last)
		if err != nil {
			return err
		}
		defer p.Close()
		var b [1]byte
		for {
			if _, err := os.Stdin.Read(b[:]); err != nil {
				return nil // nobody wants more
			}
			if err := p.await(); err != nil {
				return err
			}
			if err := send(monotonic()); err != nil {
				return err
			}
		}
	}
}

// poller follows a table by looking at it again and again.
type poller struct {
	db   *sql.DB
	next *sql.Stmt
	last int64 // offset of the last row seen
}

func openPoller(path string, last int64) (*poller, error) {
	db, err := reopenSQLite(path)
	if err != nil {
		return nil, err
	}
	next, err := db.Prepare(`SELECT offset, ts_ms, schema, key, value FROM log WHERE offset > ? ORDER BY offset`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &poller{db, next, last}, nil
}

func (p *poller) Close() error {
	return errors.Join(p.next.Close(), p.db.Close())
}

// await returns once it has read a row that it had not seen.
func (p *poller) await() error {
	for {
		var ts, schema int64
		var key, value []byte
		err := p.next.QueryRow(p.last).Scan(&p.last, &ts, &schema, &key, &value)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		// Not by time.Sleep: when nothing else is to do, the runtime waits in whole
		// milliseconds.
		pause := unix.NsecToTimespec(int64(pollPause))
		if err := unix.Nanosleep(&pause, nil); err != nil && err != unix.EINTR { //nolint:errorlint // a bare errno
			return err
		}
	}
}
