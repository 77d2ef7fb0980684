package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/outbox"
)

func newOutboxCommand(a *app) *cobra.Command {
	var table tableFlags
	cmd := &cobra.Command{
		Use:   "outbox DB",
		Short: "Show the outbox in an SQLite database, and deal with parked rows",
		Long: `Show the outbox that package outbox keeps in an SQLite database: how many rows
are queued, how many of these are pending, which no intent names, how many are
parked, and kept after they were relayed, the oldest queued one, the log that
they go to, and the intent. The intent is what the relay was about to append
when it was seen last, with the offset; it is open while a relay is at work, and
after a crash until the log is opened again.

The rows that are parked follow, with the size of key and value together, and
the reason why they cannot be appended. "evlog outbox show" prints a row, "evlog
outbox requeue" has the relay try again, "evlog outbox discard" deletes.

The database is opened for reading and may be in use. No value is read.

With --json: one object with outbox (its id), queued, pending, oldest (null if
nothing is queued), parked, kept, log_id (empty before the first relay),
log_end, epoch, intent (rows and offset; null if it is closed) and rows: those
that are parked, each with id, uid, time, schema, key or key_b64 (the first 256
bytes; none without a key), key_bytes, value_bytes, dedupe_key, attempts and
error.`,
		Example: `  evlog outbox app.sqlite
  evlog outbox app.sqlite --json | jq .queued
  evlog outbox show app.sqlite 17
  evlog outbox requeue app.sqlite --all --execute`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exactly(cmd, args, "DB"); err != nil {
				return err
			}
			return a.outbox(cmd.Context(), args[0], &table)
		},
	}
	table.register(cmd)
	cmd.AddCommand(newOutboxShowCommand(a), newOutboxRequeueCommand(a), newOutboxDiscardCommand(a))
	return cmd
}

// exactly wants these arguments; the last one, with dots, may be given more
// than once.
func exactly(cmd *cobra.Command, args []string, names ...string) error {
	last := names[len(names)-1]
	for i, name := range names {
		if len(args) <= i || args[i] == "" {
			return usagef(cmd, "%s is missing", strings.TrimSuffix(name, "..."))
		}
	}
	if len(args) > len(names) && !strings.HasSuffix(last, "...") {
		return usagef(cmd, "unexpected argument %q", args[len(names)])
	}
	return nil
}

func (a *app) outbox(ctx context.Context, path string, table *tableFlags) error {
	var s outbox.Status
	var parked []outbox.ParkedRow
	err := readOutbox(ctx, path, func(db *sql.DB) (err error) {
		if s, err = outbox.ReadStatus(ctx, db); err != nil {
			return err
		}
		parked, err = outbox.Parked(ctx, db)
		return err
	})
	if err != nil {
		return err
	}
	if table.json {
		return writeDocument(a.out, newOutboxDoc(&s, parked, table.times))
	}
	intent := "closed"
	if s.IntentRows > 0 {
		intent = fmt.Sprintf("%s from offset %d on", plural(s.IntentRows, "row"), s.IntentOffset)
	}
	log := "none yet"
	if s.LogID != "" {
		log = fmt.Sprintf("%s, which ended at %d", s.LogID, s.LogEnd)
	}
	err = writeTable(a.out, [][]string{
		{"outbox", s.Outbox},
		{"log", log},
		{"queued", strconv.Itoa(s.Queued)},
		{"pending", strconv.Itoa(s.Pending)},
		{"oldest", table.times.cell(s.Oldest)},
		{"intent", intent},
		{"parked", strconv.Itoa(s.Parked)},
		{"kept", strconv.Itoa(s.Kept)},
	})
	if err != nil || len(parked) == 0 {
		return err
	}
	cells := [][]string{{"\nID", "TIME", "KEY", "BYTES", "DEDUPE KEY", "ATTEMPTS", "ERROR"}}
	for _, r := range parked {
		cells = append(cells, []string{
			strconv.FormatInt(r.ID, 10), table.times.cell(r.Time), shortened(r.Key), bytesOf(&r),
			shortened([]byte(r.DedupeKey)), strconv.Itoa(r.Attempts), printable(r.Reason),
		})
	}
	return writeTable(a.out, cells)
}

// bytesOf is the size of key and value.
func bytesOf(r *outbox.ParkedRow) string { return strconv.FormatInt(r.KeyBytes+r.ValueBytes, 10) }

// shortened is the beginning of a key for a table, "-" for none.
func shortened(key []byte) string {
	const width = 32
	if len(key) == 0 {
		return "-"
	}
	runes := []rune(printable(string(key)))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-3]) + "..."
}

// readOutbox is readDatabase for one with an outbox.
func readOutbox(ctx context.Context, path string, read func(db *sql.DB) error) error {
	return readDatabase(ctx, path, func(db *sql.DB) error { return noOutbox(read(db)) })
}

// noOutbox adds what to do about a database that has none, or lacks a part of one.
func noOutbox(err error) error {
	if !errors.Is(err, outbox.ErrNoTables) {
		return err
	}
	// Of a part that is missing the error has the name. Where there is nothing, it has
	// only SQLite's words for that.
	if text := err.Error(); !strings.Contains(text, "evlog_outbox") || strings.Contains(text, "no such table") {
		err = outbox.ErrNoTables
	}
	return &hinted{err, "outbox.Open creates its tables"}
}

// outboxDoc is the JSON document of outbox.
type outboxDoc struct {
	Outbox  string      `json:"outbox"`
	Queued  int         `json:"queued"`
	Pending int         `json:"pending"`
	Oldest  *string     `json:"oldest"`
	Parked  int         `json:"parked"`
	Kept    int         `json:"kept"`
	LogID   string      `json:"log_id"`
	LogEnd  uint64      `json:"log_end"`
	Epoch   int64       `json:"epoch"`
	Intent  *intentDoc  `json:"intent"`
	Rows    []parkedDoc `json:"rows"`
}

type intentDoc struct {
	Rows   int    `json:"rows"`
	Offset uint64 `json:"offset"`
}

type parkedDoc struct {
	ID         int64   `json:"id"`
	UID        string  `json:"uid"`
	Time       *string `json:"time"`
	Schema     uint16  `json:"schema"`
	Key        string  `json:"key,omitempty"`
	KeyB64     []byte  `json:"key_b64,omitempty"`
	KeyBytes   int64   `json:"key_bytes"`
	ValueBytes int64   `json:"value_bytes"`
	DedupeKey  string  `json:"dedupe_key"`
	Attempts   int     `json:"attempts"`
	Error      string  `json:"error"`
}

func newOutboxDoc(s *outbox.Status, parked []outbox.ParkedRow, times timePrinter) *outboxDoc {
	doc := &outboxDoc{
		Outbox: s.Outbox, Queued: s.Queued, Pending: s.Pending, Oldest: times.json(s.Oldest), Parked: s.Parked, Kept: s.Kept,
		LogID: s.LogID, LogEnd: s.LogEnd, Epoch: s.Epoch, Rows: parkedDocs(parked, times),
	}
	if s.IntentRows > 0 {
		doc.Intent = &intentDoc{Rows: s.IntentRows, Offset: s.IntentOffset}
	}
	return doc
}

func parkedDocs(rows []outbox.ParkedRow, times timePrinter) []parkedDoc {
	docs := []parkedDoc{}
	for _, r := range rows {
		doc := parkedDoc{
			ID: r.ID, UID: r.UID.String(), Time: times.json(r.Time), Schema: r.Schema,
			KeyBytes: r.KeyBytes, ValueBytes: r.ValueBytes, DedupeKey: r.DedupeKey, Attempts: r.Attempts, Error: r.Reason,
		}
		if utf8.Valid(r.Key) {
			doc.Key = string(r.Key)
		} else {
			doc.KeyB64 = r.Key
		}
		docs = append(docs, doc)
	}
	return docs
}
