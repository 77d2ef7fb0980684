package sqlbridge

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// Report says how a database is set up.
type Report struct {
	Version     string // of SQLite
	JournalMode string // wal, delete, truncate, persist, memory, off
	Synchronous string // OFF, NORMAL, FULL, EXTRA
	BusyTimeout time.Duration
	InMemory    bool // the database, or a temporary file
	// Unsafe is how exactly once can be lost: by a crash that damages the database
	// or leaves a part of a transaction, or by another process. Empty is good.
	Unsafe []string
	// Notes are worth knowing and break nothing: what a power failure takes back
	// with cursor and effects together, or what costs time.
	Notes []string
}

func (r *Report) usable() error {
	switch {
	case !sqldb.ParseVersion(r.Version).HasStrict():
		return fmt.Errorf("sqlbridge: SQLite %s: %w: STRICT tables need 3.37", r.Version, ErrUnsafe)
	case r.JournalMode == "off":
		return fmt.Errorf("sqlbridge: journal_mode=OFF: %w: ROLLBACK does nothing", ErrUnsafe)
	}
	return nil
}

// Check reads the settings from one connection, and from a second one if the
// pool has one to spare, because a PRAGMA by db.Exec reaches a single one. Where
// they differ, the report has the first one's, and says so.
func (b *Bridge) Check(ctx context.Context) (Report, error) {
	r, _, err := b.check(ctx)
	return r, err
}

// check returns the report on one connection, and those on all that were looked
// at.
func (b *Bridge) check(ctx context.Context) (r Report, all []Report, err error) {
	err = b.read(ctx, func() error {
		all, err = b.settings(ctx)
		return err
	})
	if err != nil {
		return r, all, fmt.Errorf("sqlbridge: check the database: %w", err)
	}
	r = all[0]
	for _, other := range all[1:] {
		// Every journal mode but WAL is one connection's own.
		if other.Synchronous != r.Synchronous || other.BusyTimeout != r.BusyTimeout || other.JournalMode != r.JournalMode {
			r.unsafe("connections differ in synchronous, journal_mode or busy_timeout: " +
				"set them in the data source name, a PRAGMA by db.Exec reaches one connection only")
		}
	}
	r.judge()
	return r, all, nil
}

// secondConn is how long Check waits for a second connection.
const secondConn = 100 * time.Millisecond

func (b *Bridge) settings(ctx context.Context) ([]Report, error) {
	first, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = first.Close() }()
	r, err := settingsOf(ctx, first)
	if err != nil || r.InMemory || b.db.Stats().MaxOpenConnections == 1 {
		return []Report{r}, err
	}
	short, cancel := context.WithTimeout(ctx, secondConn)
	defer cancel()
	second, err := b.db.Conn(short)
	if err != nil {
		return []Report{r}, ctx.Err() // all in use; one has to do
	}
	defer func() { _ = second.Close() }()
	other, err := settingsOf(ctx, second)
	return []Report{r, other}, err
}

func settingsOf(ctx context.Context, conn *sql.Conn) (Report, error) {
	s, err := sqldb.ReadSettings(ctx, conn)
	return Report{
		Version: s.Version.String(), JournalMode: s.JournalMode, Synchronous: s.Synchronous,
		BusyTimeout: s.BusyTimeout, InMemory: s.File == "",
	}, err
}

func (r *Report) unsafe(text string) { r.Unsafe = append(r.Unsafe, text) }
func (r *Report) note(text string)   { r.Notes = append(r.Notes, text) }

// judge fills in the lists.
func (r *Report) judge() {
	if r.InMemory {
		r.unsafe("the database is in memory or a temporary file, and ends with the connection")
		return
	}
	r.judgeJournal()
	r.judgeSync()
	if r.BusyTimeout == 0 {
		r.note("busy_timeout=0: the application's own statements fail at once while another connection writes")
	}
}

func (r *Report) judgeJournal() {
	switch r.JournalMode {
	case "off", "memory":
		r.unsafe("journal_mode=" + strings.ToUpper(r.JournalMode) +
			": a process that dies in a transaction leaves a part of it behind; WAL or DELETE do not")
	case "wal":
		if sqldb.ParseVersion(r.Version).LosesCommits() {
			r.unsafe("SQLite " + r.Version + " can lose committed transactions in WAL mode (fixed in 3.51.3, 3.50.7 and 3.44.6)")
		}
	}
}

// judgeSync: what a power failure takes back, cursor and effects together, is
// applied again. What it can damage is another matter.
func (r *Report) judgeSync() {
	switch wal := r.JournalMode == "wal"; {
	case r.Synchronous == "OFF":
		r.unsafe("synchronous=OFF: a power failure can damage the database")
	case r.Synchronous == "NORMAL" && !wal:
		r.unsafe("synchronous=NORMAL with a rollback journal: a power failure can damage the database; FULL does not")
	case r.Synchronous == "NORMAL":
		r.note("synchronous=NORMAL: a power failure takes back the last transactions, cursor and effects together; " +
			"those records are applied again, so the log has to keep them")
	case r.Synchronous == "FULL" && r.JournalMode == "delete":
		// The journal's end is the commit, and its directory is not synced.
		r.note("synchronous=FULL with journal_mode=DELETE: a power failure can take back the last transaction, " +
			"cursor and effects together; those records are applied again; EXTRA does not")
	}
}
