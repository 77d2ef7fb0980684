// Command release builds what is given to users: for each platform an archive
// with the command evlog, its manual pages, completions and licences, and
// SHA256SUMS of all of them.
//
//	go run ./internal/release -out dist/release
//
// It builds what is committed, from a clone, without cgo and without paths of
// this machine: whoever builds the same commit with the same Go gets the same
// bytes. The version is the one that Go reads from git: the tag, or a
// pseudo-version.
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func main() {
	out := flag.String("out", "dist/release", "directory for the archives; it is emptied first")
	wanted := flag.String("platforms", platforms, "which ones, separated by commas")
	repo := flag.String("repo", ".", "the repository")
	flag.Parse()
	if err := release(*repo, *out, strings.Split(*wanted, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(repo, out string, platforms []string) error {
	work, err := os.MkdirTemp("", "evlog-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left there does no harm
	b := builder{src: filepath.Join(work, "src"), work: work}
	if err := b.clone(repo); err != nil {
		return err
	}
	docs, err := b.documents()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	var names []string
	for _, p := range platforms {
		name, err := b.archive(out, p, docs)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		fmt.Println(filepath.Join(out, name))
		names = append(names, name)
	}
	return writeSums(out, names)
}

// builder works in a clone, so that nothing but what is committed counts.
type builder struct {
	src, work string
	version   string
	time      time.Time // of the commit
}

func (b *builder) clone(repo string) error {
	repo, err := filepath.Abs(repo)
	if err != nil {
		return err
	}
	if _, err := b.run(b.work, nil, "git", "clone", "--quiet", "--shared", repo, b.src); err != nil {
		return err
	}
	seconds, err := b.run(b.src, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(seconds)), 10, 64)
	b.time = time.Unix(n, 0).UTC()
	return err
}

// build compiles the command for a platform.
func (b *builder) build(goos, goarch string) (path string, err error) {
	path = filepath.Join(b.work, goos+"-"+goarch, "evlog")
	if goos == "windows" {
		path += ".exe"
	}
	// What a build depends on is said here and not taken from the machine.
	env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off"}
	_, err = b.run(b.src, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/evlog")
	return path, err
}

// documents builds for this machine, and has the command write its pages.
func (b *builder) documents() ([]file, error) {
	evlog, err := b.build(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(evlog)
	if err != nil {
		return nil, err
	}
	b.version = info.Main.Version
	var docs []file
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		data, err := os.ReadFile(filepath.Join(b.src, name))
		if err != nil {
			return nil, err
		}
		docs = append(docs, file{name: name, data: data, mode: 0o644})
	}
	for shell, name := range map[string]string{"bash": "evlog.bash", "zsh": "_evlog", "fish": "evlog.fish", "powershell": "evlog.ps1"} {
		script, err := b.run(b.src, nil, evlog, "completion", shell)
		if err != nil {
			return nil, err
		}
		docs = append(docs, file{name: "completions/" + name, data: script, mode: 0o644})
	}
	man := filepath.Join(b.work, "man1")
	if _, err := b.run(b.src, nil, evlog, "man", "--dir", man); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		data, err := os.ReadFile(filepath.Join(man, p.Name()))
		if err != nil {
			return nil, err
		}
		docs = append(docs, file{name: "man/man1/" + p.Name(), data: data, mode: 0o644})
	}
	return docs, nil
}

// archive builds for a platform and packs what belongs to it.
func (b *builder) archive(out, platform string, docs []file) (name string, err error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return "", fmt.Errorf("not of the form linux/amd64")
	}
	evlog, err := b.build(goos, goarch)
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(evlog)
	if err != nil {
		return "", err
	}
	notices, err := b.notices(evlog)
	if err != nil {
		return "", err
	}
	files := append([]file{
		{name: filepath.Base(evlog), data: program, mode: 0o755},
		{name: "THIRD-PARTY.txt", data: notices, mode: 0o644},
	}, docs...)
	base := fmt.Sprintf("evlog-%s-%s-%s", b.version, goos, goarch)
	pack, name := tarGz, base+".tar.gz"
	if goos == "windows" {
		pack, name = zipped, base+".zip"
	}
	data, err := pack(base, files, b.time)
	if err != nil {
		return "", err
	}
	return name, os.WriteFile(filepath.Join(out, name), data, 0o666)
}

// run runs a program; what it says on standard error is part of the error.
func (b *builder) run(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout, nil
}
