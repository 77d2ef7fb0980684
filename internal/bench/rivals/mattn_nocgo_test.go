//go:build !cgo

package rivals

func init() {
	leftOut = append(leftOut, "sqlite-cgo: github.com/mattn/go-sqlite3 needs cgo and a C compiler")
}
