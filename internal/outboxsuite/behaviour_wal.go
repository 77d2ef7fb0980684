package outboxsuite

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// A relay that polls and relays beside 20,000 commits (6,000 by default) does not
// keep the WAL from being used again, and leaves it small: it starts again many
// times, where a reader that stays would allow none.
func behaveWALSize(e *env) error {
	run := e.start(e.box, e.openLog())
	commits := max(6_000, evtest.Count(20_000))
	largest := int64(0)
	starts := map[uint32]bool{}
	app := e.openBox(e.open(5000), nil)
	for i := range commits {
		tx, err := e.db.Begin()
		if err == nil && i%10 == 0 {
			if _, err = tx.Exec(`UPDATE evlog_outbox SET id = id WHERE 0`); err == nil {
				_, err = app.Put(e.ctx, tx, evlog.Record{Value: []byte("v")})
			}
		}
		if err == nil {
			_, err = tx.Exec(`INSERT INTO thing (n) VALUES (?1)`, i)
		}
		if err == nil {
			err = tx.Commit()
		} else if tx != nil {
			_ = tx.Rollback()
		}
		if err != nil {
			return fmt.Errorf("commit %d: %w", i, err)
		}
		if i%100 == 0 {
			if size, salt, err := walHead(e.path + "-wal"); err == nil {
				largest = max(largest, size)
				starts[salt] = true
			}
		}
	}
	e.t.Logf("the WAL had %d bytes at most, and started %d times", largest, len(starts))
	if len(starts) < 2 || largest > 16<<20 {
		return wrongf("the WAL started %d times, and has had %d bytes", len(starts), largest)
	}
	if err := e.drained(); err != nil {
		return err
	}
	// The relay polls now, and is not in the way of a checkpoint that waits for
	// every reader.
	var busy, frames, moved int
	if !e.eventually(func() bool {
		err := e.db.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved)
		return err == nil && busy == 0
	}) {
		return wrongf("the WAL cannot be emptied: %d frames, %d moved", frames, moved)
	}
	return run.end()
}

// The relay leaves checkpoints to the application: while it does one, and waits
// for the disk, others make the WAL longer. Alone it does them, unless the
// application has switched them off.
func behaveCheckpoints(e *env) error {
	if e.m.Journal != "WAL" {
		return nil
	}
	size := func() int64 { // of the database, which only checkpoints write to
		info, err := os.Stat(e.path)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	// fill commits 4 MB, and leaves them in the WAL.
	never, err := e.open(5000).Conn(e.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = never.Close() }()
	if _, err := never.ExecContext(e.ctx, `PRAGMA wal_autocheckpoint = 0`); err != nil {
		return err
	}
	fill := func() error {
		_, err := never.ExecContext(e.ctx, `INSERT INTO thing (x) VALUES (hex(zeroblob(2200000)))`)
		return err
	}
	log := e.openLog()
	var want []string
	relay := func(value string) error {
		want = append(want, value)
		_, err := never.ExecContext(e.ctx, `INSERT INTO evlog_outbox (key, value) VALUES (x'6b', CAST(?1 AS BLOB))`, value)
		if err != nil {
			return err
		}
		run := e.start(e.box, log)
		return first(e.has(want...), e.drained(), run.end())
	}
	if err := relay("warm"); err != nil {
		return err
	}
	before := size()
	if err := first(fill(), relay("a")); err != nil {
		return err
	}
	if size() != before {
		return wrongf("the relay has checkpointed 4 MB")
	}
	if err := first(fill(), relay("b")); err != nil {
		return err
	}
	if size() < before+8<<20 {
		return wrongf("nobody has checkpointed 8 MB")
	}
	// The connections of an application that does it by other means.
	e.db.SetMaxOpenConns(1)
	if _, err := e.db.Exec(`PRAGMA wal_autocheckpoint = 0`); err != nil {
		return err
	}
	before = size()
	if err := first(fill(), fill(), fill(), relay("c")); err != nil {
		return err
	}
	if size() != before {
		return wrongf("the relay has checkpointed, where the application does not")
	}
	return nil
}

// walHead returns the size of a WAL and the salt of its header, which is another
// each time that SQLite starts it again.
func walHead(path string) (size int64, salt uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	var head [20]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), binary.BigEndian.Uint32(head[16:]), nil
}
