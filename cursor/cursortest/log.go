package cursortest

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// LogFixture is a new and empty log, and what the tests do to it. Rules that
// need a function that is nil are left out.
type LogFixture struct {
	Log cursor.Log
	// Append appends a batch and returns, when it is durable, the offset of its
	// first record; the others follow without holes. Required.
	Append func(ctx context.Context, recs ...evlog.Record) (first uint64, err error)
	// Enqueue appends a batch that is not durable while the test looks.
	Enqueue func(ctx context.Context, recs ...evlog.Record) (first uint64, err error)
	// AppendAt is Append with the records' own offsets, which leaves a hole.
	AppendAt func(ctx context.Context, recs ...evlog.Record) error
	// RemoveBelow removes the records below offset, as retention does. The tests
	// only ask for the offset of a batch's first record.
	RemoveBelow func(ctx context.Context, offset uint64) error
	// Reopen returns the same log, opened once more.
	Reopen func(ctx context.Context) (cursor.Log, error)
}

// patience is how long a rule may take; it is only used up by failures.
const patience = 30 * time.Second

// TestLog tests a log, one rule in each subtest. open returns a fresh one each
// time.
func TestLog(t *testing.T, open func(t *testing.T) LogFixture) {
	for _, rule := range logRules {
		t.Run(rule.name, func(t *testing.T) {
			f := open(t)
			if rule.needs != nil && !rule.needs(f) {
				t.Skip("the fixture has no function for this")
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := rule.check(ctx, f); err != nil {
				t.Error(err)
			}
		})
	}
}

type logRule struct {
	name  string
	needs func(f LogFixture) bool
	check func(ctx context.Context, f LogFixture) error
}

var logRules = []logRule{
	{name: "the id stays", check: ruleID},
	{name: "an empty log has bounds", check: ruleEmpty},
	{name: "what was appended is read", check: ruleContent},
	{name: "reading starts at any offset", check: ruleFrom},
	{name: "outside is out of range", check: ruleOutside},
	{name: "the end is pinned at the start", check: rulePinned},
	{name: "a loop may be left", check: ruleBreak},
	{name: "the context ends reading", check: ruleCancel},
	{name: "following waits for more", check: ruleFollow},
	{name: "following ends with the context", check: ruleFollowCancel},
	{name: "many read at once", check: ruleConcurrent},
	{name: "holes are legal", needs: func(f LogFixture) bool { return f.AppendAt != nil }, check: ruleHoles},
	{name: "only what is durable is seen", needs: func(f LogFixture) bool { return f.Enqueue != nil }, check: ruleDurable},
	{name: "what was removed is out of range", needs: func(f LogFixture) bool { return f.RemoveBelow != nil }, check: ruleRemoved},
	{name: "another opening sees the same log", needs: func(f LogFixture) bool { return f.Reopen != nil }, check: ruleReopened},
}

// testRecords are n records that differ in everything.
func testRecords(n int) []evlog.Record {
	recs := make([]evlog.Record, n)
	for i := range recs {
		recs[i] = evlog.Record{
			Time:   time.UnixMilli(1_700_000_000_000 + int64(i)).UTC(),
			Schema: uint16(i % 3),
			Value:  fmt.Appendf(nil, "value %d", i),
		}
		if i%2 == 1 {
			recs[i].Key = fmt.Appendf(nil, "key:%d", i)
		}
		if i%5 == 3 {
			recs[i].Value = nil
		}
	}
	return recs
}

// fill appends n records in batches of a few, and returns them with their
// offsets.
func fill(ctx context.Context, f LogFixture, n int) ([]evlog.Record, error) {
	recs := testRecords(n)
	for i := 0; i < n; i += 3 {
		batch := recs[i:min(i+3, n)]
		first, err := f.Append(ctx, batch...)
		if err != nil {
			return nil, fmt.Errorf("append: %w", err)
		}
		for j := range batch {
			batch[j].Offset = first + uint64(j)
		}
	}
	return recs, nil
}

// collect reads a sequence to its end, at most limit records.
func collect(seq iter.Seq2[evlog.Record, error], limit int) (recs []evlog.Record, err error) {
	for rec, e := range seq {
		switch {
		case err != nil:
			return recs, fmt.Errorf("something was yielded after the error %v", err) //nolint:errorlint // it is not passed on
		case e != nil && (rec.Key != nil || rec.Value != nil || rec.Offset != 0):
			return recs, fmt.Errorf("a record came with the error %v", e) //nolint:errorlint // it is not passed on
		case e != nil:
			err = e
			continue
		}
		if recs = append(recs, rec.Clone()); len(recs) == limit {
			break
		}
	}
	return recs, err
}

const noLimit = -1

func same(got, want []evlog.Record) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d records were read, want %d", len(got), len(want))
	}
	for i := range got {
		if !got[i].Equal(want[i]) {
			return fmt.Errorf("record %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}

func expect(seq iter.Seq2[evlog.Record, error], want []evlog.Record) error {
	got, err := collect(seq, noLimit)
	if err != nil {
		return err
	}
	return same(got, want)
}
