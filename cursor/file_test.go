package cursor_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func TestFile_Format(t *testing.T) {
	dir, l := logOf(t, 1)
	ctx := dir.Context()
	f, err := cursor.OpenFile(ctx, dir.Path(), &cursor.FileOptions{Clock: evlogtest.NewClock(time.UnixMilli(1_758_337_200_123))})
	require.NoError(t, err)
	defer f.Close()
	require.Empty(t, readFile(t, ctx, dir.Path(), consumersJSON), "opening creates nothing")
	require.NoError(t, f.Commit(ctx, "uplink", 0, 4182))
	require.Equal(t,
		`{"version":1,"log_id":"`+l.Reader().ID()+`","consumers":{"uplink":{"next_offset":4182,"updated_ms":1758337200123}}}`+"\n",
		readFile(t, ctx, dir.Path(), consumersJSON))
	p, err := f.Load(ctx, "uplink")
	require.NoError(t, err)
	require.Equal(t, cursor.Position{Name: "uplink", Next: 4182, Updated: time.UnixMilli(1_758_337_200_123).UTC(), LogID: l.Reader().ID()}, p)
}

// The page's own example can be read.
func TestFile_PageExample(t *testing.T) {
	page, err := os.ReadFile("../docs/FORMAT.md")
	require.NoError(t, err)
	example := regexp.MustCompile(`(?m)^\{"version":1,"log_id":.*$`).Find(page)
	require.NotEmpty(t, example)
	dir, _ := logOf(t, 1)
	writeFile(t, dir.Context(), dir.Path(), consumersJSON, string(example))
	all, err := storeOf(t, dir).List(dir.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "uplink", all[0].Name)
	require.EqualValues(t, 4182, all[0].Next)
}

// What another program or a later edition of this version has put in stays,
// where it stood.
func TestFile_KeepsUnknownFields(t *testing.T) {
	dir, l := logOf(t, 1)
	ctx, id := dir.Context(), l.Reader().ID()
	writeFile(t, ctx, dir.Path(), consumersJSON, `{ "note": "<mine & yours>", "version": 1, "log_id": "`+id+`", "zz": {"n": 1e3, "big": 18446744073709551616},
		"consumers": {"a": {"next_offset": 3, "updated_ms": 5, "host": [1, {"x": null}]}, "b": {"updated_ms": 6, "next_offset": 7}}}`)
	f := storeOf(t, dir)
	require.NoError(t, f.Commit(ctx, "b", 7, 8))
	require.NoError(t, f.Commit(ctx, "a", 3, 4))
	got := regexp.MustCompile(`"updated_ms":\d{13}`).ReplaceAllString(readFile(t, ctx, dir.Path(), consumersJSON), `"updated_ms":NOW`)
	require.Equal(t, `{"version":1,"log_id":"`+id+`","consumers":{"a":{"next_offset":4,"updated_ms":NOW,"host":[1,{"x":null}]},`+
		`"b":{"next_offset":8,"updated_ms":NOW}},"note":"<mine & yours>","zz":{"n":1e3,"big":18446744073709551616}}`+"\n", got)
}

// damaged are contents that are not what a commit left.
func damaged(id string) map[string]string {
	whole := `{"version":1,"log_id":"` + id + `","consumers":{"a":{"next_offset":3,"updated_ms":5}}}`
	all := map[string]string{
		"empty":                   "",
		"blank":                   "\n",
		"zeros":                   strings.Repeat("\x00", len(whole)),
		"half zeros":              whole[:20] + strings.Repeat("\x00", len(whole)-20),
		"null":                    "null",
		"a list":                  "[]",
		"no version":              strings.Replace(whole, `"version":1,`, "", 1),
		"version 0":               strings.Replace(whole, `:1,`, ":0,", 1),
		"version null":            strings.Replace(whole, `:1,`, ":null,", 1),
		"version text":            strings.Replace(whole, `:1,`, `:"1",`, 1),
		"no id":                   strings.Replace(whole, `"log_id":"`+id+`",`, "", 1),
		"empty id":                strings.Replace(whole, id, "", 1),
		"no consumers":            `{"version":1,"log_id":"` + id + `"}`,
		"consumers null":          `{"version":1,"log_id":"` + id + `","consumers":null}`,
		"consumer null":           strings.Replace(whole, `{"next_offset":3,"updated_ms":5}`, "null", 1),
		"no offset":               strings.Replace(whole, `"next_offset":3,`, "", 1),
		"offset null":             strings.Replace(whole, `:3,`, ":null,", 1),
		"offset negative":         strings.Replace(whole, `:3,`, ":-3,", 1),
		"offset broken":           strings.Replace(whole, `:3,`, ":3.5,", 1),
		"offset text":             strings.Replace(whole, `:3,`, `:"3",`, 1),
		"offset too high":         strings.Replace(whole, `:3,`, `:18446744073709551616,`, 1),
		"another case":            strings.Replace(whole, "next_offset", "Next_Offset", 1),
		"not UTF-8":               strings.Replace(whole, `"a"`, "\"\xff\"", 1),
		"something behind":        whole + "{}",
		"a name twice":            strings.Replace(whole, `"a":{`, `"a":{"next_offset":9,"updated_ms":5},"a":{`, 1),
		"an offset twice":         strings.Replace(whole, `"next_offset":3,`, `"next_offset":3,"next_offset":4,`, 1),
		"other logs null":         strings.TrimSuffix(whole, "}") + `,"other_logs":null}`,
		"other logs without next": strings.TrimSuffix(whole, "}") + `,"other_logs":{"x":{"b":{"updated_ms":1}}}}`,
	}
	for n := range len(whole) {
		all[fmt.Sprintf("cut at %d", n)] = whole[:n]
	}
	return all
}

// A damaged file is an error that names it, whatever is asked of it, and never
// an offset 0. It stays as it is.
func TestFile_DamagedFileIsAnError(t *testing.T) {
	dir, l := logOf(t, 1)
	ctx := dir.Context()
	f := storeOf(t, dir)
	for name, content := range damaged(l.Reader().ID()) {
		writeFile(t, ctx, dir.Path(), consumersJSON, content)
		_, loadErr := f.Load(ctx, "a")
		_, listErr := f.List(ctx)
		for _, err := range []error{
			loadErr, listErr, f.Commit(ctx, "a", 3, 4), f.Commit(ctx, "new", 0, 1),
			f.Reset(ctx, "a", 3, 0), f.Remove(ctx, "a"),
			cursor.Run(ctx, l.Reader(), f, "a", new(handled).handle, &cursor.Options{Reset: cursor.Earliest}),
		} {
			var corrupt *evlog.CorruptError
			require.ErrorAs(t, err, &corrupt, name)
			require.Equal(t, consumersPath(dir), corrupt.Path, name)
		}
		require.Equal(t, content, readFile(t, ctx, dir.Path(), consumersJSON), name)
	}
	require.NoError(t, openDir(t, ctx, dir.Path()).Remove(consumersJSON))
}

// The message says where the damage is, and what stands there, in words.
func TestFile_DamageIsDescribed(t *testing.T) {
	dir, _ := logOf(t, 1)
	ctx := dir.Context()
	f := storeOf(t, dir)
	for content, want := range map[string]string{
		`{"version":1,"log_id":"x","consumers":{}} x`: "byte 43: invalid character 'x' after top-level value",
		`{"version":1,"log_id":"x","version":1}`:      `byte 35: the name "version" is there twice`,
		`{"version":1,"log_id":7,"consumers":{}}`:     "byte 0: field log_id: a JSON number is not a string",
		`[]`: "byte 0: a JSON array is not an object",
		`{"version":1,"log_id":"x","consumers":{"a":{"next_offset":-2,"updated_ms":1}}}`: `byte 0: consumer "a": field next_offset: a JSON number -2 is not a number from 0 to 2^64-1`,
	} {
		writeFile(t, ctx, dir.Path(), consumersJSON, content)
		_, err := f.Load(ctx, "a")
		require.EqualError(t, err, consumersPath(dir)+": "+want)
	}
}

func TestFile_LaterVersion(t *testing.T) {
	dir, _ := logOf(t, 1)
	ctx := dir.Context()
	content := `{"version":2,"cursors":[]}`
	writeFile(t, ctx, dir.Path(), consumersJSON, content)
	f := storeOf(t, dir)
	_, err := f.Load(ctx, "a")
	for _, err := range []error{err, f.Commit(ctx, "a", 0, 1), f.Remove(ctx, "a")} {
		require.ErrorIs(t, err, evlog.ErrVersion)
		require.NotErrorIs(t, err, evlog.ErrCorrupt)
		require.ErrorContains(t, err, consumersPath(dir))
	}
	require.Equal(t, content, readFile(t, ctx, dir.Path(), consumersJSON))
	require.NoError(t, openDir(t, ctx, dir.Path()).Remove(consumersJSON))
}

func TestFile_LogWithoutID(t *testing.T) {
	dir, _ := logOf(t, 1)
	ctx := dir.Context()
	require.NoError(t, storeOf(t, dir).Commit(ctx, "a", 0, 1))
	meta := readFile(t, ctx, dir.Path(), "log.json")
	writeFile(t, ctx, dir.Path(), "log.json", "{")
	f := storeOf(t, dir)
	require.Empty(t, f.LogID())
	_, err := f.Load(ctx, "a")
	for _, err := range []error{err, f.Commit(ctx, "a", 1, 2), f.Commit(ctx, "b", 0, 1), f.Reset(ctx, "a", 1, 0)} {
		require.ErrorIs(t, err, cursor.ErrNoLogID)
		require.ErrorContains(t, err, consumersPath(dir))
	}
	all, err := f.List(ctx) // for people
	require.NoError(t, err)
	require.Len(t, all, 1)
	writeFile(t, ctx, dir.Path(), "log.json", meta)
	require.EqualValues(t, 1, standsAt(t, ctx, storeOf(t, dir), "a"))
}

// Consumers of a file that came from another log: none goes on by itself, not
// even a new one; each is reset alone; the cursors of the others wait.
func TestFile_AnotherLogsFile(t *testing.T) {
	ours, _ := logOf(t, 5)
	theirs, _ := logOf(t, 5)
	for i, name := range []string{"a", "b", "c"} {
		require.NoError(t, storeOf(t, theirs).Commit(theirs.Context(), name, 0, uint64(i+1)))
	}
	ctx, f := ours.Context(), storeOf(t, ours)
	content := readFile(t, theirs.Context(), theirs.Path(), consumersJSON)
	writeFile(t, ctx, ours.Path(), consumersJSON, content)

	for name, at := range map[string]uint64{"a": 1, "b": 2, "new": 0} {
		want := &cursor.LogError{Name: name, Cursor: at, LogID: f.LogID(), CursorsLogID: storeOf(t, theirs).LogID(), NoCursor: name == "new"}
		_, err := f.Load(ctx, name)
		require.Equal(t, want, err)
		require.Equal(t, want, f.Commit(ctx, name, at, 5))
	}
	require.Equal(t, content, readFile(t, ctx, ours.Path(), consumersJSON))

	require.NoError(t, f.Reset(ctx, "b", 2, 0))
	require.EqualValues(t, 0, standsAt(t, ctx, f, "b"))
	require.NoError(t, f.Commit(ctx, "new", 0, 4), "the file is this log's now")
	var wrong *cursor.LogError
	_, err := f.Load(ctx, "a")
	require.ErrorAs(t, err, &wrong)
	require.EqualValues(t, 1, wrong.Cursor)
	all, err := f.List(ctx)
	require.NoError(t, err)
	require.Len(t, all, 4)

	require.NoError(t, f.Reset(ctx, "a", 1, 3))
	require.NoError(t, f.Remove(ctx, "c"))
	require.NotContains(t, readFile(t, ctx, ours.Path(), consumersJSON), "other_logs")
	require.EqualValues(t, 3, standsAt(t, ctx, f, "a"))
}

// A file whose consumers were all removed belongs to no log.
func TestFile_EmptyFileOfAnotherLog(t *testing.T) {
	dir, _ := logOf(t, 1)
	ctx := dir.Context()
	writeFile(t, ctx, dir.Path(), consumersJSON, `{"version":1,"log_id":"other","consumers":{}}`)
	f := storeOf(t, dir)
	_, err := f.Load(ctx, "a")
	require.ErrorIs(t, err, cursor.ErrUnknownConsumer)
	require.NoError(t, f.Commit(ctx, "a", 0, 1))
	require.Contains(t, readFile(t, ctx, dir.Path(), consumersJSON), f.LogID())
}

func TestFile_TooLarge(t *testing.T) {
	dir, l := logOf(t, 1)
	ctx := dir.Context()
	writeFile(t, ctx, dir.Path(), consumersJSON, `{"version":1,"log_id":"`+l.Reader().ID()+`","pad":"`+strings.Repeat("x", 16<<20-200)+`","consumers":{}}`)
	f := storeOf(t, dir)
	require.NoError(t, f.Commit(ctx, "a", 0, 1))
	before := readFile(t, ctx, dir.Path(), consumersJSON)
	require.ErrorContains(t, f.Commit(ctx, strings.Repeat("n", 255), 0, 1), "remove consumers")
	require.Equal(t, before, readFile(t, ctx, dir.Path(), consumersJSON))

	writeFile(t, ctx, dir.Path(), consumersJSON, before+strings.Repeat(" ", 400))
	_, err := f.Load(ctx, "a")
	require.ErrorContains(t, err, "too large")
	require.NoError(t, openDir(t, ctx, dir.Path()).Remove(consumersJSON))
}

// What a process that was killed left in the temporary file does not matter,
// even where it is the file itself under a second name.
func TestFile_LeftoverTemp(t *testing.T) {
	dir := evlogtest.NewDir(t)
	dir.Open(nil)
	ctx, f := dir.Context(), storeOf(t, dir)
	require.NoError(t, f.Commit(ctx, "a", 0, 1))
	tmp := filepath.Join(dir.Path(), "consumers.json.tmp")
	require.NoError(t, os.WriteFile(tmp, []byte("half of"), 0o600))
	require.NoError(t, f.Commit(ctx, "a", 1, 2))
	require.NoFileExists(t, tmp)

	require.NoError(t, os.Link(consumersPath(dir), tmp))
	held, err := os.Open(consumersPath(dir))
	require.NoError(t, err)
	defer held.Close()
	before, err := os.ReadFile(consumersPath(dir))
	require.NoError(t, err)
	require.NoError(t, f.Commit(ctx, "a", 2, 3))
	b := make([]byte, len(before))
	_, err = held.ReadAt(b, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, b), "a file that readers have open is never written to")
}

func TestFile_Modes(t *testing.T) {
	dir := evlogtest.NewDir(t)
	dir.Open(nil)
	require.NoError(t, storeOf(t, dir).Commit(dir.Context(), "a", 0, 1))
	for _, name := range []string{consumersJSON, "consumers.lock"} {
		info, err := os.Stat(filepath.Join(dir.Path(), name))
		require.NoError(t, err)
		if os.Getuid() >= 0 { // not on Windows
			require.Equal(t, "-rw-------", info.Mode().String(), name)
		}
	}
}

// Reading takes no lock and creates nothing; a change waits for the lock until
// its context ends.
func TestFile_WaitsForTheLock(t *testing.T) {
	dir, _ := logOf(t, 1)
	ctx, f := dir.Context(), storeOf(t, dir)
	require.NoError(t, f.Commit(ctx, "a", 0, 1))
	lock, err := openDir(t, ctx, dir.Path()).Lock("consumers.lock")
	require.NoError(t, err)
	require.EqualValues(t, 1, standsAt(t, ctx, f, "a"))

	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.Commit(short, "a", 1, 2), context.DeadlineExceeded)
	done := make(chan error)
	go func() { done <- f.Commit(ctx, "a", 1, 3) }()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, lock.Unlock())
	require.NoError(t, <-done)
	require.EqualValues(t, 3, standsAt(t, ctx, f, "a"))
}

func TestFile_LongWaitIsTold(t *testing.T) {
	mem := vfs.NewMem()
	ctx := vfs.NewContext(t.Context(), mem)
	l, err := evlog.Open(ctx, "/log", nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	lock, err := openDir(t, ctx, "/log").Lock("consumers.lock")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx := vfs.NewContext(t.Context(), mem)
		f, err := cursor.OpenFile(ctx, "/log", &cursor.FileOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		require.NoError(t, err)
		defer f.Close()
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		require.ErrorIs(t, f.Commit(short, "a", 0, 1), context.DeadlineExceeded)
		require.Equal(t, 1, strings.Count(out.String(), "waiting for another process"))
	})
	require.NoError(t, lock.Unlock())
}

func TestFile_ReadOnlyDirectory(t *testing.T) {
	dir := evlogtest.NewDir(t)
	dir.Open(nil)
	ctx := dir.Context()
	require.NoError(t, storeOf(t, dir).Commit(ctx, "a", 0, 1))
	fails := vfs.Inject(vfs.OS{}, func(op vfs.Op) error {
		if op.Kind&(vfs.OpCreate|vfs.OpLock|vfs.OpRename|vfs.OpRemove|vfs.OpWrite) != 0 {
			return os.ErrPermission
		}
		return nil
	})
	f := openFile(t, vfs.NewContext(ctx, fails), dir.Path())
	require.EqualValues(t, 1, standsAt(t, ctx, f, "a"))
	require.ErrorIs(t, f.Commit(ctx, "a", 1, 2), evlog.ErrReadOnly)
}

func TestFile_NetworkFileSystem(t *testing.T) {
	mem := vfs.NewMem()
	ctx := vfs.NewContext(t.Context(), mem)
	l, err := evlog.Open(ctx, "/log", nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	mem.SetNetwork("nfs")
	f := openFile(t, ctx, "/log")
	require.ErrorIs(t, f.Commit(ctx, "a", 0, 1), evlog.ErrNetworkFS)
	_, err = f.List(ctx)
	require.NoError(t, err)
	f, err = cursor.OpenFile(ctx, "/log", &cursor.FileOptions{AllowNetworkFS: true})
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Commit(ctx, "a", 0, 1))
}

func TestFile_NoLog(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), t.TempDir()} {
		_, err := cursor.OpenFile(t.Context(), path, nil)
		require.ErrorIs(t, err, evlog.ErrNoLog)
	}
}

// Who lets a group read the file need not do so again after each commit.
func TestFile_KeepsItsMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	dir := evlogtest.NewDir(t)
	dir.Open(nil)
	f := storeOf(t, dir)
	require.NoError(t, f.Commit(t.Context(), "a", 0, 1))
	path := filepath.Join(dir.Path(), consumersJSON)
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, f.Commit(t.Context(), "a", 1, 2))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())
}
