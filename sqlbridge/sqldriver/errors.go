package sqldriver

import (
	"errors"
	"fmt"
	"runtime/debug"
)

var (
	// ErrNotAllowed: the statement does what a log, or a connection that reads,
	// does not take: UPDATE, DELETE, an INSERT without mode=rw, DDL, ATTACH,
	// most PRAGMAs. Nothing was changed.
	ErrNotAllowed = errors.New("not allowed")
	// ErrHeldTooLong: the transaction had inserted and then stayed open for longer
	// than the option hold allows, so that others may append now. It cannot commit
	// any more; nothing of it is in the log. Roll back and try again.
	ErrHeldTooLong = errors.New("the transaction held the append gate for too long")
	// ErrRolledBack: SQLite has rolled the transaction back by itself, as it does
	// when an INSERT is interrupted because its context ends. Nothing of the
	// transaction is in the log. Roll back and try again.
	ErrRolledBack = errors.New("the transaction was rolled back when one of its statements ended early")
)

func notAllowed(format string, args ...any) error {
	return fmt.Errorf("sqldriver: "+format+": %w", append(args, ErrNotAllowed)...)
}

// caught makes an error of a panic in a callback, which SQLite, being C that was
// translated, could not unwind. p is what recover returned.
func caught(p any, err *error) {
	if p != nil {
		*err = fmt.Errorf("sqldriver: panic: %v\n%s", p, debug.Stack())
	}
}
