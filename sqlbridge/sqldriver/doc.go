// Package sqldriver makes a log a database for database/sql: a driver named
// "evlog", whose table log is the log.
//
//	db, err := sql.Open("evlog", "events")
//	rows, err := db.Query(`SELECT offset, value FROM log WHERE key = ? ORDER BY offset DESC LIMIT 10`, "doc:42")
//
// SQL is SQLite's, by modernc.org/sqlite: each connection is a private database in
// memory with nothing in it but the tables below. Importing this package links
// that driver.
//
// # Tables
//
// The table log has a row for each record:
//
//	offset     INTEGER  the record's number; also the rowid
//	ts_ms      INTEGER  its time in milliseconds since 1970
//	time       TEXT     the same as 2026-09-20T03:00:00.123Z; NULL outside the years 0 to 9999.
//	                    Scan takes it into a string; for a time.Time scan ts_ms, and use
//	                    time.UnixMilli
//	schema     INTEGER
//	key        TEXT where it is valid UTF-8, so that it compares with texts; BLOB otherwise; NULL if empty
//	value      the same; SQLite's functions take JSON apart. To them what is no JSON
//	           is an error: iif(json_valid(value), value ->> '$.title')
//	tombstone  INTEGER  1 for a key without a value
//	segment    INTEGER  base of the segment that holds it
//
// segments lists the segments (base, end, records, holes, tombstones, bytes,
// file_bytes, dirty_bytes, oldest, newest, closed, cleaned, indexed, state, error),
// and consumers the committed offsets of consumers.json (name, committed, log_start,
// log_end, lag, updated, state, note), as the command line's documents have them.
//
// Arguments become what the columns have: a time.Time a text of the form of the
// column time, a []byte or a string a text where it is valid UTF-8 and a blob
// otherwise, also behind a pointer or a driver.Valuer. A connection that a log is
// attached to (see Attach) does not do that: use string(key) there. SQLite's own
// times are of another form, with a blank for the T, and compare wrongly with the
// column time; the last hour is
//
//	ts_ms >= (unixepoch('now') - 3600) * 1000
//
// Offsets above 2^63-1 are beyond SQL's integers and an error where they are met.
//
// # What a statement reads
//
// Comparisons of offset, rowid, ts_ms, time, segment and key with =, <, <=, >, >=,
// BETWEEN and IN narrow what is read (EXPLAIN QUERY PLAN shows which), ORDER BY
// offset is the order of the log in both directions and sorts nothing, and with
// LIMIT no record behind the last one is touched. Everything else is a filter
// over that; so are comparisons of key in a statement that has the word COLLATE, or
// IN with a query or a table behind it: what they find could not be looked up.
//
// Each statement sees one state of the log, what was durable when it first looked,
// also where it reads the log several times; a transaction (BeginTx, or the
// statement BEGIN) sees that of its first statement to the end. As in SQLite, a
// statement that begins before another one on the same connection has ended sees
// the state of that one. segments and consumers are read once for a statement, at
// that moment.
//
// What retention removes meanwhile is an error, evlog.ErrOffsetOutOfRange, if the
// statement had begun to read it. Compaction may work meanwhile too, and no error
// comes of it. Each scan goes through the state in order and finds no record twice,
// and finds each record without a key. One with a key may be there for one scan and
// gone for the next one, if the log has a newer one of its key in a segment that has
// been closed for evlog.CompactOptions.MinLag: that is, the newest of its key in the
// statement's state is found for as long as the statement takes less than MinLag, a
// minute where nobody has changed it. The command evlog compact has none: beside it
// a key that is set anew while a statement runs may be found neither as it was nor as
// it is. Tombstones go when their grace is over. A statement that has to see equal
// records in two places reads them once:
//
//	WITH l AS MATERIALIZED (SELECT offset, key FROM log) SELECT ...
//
// # Reading and writing
//
// A data source name is the path of the directory as it is, no URI and nothing
// escaped. The part behind its last question mark has options, escaped as in a URL:
//
//	mode=ro        reading; takes no lock, creates nothing (but SQLite sorts what is large
//	               in files of the system's temporary directory). The default
//	mode=rw        the log's one writer: INSERT appends. The log has to exist
//	mode=rwc       the same, and creates the log
//	since=T        only the records from the first one on with this time or a later one:
//	               RFC 3339, a date, or -2h for two hours before opening
//	consumer=NAME  only the records that this consumer has not committed, as each
//	               statement finds it: all, where it has committed nothing yet
//	hold=5s        how long a transaction that has inserted may stay open (mode=rw)
//
// The log is opened by sql.Open, which fails if it cannot be, and released by
// DB.Close. A statement BEGIN needs a sql.Conn: the pool takes no connection back
// with a transaction open. Nothing else can be done with a connection: what writes, ATTACH, DDL,
// load_extension and most of PRAGMA are refused while the statement is compiled
// (ErrNotAllowed).
//
// With mode=rw all connections of a DB share one writer; a second DB on the log,
// also in the same process, gets evlog.ErrLocked. An INSERT gives key, value,
// schema and ts_ms or time; key and value are texts or blobs, numbers are refused;
// without a time the log stamps it. LastInsertId is the offset; what SQL has for
// it, last_insert_rowid and changes, is refused.
//
// A transaction is one batch with one sync: COMMIT writes it and waits until it is
// durable, and fails if that does. What a transaction has inserted can be read
// when it is committed, not before. From the first INSERT on nobody else can
// append until the transaction ends; after hold it loses that right and fails with
// ErrHeldTooLong. An INSERT whose context ends takes its whole transaction with it
// (ErrRolledBack). A ROLLBACK, also to a savepoint, leaves nothing; a SAVEPOINT
// begins no transaction of its own. After a crash in the middle of a COMMIT the
// beginning of the transaction may be in the log, as for each batch that was not
// acknowledged. A transaction is kept in memory until it commits, and inserts 1 GiB
// at most; a record or a transaction that is too large is an error of the INSERT
// (evlog.ErrTooLarge).
//
// A COMMIT that fails because the disk is full leaves nothing in the log. One whose
// sync fails may have left all of it, and the DB appends nothing any more
// (evlog.ErrPoisoned) until it is closed and opened again, which finds out.
//
// A log that needs an open hook, because an outbox writes to it, takes no INSERT
// (evlog.ErrHookRequired).
//
// # Errors
//
// Errors of the log come out as they are, with file, byte and offset, and errors.Is
// and errors.As find evlog's and this package's. A statement ends soon after its
// context, but a COMMIT that has begun to write goes on and says how it went. Two
// statements on one connection, such as two open sql.Rows of a transaction, are
// interrupted together.
//
// # In another database
//
// Attach and AttachConnector make a log a table of an application's own SQLite
// connections, to join events with its tables. Attach says what is different there.
package sqldriver
