package evlog_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

func TestLock_SecondOpenInTheSameProcess(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, nil)
		for range 3 { // a refused open must not break the lock that is held
			err := p.refused(t, nil)
			require.ErrorIs(t, err, evlog.ErrLocked)
			var locked *evlog.LockedError
			require.True(t, errors.As(err, &locked))
			require.Equal(t, os.Getpid(), locked.Holder.PID)
			require.True(t, locked.Holder.Alive)
			host, _ := os.Hostname()
			require.Equal(t, host, locked.Holder.Host)
			require.Contains(t, err.Error(), "locked")
		}
		_, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		_, err = evlog.Reindex(p.ctx, p.dir, nil)
		require.ErrorIs(t, err, evlog.ErrLocked)
		_, err = evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
		require.ErrorIs(t, err, evlog.ErrLocked)
		_, err = evlog.Repair(p.ctx, p.dir, nil)
		require.NoError(t, err, "a dry run takes no lock")

		require.NoError(t, l.Close())
		l = p.open(t, nil)
		require.NoError(t, l.Close())
		require.Contains(t, p.image(t), "LOCK", "never unlinked")
	})
}

func TestLock_RemovedWhileTheWriterRuns(t *testing.T) {
	if runtime.GOOS == "windows" || windowsRules {
		t.Skip("an open file cannot be removed")
	}
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, nil)
		d, err := p.fsys.OpenDir(p.dir)
		require.NoError(t, err)
		defer d.Close()
		require.NoError(t, d.Remove("LOCK"))
		require.ErrorIs(t, p.refused(t, nil), evlog.ErrLocked)

		// Replaced by another file, as an editor or a restored backup does.
		f, err := d.OpenFile("LOCK", os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.ErrorIs(t, p.refused(t, nil), evlog.ErrLocked)
		_, err = l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
		p.open(t, nil)
	})
}

func TestLock_OfADeadProcessIsGone(t *testing.T) {
	p := onDisk(t)
	cmd := child(t, "lock-and-die", p.dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Contains(t, string(out), "open")
	im := p.image(t)
	require.Contains(t, string(im["LOCK"]), " ", "the dead one is still written down")
	l := p.open(t, nil)
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.EqualValues(t, 1, off)
}

func init() {
	children["lock-and-die"] = func(args []string) error {
		l, err := evlog.Open(background, args[0], nil)
		if err != nil {
			return err
		}
		if _, err := l.Append(background, rec("k", "v")); err != nil {
			return err
		}
		os.Stdout.WriteString("open\n")
		os.Exit(7)
		return nil
	}
	children["try-open"] = func(args []string) error {
		l, err := evlog.Open(background, args[0], nil)
		if err == nil {
			return l.Close()
		}
		return err
	}
}

func TestLock_AnotherProcessIsRefused(t *testing.T) {
	p := onDisk(t)
	l := p.open(t, nil)
	out, err := child(t, "try-open", p.dir).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "locked")
	require.NoError(t, os.Remove(filepath.Join(p.dir, "LOCK")))
	out, err = child(t, "try-open", p.dir).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "locked")
	require.NoError(t, l.Close())
	out, err = child(t, "try-open", p.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestLock_DirectoryRenamedUnderTheWriter(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open directory cannot be renamed")
	}
	p := onDisk(t)
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 10)...)
	moved := p
	moved.dir += "-moved"
	require.NoError(t, os.Rename(p.dir, moved.dir))
	require.ErrorIs(t, moved.refused(t, nil), evlog.ErrLocked)
	// A new log at the old path is another log.
	other := p.open(t, nil)
	require.NotEqual(t, l.ID(), other.ID())
	more := numbered(10, 40)
	want = append(want, appendEach(t, p.ctx, l, more...)...)
	require.NoError(t, other.Close())
	require.NoError(t, l.Close())
	sameRecs(t, want, moved.all(t), "rolled into the directory it was opened in")
	require.Empty(t, p.all(t))
}

func TestLock_NetworkFileSystemIsRefused(t *testing.T) {
	p, m := inMem(t)
	m.SetNetwork("nfs")
	err := p.refused(t, nil)
	require.ErrorIs(t, err, evlog.ErrNetworkFS)
	require.Contains(t, err.Error(), "nfs")
	l := p.open(t, &evlog.Options{AllowNetworkFS: true})
	_, err = l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.Len(t, p.all(t), 1, "reading is free")
}
