package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/jsonl"
)

// lineParser makes a record of a line, which has no newline any more. The
// record may point into the line.
type lineParser func(line []byte) (evlog.Record, error)

// parseValues takes each line as a value. With a delimiter, what stands before
// its first occurrence is the key; a line without it has the default key.
func parseValues(def evlog.Record, delim []byte) lineParser {
	return func(line []byte) (evlog.Record, error) {
		rec := def
		rec.Value = line
		if len(delim) > 0 {
			if key, value, found := bytes.Cut(line, delim); found {
				rec.Key, rec.Value = key, value
			}
		}
		return rec, nil
	}
}

// parseJSONL takes each line as a record in JSON; what it does not say comes
// from def.
func parseJSONL(def evlog.Record) lineParser {
	return func(line []byte) (evlog.Record, error) { return jsonl.DecodeDefault(line, def) }
}

// lineError is a line that cannot be appended.
type lineError struct {
	line uint64 // from 1
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("standard input, line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// hint says what has happened to the other lines, and where a line is one of "evlog
// sql" how to make it one of a record.
func (e *lineError) hint() string {
	hint := "the lines before it are in the log"
	if e.line == 1 {
		hint = "nothing was appended"
	}
	var unknown *jsonl.UnknownFieldError
	if errors.As(e.err, &unknown) && (unknown.Name == "time" || unknown.Name == "segment") {
		hint += `; of "evlog sql", select the columns ts_ms, schema, key, value`
	}
	return hint
}

// batcher turns blocks into batches of records. It counts the lines.
type batcher struct {
	parse    lineParser
	maxBatch int64 // bytes in the log; one record is always a batch
	line     uint64
	batch    []evlog.Record
	size     int64
}

// add parses the lines of data and hands on each batch that is full, and at
// the end what is left. At a bad line what stands before it is handed on first.
func (b *batcher) add(data []byte, take func([]evlog.Record) error) error {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, newline)
		rec, err := b.parse(line)
		if err == nil {
			err = checkRecord(&rec)
		}
		if err != nil {
			if err := b.flush(take); err != nil {
				return err
			}
			return &lineError{b.line + 1, err}
		}
		if len(b.batch) > 0 && b.size+rec.Size() > b.maxBatch {
			if err := b.flush(take); err != nil {
				return err
			}
		}
		b.batch = append(b.batch, rec)
		b.size += rec.Size()
		b.line++
		data = rest
	}
	return b.flush(take)
}

var newline = []byte{'\n'}

func (b *batcher) flush(take func([]evlog.Record) error) error {
	if len(b.batch) == 0 {
		return nil
	}
	first := b.line - uint64(len(b.batch)) + 1
	err := take(b.batch)
	if errors.Is(err, evlog.ErrTooLarge) {
		err = b.oneByOne(first, take)
	}
	b.batch, b.size = b.batch[:0], 0
	return err
}

// oneByOne finds the record for which a batch was refused; those before it go
// in.
func (b *batcher) oneByOne(first uint64, take func([]evlog.Record) error) error {
	for i := range b.batch {
		if err := take(b.batch[i : i+1]); err != nil {
			if errors.Is(err, evlog.ErrTooLarge) {
				return &lineError{first + uint64(i), err}
			}
			return err
		}
	}
	return nil
}

// checkRecord refuses what the log would, but where the line is known.
func checkRecord(r *evlog.Record) error {
	if len(r.Key) > evlog.MaxKeyBytes {
		return fmt.Errorf("key of %d bytes: %w (at most %d)", len(r.Key), evlog.ErrTooLarge, evlog.MaxKeyBytes)
	}
	if size := r.Size(); size > evlog.DefaultMaxRecordBytes {
		return fmt.Errorf("record of %d bytes: %w (at most %d)", size, evlog.ErrTooLarge, evlog.DefaultMaxRecordBytes)
	}
	return nil
}

// unescapeDelimiter reads the escapes that a shell does not. What is none of
// them stands for itself.
func unescapeDelimiter(delim []byte) []byte {
	var out []byte
	for s := string(delim); s != ""; {
		if s[0] != '\\' {
			out, s = append(out, s[0]), s[1:]
			continue
		}
		c, used, err := unescapeTemplate(s[1:])
		if err != nil {
			return delim
		}
		out, s = append(out, c), s[1+used:]
	}
	return out
}
