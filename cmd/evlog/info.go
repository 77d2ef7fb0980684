package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newInfoCommand(a *app) *cobra.Command {
	var table tableFlags
	cmd := &cobra.Command{
		Use:   "info DIR",
		Short: "Describe the log as a whole",
		Long: `Describe the log as a whole: offsets, times, sizes, stored configuration, the
consumers of consumers.json with their lag, and who holds the lock, with whether
that process lives.

With --json: one object with path, id, format, created, first_offset,
next_offset (the offset after the last durable record), records, holes,
segments, bytes (all files, as retention counts), oldest, newest, config
(segment_bytes, segment_age_ms, index_bytes, sync, sync_interval_ms, the limits
of retention, 0 where there is none: max_age_ms, max_bytes, max_records,
hold_for, hold_bytes, hold_age_ms, and of compaction compact, min_dirty_ratio,
min_lag_ms, tombstone_grace_ms), holds (for whom segments stay that are due for
removal: name, from_offset, segments, bytes, error), tombstones, dirty_bytes (of
closed segments that compaction has not been through), damaged (an array of what
is known to be damaged, and so not compacted), open_hook, gaps (offset ranges
that repair left without records), beyond_durable, durable_error, meta_error,
consumers (as "evlog consumers --json" prints them; null if they cannot be
read), consumers_error, and lock_holder (pid, host, started, alive; null if
nobody).`,
		Example: `  evlog info events
  evlog info events --json | jq .next_offset`,
		ValidArgsFunction: dirOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.info(cmd, args, &table)
		},
	}
	table.register(cmd)
	return cmd
}

func (a *app) info(cmd *cobra.Command, args []string, table *tableFlags) (err error) {
	dir, _, err := a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	r, err := evlog.OpenReader(ctx, dir, &evlog.ReaderOptions{Logger: a.logger()})
	if err != nil {
		return err
	}
	defer closing(r, &err)
	st, err := r.Status(ctx)
	if err != nil {
		return err
	}
	if err := a.noticeBeyond(cmd.Context(), r); err != nil {
		return err
	}
	segments, err := r.Segments(ctx)
	if err != nil {
		return err
	}
	plan, err := r.PlanRetain(ctx, nil)
	if err != nil {
		return err
	}
	consumers, consumersErr := a.consumersFromDir(ctx, r, dir)
	markHolds(consumers, plan.Holds)
	doc := newInfoDoc(&st, segments, table.times)
	doc.Holds, doc.holds = holdDocs(plan.Holds), plan.Holds
	doc.Bytes = allBytes(plan)
	doc.Consumers, doc.ConsumersError = consumerDocs(consumers, table.times), errorText(consumersErr)
	if consumersErr != nil {
		doc.Consumers = nil
	}
	if table.json {
		err = writeDocument(a.out, doc)
	} else {
		err = writeTable(a.out, doc.rows(&st, segments, table.times))
	}
	if err != nil {
		return err
	}
	return damagedSegment(segments)
}

// allBytes is what all files of the log take, as retention counts them.
func allBytes(plan *evlog.RetainReport) int64 {
	total := plan.Bytes
	for _, s := range plan.Removed {
		total += s.Bytes
	}
	return total
}

// infoDoc is the JSON document of info.
type infoDoc struct {
	Path           string        `json:"path"`
	ID             string        `json:"id"`
	Format         int           `json:"format"`
	Created        *string       `json:"created"`
	First          uint64        `json:"first_offset"`
	Next           uint64        `json:"next_offset"`
	Records        uint64        `json:"records"`
	Holes          uint64        `json:"holes"`
	Segments       int           `json:"segments"`
	Bytes          int64         `json:"bytes"`
	Oldest         *string       `json:"oldest"`
	Newest         *string       `json:"newest"`
	Config         configDoc     `json:"config"`
	Holds          []holdDoc     `json:"holds"`
	OpenHook       string        `json:"open_hook"`
	Tombstones     uint64        `json:"tombstones"`
	DirtyBytes     int64         `json:"dirty_bytes"`
	Damaged        []string      `json:"damaged"`
	Gaps           [][2]uint64   `json:"gaps"`
	BeyondDurable  uint64        `json:"beyond_durable"`
	DurableError   string        `json:"durable_error"`
	MetaError      string        `json:"meta_error"`
	Consumers      []consumerDoc `json:"consumers"`
	ConsumersError string        `json:"consumers_error"`
	Holder         *holderDoc    `json:"lock_holder"`

	holds       []evlog.Hold
	closedBytes int64
}

type configDoc struct {
	SegmentBytes   int64  `json:"segment_bytes"`
	SegmentAgeMS   int64  `json:"segment_age_ms"` // 0: never rolled by age
	IndexBytes     int64  `json:"index_bytes"`
	Sync           string `json:"sync"`
	SyncIntervalMS int64  `json:"sync_interval_ms"`

	MaxAgeMS         int64    `json:"max_age_ms"`
	MaxBytes         int64    `json:"max_bytes"`
	MaxRecords       int64    `json:"max_records"`
	HoldFor          []string `json:"hold_for"`
	HoldBytes        int64    `json:"hold_bytes"`
	HoldAgeMS        int64    `json:"hold_age_ms"`
	Compact          bool     `json:"compact"`
	MinDirtyRatio    float64  `json:"min_dirty_ratio"`
	MinLagMS         int64    `json:"min_lag_ms"`
	TombstoneGraceMS int64    `json:"tombstone_grace_ms"`
}

type holderDoc struct {
	PID     int     `json:"pid"`
	Host    string  `json:"host"`
	Started *string `json:"started"`
	Alive   bool    `json:"alive"`
}

func newInfoDoc(st *evlog.Status, segments []evlog.SegmentInfo, times timePrinter) *infoDoc {
	records, holes, oldest, newest := sumSegments(segments)
	doc := &infoDoc{
		Path: st.Path, ID: st.ID, Format: st.Format, Created: times.json(st.Created),
		First: st.First, Next: st.Next, Records: records, Holes: holes,
		Segments: st.Segments, Oldest: times.json(oldest), Newest: times.json(newest),
		Config: configDoc{
			SegmentBytes: st.Config.SegmentBytes, SegmentAgeMS: st.Config.SegmentAge.Milliseconds(),
			IndexBytes: st.Config.IndexBytes,
			Sync:       st.Config.Sync.String(), SyncIntervalMS: st.Config.SyncInterval.Milliseconds(),
			MaxAgeMS: st.Config.MaxAge.Milliseconds(), MaxBytes: st.Config.MaxBytes, MaxRecords: st.Config.MaxRecords,
			HoldFor: append([]string{}, st.Config.HoldFor...), HoldBytes: st.Config.HoldBytes, HoldAgeMS: st.Config.HoldAge.Milliseconds(),
			Compact: st.Config.Compact, MinDirtyRatio: st.Config.MinDirtyRatio,
			MinLagMS: st.Config.MinLag.Milliseconds(), TombstoneGraceMS: st.Config.TombstoneGrace.Milliseconds(),
		},
		OpenHook: st.OpenHook, BeyondDurable: st.BeyondDurable,
		DurableError: errorText(st.DurableErr), MetaError: errorText(st.MetaErr),
	}
	doc.Damaged = []string{}
	for i := range segments {
		s := &segments[i]
		doc.Tombstones += s.Tombstones
		switch s.State {
		case evlog.SegmentClosed:
			doc.DirtyBytes += s.DirtyBytes
			doc.closedBytes += s.Bytes
		case evlog.SegmentDamaged:
			doc.Damaged = append(doc.Damaged, errorText(s.Err))
		}
	}
	doc.Gaps = [][2]uint64{}
	for _, g := range st.Gaps {
		doc.Gaps = append(doc.Gaps, [2]uint64{g.From, g.To})
	}
	if h := st.Holder; h.PID != 0 {
		doc.Holder = &holderDoc{PID: h.PID, Host: h.Host, Started: times.json(h.Started), Alive: h.Alive}
	}
	return doc
}

func sumSegments(segments []evlog.SegmentInfo) (records, holes uint64, oldest, newest time.Time) {
	for i := range segments {
		s := &segments[i]
		records += s.Records
		holes += s.Holes
		if !s.Oldest.IsZero() && (oldest.IsZero() || s.Oldest.Before(oldest)) {
			oldest = s.Oldest
		}
		if !s.Newest.IsZero() && (newest.IsZero() || s.Newest.After(newest)) {
			newest = s.Newest
		}
	}
	return records, holes, oldest, newest
}

// rows is the document as lines for people.
func (d *infoDoc) rows(st *evlog.Status, segments []evlog.SegmentInfo, times timePrinter) [][]string {
	_, _, oldest, newest := sumSegments(segments)
	offsets := fmt.Sprintf("%d to %d, next %d", d.First, d.Next-1, d.Next)
	if d.First == d.Next {
		offsets = fmt.Sprintf("none, next %d", d.Next)
	}
	rows := [][]string{
		{"path", d.Path},
		{"id", orDash(d.ID)},
		{"format", strconv.Itoa(d.Format)},
		{"created", times.cell(st.Created)},
		{"offsets", offsets},
		{"records", fmt.Sprintf("%d, holes %d", d.Records, d.Holes)},
		{"oldest", times.cell(oldest)},
		{"newest", times.cell(newest)},
		{"size", fmt.Sprintf("%s, %s", plural(d.Bytes, "byte"), plural(d.Segments, "segment"))},
		{"segment size", plural(d.Config.SegmentBytes, "byte")},
		{"segment age", ageText(st.Config.SegmentAge)},
		{"index interval", plural(d.Config.IndexBytes, "byte")},
		{"sync", syncText(st.Config)},
		{"retention", retentionText(st.Config)},
	}
	if len(st.Config.HoldFor) > 0 {
		rows = append(rows, []string{"held for", holdForText(st.Config)})
	}
	for _, h := range d.holds {
		rows = append(rows, []string{"held", holdText(h)})
	}
	rows = append(rows, []string{"compaction", compactionText(st.Config)},
		[]string{"dirty", fmt.Sprintf("%s of %s closed, tombstones %d", plural(d.DirtyBytes, "byte"), plural(d.closedBytes, "byte"), d.Tombstones)})
	for _, damage := range d.Damaged {
		rows = append(rows, []string{"damaged", damage + "; not compacted"})
	}
	if d.OpenHook != "" {
		rows = append(rows, []string{"open hook", d.OpenHook})
	}
	for _, g := range d.Gaps {
		rows = append(rows, []string{"gap", fmt.Sprintf("offsets %d to %d, left by repair", g[0], g[1]-1)})
	}
	if d.DurableError != "" {
		rows = append(rows, []string{"DURABLE", d.DurableError})
	}
	if d.MetaError != "" {
		rows = append(rows, []string{"log.json", d.MetaError})
	}
	return append(append(rows, d.consumerRows()...), []string{"lock holder", holderText(st.Holder, times)})
}

func (d *infoDoc) consumerRows() [][]string {
	switch {
	case d.ConsumersError != "":
		return [][]string{{"consumers", d.ConsumersError}}
	case len(d.Consumers) == 0:
		return [][]string{{"consumers", "none"}}
	}
	var rows [][]string
	for i := range d.Consumers {
		c := &d.Consumers[i]
		text := printable(c.Name)
		if c.Committed != nil {
			text += fmt.Sprintf(" at %d", *c.Committed)
		}
		if c.Lag != nil {
			text += fmt.Sprintf(", lag %d", *c.Lag)
		}
		if c.Note != "" {
			text += ", " + c.Note
		}
		rows = append(rows, []string{"consumer", text})
	}
	return rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func ageText(d time.Duration) string {
	if d <= 0 {
		return "unlimited"
	}
	return d.String()
}

func compactionText(c evlog.StoredConfig) string {
	text := "off"
	if c.Compact {
		text = fmt.Sprintf("from %.3g%% dirty, %s old", 100*c.MinDirtyRatio, c.MinLag)
	}
	return fmt.Sprintf("%s; tombstones stay %s", text, c.TombstoneGrace)
}

func syncText(c evlog.StoredConfig) string {
	if c.Sync == evlog.SyncInterval {
		return fmt.Sprintf("%s %s", c.Sync, c.SyncInterval)
	}
	return c.Sync.String()
}

func holderText(h evlog.Holder, times timePrinter) string {
	if h.PID == 0 {
		return "none"
	}
	state := "gone"
	if h.Alive {
		state = "alive"
	}
	return fmt.Sprintf("pid %d on %s since %s, %s", h.PID, h.Host, times.cell(h.Started), state)
}
