package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Settings say how one connection is set up.
type Settings struct {
	Version     Version
	JournalMode string // wal, delete, truncate, persist, memory, off
	Synchronous string // OFF, NORMAL, FULL, EXTRA
	BusyTimeout time.Duration
	File        string // of the main database; empty: in memory, or a temporary file
}

// ReadSettings reads them.
func ReadSettings(ctx context.Context, conn *sql.Conn) (s Settings, err error) {
	var version string
	var synchronous, timeout int
	var file sql.NullString
	for query, into := range map[string]any{
		`SELECT sqlite_version()`: &version,
		`PRAGMA journal_mode`:     &s.JournalMode,
		`PRAGMA synchronous`:      &synchronous,
		`PRAGMA busy_timeout`:     &timeout,
		`SELECT file FROM pragma_database_list WHERE name = 'main'`: &file,
	} {
		if err := conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			return s, fmt.Errorf("%s: %w", query, err)
		}
	}
	s.Version = ParseVersion(version)
	s.File = file.String
	s.JournalMode = strings.ToLower(s.JournalMode)
	s.BusyTimeout = time.Duration(timeout) * time.Millisecond
	s.Synchronous = fmt.Sprint(synchronous)
	if levels := []string{"OFF", "NORMAL", "FULL", "EXTRA"}; synchronous >= 0 && synchronous < len(levels) {
		s.Synchronous = levels[synchronous]
	}
	return s, nil
}

// Version is a version of SQLite.
type Version [3]int

// ParseVersion reads "3.54.1".
func ParseVersion(s string) (v Version) {
	_, _ = fmt.Sscanf(s, "%d.%d.%d", &v[0], &v[1], &v[2])
	return v
}

// String is the usual form.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Less reports whether v is older.
func (v Version) Less(o Version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

// HasStrict reports whether there are STRICT tables.
func (v Version) HasStrict() bool { return !v.Less(Version{3, 37, 0}) }

// LosesCommits reports a race in resetting the WAL that can lose transactions:
// in all versions with a WAL up to 3.51.2, but for two lines that the fix was
// taken back to.
func (v Version) LosesCommits() bool {
	fixed := Version{3, 51, 3}
	switch v[1] {
	case 44:
		fixed = Version{3, 44, 6}
	case 50:
		fixed = Version{3, 50, 7}
	}
	return v.Less(fixed)
}
