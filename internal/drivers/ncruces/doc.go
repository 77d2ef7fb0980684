// Package ncruces runs the suite of package sqlbridge on
// github.com/ncruces/go-sqlite3.
package ncruces
