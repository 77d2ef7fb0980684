// Package bench measures evlog beside the limit written by hand and beside
// SQLite. It has no code but in its test files, and nothing of it runs in
// go test ./... without -bench, a few checks of the limits aside.
//
//	go test -run '^$' -bench . ./internal/bench                       # all, some minutes
//	go test -run '^$' -bench Append/value=100B/callers=64 ./internal/bench
//	go test -run '^$' -bench Scan -benchtime 20x -count 10 ./internal/bench > new.txt
//	go tool -modfile=tools/go.mod benchstat old.txt new.txt
//
// Logs are made in the temporary directory. TMPDIR says on which file system,
// and that decides what a sync costs: with a journal, one of a growing file is
// several times as expensive as one of a zeroed file, without one they are the
// same. A file system in memory measures nothing.
//
// # What is compared
//
// The sides of a benchmark take turns: each iteration (b.N) is one round in
// which every side does the same work, in changing order, after a garbage
// collection that is not timed. A quiet or a busy moment of the machine so meets
// all of them. The figures are medians over the rounds. Below ten rounds they are
// worth little: -benchtime 20x makes as many as wanted. Package turns does that.
//
// The limit (package limit) is the least that the record format and the kernel
// allow: encode, one pwrite, one fdatasync, and for many callers all of them in one
// write, without waking anybody; for reading, large preads and the checksum of
// every record. It has no DURABLE, no index, no recovery, and no API, and writes
// the same bytes. Module rivals beside this package has other systems.
//
// SQLite is modernc.org/sqlite with a table of the same columns, offset as its
// primary key, journal_mode=WAL and synchronous=FULL, one connection; beside Enqueue
// it has synchronous=OFF. A batch is one transaction. Where commits are measured
// its WAL has been filled once before, since a commit takes up to twice as long while
// that file still grows. Where it is much slower it does fewer operations in a turn,
// and what counts is the time of one.
//
// # Metrics
//
// One op is one record (opened log, look-up), never a round: ns/op, B/op,
// allocs/op and MB/s are evlog's own, per record, without the other sides.
//
//	ratio            speed of evlog in parts of the limit's: 1 is as fast
//	ratio-NAME       the same, of another side: growing (the limit in a file that
//	                 grows), woken (the limit with its callers as goroutines, each
//	                 woken when its record is durable; what they cost is no work of
//	                 a log's), one-caller (evlog with one caller), sqlite,
//	                 sqlite-nosync (without a sync), table (package tablelog),
//	                 native (an SQLite table)
//	NAME-ns/op       what that side takes
//	ratio-p50        the same of the times of single operations, where they are
//	                 taken: less moved by a busy machine
//	ratio-p99        the limit's p99 in parts of evlog's, of all rounds together: 1 is
//	                 as fast, 0.5 is a slowest hundredth that takes twice as long
//	records/s        of evlog
//	fsyncs/op        of evlog, syncs of records
//	p50-us, p99-us   single operations of evlog; NAME-p50-us of others
//	cpu-us/s         processor time for each second of idling
//	B/record         of all files of a closed log. Here ratio, to the bytes of the
//	                 records, and ratio-sqlite are of sizes: 1 is as small, more is
//	                 smaller
//	index-%          .idx files without their key filters in parts of .log files
//	filter-B/key     key filters of closed segments, for each different key in one
//
// # Benchmarks
//
//	Append       durable; callers=N append one record each and wait. file=zeroed is
//	             the default, prepared ahead; file=growing is NoPreallocate
//	AppendBatch  durable, one caller, batches
//	Enqueue      SyncFlush, not durable. segment=1GiB never rolls, so it is a
//	             page-cache number; segment=64MiB has one roll with its syncs a turn
//	Scan         every record, checked, from the page cache
//	Get          by offset, random, warm; reader=own is the writer's, reader=other
//	             one by OpenReader, which has no index of the active segment
//	Open         for writing, after a clean close and after a crash that left a torn
//	             record behind an active segment of 8 MiB. What follows in the
//	             background is not in it
//	Follow       from acknowledged to seen, one record every 2 ms, ns/op being p50;
//	             process=other runs this binary once more
//	Idle         processor time of a follower with nothing to do
//	Disk         bytes on disk; keys=1000 are taken from a thousand, keys=own is another
//	             in each record, the most that key filters can take
//	Table        the same work on a log and on package tablelog, a log in an SQLite
//	             table; its Records, Append and RemoveBelow
//	SQLDriver*   the log through database/sql (package sqldriver) beside a native
//	             table with the same rows: Scan of all rows, Get by offset with a
//	             prepared statement, Insert in transactions
//	OutboxRelay  100,000 queued rows relayed in batches of 1,000; the limit is a relay
//	             that appends and then deletes, without intents
//	OutboxLatency
//	             from the application's commit to a follower of the log, with Notify;
//	             the limit is one write with its sync
//	OutboxBacklog
//	             a relay is killed with 10,000 rows before it: from opening again
//	             to the last one
//	Compact      one op is one record before; half of them go. stays=second: nothing of
//	             the first half; stays=scattered: half of each segment, so that small
//	             neighbours are merged, which copies once more. The limit copies all:
//	             read, checksum, write, fsync
//	AppendBesideCompact, AppendBesideFilters
//	             durable, one caller, while a compaction runs, or while the indexes of
//	             old segments are made; the limit is the same beside nothing
//	Retain       dropping the older half of a million records; one op is all of it.
//	             The limit is the same unlinks and syncs of the directory
//	AppendWhileRetaining
//	             durable, one caller, beside a removal of eleven segments; ratio-quiet
//	             is against the same without
//	Curve*       the curves of docs/PERFORMANCE.md, only with EVLOG_CURVES, the
//	             directory to write the figures of all turns to: make curves
package bench
