package tablelog

import "strings"

// createMeta makes the table that has a row for each log: its identity, the
// first offset left and the next one to be given out. The latter is not the
// highest offset plus one: when all records are removed, theirs are still taken.
const createMeta = `CREATE TABLE IF NOT EXISTS evlog_tablelog (
	name  TEXT PRIMARY KEY,
	id    TEXT NOT NULL,
	first INTEGER NOT NULL DEFAULT 0,
	next  INTEGER NOT NULL DEFAULT 0 CHECK (next >= first AND first >= 0)
) STRICT, WITHOUT ROWID`

// queries are the statements for one table.
type queries struct {
	create, probe, id, insertID     string
	take, setNext, setFirst, insert string
	removeBelow, bounds, page       string
}

func queriesOf(table string) queries {
	named := strings.NewReplacer("{table}", `"`+table+`"`).Replace
	return queries{
		create: named(`CREATE TABLE IF NOT EXISTS {table} (
			"offset"  INTEGER PRIMARY KEY,
			ts_ms     INTEGER NOT NULL,
			schema    INTEGER NOT NULL,
			key       ANY,
			value     ANY,
			tombstone INTEGER NOT NULL AS (key IS NOT NULL AND value IS NULL) VIRTUAL,
			time      TEXT AS (CASE WHEN ts_ms >= -62167219200000 -- the year 0; from 10000 on it is NULL
				THEN strftime('%Y-%m-%dT%H:%M:%fZ', ts_ms / 1000.0, 'unixepoch') END) VIRTUAL
		) STRICT`),
		probe:    named(`UPDATE {table} SET ts_ms = ts_ms, schema = schema, key = key, value = value WHERE "offset" IS NULL`),
		id:       `SELECT id FROM evlog_tablelog WHERE name = ?1`,
		insertID: `INSERT INTO evlog_tablelog (name, id, first, next) VALUES (?1, ?2, ?3, ?3) ON CONFLICT (name) DO NOTHING`,

		// The first statement of each transaction that writes, so that it has the
		// write lock before it has read anything.
		take:    `UPDATE evlog_tablelog SET next = next + ?2 WHERE name = ?1 RETURNING next`,
		setNext: `UPDATE evlog_tablelog SET next = ?2 WHERE name = ?1`,
		insert:  named(`INSERT INTO {table} ("offset", ts_ms, schema, key, value) VALUES (?1, ?2, ?3, ?4, ?5)`),

		removeBelow: named(`DELETE FROM {table} WHERE "offset" < ?1`),
		setFirst:    `UPDATE evlog_tablelog SET first = max(first, ?2) WHERE name = ?1`,

		bounds: `SELECT first, next FROM evlog_tablelog WHERE name = ?1`,
		// One statement sees one state of the database, so bounds and records belong
		// together: what was removed is not taken for a hole.
		page: named(`SELECT m.first, m.next, l."offset", l.ts_ms, l.schema, l.key, l.value
			FROM evlog_tablelog AS m LEFT JOIN {table} AS l ON l."offset" >= ?2 AND l."offset" < ?3
			WHERE m.name = ?1 ORDER BY l."offset" LIMIT ?4`),
	}
}
