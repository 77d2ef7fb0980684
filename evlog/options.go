package evlog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/evlog-go/evlog/internal/clock"
	"github.com/evlog-go/evlog/internal/format"
)

// Defaults of Options.
const (
	DefaultSegmentBytes   = 64 << 20
	DefaultIndexBytes     = 4 << 10
	DefaultMaxRecordBytes = 64 << 20
	DefaultBufferBytes    = 4 << 20
	DefaultSyncInterval   = 100 * time.Millisecond

	DefaultMinDirtyRatio  = 0.5
	DefaultMinLag         = time.Minute
	DefaultTombstoneGrace = 24 * time.Hour
)

// SyncPolicy says when enqueued records are made durable. Append waits for
// durability under every policy.
type SyncPolicy uint8

const (
	// SyncAlways syncs each batch as soon as the disk is free. The default.
	SyncAlways SyncPolicy = iota + 1
	// SyncInterval syncs every Options.SyncInterval; Append waits for that.
	SyncInterval
	// SyncFlush syncs only for Append, Flush, Close, and a roll.
	SyncFlush
)

// String is the policy's name in log.json and on the command line.
func (p SyncPolicy) String() string {
	switch p {
	case SyncAlways:
		return "always"
	case SyncInterval:
		return "interval"
	case SyncFlush:
		return "flush"
	}
	return fmt.Sprintf("SyncPolicy(%d)", uint8(p))
}

// VerifyMode says how much of the log opening reads.
type VerifyMode uint8

const (
	// VerifyActive reads the active segment, or after a clean close only its
	// last record. Damage in a closed segment is found by whoever reads it. The
	// default.
	VerifyActive VerifyMode = iota
	// VerifyAll reads every segment and fails on the first damage.
	VerifyAll
)

// Switch is an option that is on or off, and zero where it is left as stored.
type Switch uint8

// Values of a Switch.
const (
	Off Switch = iota + 1
	On
)

// Options are the choices of a writer. Nil and the zero value mean defaults.
//
// The fields of the first group are stored in log.json: zero keeps what is
// stored (or takes the default when the log is created), anything else is
// stored durably before the first append.
type Options struct {
	// SegmentBytes is the size from which the writer starts a new segment. A
	// batch is never divided, so a segment may be larger. Default 64 MiB; from 1.
	SegmentBytes int64
	// SegmentAge starts a new segment when the first record of the active one
	// was appended this long ago, also when nothing is appended. Whole
	// milliseconds; default never; negative turns a stored age off.
	SegmentAge time.Duration
	// IndexBytes is the distance between entries of the sparse index. Default
	// 4 KiB; from 1.
	IndexBytes int64
	// Sync is the policy for enqueued records. Default SyncAlways.
	Sync SyncPolicy
	// SyncInterval is the interval of that policy. Whole milliseconds; default
	// 100 ms; setting it alone does not choose the policy.
	SyncInterval time.Duration
	// Compact has the writer compact the log by key (see Log.Compact) by itself,
	// in the background, when enough of it is dirty: not compared with the rest
	// yet. What a damaged or missing segment, or a clock that shows a time before
	// 2001, keeps dirty is read once by an open log, and again when that is gone,
	// which is noticed within an hour; a damaged segment that is put back with the
	// size and the time that it had, at the next opening. Default Off.
	Compact Switch
	// MinDirtyRatio is the dirty part of the closed segments, in bytes, from which
	// that happens, above 0 and up to 1. What has been dirty for TombstoneGrace is
	// enough too, so that a log that has gone quiet gets clean. Default 0.5.
	MinDirtyRatio float64
	// MinLag is how long a record is left alone at least: a reader that reads up
	// to the end as it was when it began, in less than that, misses no key. Whole
	// milliseconds; default 1 minute; negative is none.
	MinLag time.Duration
	// TombstoneGrace is how long a tombstone stays after compaction first cleaned
	// the segment that it is in, and with that removed what it deletes: a consumer
	// has that long to learn of it. Whole milliseconds; default 24 hours; negative
	// is none.
	TombstoneGrace time.Duration
	// MaxAge, MaxBytes and MaxRecords say which closed segments are removed, by
	// the log itself, whole and oldest first; the active one never is. Default
	// none; negative turns a stored limit off.
	//
	// MaxAge removes a segment when all of its records are older: its age counts
	// from its highest time or from when it was closed, whichever is earlier.
	// Times before 2001 or after now are not believed; a segment that has no other
	// counts from the closing of the next one that has. After the wall clock has
	// been seen to jump forwards by more than an hour no age counts for one MaxAge,
	// also when the log is opened again; outside of Linux and macOS, the sleep of a
	// machine may be such a jump. A jump while no writer is open cannot be seen.
	// Without a SegmentAge, segments are rolled by a quarter of MaxAge, and in
	// any case by MaxAge, so that a quiet log expires too. Compaction merges only
	// segments whose ages count from times that lie in the same quarter of MaxAge:
	// for having been merged a record stays another quarter longer at most, and one
	// whose own time is not believed goes that much earlier at most. Whole
	// milliseconds.
	MaxAge time.Duration
	// MaxBytes is what all files of the log may take together: segments, indexes,
	// and what recovery kept aside. It needs at least one closed segment to remove,
	// so segments are not larger than a quarter of it, whatever SegmentBytes says,
	// and compaction merges none beyond that.
	// Appending does not wait for removals: under a stream of records the files
	// take more for a moment.
	MaxBytes int64
	// MaxRecords is the number of newest records that stay; a segment goes when
	// newer ones hold as many.
	MaxRecords int64
	// HoldFor are the consumers, by their names in consumers.json, that retention
	// waits for: a segment stays until they have finished it. HoldForAll stands
	// for all that are there. A damaged consumers.json, or a name that has never
	// committed, holds everything. It needs HoldBytes or HoldAge. Nil keeps what is
	// stored, an empty slice turns it off.
	HoldFor []string
	// HoldBytes and HoldAge bound what is held: when all files together take more,
	// or a segment is older, it goes in spite of consumers, with a warning. Default
	// none; negative turns a stored bound off. HoldAge in whole milliseconds.
	HoldBytes int64
	HoldAge   time.Duration

	// MaxRecordBytes is the largest record that is accepted, overhead included.
	// Default 64 MiB; at most 1 GiB. Readers take any legal record.
	MaxRecordBytes int64
	// BufferBytes bounds the records that were accepted and are not yet written
	// to the file; appending waits for room. A batch that is larger is accepted
	// when the buffer is empty. Default 4 MiB.
	BufferBytes int64
	// Verify says how much opening reads. Default VerifyActive.
	Verify VerifyMode
	// NoPreallocate leaves the active segment at its exact size. By default it
	// is prepared with zeros ahead of the records, which makes each sync cheaper.
	NoPreallocate bool
	// NoCompaction has this writer run no compaction by itself, whatever Compact
	// says that is stored: for maintenance by hand.
	NoCompaction bool
	// AllowNetworkFS opens a log on a network file system, without any promise.
	AllowNetworkFS bool
	// MustExist makes Open refuse to create a log: ErrNoLog.
	MustExist bool
	// ID and FirstOffset are what a log begins with that Open creates, so that it
	// can be a copy of another one (see Log.AppendExact, Log.RollTo): the other's
	// identity, 1 to 64 printable characters of ASCII without spaces and "/", and
	// its first offset. Default a random UUID, and 0. They mean nothing where there
	// is a log already. Two logs of one identity must not both be appended to.
	ID          string
	FirstOffset uint64
	// NoRetention leaves it to calls of Log.Retain to remove segments.
	NoRetention bool
	// OnBehind is ReaderOptions.OnBehind for Log.Reader.
	OnBehind func(*OffsetError) bool
	// OpenHook runs inside Open, after recovery and before any append. If it
	// fails, Open fails. The zero Hook is none.
	OpenHook Hook
	// OnEvent is called for each Event, one at a time, on whichever goroutine
	// it happened. It must be quick and must not call the log. A panic in it
	// poisons the log. Nil is none.
	OnEvent func(Event)
	// Logger gets what happened. Nil is silent.
	Logger *slog.Logger
	// Clock replaces the system's clock. Nil is the system's.
	Clock Clock
}

// Hook is a named function that has to run before a log may be appended to.
// Once its name is stored (Log.RequireHook), a writer without a hook of that
// name may maintain the log but not append to it.
type Hook struct {
	// Name is what log.json stores. Both are required.
	Name string
	// Run gets the recovered state. It runs before the first append.
	Run func(ctx context.Context, s HookState) error
}

// HookState is what an open hook sees.
type HookState struct {
	LogID string
	// Next is the offset after the last record of the recovered log, all of
	// which is durable.
	Next uint64
	// Stored tells whether log.json names this hook already, and Note is what
	// RequireHook stored with it.
	Stored bool
	Note   string
	// Gaps are the half-open offset ranges that repair left without records.
	Gaps []OffsetRange
	// Reader reads the recovered log.
	Reader *Reader
}

// OffsetRange is the half-open range [From, To).
type OffsetRange struct{ From, To uint64 }

// ReaderOptions are the choices of OpenReader. Nil and the zero value mean
// defaults.
type ReaderOptions struct {
	// BeyondDurable reads the valid records beyond the durable position too, up
	// to the first damage: to salvage what a power failure left, never for
	// consumers, since these records can still vanish.
	BeyondDurable bool
	// OnBehind is asked where an iterator that goes up (Records, Follow, ByKey, of
	// a Reader or a Prefix) has fallen behind retention, with what it wanted and
	// the first offset left. True: it goes on there. False, and nil: it ends with
	// the *OffsetError. It is called on the iterating goroutine. Get, which is about
	// one offset, does not ask it.
	// Consumers and tables (packages cursor, sqlbridge, table) decide that for
	// themselves, and do not ask it.
	OnBehind func(*OffsetError) bool
	// PollInterval is how often a follower looks for new records where the
	// system sends no file events. Default 1 ms after activity, growing to
	// 100 ms when idle; set, it is fixed.
	PollInterval time.Duration
	// NoFileEvents follows by polling alone.
	NoFileEvents bool
	// Logger gets notices. Nil is silent.
	Logger *slog.Logger
	// Clock replaces the system's clock. Nil is the system's.
	Clock Clock
}

// inPart reports whether a span is not of whole milliseconds. Negative ones turn
// something off, whatever their size.
func inPart(d time.Duration) bool { return d > 0 && d%time.Millisecond != 0 }

func badOption(field, format string, args ...any) error {
	return fmt.Errorf("evlog: options: %s %s: %w", field, fmt.Sprintf(format, args...), ErrBadOptions)
}

// withDefaults returns a checked copy in which everything that is not stored in
// log.json has its value.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	switch {
	case c.SegmentBytes < 0:
		return c, badOption("SegmentBytes", "is %d", c.SegmentBytes)
	case c.IndexBytes < 0:
		return c, badOption("IndexBytes", "is %d", c.IndexBytes)
	case c.Sync > SyncFlush:
		return c, badOption("Sync", "is %d", c.Sync)
	case c.SyncInterval < 0 || c.SyncInterval%time.Millisecond != 0:
		return c, badOption("SyncInterval", "is %v, not whole milliseconds above 0", c.SyncInterval)
	case inPart(c.SegmentAge):
		return c, badOption("SegmentAge", "is %v, not whole milliseconds", c.SegmentAge)
	case c.Compact > On:
		return c, badOption("Compact", "is %d", c.Compact)
	case !(c.MinDirtyRatio >= 0 && c.MinDirtyRatio <= 1):
		return c, badOption("MinDirtyRatio", "is %v, not above 0 and up to 1", c.MinDirtyRatio)
	case inPart(c.MinLag):
		return c, badOption("MinLag", "is %v, not whole milliseconds", c.MinLag)
	case inPart(c.TombstoneGrace):
		return c, badOption("TombstoneGrace", "is %v, not whole milliseconds", c.TombstoneGrace)
	case inPart(c.MaxAge):
		return c, badOption("MaxAge", "is %v, not whole milliseconds", c.MaxAge)
	case inPart(c.HoldAge):
		return c, badOption("HoldAge", "is %v, not whole milliseconds", c.HoldAge)
	case slices.Contains(c.HoldFor, ""):
		return c, badOption("HoldFor", "has an empty name")
	case c.MaxRecordBytes < 0 || c.MaxRecordBytes > MaxRecordBytes:
		return c, badOption("MaxRecordBytes", "is %d, not in 1 to %d", c.MaxRecordBytes, MaxRecordBytes)
	case c.BufferBytes < 0:
		return c, badOption("BufferBytes", "is %d", c.BufferBytes)
	case c.Verify > VerifyAll:
		return c, badOption("Verify", "is %d", c.Verify)
	case c.ID != "" && !format.ValidID(c.ID):
		return c, badOption("ID", "is %q", c.ID)
	case c.FirstOffset > format.MaxOffset:
		return c, badOption("FirstOffset", "is %d, the highest is %d", c.FirstOffset, uint64(format.MaxOffset))
	case c.OpenHook.Run != nil && c.OpenHook.Name == "":
		return c, badOption("OpenHook", "has no name")
	case c.OpenHook.Run == nil && c.OpenHook.Name != "":
		return c, badOption("OpenHook", "has no function to run")
	}
	if c.MaxRecordBytes == 0 {
		c.MaxRecordBytes = DefaultMaxRecordBytes
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = DefaultBufferBytes
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.NewSystem()
	}
	return c, nil
}

func (o *ReaderOptions) withDefaults() (ReaderOptions, error) {
	var c ReaderOptions
	if o != nil {
		c = *o
	}
	if c.PollInterval < 0 {
		return c, badOption("PollInterval", "is %v", c.PollInterval)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.NewSystem()
	}
	return c, nil
}
