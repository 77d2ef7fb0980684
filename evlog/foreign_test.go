package evlog_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func isIndexName(name string) bool { return strings.HasSuffix(name, ".idx") }

// An index is only a help (I7): where it cannot be read, by whatever the disk or
// the permissions are, the log opens, reads and is verified as without it.
func TestIndex_ThatCannotBeRead(t *testing.T) {
	whole, want := logWith(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50}, 30)
	for _, cause := range []error{syscall.EIO, syscall.EACCES, syscall.EISDIR} {
		for _, kinds := range []vfs.OpKind{vfs.OpOpen, vfs.OpRead} {
			t.Run(kinds.String()+" "+cause.Error(), func(t *testing.T) {
				m := vfs.NewMem()
				onFS(t, m).put(t, whole)
				p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
					if op.Kind&kinds != 0 && isIndexName(op.Name) {
						return cause
					}
					return nil
				}))
				sameRecs(t, want, p.all(t))
				r := p.reader(t, nil)
				got, err := collect(r.Records(p.ctx, 7))
				require.NoError(t, err)
				sameRecs(t, want[7:], got)
				off, err := r.OffsetAt(p.ctx, evtest.Time(want[11].TimeMS))
				require.NoError(t, err)
				require.Equal(t, want[11].Offset, off)
				got, err = collect(r.Backward(p.ctx, 30))
				require.NoError(t, err)
				sameRecs(t, reversed(want), got)
				_, err = r.Segments(p.ctx)
				require.NoError(t, err)
				_, err = r.Status(p.ctx)
				require.NoError(t, err)
				p.verified(t)

				l := p.open(t, nil)
				off, err = l.Append(p.ctx, rec("k", "v"))
				require.NoError(t, err)
				require.EqualValues(t, 30, off)
				require.NoError(t, l.Close())
			})
		}
	}
	// What is wrong with this process is an error, and no reason to scan.
	m := vfs.NewMem()
	onFS(t, m).put(t, whole)
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && isIndexName(op.Name) {
			return syscall.EMFILE
		}
		return nil
	}))
	require.ErrorIs(t, p.refused(t, nil), syscall.EMFILE)
	_, err := collect(p.reader(t, nil).Records(p.ctx, 7))
	require.ErrorIs(t, err, syscall.EMFILE)
}

// An error of a directory sync is told once. Writing an index syncs no
// directory: it could take away the error that belongs to the name of a new
// segment, and nothing depends on the index's name. (I5, I7)
func TestIndex_WritingItSyncsNoDirectory(t *testing.T) {
	trace := vfs.NewTrace(vfs.OpDirSync | vfs.OpRename)
	p := onFS(t, vfs.Inject(vfs.NewMem(), nil).After(trace.Record))
	l := p.open(t, &evlog.Options{SegmentBytes: 230, NoPreallocate: true})
	trace.Reset()
	appendEach(t, p.ctx, l, numbered(0, 30)...)
	rolls := int(l.Stats().Rolls)
	require.Greater(t, rolls, 3)
	n, err := l.Reindex(p.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, rolls, n)
	require.NoError(t, l.Close())
	syncs := 0
	for _, op := range trace.Strings() {
		if op == "dirsync" {
			syncs++
		}
	}
	require.Equal(t, rolls+1, syncs, "one for each new segment, one at Close: %v", trace.Strings())
}

// What takes DURABLE away may take the active segment with it. Records in a file
// that has no name any more are nobody's: the log is poisoned before it
// acknowledges one, and not only where DURABLE shows it. (I1)
func TestFailure_ActiveSegmentRemovedUnderTheWriter(t *testing.T) {
	for _, names := range [][]string{{"DURABLE"}, {evtest.SegmentFile(0)}, {"DURABLE", evtest.SegmentFile(0)}} {
		t.Run(strings.Join(names, " "), func(t *testing.T) {
			eachPlace(t, func(t *testing.T, p place) {
				l := p.open(t, nil)
				appendEach(t, p.ctx, l, numbered(0, 2)...)
				d, err := p.fsys.OpenDir(p.dir)
				require.NoError(t, err)
				defer d.Close()
				for _, name := range names {
					require.NoError(t, d.Remove(name))
				}
				_, err = l.Append(p.ctx, rec("k", "v"))
				switch {
				case len(names) == 2:
					require.ErrorIs(t, err, evlog.ErrPoisoned)
					require.ErrorContains(t, err, names[1]+" was removed or replaced")
					require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
				case names[0] == "DURABLE":
					require.NoError(t, err)
					require.NoError(t, l.Close())
				default: // noticed when the log comes to rest
					soon(t, "poisoned", func() bool { return l.Flush(p.ctx) != nil })
					require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
				}
			})
		})
	}
}

// A DURABLE that got longer is damaged for readers. The writer mends it when it
// comes to rest, and when it closes.
func TestFailure_DurableGrownUnderTheWriter(t *testing.T) {
	for _, closes := range []bool{false, true} {
		p, _ := inMem(t)
		l := p.open(t, nil)
		want := appendEach(t, p.ctx, l, numbered(0, 2)...)
		d, err := p.fsys.OpenDir(p.dir)
		require.NoError(t, err)
		defer d.Close()
		f, err := d.OpenFile("DURABLE", os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("longer"), 32)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		want = append(want, appendEach(t, p.ctx, l, rec("k", "v"))...)
		if closes {
			require.NoError(t, l.Close())
		} else {
			soon(t, "mended", func() bool { return len(p.image(t)["DURABLE"]) == 32 })
		}
		sameRecs(t, want, p.image(t).Reader().Recs)
		sameRecs(t, want, p.all(t))
		require.NoError(t, l.Close())
	}
}
