package sqlbridge

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// texts is what is known of the statements that ran. It is used again in the
// next transaction.
type texts map[string]*text

type text struct {
	kind kind
	tx   *Tx       // in which it ran last
	st   *sql.Stmt // prepared when it runs there the second time
}

// maxTexts bounds texts: there may be literals in them.
const maxTexts = 64

func (t *Tx) textLocked(query string) *text {
	k := t.texts[query]
	if k == nil {
		k = &text{kind: kindOf(query)}
		if len(t.texts) >= maxTexts {
			clear(t.texts)
		}
		if t.texts == nil { // left, and with a rule switched off it does not refuse
			t.texts = texts{}
		}
		t.texts[query] = k
	}
	return k
}

// own runs a statement of the bridge itself.
func (t *Tx) own(query string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.execLocked(t.u.ctx, t.textLocked(query), true, query, nil)
	t.watch.failed(err)
	return err
}

// execLocked runs a statement, prepared if its text has run in this transaction
// before: that halves the time of a small one. Texts that may be several
// statements are not prepared, since some drivers prepare only the first.
func (t *Tx) execLocked(ctx context.Context, k *text, single bool, query string, args []any) (sql.Result, error) {
	switch {
	case k.tx != t:
		k.tx, k.st = t, nil // the other one was closed with its transaction
	case k.st == nil && single:
		// If it fails, so does the statement itself.
		k.st, _ = t.u.tx.PrepareContext(t.u.ctx, query)
	}
	if k.st != nil {
		return k.st.ExecContext(ctx, args...)
	}
	return t.u.tx.ExecContext(ctx, query, args...)
}

// kind is what a text can do to the transaction.
type kind uint8

const (
	odd     kind = iota // anything
	control             // begins or ends a transaction, and nothing else
	writes              // ends it only with an error
	reads               // the same, and is a SELECT
)

func (k kind) harmless() bool { return k == writes || k == reads }

// kindOf may say odd without reason, which costs some microseconds.
func kindOf(query string) kind {
	query = skipComments(query)
	if strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";") {
		return odd // several statements, or a literal
	}
	switch firstWord(query) {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH":
		return writes
	case "SELECT":
		return reads
	case "COMMIT", "END", "BEGIN":
		return control
	case "ROLLBACK":
		if !slices.Contains(strings.Fields(strings.ToUpper(query)), "TO") {
			return control
		}
	}
	return odd
}

// skipComments leaves out comments at the beginning, as code generators put
// there.
func skipComments(query string) string {
	query = strings.TrimLeft(query, " \t\r\n")
	for strings.HasPrefix(query, "--") {
		_, rest, _ := strings.Cut(query, "\n")
		query = strings.TrimLeft(rest, " \t\r\n")
	}
	return query
}

// firstWord is the first word of the text, in upper case.
func firstWord(query string) string {
	query = skipComments(query)
	if end := strings.IndexAny(query, " \t\r\n(;"); end >= 0 {
		query = query[:end]
	}
	return strings.ToUpper(query)
}

// savepoint are the statements of one. No handler can know its name: to go back
// to it would undo records that the cursor passes.
type savepoint struct{ begin, release, back string }

func newSavepoint(what string) savepoint {
	name := fmt.Sprintf("evlog_%s_%016x", what, rand.Uint64())
	return savepoint{"SAVEPOINT " + name, "RELEASE " + name, "ROLLBACK TO " + name}
}
