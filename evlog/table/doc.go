// Package table is the current value of each key as a view in memory, built from
// a log and kept current by following it: what users of Kafka know as a table.
//
//	t, err := table.Open(ctx, log.Reader(), nil)
//	...
//	defer t.Close()
//	offset, err := log.Append(ctx, evlog.Record{Key: []byte("lamp"), Value: []byte("on")})
//	...
//	err = t.Wait(ctx, offset+1) // until the view has it
//	...
//	lamp, ok := t.Get("lamp")
//
// # What it promises
//
//   - The view is always what the records below one offset, [Table.Next], make
//     together: each key has the newest of them, a key whose newest is a
//     tombstone has none, and records without a key do not count. So it is for a
//     snapshot ([Table.All]).
//   - What it keeps is bounded by [Options.MaxBytes]. A record that does not fit
//     stops it before that record, with a *[FullError]; what it has can still be
//     read.
//   - Rolling changes nothing, and neither does compaction, as long as the view
//     reads from a record on to the end of the log in less than the log's MinLag
//     ([evlog.Options]). If it takes longer, which is while it is built from a large
//     log, or with no MinLag, a key that was set anew meanwhile may be missing from
//     it until it gets to the new record.
//   - A view that retention has overtaken makes itself anew from what is left, and
//     shows the old state until the new one has caught up.
//   - It runs on whatever a consumer runs on ([cursor.Log]). All methods are safe
//     for concurrent use, and Close leaves no goroutine behind.
//
// # What it does not
//
// It stores nothing: each Open reads the log once. Retention removes records from
// the log and not from a view that has seen them; one that is opened later does
// not have them. And a view that is behind by more than the grace period of
// tombstones may miss that a key was deleted, as every reader may.
package table
