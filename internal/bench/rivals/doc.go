// Package rivals measures other logs and databases beside evlog and the limit
// written by hand (package limit), all of them in one run and taking turns (package
// turns; see package bench for what that means). It is a module of its own, so that
// what it depends on stays out of evlog's go.mod, and has no code but in its test
// files.
//
//	make bench-rivals                       # all, half an hour; one table at the end
//	make bench-rivals BENCH=Append COUNT=20 # some of it, more rounds
//	make bench-rivals-programs              # before it, for Rust and the JVM
//	go test .                               # does each system keep what it is given
//
// Each system is a log: records are appended, their offsets begin at 0, and the
// offset is the key where there is one. Each is set up as its own documentation
// advises for what a row asks for, and is otherwise left at its defaults; its file
// says how, and what it checks and what it leaves out:
//
//	tidwall     github.com/tidwall/wal, MIT
//	raft-wal    github.com/hashicorp/raft-wal, MPL-2.0
//	pebble      github.com/cockroachdb/pebble, BSD
//	bbolt       go.etcd.io/bbolt, MIT
//	badger      github.com/dgraph-io/badger, Apache-2.0
//	nats        github.com/nats-io/nats-server, JetStream, Apache-2.0
//	sqlite-cgo  github.com/mattn/go-sqlite3, MIT; left out where there is no cgo
//
// Those of other languages are driven by programs of ours, in rust and jvm, which
// make bench-rivals-programs builds where cargo or maven are; the others are left
// out:
//
//	kafko       crate kafko, MIT or Apache-2.0
//	streambed   crate streambed-logged, Apache-2.0
//	chronicle   net.openhft:chronicle-queue, Apache-2.0
//	kafka       org.apache.kafka:kafka-storage, the log in a broker, Apache-2.0
//
// NAME+group is a system inside a group commit written by hand, where it has none.
//
// # Rows
//
// A ratio is speed in parts of the limit's: 1 is as fast, more is faster. The limit
// writes to a file that grows; limit-zeroed, to one filled with zeros before, which
// needs no commit of the file system's journal for a sync. The column evlog is
// evlog's speed in parts of that side's: below 1, evlog is behind.
//
//	Append       durable, callers that append a record each and wait
//	AppendBatch  durable, batches of 1,000
//	Enqueue      without a sync. evlog and the limit gather records in memory and
//	             write them behind the caller's back, so do pebble and streambed;
//	             chronicle copies them into a mapped file; the others write in each call
//	Scan         all records in order, from the page cache. bbolt, tidwall, raft-wal,
//	             chronicle and SQLite check nothing, the limit and evlog every record.
//	             kafko's log is of 2,000 records: its time is quadratic
//	Get          random offsets, warm. tidwall has the whole log in memory
//	Open         until the last of a million records has been read
//	Drop         the older half; badger and bbolt give no space back, pebble and SQLite
//	             are asked to, with Compact and VACUUM
//	Disk         space of all files of a closed log, with what is allocated ahead
//	Follow       from when the append returns; tidwall, raft-wal and SQLite are polled
//	             without rest
package rivals
