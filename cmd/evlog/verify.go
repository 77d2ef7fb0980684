package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

func newVerifyCommand(a *app) *cobra.Command {
	var table tableFlags
	cmd := &cobra.Command{
		Use:   "verify DIR [SEGMENT...]",
		Short: "Check every byte of the log",
		Long: `Check every byte: frames, checksums, the order of offsets, indexes, DURABLE. It
works beside a live writer. SEGMENT is a base offset or the name of a .log file.

Exit status 3 means damage in a .log, or that acknowledged data is missing; it
is told with file, byte and the offsets lost. A bad index, which is rebuilt from
the log, or a torn tail that was never acknowledged is a notice and status 0.

With --json: one object with path, ok, first_offset, next_offset, records,
bytes, segments (as in "evlog segments --json", with lost_bytes) and problems:
objects with fatal, path, position, offset, lost_bytes, lost_offsets and error.`,
		Example: `  evlog verify events
  evlog verify events 4096 --json`,
		ValidArgsFunction: a.dirThen(segmentBases, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.verify(cmd, args, &table)
		},
	}
	table.register(cmd)
	return cmd
}

func (a *app) verify(cmd *cobra.Command, args []string, table *tableFlags) error {
	dir, bases, err := a.verifyArgs(cmd, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if err := haveSegments(ctx, dir, bases); err != nil {
		return err
	}
	bar := a.newProgress("verify", true)
	report, err := evlog.Verify(ctx, dir, &evlog.VerifyOptions{Segments: bases, Progress: bar.set})
	bar.end()
	a.noticeEnded(ctx, err, "not everything was checked, and nothing is told")
	if err != nil {
		return err
	}
	if table.json {
		err = writeDocument(a.out, newVerifyDoc(dir, report, table.times))
	} else {
		err = a.printVerify(report)
	}
	if err != nil {
		return err
	}
	a.verifyNotices(report)
	a.noticeBadConsumers(ctx, dir)
	return verdict(dir, report)
}

// noticeBadConsumers tells of a consumers.json that is damaged. It is not a part
// of the log, which may be sound.
func (a *app) noticeBadConsumers(ctx context.Context, dir string) {
	store, err := cursor.OpenFile(ctx, dir, nil) // silent: what it would say of log.json is told
	if err != nil {
		return // the log's own trouble, which is told too
	}
	_, err = store.List(ctx)
	closing(store, &err)
	if errors.Is(err, evlog.ErrCorrupt) {
		a.notice("%s; %s", errorText(err), hint(err))
	}
}

// verifyArgs splits DIR from segments. Where EVLOG_DIR is set, DIR may be left
// out: what names a segment and is no directory is taken for one.
func (a *app) verifyArgs(cmd *cobra.Command, args []string) (dir string, bases []uint64, err error) {
	dir = a.getenv("EVLOG_DIR")
	if len(args) > 0 {
		_, isSegment := segmentArg(args[0])
		st, statErr := os.Stat(args[0])
		isDir := statErr == nil && st.IsDir()
		if dir == "" || !isSegment || isDir {
			dir, args = args[0], args[1:]
		}
	}
	if dir == "" {
		return "", nil, usagef(cmd, "DIR is missing, and EVLOG_DIR is not set")
	}
	for _, arg := range args {
		base, ok := segmentArg(arg)
		if !ok {
			return "", nil, usagef(cmd, "%q is no segment: give its base offset or the name of its .log", arg)
		}
		bases = append(bases, base)
	}
	return dir, bases, nil
}

// segmentArg reads a base offset, or a segment's file name with or without a
// path before it.
func segmentArg(s string) (uint64, bool) {
	if base, ok := format.ParseSegmentName(filepath.Base(s)); ok {
		return base, true
	}
	base, err := strconv.ParseUint(s, 10, 64)
	return base, err == nil
}

// haveSegments checks that the segments asked for are there. It looks at the
// names alone: the log may be too damaged to be opened.
func haveSegments(_ context.Context, dir string, bases []uint64) error {
	for _, base := range bases {
		path := filepath.Join(dir, format.SegmentName(base))
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return &hinted{
				error: fmt.Errorf("%s: no such segment", path),
				hint:  "evlog segments lists them",
			}
		}
	}
	return nil
}

// printVerify prints a line for each segment and one for each damage.
func (a *app) printVerify(report *evlog.VerifyReport) error {
	rows := [][]string{{"SEGMENT", "RECORDS", "BYTES", "LOST", "STATE"}}
	lost := lostBytes(report)
	for i := range report.Segments {
		s := &report.Segments[i]
		rows = append(rows, []string{
			format.SegmentName(s.Base), strconv.FormatUint(s.Records, 10), strconv.FormatInt(s.Bytes, 10),
			strconv.FormatInt(lost[format.SegmentName(s.Base)], 10), string(s.State),
		})
	}
	if err := writeTable(a.out, rows); err != nil {
		return err
	}
	for i := range report.Problems {
		if p := &report.Problems[i]; p.Fatal {
			if _, err := fmt.Fprintf(a.out, "damaged: %s\n", problemText(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lostBytes is, by the name of each damaged segment, the number of bytes that
// can no longer be vouched for.
func lostBytes(report *evlog.VerifyReport) map[string]int64 {
	lost := map[string]int64{}
	for i := range report.Problems {
		if p := &report.Problems[i]; p.Fatal {
			name := filepath.Base(p.Path)
			lost[name] = max(lost[name], p.LostBytes)
		}
	}
	return lost
}

func (a *app) verifyNotices(report *evlog.VerifyReport) {
	for i := range report.Problems {
		if p := &report.Problems[i]; !p.Fatal {
			a.notice("%s", problemText(p))
		}
	}
}

// placeText says where a problem is and what it is, as the error about it would.
func placeText(p *evlog.Problem) string {
	return (&evlog.CorruptError{Path: p.Path, Pos: p.Pos, Offset: p.Offset, Err: errors.New(causeText(p.Err))}).Error()
}

// problemText names file, byte, offset and what is lost.
func problemText(p *evlog.Problem) string {
	var b strings.Builder
	b.WriteString(placeText(p))
	if p.LostBytes > 0 {
		fmt.Fprintf(&b, "; %s lost", plural(p.LostBytes, "byte"))
	}
	switch {
	case p.LostOffsets == 1:
		fmt.Fprintf(&b, "; offset %d lost", p.Offset)
	case p.LostOffsets > 1:
		fmt.Fprintf(&b, "; offsets %d to %d lost", p.Offset, p.Offset+p.LostOffsets-1)
	}
	return b.String()
}

// causeText is what is wrong, without the place, which is told already.
func causeText(err error) string {
	var c *evlog.CorruptError
	if errors.As(err, &c) && c.Err != nil {
		err = c.Err
	}
	if path, ok := err.(*fs.PathError); ok { //nolint:errorlint // the file is named already
		err = path.Err
	}
	return errorText(err)
}

// verdict is the error for a damaged log.
func verdict(dir string, report *evlog.VerifyReport) error {
	if report.OK() {
		return nil
	}
	fatal := 0
	var first *evlog.Problem
	for i := range report.Problems {
		if p := &report.Problems[i]; p.Fatal {
			if fatal++; first == nil {
				first = p
			}
		}
	}
	text := fmt.Sprintf("%s: log is damaged", dir)
	if first != nil {
		text = fmt.Sprintf("%s: damaged in %s, first in %s", dir, plural(fatal, "place"), placeText(first))
	}
	return &hinted{error: &damageError{text}, hint: "evlog repair says what it can save"}
}

// verifyDoc is the JSON document of verify.
type verifyDoc struct {
	Path     string          `json:"path"`
	OK       bool            `json:"ok"`
	First    uint64          `json:"first_offset"`
	Next     uint64          `json:"next_offset"`
	Records  uint64          `json:"records"`
	Bytes    int64           `json:"bytes"`
	Segments []verifySegment `json:"segments"`
	Problems []problemDoc    `json:"problems"`
}

type verifySegment struct {
	segmentDoc
	LostBytes int64 `json:"lost_bytes"`
}

type problemDoc struct {
	Fatal       bool   `json:"fatal"`
	Path        string `json:"path"`
	Position    int64  `json:"position"`
	Offset      uint64 `json:"offset"`
	LostBytes   int64  `json:"lost_bytes"`
	LostOffsets uint64 `json:"lost_offsets"`
	Error       string `json:"error"`
}

func newVerifyDoc(dir string, r *evlog.VerifyReport, times timePrinter) *verifyDoc {
	doc := &verifyDoc{
		Path: dir, OK: r.OK(), First: r.First, Next: r.Next, Records: r.Records, Bytes: r.Bytes,
		Segments: make([]verifySegment, len(r.Segments)), Problems: make([]problemDoc, len(r.Problems)),
	}
	lost := lostBytes(r)
	for i := range r.Segments {
		s := &r.Segments[i]
		doc.Segments[i] = verifySegment{newSegmentDoc(s, times), lost[format.SegmentName(s.Base)]}
	}
	for i := range r.Problems {
		p := &r.Problems[i]
		doc.Problems[i] = problemDoc{
			Fatal: p.Fatal, Path: p.Path, Position: p.Pos, Offset: p.Offset,
			LostBytes: p.LostBytes, LostOffsets: p.LostOffsets, Error: causeText(p.Err),
		}
	}
	return doc
}
