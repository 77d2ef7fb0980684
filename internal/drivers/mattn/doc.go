// Package mattn runs the suite of package sqlbridge on github.com/mattn/go-sqlite3.
// It needs cgo and a C compiler.
package mattn
