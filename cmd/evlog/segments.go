package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newSegmentsCommand(a *app) *cobra.Command {
	var table tableFlags
	cmd := &cobra.Command{
		Use:   "segments DIR",
		Short: "List the segments",
		Long: `List the segments, oldest first. A segment holds the offsets from its base up
to its end; holes are offsets in between without a record. Bytes are those of
its records, dirty those that compaction has not been through, oldest and newest
the lowest and highest time in it. State is active (appended to), closed, or
damaged.

With --json: an array of objects with base, end, records, holes, tombstones,
bytes, file_bytes, dirty_bytes, oldest, newest, closed (the time, null while
active), cleaned (when compaction first cleaned it, null if it has not),
indexed, state, and error where it is damaged.`,
		Example: `  evlog segments events
  evlog segments events --json | jq '.[].base'`,
		ValidArgsFunction: dirOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.segments(cmd, args, &table)
		},
	}
	table.register(cmd)
	return cmd
}

func (a *app) segments(cmd *cobra.Command, args []string, table *tableFlags) (err error) {
	dir, _, err := a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	r, err := a.openReader(cmd.Context(), dir, false)
	if err != nil {
		return err
	}
	defer closing(r, &err)
	segments, err := r.Segments(cmd.Context())
	if err != nil {
		return err
	}
	if err := a.printSegments(segments, table); err != nil {
		return err
	}
	return damagedSegment(segments)
}

func (a *app) printSegments(segments []evlog.SegmentInfo, table *tableFlags) error {
	if table.json {
		docs := make([]segmentDoc, len(segments))
		for i := range segments {
			docs[i] = newSegmentDoc(&segments[i], table.times)
		}
		return writeDocument(a.out, docs)
	}
	rows := [][]string{{"BASE", "END", "RECORDS", "HOLES", "TOMBSTONES", "BYTES", "DIRTY", "OLDEST", "NEWEST", "STATE"}}
	for i := range segments {
		s := &segments[i]
		rows = append(rows, []string{
			strconv.FormatUint(s.Base, 10), strconv.FormatUint(s.End, 10),
			strconv.FormatUint(s.Records, 10), strconv.FormatUint(s.Holes, 10), strconv.FormatUint(s.Tombstones, 10),
			strconv.FormatInt(s.Bytes, 10), strconv.FormatInt(s.DirtyBytes, 10),
			table.times.cell(s.Oldest), table.times.cell(s.Newest), string(s.State),
		})
	}
	return writeTable(a.out, rows)
}

// damagedSegment is the error for the first damaged segment, if there is one.
func damagedSegment(segments []evlog.SegmentInfo) error {
	for i := range segments {
		if s := &segments[i]; s.State == evlog.SegmentDamaged {
			return &hinted{
				error: &damageError{errorText(s.Err)},
				hint:  "evlog verify shows what is damaged, evlog repair what it would cut",
			}
		}
	}
	return nil
}

// segmentDoc is a segment in a JSON document.
type segmentDoc struct {
	Base       uint64  `json:"base"`
	End        uint64  `json:"end"`
	Records    uint64  `json:"records"`
	Holes      uint64  `json:"holes"`
	Tombstones uint64  `json:"tombstones"`
	Bytes      int64   `json:"bytes"`
	FileBytes  int64   `json:"file_bytes"`
	DirtyBytes int64   `json:"dirty_bytes"`
	Oldest     *string `json:"oldest"`
	Newest     *string `json:"newest"`
	Closed     *string `json:"closed"`
	Cleaned    *string `json:"cleaned"`
	Indexed    bool    `json:"indexed"`
	State      string  `json:"state"`
	Error      string  `json:"error,omitempty"`
}

func newSegmentDoc(s *evlog.SegmentInfo, times timePrinter) segmentDoc {
	return segmentDoc{
		Base: s.Base, End: s.End, Records: s.Records, Holes: s.Holes, Tombstones: s.Tombstones,
		Bytes: s.Bytes, FileBytes: s.FileBytes, DirtyBytes: s.DirtyBytes,
		Oldest: times.json(s.Oldest), Newest: times.json(s.Newest), Closed: times.json(s.Closed), Cleaned: times.json(s.Cleaned),
		Indexed: s.Indexed, State: string(s.State), Error: errorText(s.Err),
	}
}

// errorText is the error in a document, empty where there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(err.Error())
}
