package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
)

// command runs evlog inside the test and returns what it printed.
func command(t *testing.T, stdin io.Reader, args ...string) (stdout []byte, stderr string, code int) {
	t.Helper()
	return commandOn(t, vfs.OS{}, stdin, args...)
}

// commandOn is command with the log on another file system.
func commandOn(t *testing.T, fsys vfs.FS, stdin io.Reader, args ...string) (stdout []byte, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(vfs.NewContext(t.Context(), fsys), args, stdin, &out, &err)
	return out.Bytes(), err.String(), code
}

// Every stream of event data goes in, comes out, goes in again and comes out
// the same, byte for byte, with JSON embedded or not.
func TestRoundTrip_EventFiles(t *testing.T) {
	files := eventFiles(t)
	if len(files) == 0 {
		t.Skip("no event data here")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			input := readGzip(t, file)
			_, stderr, code := command(t, bytes.NewReader(input), "append", dir+"/first", "--format", "jsonl", "--segment-bytes", "1M")
			want := bytes.Count(input, []byte{'\n'})
			if code != exitOK {
				want = refusedKey(t, input, stderr)
			}
			first := catJSON(t, dir+"/first")
			require.Equal(t, want, bytes.Count(first, []byte{'\n'}))
			appendJSON(t, dir+"/second", first)
			require.True(t, bytes.Equal(first, catJSON(t, dir+"/second")))
			appendJSON(t, dir+"/third", catJSON(t, dir+"/second", "--embed-json"))
			require.True(t, bytes.Equal(first, catJSON(t, dir+"/third")))
		})
	}
}

// refusedKey checks that a stream ended at its first line with a key that is
// too long, and returns how many lines stand before it.
func refusedKey(t *testing.T, input []byte, stderr string) int {
	t.Helper()
	for i, line := range bytes.Split(input, []byte{'\n'}) {
		rec, err := parseJSONL(evlog.Record{})(line)
		require.NoError(t, err)
		if len(rec.Key) > evlog.MaxKeyBytes {
			require.Contains(t, stderr, "line "+strconv.Itoa(i+1)+": key of "+strconv.Itoa(len(rec.Key))+" bytes: too large")
			return i
		}
	}
	t.Fatalf("no line is bad: %s", stderr)
	return 0
}

func catJSON(t *testing.T, dir string, more ...string) []byte {
	t.Helper()
	out, stderr, code := command(t, nil, append([]string{"cat", dir, "-J"}, more...)...)
	require.Equal(t, exitOK, code, stderr)
	return out
}

func appendJSON(t *testing.T, dir string, input []byte) {
	t.Helper()
	_, stderr, code := command(t, bytes.NewReader(input), "append", dir, "--format", "jsonl")
	require.Equal(t, exitOK, code, stderr)
}

// eventFiles lists the event data in the repository, and in the directory that
// EVLOG_SHARED_DATA names.
func eventFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{filepath.Join("..", "..", "testdata", "events"), os.Getenv("EVLOG_SHARED_DATA")} {
		if dir == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
		require.NoError(t, err)
		files = append(files, found...)
	}
	return files
}

func readGzip(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

// However the input is cut into pieces, the same lines come out.
func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 3*blockBytes)
	inputs := map[string]string{
		"empty":            "",
		"one":              "a\n",
		"no newline":       "a\nb",
		"empty lines":      "\n\na\n\n",
		"long line":        "a\n" + long + "\nb\n",
		"long line at end": "a\n" + long,
		"many":             strings.Repeat("a line like others\n", 50_000),
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole":        func(r io.Reader) io.Reader { return r },
		"halves":       iotest.HalfReader,
		"data and EOF": iotest.DataErrReader,
	}
	for name, input := range inputs {
		for how, cut := range readers {
			t.Run(name+"/"+how, func(t *testing.T) {
				require.Equal(t, input, strings.Join(readLines(t, cut(strings.NewReader(input))), ""))
			})
		}
	}
	require.Equal(t, []string{"a\n", "b\n", "c"}, readLines(t, iotest.OneByteReader(strings.NewReader("a\nb\nc"))))
}

// readLines returns the blocks, checking that they end where lines end.
func readLines(t *testing.T, r io.Reader) (blocks []string) {
	t.Helper()
	l := newLineReader(r, 4*blockBytes)
	go l.read()
	for b := range l.blocks {
		if b.err == nil {
			require.Equal(t, byte('\n'), b.data[len(b.data)-1])
		} else {
			require.ErrorIs(t, b.err, io.EOF)
		}
		blocks = append(blocks, string(b.data))
		l.done(b)
	}
	return blocks
}

func TestLineReader_Errors(t *testing.T) {
	broken := errors.New("broken")
	l := newLineReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 100)
	go l.read()
	require.Equal(t, "a\n", string((<-l.blocks).data))
	last := <-l.blocks
	require.Empty(t, last.data)
	require.ErrorIs(t, last.err, broken)

	l = newLineReader(strings.NewReader("a\n"+strings.Repeat("x", blockBytes+100)), blockBytes)
	go l.read()
	require.Equal(t, "a\n", string((<-l.blocks).data))
	require.ErrorIs(t, (<-l.blocks).err, errLineTooLong)

	// Nobody takes the blocks: the reader ends all the same.
	l = newLineReader(strings.NewReader(strings.Repeat(strings.Repeat("y", 1000)+"\n", 10_000)), 5000)
	ended := make(chan struct{})
	go func() { l.read(); close(ended) }()
	close(l.stop)
	<-ended
}

// Batches hold what fits, in order, and a record that the log refuses is found.
func TestBatcher(t *testing.T) {
	var got []string
	take := func(batch []evlog.Record) error {
		var values []string
		for _, r := range batch {
			if string(r.Value) == "huge" {
				return evlog.ErrTooLarge
			}
			values = append(values, string(r.Value))
		}
		got = append(got, strings.Join(values, " "))
		return nil
	}
	b := batcher{parse: parseValues(evlog.Record{}, nil), maxBatch: 3 * 29}
	require.NoError(t, b.add([]byte("a\nb\nc\nd\n"), take))
	require.NoError(t, b.add([]byte("longer than a batch, but one record\ne"), take))
	require.Equal(t, []string{"a b c", "d", "longer than a batch, but one record", "e"}, got)

	got = nil
	err := b.add([]byte("f\nhuge\ng\n"), take)
	var bad *lineError
	require.ErrorAs(t, err, &bad)
	require.EqualValues(t, 8, bad.line)
	require.Equal(t, []string{"f"}, got)
}

// When standard output fails, everything is appended, and the command fails.
func TestAppend_AcksThatNobodyReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var stderr bytes.Buffer
	input := strings.NewReader(strings.Repeat("line\n", 100_000))
	code := run(t.Context(), []string{"append", dir, "--ack"}, input, failingWriter{}, &stderr)
	require.Equal(t, exitError, code)
	require.Equal(t, "evlog: acknowledge: write standard output: broken; everything read was appended\n", stderr.String())
	r, err := evlog.OpenReader(context.Background(), dir, nil)
	require.NoError(t, err)
	defer r.Close()
	_, next, err := r.Bounds(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 100_000, next)
}

// On a full disk every acknowledged record is in the log, and going on with the
// line that the error names leaves none out and none twice.
func TestAppend_DiskFull(t *testing.T) {
	const dir, capacity = "log", 1 << 20
	fsys := vfs.NewMem()
	fsys.SetCapacity(capacity)
	var lines []string
	for i := range 40_000 {
		lines = append(lines, "line number "+strconv.Itoa(i)+"\n")
	}
	acked := 0
	for round := 1; acked < len(lines); round++ {
		input := strings.NewReader(strings.Join(lines[acked:], ""))
		out, stderr, code := commandOn(t, fsys, input, "append", dir, "--ack", "--segment-bytes", "200K")
		before := acked
		acked += bytes.Count(out, []byte{'\n'})
		if code != exitOK {
			require.Equal(t, exitError, code)
			want := "no space left on device; make room on the disk and append again from line " + strconv.Itoa(acked-before+1) + " on\n"
			require.Contains(t, stderr, want)
		}
		values, stderr, code := commandOn(t, fsys, nil, "cat", dir, "--format", "value")
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, strings.Join(lines[:acked], ""), string(values))
		fsys.SetCapacity(int64(round+1) * capacity)
	}
}

// After a failed sync nothing is acknowledged that was not durable before.
func TestAppend_SyncFails(t *testing.T) {
	fsys := vfs.NewMem()
	_, stderr, code := commandOn(t, fsys, strings.NewReader("a\n"), "append", "log")
	require.Equal(t, exitOK, code, stderr)
	fsys.FailSync(vfs.OpSync|vfs.OpSyncData, "*.log", 1, errors.New("medium error"))
	out, stderr, code := commandOn(t, fsys, strings.NewReader("b\n"), "append", "log", "--ack")
	require.Equal(t, exitError, code)
	require.Empty(t, out)
	require.Contains(t, stderr, "medium error; what was not acknowledged may be missing, opening again finds out\n")
}

func TestAppend_NetworkFileSystem(t *testing.T) {
	fsys := vfs.NewMem()
	fsys.SetNetwork("nfs")
	_, stderr, code := commandOn(t, fsys, strings.NewReader("a\n"), "append", "log")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "network file system")
	require.True(t, strings.HasSuffix(stderr, "; keep the log on a local disk\n"), stderr)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

// An input that breaks off is an error, and the whole lines of it are in the log.
func TestAppend_BrokenInput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	input := io.MultiReader(strings.NewReader("a\nb\nunfinished"), iotest.ErrReader(errors.New("unplugged")))
	_, stderr, code := command(t, input, "append", dir)
	require.Equal(t, exitError, code)
	require.Equal(t, "evlog: read standard input: unplugged\n", stderr)
	out, _, code := command(t, nil, "cat", dir, "--format", "value")
	require.Equal(t, exitOK, code)
	require.Equal(t, "a\nb\n", string(out))
}

// A panic is one line and status 1.
func TestRun_Panic(t *testing.T) {
	_, stderr, code := command(t, panicking{}, "append", filepath.Join(t.TempDir(), "log"))
	require.Equal(t, exitError, code)
	require.Equal(t, "evlog: read standard input: internal error: boom; with lines; please report it\n", stderr)
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("boom\nwith lines") }
