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
	Problems    []Problem
}

// Problem is something in a Report to know about.
type Problem struct {
	Setting string
	// Unsafe: a crash or another process can damage the database or take back
	// what was committed, and exactly once with it. Otherwise it costs time only.
	Unsafe bool
	Text   string
}

// Safe reports whether no problem is unsafe.
func (r *Report) Safe() bool {
	for _, p := range r.Problems {
		if p.Unsafe {
			return false
		}
	}
	return true
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
// pool has one to spare, because a PRAGMA by db.Exec reaches a single one.
func (b *Bridge) Check(ctx context.Context) (Report, error) {
	var r Report
	err := b.read(ctx, func() (err error) {
		r, err = b.settings(ctx)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("sqlbridge: check the database: %w", err)
	}
	r.judge()
	return r, nil
}

// secondConn is how long Check waits for a second connection.
const secondConn = 100 * time.Millisecond

func (b *Bridge) settings(ctx context.Context) (Report, error) {
	first, err := b.db.Conn(ctx)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = first.Close() }()
	r, err := settingsOf(ctx, first)
	if err != nil || r.InMemory || b.db.Stats().MaxOpenConnections == 1 {
		return r, err
	}
	short, cancel := context.WithTimeout(ctx, secondConn)
	defer cancel()
	second, err := b.db.Conn(short)
	if err != nil {
		return r, ctx.Err() // all in use; one has to do
	}
	defer func() { _ = second.Close() }()
	other, err := settingsOf(ctx, second)
	if err == nil && (other.Synchronous != r.Synchronous || other.BusyTimeout != r.BusyTimeout) {
		r.problem("connections", true, "connections differ in synchronous or busy_timeout: "+
			"set them in the data source name, a PRAGMA by db.Exec reaches one connection only")
	}
	return r, err
}

func settingsOf(ctx context.Context, conn *sql.Conn) (Report, error) {
	s, err := sqldb.ReadSettings(ctx, conn)
	return Report{
		Version: s.Version.String(), JournalMode: s.JournalMode, Synchronous: s.Synchronous,
		BusyTimeout: s.BusyTimeout, InMemory: s.File == "",
	}, err
}

func (r *Report) problem(setting string, unsafe bool, text string) {
	r.Problems = append(r.Problems, Problem{setting, unsafe, text})
}

// judge fills in the problems.
func (r *Report) judge() {
	if r.InMemory {
		r.problem("file", true, "the database is in memory or a temporary file, and ends with the connection")
		return
	}
	switch r.JournalMode {
	case "off", "memory":
		r.problem("journal_mode", true, "with journal_mode="+strings.ToUpper(r.JournalMode)+
			" a process that dies in a transaction leaves a part of it behind; WAL or DELETE do not")
	case "wal":
		if sqldb.ParseVersion(r.Version).LosesCommits() {
			r.problem("sqlite_version", true, "SQLite "+r.Version+" can lose committed transactions in WAL mode "+
				"(fixed in 3.51.3, 3.50.7 and 3.44.6)")
		}
	}
	switch {
	case r.Synchronous == "OFF":
		r.problem("synchronous", true, "with synchronous=OFF a power failure can damage the database")
	case r.Synchronous == "NORMAL" && r.JournalMode == "wal":
		r.problem("synchronous", false, "with synchronous=NORMAL a power failure takes back the last transactions, "+
			"cursor and effects together; those records are applied again, so the log has to keep them")
	case r.Synchronous == "NORMAL":
		r.problem("synchronous", true, "synchronous=NORMAL with a rollback journal can damage the database at a power failure; FULL does not")
	}
	if r.BusyTimeout == 0 {
		r.problem("busy_timeout", false, "with busy_timeout=0 the application's own statements fail at once while another connection writes")
	}
}
