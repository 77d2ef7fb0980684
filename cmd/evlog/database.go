package main

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// openDB opens an SQLite database that is there.
func openDB(path, dsn string) (*sql.DB, error) {
	// SQLite says of a missing file only that it cannot open it.
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return sql.Open("sqlite", dsn)
}

// readOnlyDSN names a database for reading, and writableDSN for writing. Neither
// creates one.
func readOnlyDSN(path string) string { return dsn(path, "ro") }
func writableDSN(path string) string { return dsn(path, "rw") }

// dsn escapes what means something in a URI.
func dsn(path, mode string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	return "file:" + u.EscapedPath() + "?mode=" + mode + "&_pragma=busy_timeout(5000)"
}
