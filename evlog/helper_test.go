package evlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// ctxT keeps function types short.
type ctxT = context.Context

// place is where a test's log lives.
type place struct {
	ctx  context.Context
	dir  string
	fsys vfs.FS
}

func onDisk(t testing.TB) place {
	return place{ctx: t.Context(), dir: filepath.Join(t.TempDir(), "log"), fsys: vfs.OS{}}
}

func inMem(t testing.TB) (place, *vfs.Mem) {
	m := vfs.NewMem()
	return onFS(t, m), m
}

func onFS(t testing.TB, fsys vfs.FS) place {
	p := place{ctx: vfs.NewContext(t.Context(), fsys), dir: "/data/log", fsys: fsys}
	if m, ok := fsys.(*vfs.Mem); ok && windowsRules {
		p.ctx = vfs.NewContext(t.Context(), vfs.Windows(m)) // what the test itself does is done from outside
	}
	return p
}

// windowsRules has the tests in memory run by the rules that Windows has for open
// files: EVLOG_RULES=windows.
var windowsRules = os.Getenv("EVLOG_RULES") == "windows"

// reindex writes all indexes anew. By the rules of Windows the housekeeper may have
// one open for a moment.
func reindex(t testing.TB, p place, l *evlog.Log) {
	t.Helper()
	_, err := l.Reindex(p.ctx, nil)
	for range 200 {
		if !windowsRules || !errors.Is(err, fs.ErrPermission) {
			break
		}
		time.Sleep(time.Millisecond)
		_, err = l.Reindex(p.ctx, nil)
	}
	require.NoError(t, err)
}

// settled waits, by the rules of Windows alone, until the housekeeper has nothing
// open any more.
func (p place) settled(t testing.TB) {
	t.Helper()
	if windowsRules {
		quiet(t, p)
		time.Sleep(10 * time.Millisecond)
	}
}

// lets returns a reader that keeps nobody from replacing what it has read: another
// one, by the rules of Windows.
func (p place) lets(t testing.TB, r *evlog.Reader) *evlog.Reader {
	t.Helper()
	if !windowsRules {
		return r
	}
	require.NoError(t, r.Close())
	return p.reader(t, nil)
}

// on is the same directory through another file system.
func (p place) on(fsys vfs.FS) place {
	return place{ctx: vfs.NewContext(p.ctx, fsys), dir: p.dir, fsys: fsys}
}

// open opens the log for writing; it is closed when the test ends, whatever
// that says: a test that cares closes it itself.
func (p place) open(t testing.TB, opts *evlog.Options) *evlog.Log {
	t.Helper()
	l, err := evlog.Open(p.ctx, p.dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// refused opens the log, which must fail.
func (p place) refused(t testing.TB, opts *evlog.Options) error {
	t.Helper()
	l, err := evlog.Open(p.ctx, p.dir, opts)
	if err == nil {
		_ = l.Close()
	}
	require.Error(t, err)
	return err
}

func (p place) reader(t testing.TB, opts *evlog.ReaderOptions) *evlog.Reader {
	t.Helper()
	r, err := evlog.OpenReader(p.ctx, p.dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// image reads every file of the log.
func (p place) image(t testing.TB) evtest.Image {
	t.Helper()
	im, err := evtest.ReadFS(p.fsys, p.dir)
	require.NoError(t, err)
	return im
}

// put writes an image into the place.
func (p place) put(t testing.TB, im evtest.Image) {
	t.Helper()
	require.NoError(t, im.WriteFS(p.fsys, p.dir))
}

// all reads the whole log through a reader of its own.
func (p place) all(t testing.TB) []evtest.Rec {
	t.Helper()
	r := p.reader(t, nil)
	defer r.Close()
	recs, err := readAll(p.ctx, r)
	require.NoError(t, err)
	return recs
}

// verified checks every byte, and that nothing fatal is found.
func (p place) verified(t testing.TB) *evlog.VerifyReport {
	t.Helper()
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.True(t, rep.OK(), "%+v", rep.Problems)
	return rep
}

// readAll reads from the first record there is. The first one may have gone
// meanwhile, also where nothing is retained: the housekeeper puts a file back where
// it finds an index alone, and removes it again.
func readAll(ctx context.Context, r *evlog.Reader) ([]evtest.Rec, error) {
	first, _, err := r.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	for {
		recs, err := collect(r.Records(ctx, first))
		var behind *evlog.OffsetError
		if len(recs) > 0 || !errors.As(err, &behind) || behind.First <= first {
			return recs, err
		}
		first = behind.First
	}
}

// collect drains an iterator. One that goes on after an error fails.
func collect(seq iter.Seq2[evlog.Record, error]) ([]evtest.Rec, error) {
	var recs []evtest.Rec
	var failed error
	for r, err := range seq {
		if failed != nil {
			return recs, fmt.Errorf("the iterator goes on after: %w", failed)
		}
		if err != nil {
			failed = err
			continue
		}
		recs = append(recs, evtest.RecOf(r))
	}
	return recs, failed
}

// take reads n records and stops there. Safe in any goroutine.
func take(t testing.TB, seq iter.Seq2[evlog.Record, error], n int) []evtest.Rec {
	t.Helper()
	var recs []evtest.Rec
	if n == 0 {
		return nil
	}
	for r, err := range seq {
		if err != nil {
			t.Errorf("after %d of %d records: %v", len(recs), n, err)
			return recs
		}
		recs = append(recs, evtest.RecOf(r))
		if len(recs) == n {
			return recs
		}
	}
	t.Errorf("ended after %d of %d records", len(recs), n)
	return recs
}

// sameRecs fails with the first difference alone.
func sameRecs(t testing.TB, want, got []evtest.Rec, msg ...any) {
	t.Helper()
	if diff := diffRecs(want, got); diff != "" {
		require.Fail(t, diff, msg...)
	}
}

func diffRecs(want, got []evtest.Rec) string {
	for i := range min(len(want), len(got)) {
		if !want[i].Same(got[i]) {
			return fmt.Sprintf("record %d of %d: want %v, got %v", i, len(want), want[i], got[i])
		}
	}
	switch {
	case len(got) < len(want):
		return fmt.Sprintf("%d records, want %d; the first that is missing: %v", len(got), len(want), want[len(got)])
	case len(got) > len(want):
		return fmt.Sprintf("%d records, want %d; the first too many: %v", len(got), len(want), got[len(want)])
	}
	return ""
}

// recsAt are records as they must read back when appended at first.
func recsAt(first uint64, records ...evlog.Record) []evtest.Rec {
	recs := make([]evtest.Rec, len(records))
	for i, r := range records {
		recs[i] = evtest.RecOf(r)
		recs[i].Offset = first + uint64(i)
	}
	return recs
}

// rec is a small record with a fixed time.
func rec(key, value string) evlog.Record {
	return evlog.Record{Time: time.UnixMilli(1_700_000_000_000), Key: []byte(key), Value: []byte(value)}
}

// numbered are n small records, each with its number in it.
func numbered(from, n int) []evlog.Record {
	recs := make([]evlog.Record, n)
	for i := range recs {
		recs[i] = rec(fmt.Sprintf("k%d", (from+i)%7), fmt.Sprintf("value %d", from+i))
		recs[i].Time = time.UnixMilli(1_700_000_000_000 + int64(from+i)*10)
	}
	return recs
}

// appendEach appends records one by one and returns what must be read.
func appendEach(t testing.TB, ctx context.Context, l *evlog.Log, records ...evlog.Record) []evtest.Rec {
	t.Helper()
	var want []evtest.Rec
	for _, r := range records {
		off, err := l.Append(ctx, r)
		require.NoError(t, err)
		want = append(want, recsAt(off, r)...)
	}
	return want
}

// soon waits for a condition that another goroutine or process brings about.
func soon(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 20*time.Second, time.Millisecond, what)
}

// inTime fails the test, with what was waited for, rather than hang.
func inTime[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		require.FailNow(t, "timed out", what)
		panic("unreachable")
	}
}

// eachPlace runs a test on the real file system and in memory.
func eachPlace(t *testing.T, f func(t *testing.T, p place)) {
	t.Run("disk", func(t *testing.T) { f(t, onDisk(t)) })
	t.Run("mem", func(t *testing.T) {
		p, _ := inMem(t)
		f(t, p)
	})
}

// corruptAt asserts a *CorruptError and where it points.
func corruptAt(t testing.TB, err error, file string, pos int64) *evlog.CorruptError {
	t.Helper()
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	var c *evlog.CorruptError
	require.True(t, errors.As(err, &c), "no *CorruptError: %v", err)
	require.Equal(t, file, filepath.Base(c.Path), err.Error())
	if pos >= 0 {
		require.Equal(t, pos, c.Pos, err.Error())
	}
	return c
}

// Small segments and small index steps, so that few records meet every border.
func tiny() *evlog.Options { return &evlog.Options{SegmentBytes: 512, IndexBytes: 100} }

// sameImage compares the files of two logs.
func sameImage(t testing.TB, want, got evtest.Image, msg ...any) {
	t.Helper()
	var diff []string
	for name, b := range want {
		if g, ok := got[name]; !ok {
			diff = append(diff, name+" is gone")
		} else if !bytes.Equal(b, g) {
			diff = append(diff, fmt.Sprintf("%s: %d bytes, now %d", name, len(b), len(g)))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			diff = append(diff, name+" is new")
		}
	}
	if len(diff) > 0 {
		require.Fail(t, "files differ: "+strings.Join(diff, ", "), msg...)
	}
}
