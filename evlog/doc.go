// Package evlog is an append-only log in a directory of files: events are
// appended at the end, each gets an offset that is its name for ever, and any
// number of readers, in this process or others, read from an offset and follow.
//
// # What it promises
//
//   - An append that was acknowledged survives a crash of the process and a
//     power failure.
//   - Readers see only what is durable, in every process. So what a consumer has
//     seen is never taken back.
//   - An offset names one record and is never given to another, whatever crashes
//     or is repaired. Holes between offsets are legal.
//   - Damage to acknowledged data is an error that names file, byte and offset.
//     Nothing is skipped silently, and nothing is cut without Repair.
//
// It rests on fsync being honest and on a local disk; docs/DESIGN.md has the
// whole list.
//
// # What it refuses
//
// One process writes at a time. There is no network protocol, no replication,
// no consumer group, no mmap, and no query but by offset, key and time.
// Checksums find accidents; they do not prove who wrote.
//
// # Using it
//
// [Open] gives a [Log] to write with: [Log.Append] returns when the records are
// durable, [Log.Enqueue] at once. Its [Log.Reader], or the [Reader] that
// [OpenReader] gives in any process, reads: [Reader.Records], [Reader.Follow],
// [Reader.Backward], [Reader.Get], [Reader.OffsetAt]. [Verify] checks a log,
// [Repair] is the way out of [ErrCorrupt].
//
//	log, err := evlog.Open(ctx, "events", nil)
//	...
//	defer log.Close()
//	offset, err := log.Append(ctx, evlog.Record{Key: []byte("doc:42"), Value: []byte("hello")})
//	...
//	for rec, err := range log.Reader().Follow(ctx, 0) {
//		...
//	}
package evlog
