package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/evlog-go/evlog/internal/sqldb"
	"github.com/evlog-go/evlog/internal/vfs"
)

// readDatabase calls read with the SQLite database at path, opened for reading.
// It leaves no file behind where nobody else has the database open, and works in
// a directory that cannot be written. read may be called again, when what it read
// does not count: it prints nothing.
func readDatabase(ctx context.Context, path string, read func(db *sql.DB) error) error {
	file, err := databaseFile(path)
	if err != nil {
		return err
	}
	const tries = 3 // a writer that comes and goes must not come each time
	for range tries {
		before, err := quietWAL(ctx, file)
		if err != nil {
			return err
		}
		if before == nil {
			break
		}
		if err := withDatabase(dsn(file, "ro")+"&immutable=1", read); before.still(file) {
			return databaseError(path, err)
		}
	}
	return databaseError(path, withDatabase(dsn(file, "ro"), read))
}

// changeDatabase calls change with the SQLite database at path.
func changeDatabase(path string, change func(db *sql.DB) error) error {
	file, err := databaseFile(path)
	if err != nil {
		return err
	}
	return databaseError(path, withDatabase(dsn(file, "rw"), change))
}

func withDatabase(dsn string, f func(db *sql.DB) error) (err error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer closing(db, &err)
	return f(db)
}

// databaseFile is the file that path leads to, beside which SQLite keeps its WAL.
// Of what is no file SQLite says only that it cannot open it.
func databaseFile(path string) (string, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case st.IsDir():
		return "", &hinted{fmt.Errorf("%s: a directory, not an SQLite database", path), "evlog info shows a log"}
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a file", path)
	}
	return filepath.EvalSymlinks(path)
}

// quietFile is a database as it was before it was read without a lock.
type quietFile struct{ info os.FileInfo }

// quietWAL reports whether a database is in WAL mode and nobody has it open: then
// it has no WAL, and everything is in its file. An ordinary connection would
// create the WAL and its index, fail to do so in a directory that cannot be
// written, and leave them there, because it may not write the file and so not
// remove them. SQLite's "immutable" does not; it takes no lock either, and is wrong
// if a writer comes meanwhile and moves its WAL into the file. That is seen by
// still. It must not be used in other modes, where a writer may be in the middle
// of a transaction without a trace.
func quietWAL(ctx context.Context, file string) (*quietFile, error) {
	if busy, err := hasJournal(file); busy || err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil || !inWALMode(file) {
		return nil, err
	}
	// A second change at the same tick of the file system's clock would not be
	// seen.
	tick := 50 * time.Millisecond
	if info.ModTime().Nanosecond() == 0 {
		tick = 2 * time.Second // perhaps it has no parts of a second
	}
	wait := tick - time.Since(info.ModTime())
	if wait > tick {
		return nil, nil // from the future
	}
	if wait > 0 {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		return quietWAL(ctx, file)
	}
	return &quietFile{info}, nil
}

// still reports whether nobody has written to the file. Who writes to a WAL only
// does not matter: what was read is the state before.
func (q *quietFile) still(file string) bool {
	info, err := os.Stat(file)
	return err == nil && os.SameFile(info, q.info) && info.Size() == q.info.Size() && info.ModTime().Equal(q.info.ModTime())
}

// hasJournal reports whether there is a WAL or a rollback journal.
func hasJournal(file string) (bool, error) {
	for _, suffix := range []string{"-wal", "-journal"} {
		if _, err := os.Lstat(file + suffix); !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// inWALMode looks at the header of a database. This process has no connection to
// it: closing the file would drop its locks.
func inWALMode(file string) bool {
	f, err := vfs.OpenRegular(file)
	if err != nil {
		return false // SQLite says why
	}
	defer f.Close() //nolint:errcheck // it was only read
	var header [20]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false
	}
	const readVersion, wal = 19, 2
	return strings.HasPrefix(string(header[:]), "SQLite format 3\x00") && header[readVersion] == wal
}

// dsn names a database by mode: ro, rw or, to create it, rwc. It escapes what
// means something in a URI.
func dsn(path, mode string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	return "file:" + u.EscapedPath() + "?mode=" + mode + "&_pragma=busy_timeout(5000)"
}

// databaseError names the database and says what to do.
func databaseError(path string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	named := fmt.Errorf("%s: %w", path, err)
	switch {
	case strings.Contains(text, "file is not a database"):
		return fmt.Errorf("%s: not an SQLite database", path)
	case sqldb.IsBusy(err):
		return &hinted{named, "another process is writing to it, try again when it has finished"}
	case strings.Contains(text, "unable to open database file"):
		return cannotOpen(path, named)
	case strings.Contains(text, "attempt to write a readonly database"):
		return &hinted{named, "check owner and mode of the file and its directory"}
	}
	return named
}

// cannotOpen says why, which SQLite does not.
func cannotOpen(path string, err error) error {
	f, openErr := vfs.OpenRegular(path)
	if openErr != nil {
		return openErr
	}
	_ = f.Close() // it was only opened
	return &hinted{err, "with a WAL beside it, its directory has to be writable: copy the database and its -wal elsewhere"}
}
