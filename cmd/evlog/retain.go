package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newRetainCommand(a *app) *cobra.Command {
	c := retainCommand{a: a}
	cmd := &cobra.Command{
		Use:   "retain DIR",
		Short: "Remove the oldest segments by age, size or number of records",
		Long: `Remove closed segments, oldest first, by the limits that are stored in the log,
or by those given here, for this once. A program that has the log open for
writing does the same by itself.

  --max-age D      removes segments whose records are all older. The age counts
                   from the highest time in the segment or from its closing,
                   whichever is earlier. An active segment that old is closed
                   first
  --max-bytes N    removes segments while all files of the log take more
  --max-records N  keeps the newest N records, and what shares a segment

"none" turns a stored limit off for this once. What consumers hold (evlog info)
stays.

With --dry-run it says what would go and why, takes no lock and changes nothing.

With --json: one object with path, executed, first_offset (first one left),
bytes (of all files left), rolled (the active segment was closed first),
clock_wait_ms (how long no age counts, after the wall clock has jumped forwards;
0 if it has not), removed and held: arrays of segments with base, end, bytes,
reason (age, bytes, records), time (that its age counts from, null where it was
not asked for) and overruled (consumers that had not finished it); and holds:
for whom the held ones stay, with name, from_offset, segments, bytes and error.`,
		Example: `  evlog retain events --max-age 30d --dry-run
  evlog retain events --max-bytes 10GiB`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	flags := cmd.Flags()
	flags.Var(&c.maxAge, "max-age", "remove what is older, such as 30d")
	flags.Var(&c.maxBytes, "max-bytes", "remove while all files take more, such as 10GiB")
	flags.Var(&c.maxRecords, "max-records", "keep this many of the newest records")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only say what would go")
	c.table.register(cmd)
	return cmd
}

type retainCommand struct {
	a          *app
	maxAge     spanLimit
	maxBytes   sizeLimit
	maxRecords countLimit
	dryRun     bool
	table      tableFlags
}

func (c *retainCommand) run(cmd *cobra.Command, args []string) error {
	dir, _, err := c.a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	opts := evlog.RetainOptions{MaxAge: c.maxAge.d, MaxBytes: c.maxBytes.n, MaxRecords: c.maxRecords.n}
	config, rep, err := c.retain(cmd.Context(), dir, opts)
	if rep == nil {
		return lockedHint(err, "its writer removes by itself what is due by the limits stored in the log; for others close that program first")
	}
	if err != nil && (c.dryRun || rep.Bytes == 0 && len(rep.Removed) == 0) { // it was not found out what is there
		c.a.noticeEnded(cmd.Context(), err, "nothing was removed")
		return err
	}
	c.a.noticeEnded(cmd.Context(), err, "this much was removed, and no more")
	if printErr := c.print(dir, rep); err == nil {
		err = printErr
	}
	if err != nil {
		return err
	}
	c.notices(rep, config, opts)
	return nil
}

// retain does it, or plans it.
func (c *retainCommand) retain(ctx context.Context, dir string, opts evlog.RetainOptions) (config evlog.StoredConfig, rep *evlog.RetainReport, err error) {
	if c.dryRun {
		r, err := c.a.openReader(ctx, dir, false)
		if err != nil {
			return config, nil, err
		}
		defer closing(r, &err)
		st, err := r.Status(ctx)
		if err != nil {
			return config, nil, err
		}
		rep, err = r.PlanRetain(ctx, &opts)
		return st.Config, rep, err
	}
	l, err := evlog.Open(ctx, dir, &evlog.Options{MustExist: true, NoRetention: true, NoCompaction: true, NoPreallocate: true, Logger: c.a.logger()})
	if err != nil {
		return config, nil, err
	}
	defer closing(l, &err)
	bar := c.a.newProgress("retain", false)
	defer bar.end()
	opts.Progress = func(done, total int) { bar.set(int64(done), int64(total)) }
	rep, err = l.Retain(ctx, &opts)
	return l.Config(), rep, err
}

func (c *retainCommand) print(dir string, rep *evlog.RetainReport) error {
	if c.table.json {
		return writeDocument(c.a.out, c.document(dir, rep))
	}
	if len(rep.Removed) > 0 {
		rows := [][]string{{"BASE", "END", "BYTES", "TIME", "REASON"}}
		for _, s := range rep.Removed {
			rows = append(rows, []string{
				strconv.FormatUint(s.Base, 10), strconv.FormatUint(s.End, 10), strconv.FormatInt(s.Bytes, 10),
				c.table.times.cell(s.Time), string(s.Reason),
			})
		}
		if err := writeTable(c.a.out, rows); err != nil {
			return err
		}
	}
	done := "removed"
	if c.dryRun {
		done = "would remove"
	}
	_, err := fmt.Fprintf(c.a.out, "%s %s, %s; first offset %d, %s left\n", done,
		plural(len(rep.Removed), "segment"), plural(sumBytes(rep.Removed), "byte"), rep.First, plural(rep.Bytes, "byte"))
	return err
}

// notices say why something stays.
func (c *retainCommand) notices(rep *evlog.RetainReport, config evlog.StoredConfig, opts evlog.RetainOptions) {
	for _, s := range rep.Removed {
		for _, name := range s.Overruled {
			c.a.notice("offsets %d to %d: %s had not finished them, and the bound of what is held is passed", s.Base, s.End-1, printable(name))
		}
	}
	for _, h := range rep.Holds {
		c.a.notice("%s", holdText(h))
	}
	if rep.ClockWait > 0 {
		c.a.notice("the wall clock has jumped forwards: no age counts for %v more", wholeSeconds(rep.ClockWait))
	}
	if opts.MaxAge == 0 && opts.MaxBytes == 0 && opts.MaxRecords == 0 &&
		config.MaxAge == 0 && config.MaxBytes == 0 && config.MaxRecords == 0 {
		c.a.notice("no limit is stored in the log, and none was given")
	}
	limit := config.MaxBytes
	if opts.MaxBytes != 0 {
		limit = max(0, opts.MaxBytes)
	}
	if limit > 0 && rep.Bytes > limit && len(rep.Held) == 0 {
		c.a.notice("all files take more than %s: the active segment is not removed for its size", plural(limit, "byte"))
	}
}

// holdText says for whom how much stays.
func holdText(h evlog.Hold) string {
	much := fmt.Sprintf("%s that are due, %s, stay", plural(h.Segments, "segment"), plural(h.Bytes, "byte"))
	if h.Segments == 1 {
		much = fmt.Sprintf("1 segment that is due, %s, stays", plural(h.Bytes, "byte"))
	}
	switch {
	case h.Name == "":
		return fmt.Sprintf("%s: who is how far is not known: %v", much, h.Err)
	case errors.Is(h.Err, evlog.ErrNotFound):
		return fmt.Sprintf("%s for %s, which has never committed", much, printable(h.Name))
	}
	return fmt.Sprintf("%s for %s, which is at offset %d", much, printable(h.Name), h.Next)
}

func sumBytes(segments []evlog.DueSegment) (n int64) {
	for _, s := range segments {
		n += s.Bytes
	}
	return n
}

// retainDoc is the JSON document of retain.
type retainDoc struct {
	Path     string    `json:"path"`
	Executed bool      `json:"executed"`
	First    uint64    `json:"first_offset"`
	Bytes    int64     `json:"bytes"`
	Rolled   bool      `json:"rolled"`
	WaitMS   int64     `json:"clock_wait_ms"`
	Removed  []dueDoc  `json:"removed"`
	Held     []dueDoc  `json:"held"`
	Holds    []holdDoc `json:"holds"`
}

type dueDoc struct {
	Base      uint64   `json:"base"`
	End       uint64   `json:"end"`
	Bytes     int64    `json:"bytes"`
	Reason    string   `json:"reason"`
	Time      *string  `json:"time"`
	Overruled []string `json:"overruled"`
}

type holdDoc struct {
	Name     string `json:"name"`
	From     uint64 `json:"from_offset"`
	Segments int    `json:"segments"`
	Bytes    int64  `json:"bytes"`
	Error    string `json:"error"`
}

func (c *retainCommand) document(dir string, rep *evlog.RetainReport) *retainDoc {
	return &retainDoc{
		Path: dir, Executed: !c.dryRun, First: rep.First, Bytes: rep.Bytes, Rolled: rep.Rolls,
		WaitMS:  rep.ClockWait.Milliseconds(),
		Removed: dueDocs(rep.Removed, c.table.times), Held: dueDocs(rep.Held, c.table.times), Holds: holdDocs(rep.Holds),
	}
}

func dueDocs(segments []evlog.DueSegment, times timePrinter) []dueDoc {
	docs := make([]dueDoc, len(segments))
	for i, s := range segments {
		docs[i] = dueDoc{
			Base: s.Base, End: s.End, Bytes: s.Bytes, Reason: string(s.Reason),
			Time: times.json(s.Time), Overruled: append([]string{}, s.Overruled...),
		}
	}
	return docs
}

func holdDocs(holds []evlog.Hold) []holdDoc {
	docs := make([]holdDoc, len(holds))
	for i, h := range holds {
		docs[i] = holdDoc{Name: h.Name, From: h.Next, Segments: h.Segments, Bytes: h.Bytes, Error: errorText(h.Err)}
	}
	return docs
}
