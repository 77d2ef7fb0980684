package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// need skips where a program is missing.
func need(t *testing.T, programs ...string) {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s", p)
		}
	}
}

// The archive of the command for Linux: two builds are equal, the program needs
// no library and no loader, says the version of its archive, and has with it what
// belongs to it.
func TestRelease(t *testing.T) {
	need(t, "git", "go")
	if out, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("not a checkout: %s", out)
	}
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, release(root, first, []string{"linux/amd64"}))
	require.NoError(t, release(root, second, []string{"linux/amd64"}))

	archives, err := filepath.Glob(filepath.Join(first, "*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	archive, err := os.ReadFile(archives[0])
	require.NoError(t, err)
	again, err := os.ReadFile(filepath.Join(second, filepath.Base(archives[0])))
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(archive), sha256.Sum256(again), "two builds differ")

	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	require.NoError(t, err)
	sum := sha256.Sum256(archive)
	require.Equal(t, hex.EncodeToString(sum[:])+"  "+filepath.Base(archives[0])+"\n", string(sums))

	dir := strings.TrimSuffix(filepath.Base(archives[0]), ".tar.gz")
	version := strings.TrimSuffix(strings.TrimPrefix(dir, "evlog-"), "-linux-amd64")
	require.Regexp(t, `^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`, version, "the version is not git's")
	files := untar(t, archive)
	for _, name := range []string{
		"README.md", "CHANGELOG.md", "LICENSE", "THIRD-PARTY.txt", "man/man1/evlog.1", "man/man1/evlog-cat.1",
		"completions/evlog.bash", "completions/_evlog", "completions/evlog.fish", "completions/evlog.ps1",
	} {
		f, ok := files[dir+"/"+name]
		require.True(t, ok, name)
		require.NotEmpty(t, f.data, name)
		require.EqualValues(t, 0o644, f.mode, name)
	}
	notices := string(files[dir+"/THIRD-PARTY.txt"].data)
	for _, module := range []string{"Go, go1.", "modernc.org/sqlite v", "github.com/spf13/cobra v"} {
		require.Contains(t, notices, "==== "+module)
	}
	require.Contains(t, string(files[dir+"/man/man1/evlog.1"].data), strings.ReplaceAll(version, "-", `\-`))

	program := files[dir+"/evlog"]
	require.EqualValues(t, 0o755, program.mode)
	requireStatic(t, program.data)
	info, err := buildinfo.Read(bytes.NewReader(program.data))
	require.NoError(t, err)
	require.Equal(t, version, info.Main.Version)
	require.NotContains(t, string(program.data), mustAbs(t, root), "a path of this machine is in the program")

	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		path := filepath.Join(t.TempDir(), "evlog")
		require.NoError(t, os.WriteFile(path, program.data, 0o700))
		out, err := exec.Command(path, "--version").Output()
		require.NoError(t, err)
		require.Equal(t, "evlog "+version+"\n", string(out))
	}
}

func mustAbs(t *testing.T, path string) string {
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}

func requireStatic(t *testing.T, program []byte) {
	f, err := elf.NewFile(bytes.NewReader(program))
	require.NoError(t, err)
	for _, p := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "needs a loader")
	}
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
}

type packed struct {
	data []byte
	mode int64
	time time.Time
}

func untar(t *testing.T, archive []byte) map[string]packed {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	files := map[string]packed{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = packed{data: data, mode: h.Mode, time: h.ModTime}
	}
	_, err = io.Copy(io.Discard, z) // to the end, where the checksum is
	require.NoError(t, err)
	return files
}

// What goes into an archive comes out of it, in whatever order it went in.
func TestPack(t *testing.T) {
	at := time.Date(2026, 9, 20, 3, 0, 0, 0, time.UTC)
	files := []file{{name: "b", data: []byte("2"), mode: 0o644}, {name: "a", data: bytes.Repeat([]byte("1"), 1<<20), mode: 0o755}}
	turned := []file{files[1], files[0]}

	archive, err := tarGz("d", files, at)
	require.NoError(t, err)
	again, err := tarGz("d", turned, at)
	require.NoError(t, err)
	require.Equal(t, archive, again)
	got := untar(t, archive)
	require.Equal(t, files[0].data, got["d/b"].data)
	require.Equal(t, files[1].data, got["d/a"].data)
	require.EqualValues(t, 0o755, got["d/a"].mode)
	require.True(t, at.Equal(got["d/a"].time))

	archive, err = zipped("d", files, at)
	require.NoError(t, err)
	again, err = zipped("d", turned, at)
	require.NoError(t, err)
	require.Equal(t, archive, again)
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	require.NoError(t, err)
	require.Len(t, z.File, 2)
	for i, want := range turned {
		require.Equal(t, "d/"+want.name, z.File[i].Name)
		require.True(t, at.Equal(z.File[i].Modified))
		data, err := fs.ReadFile(z, "d/"+want.name)
		require.NoError(t, err)
		require.Equal(t, want.data, data)
	}
}

func TestNotices_None(t *testing.T) {
	dir := t.TempDir()
	var text bytes.Buffer
	require.ErrorContains(t, addNotice(&text, "module", dir), "module: no licence in ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LICENCE.txt"), []byte("terms\n"), 0o600))
	require.NoError(t, addNotice(&text, "module", dir))
	require.Equal(t, "==== module: LICENCE.txt\n\nterms\n\n", text.String())
}

// make install puts everything where it is looked for, for whoever may read it,
// and make uninstall leaves nothing but directories and what was there before.
func TestInstall(t *testing.T) {
	need(t, "make", "go", "install")
	dest := filepath.Join(t.TempDir(), "a directory")
	other := filepath.Join(dest, "usr/share/man/man1/other.1")
	require.NoError(t, os.MkdirAll(filepath.Dir(other), 0o755))
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	target := func(target string) {
		cmd := exec.Command("make", "-C", root, "--no-print-directory", target, "DESTDIR="+dest, "PREFIX=/usr")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	target("install")
	modes := filesBelow(t, dest)
	for name, mode := range map[string]fs.FileMode{
		"usr/bin/evlog":                                  0o755,
		"usr/share/man/man1/evlog.1":                     0o644,
		"usr/share/man/man1/evlog-consumers-set.1":       0o644,
		"usr/share/bash-completion/completions/evlog":    0o644,
		"usr/share/zsh/site-functions/_evlog":            0o644,
		"usr/share/fish/vendor_completions.d/evlog.fish": 0o644,
	} {
		require.Equal(t, mode, modes[name], name)
	}
	out, err := exec.Command(filepath.Join(dest, "usr/bin/evlog"), "--version").Output()
	require.NoError(t, err)
	require.Regexp(t, `^evlog `, string(out))
	if runtime.GOOS == "linux" {
		program, err := os.ReadFile(filepath.Join(dest, "usr/bin/evlog"))
		require.NoError(t, err)
		requireStatic(t, program)
	}
	target("uninstall")
	require.Equal(t, map[string]fs.FileMode{"usr/share/man/man1/other.1": 0o600}, filesBelow(t, dest))
}

func filesBelow(t *testing.T, dir string) map[string]fs.FileMode {
	modes := map[string]fs.FileMode{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		modes[filepath.ToSlash(name)] = info.Mode().Perm()
		return err
	}))
	return modes
}
