package sqldriver

import (
	"strings"

	sqlite "modernc.org/sqlite"
)

// authorize decides, while a statement is compiled, about each thing that it will
// do. What is not listed is refused: a connection's private database is nobody's,
// and files of others are out of reach.
func (s *session) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, _, _ string) sqlite.AuthorizerReturnCode {
	s.call.goOn()
	if action == sqlite.AuthRead && isSchema[strings.ToLower(arg1)] && strings.EqualFold(arg2, "sql") {
		return sqlite.AuthorizerIgnore // it reads as NULL
	}
	if err := s.refuse(action, arg1, arg2); err != nil {
		s.err = err
		return sqlite.AuthorizerDeny
	}
	return sqlite.AuthorizerOK
}

func (s *session) refuse(action sqlite.AuthorizerActionCode, arg1, arg2 string) error {
	if s.dead != nil && (action != sqlite.AuthTransaction || arg1 == "BEGIN") {
		return s.dead
	}
	switch action {
	case sqlite.AuthSelect:
		s.inserts = s.inserts && s.returning
		return nil
	case sqlite.AuthRead:
		if strings.EqualFold(arg1, "sqlite_dbpage") { // has the schema in it too
			return notAllowed("reading %s", arg1)
		}
		if s.inserts && givenLater[strings.ToLower(arg2)] {
			return notAllowed("RETURNING %s: the log gives it at the commit; an INSERT's result has LastInsertId", arg2)
		}
		return nil
	case sqlite.AuthTransaction:
		if arg1 == "BEGIN" && (s.transaction == "COMMIT" || s.transaction == "ROLLBACK") {
			s.release() // a text goes on to its next statement when the one before has succeeded
		}
		s.transaction = arg1
		return nil
	case sqlite.AuthSavepoint:
		if arg1 == "BEGIN" && s.why == "" && !s.compilesInTransaction() {
			return notAllowed("SAVEPOINT outside of a transaction: begin one first")
		}
		return nil
	case sqlite.AuthRecursive:
		return nil
	case sqlite.AuthFunction:
		switch name := strings.ToLower(arg2); name {
		case "load_extension":
			return notAllowed("load_extension")
		case "last_insert_rowid", "changes", "total_changes":
			return notAllowed("%s: an INSERT's result has LastInsertId and RowsAffected", name)
		}
		return nil
	case sqlite.AuthPragma:
		if !readPragmas[strings.ToLower(arg1)] {
			return notAllowed("PRAGMA %s", arg1)
		}
		return nil
	case sqlite.AuthAttach, sqlite.AuthDetach:
		return notAllowed("ATTACH, DETACH and VACUUM")
	case sqlite.AuthInsert:
		if arg1 == tableLog {
			s.inserts = true
			if s.why != "" {
				return notAllowed("INSERT: %s", s.why)
			}
			return nil
		}
	case sqlite.AuthUpdate, sqlite.AuthDelete:
		if arg1 == tableLog {
			return notAllowed("UPDATE and DELETE: a log is only appended to")
		}
	}
	if arg1 == tableSegments || arg1 == tableConsumers {
		return notAllowed("changing %s: it follows from the log", arg1)
	}
	return notAllowed("a statement that changes the schema, or what SQLite keeps for itself")
}

// givenLater are the columns that an INSERT ... RETURNING would show as NULL. What
// is read of the table after it was said to be inserted into, and before any
// SELECT, is read for RETURNING; behind a SELECT that cannot be told, and they are
// refused where the text has the word RETURNING.
var givenLater = map[string]bool{
	"offset": true, "rowid": true, "ts_ms": true, "time": true, "schema": true, "tombstone": true, "segment": true,
}

// isSchema are the tables in which SQLite keeps what its tables were made by, with
// the token of the connection, by which another one could use its session.
var isSchema = map[string]bool{
	"sqlite_master": true, "sqlite_temp_master": true, "sqlite_schema": true, "sqlite_temp_schema": true,
}

// readPragmas describe tables and change nothing.
var readPragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "table_list": true, "database_list": true, "function_list": true,
	"collation_list": true, "compile_options": true,
}
