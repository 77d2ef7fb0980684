package evlog

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	formatVersion = 1
	// maxMetaBytes bounds log.json and consumers.json.
	maxMetaBytes = 16 << 20
)

// meta is log.json. Fields that this version does not know are kept.
type meta struct {
	Format    int
	ID        string
	CreatedMS int64
	Config    metaConfig
	OpenHook  string
	HookNote  string
	JumpedMS  int64 // when the wall clock was last seen to jump ahead; 0: never
	Gaps      []OffsetRange

	all, config json.RawMessage // as read, with what this version has no name for
}

// metaConfig is the stored part of the options. Zero fields are not stored.
type metaConfig struct {
	SegmentBytes   int64  `json:"segment_bytes,omitempty"`
	SegmentAgeMS   int64  `json:"segment_age_ms,omitempty"`
	IndexBytes     int64  `json:"index_bytes,omitempty"`
	Sync           string `json:"sync,omitempty"`
	SyncIntervalMS int64  `json:"sync_interval_ms,omitempty"`

	// Of compaction. Spans: absent is the default, -1 is none.
	Compact          bool    `json:"compact,omitempty"`
	MinDirtyRatio    float64 `json:"min_dirty_ratio,omitempty"`
	MinLagMS         int64   `json:"min_lag_ms,omitempty"`
	TombstoneGraceMS int64   `json:"tombstone_grace_ms,omitempty"`

	MaxAgeMS   int64    `json:"max_age_ms,omitempty"`
	MaxBytes   int64    `json:"max_bytes,omitempty"`
	MaxRecords int64    `json:"max_records,omitempty"`
	HoldFor    []string `json:"hold_for,omitempty"`
	HoldBytes  int64    `json:"hold_bytes,omitempty"`
	HoldAgeMS  int64    `json:"hold_age_ms,omitempty"`
}

// metaJSON is the order of log.json's fields on disk.
type metaJSON struct {
	Format    int             `json:"format"`
	ID        string          `json:"id"`
	CreatedMS int64           `json:"created_ms"`
	Config    json.RawMessage `json:"config"`
	OpenHook  string          `json:"open_hook,omitempty"`
	HookNote  string          `json:"open_hook_note,omitempty"`
	JumpedMS  int64           `json:"clock_jumped_ms,omitempty"`
	Gaps      [][2]uint64     `json:"gaps,omitempty"`
}

// errMeta: log.json is there and is none.
var errMeta = errors.New("log.json is damaged")

// readMeta reads log.json. fs.ErrNotExist: missing; errMeta: damaged;
// ErrVersion: from a later version, with everything else unknown.
func readMeta(dir vfs.Dir) (*meta, error) {
	b, err := readFile(dir, format.MetaName, maxMetaBytes)
	if err != nil {
		return nil, err
	}
	return parseMeta(b)
}

// metaIfKnown reads log.json where only the log's identity matters; nil: lost.
func metaIfKnown(dir vfs.Dir) *meta {
	m, err := readMeta(dir)
	if err != nil {
		return nil
	}
	return m
}

func parseMeta(b []byte) (*meta, error) {
	// The version decides whether anything else can be understood: where a field of
	// a later one has another type, the rest is there all the same.
	var j metaJSON
	err := json.Unmarshal(b, &j)
	if wrong := (*json.UnmarshalTypeError)(nil); j.Format > formatVersion && (err == nil || errors.As(err, &wrong)) {
		return nil, fmt.Errorf("format %d: %w (it knows %d)", j.Format, ErrVersion, formatVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMeta, err)
	}
	m := &meta{all: b, config: j.Config}
	if len(j.Config) > 0 {
		if err := json.Unmarshal(j.Config, &m.Config); err != nil {
			return nil, fmt.Errorf("%w: config: %w", errMeta, err)
		}
	}
	if j.Format < 1 || j.ID == "" || m.Config.invalid() {
		return nil, fmt.Errorf("%w: no format, no id, or a config out of range", errMeta)
	}
	m.Format, m.ID, m.CreatedMS, m.OpenHook, m.HookNote = j.Format, j.ID, j.CreatedMS, j.OpenHook, j.HookNote
	m.JumpedMS = j.JumpedMS
	for _, g := range j.Gaps {
		m.Gaps = append(m.Gaps, OffsetRange{From: g[0], To: g[1]})
	}
	return m, nil
}

func (c metaConfig) invalid() bool {
	_, err := parseSyncPolicy(c.Sync)
	return err != nil || min(c.SegmentBytes, c.IndexBytes, c.MaxBytes, c.MaxRecords, c.HoldBytes) < 0 ||
		min(c.SegmentAgeMS, c.SyncIntervalMS, c.MaxAgeMS, c.HoldAgeMS) < 0 ||
		max(c.SegmentAgeMS, c.SyncIntervalMS, c.MaxAgeMS, c.HoldAgeMS) > maxMillis ||
		c.MinDirtyRatio < 0 || c.MinDirtyRatio > 1 ||
		c.MinLagMS < noSpan || c.MinLagMS > maxMillis || c.TombstoneGraceMS < noSpan || c.TombstoneGraceMS > maxMillis
}

// noSpan is a span of none at all, where an absent one has a default.
const noSpan = -1

// storedSpan is an option as it is stored: negative means none.
func storedSpan(d time.Duration) int64 {
	if d < 0 {
		return noSpan
	}
	return d.Milliseconds()
}

// spanOf is a stored span with its default.
func spanOf(ms int64, byDefault time.Duration) time.Duration {
	switch ms {
	case 0:
		return byDefault
	case noSpan:
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// maxMillis is the longest time.Duration in milliseconds.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

func parseSyncPolicy(s string) (SyncPolicy, error) {
	if s == "" {
		return SyncAlways, nil
	}
	for p := SyncAlways; p <= SyncFlush; p++ {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, fmt.Errorf("sync policy %q", s)
}

func (m *meta) encode() ([]byte, error) {
	config, err := mergeJSON(m.Config, m.config)
	if err != nil {
		return nil, err
	}
	j := metaJSON{Format: m.Format, ID: m.ID, CreatedMS: m.CreatedMS, Config: config, OpenHook: m.OpenHook, HookNote: m.HookNote, JumpedMS: m.JumpedMS}
	for _, g := range m.Gaps {
		j.Gaps = append(j.Gaps, [2]uint64{g.From, g.To})
	}
	b, err := mergeJSON(j, m.all)
	return append(b, '\n'), err
}

// mergeJSON encodes the struct v and, behind its fields, those of the object other
// that it has no name for. Without other there are none.
func mergeJSON(v any, other json.RawMessage) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil || len(other) == 0 {
		return b, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(other, &all); err != nil {
		return nil, err
	}
	known, err := jsonNames(v)
	if err != nil {
		return nil, err
	}
	rest := map[string]json.RawMessage{}
	for name, raw := range all {
		// Reading takes names in any case.
		if !known[strings.ToLower(name)] {
			rest[name] = raw
		}
	}
	if len(rest) == 0 {
		return b, nil
	}
	extra, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(b, []byte("{}")) {
		return extra, nil
	}
	return append(append(b[:len(b)-1], ','), extra[1:]...), nil
}

// clockWait is for how long an age of limit does not count, by what is stored.
func (m *meta) clockWait(now time.Time, limit time.Duration) time.Duration {
	if m.JumpedMS == 0 {
		return 0
	}
	return max(0, limit-sinceJump(now, m.JumpedMS))
}

// store puts log.json into place.
func (m *meta) store(dir vfs.Dir) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	return writeFileDurably(dir, format.MetaName, b)
}

// newMeta makes the identity of a new log.
func newMeta(clock Clock) *meta {
	return &meta{Format: formatVersion, ID: newUUID(), CreatedMS: clock.Now().UnixMilli()}
}

// newUUID returns a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// apply stores the options that are set and reports whether that changed
// anything.
func (c *metaConfig) apply(o Options) (changed bool) {
	old := *c
	if o.SegmentBytes != 0 {
		c.SegmentBytes = o.SegmentBytes
	}
	if o.IndexBytes != 0 {
		c.IndexBytes = o.IndexBytes
	}
	if o.SegmentAge != 0 {
		c.SegmentAgeMS = max(0, o.SegmentAge.Milliseconds())
	}
	if o.Sync != 0 {
		c.Sync = o.Sync.String()
	}
	if o.SyncInterval != 0 {
		c.SyncIntervalMS = o.SyncInterval.Milliseconds()
	}
	if o.Compact != 0 {
		c.Compact = o.Compact == On
	}
	if o.MinDirtyRatio != 0 {
		c.MinDirtyRatio = o.MinDirtyRatio
	}
	if o.MinLag != 0 {
		c.MinLagMS = storedSpan(o.MinLag)
	}
	if o.TombstoneGrace != 0 {
		c.TombstoneGraceMS = storedSpan(o.TombstoneGrace)
	}
	c.applyRetention(o)
	return !reflect.DeepEqual(*c, old)
}

func (c *metaConfig) applyRetention(o Options) {
	if o.MaxAge != 0 {
		c.MaxAgeMS = max(0, o.MaxAge.Milliseconds())
	}
	if o.MaxBytes != 0 {
		c.MaxBytes = max(0, o.MaxBytes)
	}
	if o.MaxRecords != 0 {
		c.MaxRecords = max(0, o.MaxRecords)
	}
	if o.HoldFor != nil {
		c.HoldFor = slices.Compact(slices.Sorted(slices.Values(o.HoldFor)))
	}
	if o.HoldBytes != 0 {
		c.HoldBytes = max(0, o.HoldBytes)
	}
	if o.HoldAge != 0 {
		c.HoldAgeMS = max(0, o.HoldAge.Milliseconds())
	}
}

// check tests what cannot be told from the options alone.
func (c *metaConfig) check() error {
	if len(c.HoldFor) > 0 && c.HoldBytes == 0 && c.HoldAgeMS == 0 {
		return badOption("HoldFor", "needs HoldBytes or HoldAge, which bound what is held")
	}
	return nil
}

// fillDefaults sets what a new log keeps for good, so that a later version with
// other defaults treats it alike.
func (c *metaConfig) fillDefaults() {
	s := c.stored()
	c.SegmentBytes, c.IndexBytes = s.SegmentBytes, s.IndexBytes
	c.Sync, c.SyncIntervalMS = s.Sync.String(), s.SyncInterval.Milliseconds()
	c.MinDirtyRatio = s.MinDirtyRatio
	if c.MinLagMS == 0 {
		c.MinLagMS = DefaultMinLag.Milliseconds()
	}
	if c.TombstoneGraceMS == 0 {
		c.TombstoneGraceMS = DefaultTombstoneGrace.Milliseconds()
	}
}

// stored is the configuration with its defaults.
func (c metaConfig) stored() StoredConfig {
	policy, _ := parseSyncPolicy(c.Sync) // checked when it was read
	s := StoredConfig{
		SegmentBytes: c.SegmentBytes,
		SegmentAge:   time.Duration(c.SegmentAgeMS) * time.Millisecond,
		IndexBytes:   c.IndexBytes,
		Sync:         policy,
		SyncInterval: time.Duration(c.SyncIntervalMS) * time.Millisecond,

		Compact:        c.Compact,
		MinDirtyRatio:  c.MinDirtyRatio,
		MinLag:         spanOf(c.MinLagMS, DefaultMinLag),
		TombstoneGrace: spanOf(c.TombstoneGraceMS, DefaultTombstoneGrace),

		MaxAge:     time.Duration(c.MaxAgeMS) * time.Millisecond,
		MaxBytes:   c.MaxBytes,
		MaxRecords: c.MaxRecords,
		HoldFor:    slices.Clone(c.HoldFor),
		HoldBytes:  c.HoldBytes,
		HoldAge:    time.Duration(c.HoldAgeMS) * time.Millisecond,
	}
	if s.MinDirtyRatio == 0 {
		s.MinDirtyRatio = DefaultMinDirtyRatio
	}
	if s.SegmentBytes == 0 {
		s.SegmentBytes = DefaultSegmentBytes
	}
	if s.IndexBytes == 0 {
		s.IndexBytes = DefaultIndexBytes
	}
	if s.SyncInterval == 0 {
		s.SyncInterval = DefaultSyncInterval
	}
	return s
}

// covered reports whether every offset of [from, to) lies in a gap that repair
// left.
func covered(gaps []OffsetRange, from, to uint64) bool {
	for from < to {
		next := from
		for _, g := range gaps {
			if g.From <= from && from < g.To {
				next = max(next, g.To)
			}
		}
		if next == from {
			return false
		}
		from = next
	}
	return true
}
