package sqlbridge

import (
	"context"
	"errors"
	"slices"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/strict"
)

// Run applies the records of log from the cursor of the consumer name on, in
// batches, each in one transaction together with the cursor, and follows the
// log. Effects in the database of the bridge so happen exactly once, whatever
// crashes when. Two consumers under one name do not share the work: the one that
// comes second ends with a *cursor.MovedError.
//
// Run ends
//   - with the context's error when ctx ends; what has been handled until then
//     is committed (see Process for a handler that returns it itself). Where
//     another connection writes at that moment, the busy timeout passes first;
//   - with a *cursor.HandlerError when a record has failed all its attempts and
//     is not to be skipped; what stands before it is committed;
//   - with the log's error, such as *evlog.CorruptError or evlog.ErrClosed, and
//     where Reset is Fail with a *cursor.RangeError when retention has removed
//     what comes next;
//   - with a busy error (IsBusy) when Options.BusyFor is over, and with every
//     other error of the database at once;
//   - with nil at RunOptions.UntilEnd.
//
// A panic of the handler rolls back and goes on to the caller. Nothing of Run
// runs any more when it has returned, and between batches it holds no connection.
func (b *Bridge) Run(ctx context.Context, log cursor.Log, name string, handle Handler, opts *RunOptions) error {
	a, err := b.newApplier(log, name, handle, opts)
	if err != nil {
		return err
	}
	a.limit = a.o.BatchTime
	for tries := 0; ; tries++ {
		before := a.next
		if err := a.resume(ctx, nil); err != nil {
			return err
		}
		err := a.follow(ctx)
		if !overtaken(err) {
			return err
		}
		// Retention has removed what comes next, so resume decides again. A log
		// that says so and has it after all gets a few more chances.
		if a.next > before { // applied, or reset by policy
			tries = 0
		}
		if tries > 2 {
			return err
		}
	}
}

func overtaken(err error) bool {
	var handler *cursor.HandlerError
	return errors.Is(err, evlog.ErrOffsetOutOfRange) && !errors.As(err, &handler)
}

// follow applies batches until an error, or the end where that is asked for.
func (a *applier) follow(ctx context.Context) error {
	records := a.log.Follow
	if a.o.UntilEnd {
		records = a.log.Records
	}
	f := a.b.newFeed(a.o)
	reading, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.fill(reading, records(strict.Context(reading), a.next))
	}()
	defer func() { // also when the handler panics
		stop()
		<-done
	}()
	for {
		recs, err := f.take(ctx)
		if err != nil || recs == nil {
			return err
		}
		for batch := range slices.Chunk(recs, a.o.BatchRecords) {
			if err := a.apply(ctx, batch); err != nil {
				return err
			}
		}
	}
}
