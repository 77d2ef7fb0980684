package readme

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// block is a fenced block of a page.
type block struct {
	page string
	line int    // of the opening fence
	note string // the HTML comment on the line before, without its brackets
	lang string
	text string
}

var comment = regexp.MustCompile(`^<!-- (.*) -->$`)

func blocks(t *testing.T, page string) []block {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	require.NoError(t, err)
	var all []block
	var open *block
	var before string
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		lang, fence := strings.CutPrefix(line, "```")
		switch {
		case open == nil && fence:
			open = &block{page: page, line: n, lang: lang}
			if m := comment.FindStringSubmatch(before); m != nil {
				open.note = m[1]
			}
		case open != nil && fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
		before = line
	}
	require.Nil(t, open, "%s: a block is not closed", page)
	require.NotEmpty(t, all)
	return all
}

// Every Go block of the README is a region of example_test.go, which is compiled
// and run.
func TestReadme_Go(t *testing.T) {
	regions := map[string]string{}
	for _, file := range []string{"example_test.go", "sqlbridge_test.go", "outbox_test.go", "sqldriver_test.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for name, text := range regionsOf(t, string(source)) {
			require.NotContains(t, regions, name)
			regions[name] = text
		}
	}
	used := map[string]bool{}
	for _, b := range blocks(t, "README.md") {
		if b.lang != "go" {
			continue
		}
		name, ok := strings.CutPrefix(b.note, "code: ")
		require.True(t, ok, "README.md:%d: a Go block without <!-- code: NAME -->", b.line)
		require.Contains(t, regions, name, "README.md:%d", b.line)
		require.Equal(t, regions[name], b.text, "README.md:%d differs from region %q of internal/readme/example_test.go", b.line, name)
		used[name] = true
	}
	for name := range regions {
		require.True(t, used[name], "region %q is not in README.md", name)
	}
}

// regionsOf finds what stands between "// region: NAME" and "// end", without
// the indentation.
func regionsOf(t *testing.T, source string) map[string]string {
	regions := map[string]string{}
	name, indent := "", ""
	for line := range strings.Lines(source) {
		text := strings.TrimSpace(line)
		switch start, ok := strings.CutPrefix(text, "// region: "); {
		case ok:
			require.Empty(t, name, "region %q is not closed", name)
			name, indent = start, line[:strings.Index(line, "//")]
			require.NotContains(t, regions, name)
		case text == "// end":
			name = ""
		case name != "":
			regions[name] += strings.TrimPrefix(line, indent)
		}
	}
	require.Empty(t, name, "region %q is not closed", name)
	return regions
}

// Every command line of the README runs, one after the other in one directory,
// and prints what the README says.
func TestReadme_Commands(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a Unix shell")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "evlog"), "./cmd/evlog")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	dir := t.TempDir()
	run := func(command string) (stdout, stderr string, err error) {
		limit := time.Minute
		follows := strings.Contains(command, " -f ")
		if follows {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, shell, "-c", "exec "+command)
		if strings.Contains(command, "|") {
			cmd.Args[2] = command
		}
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "EVLOG_DIR=")
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		err = cmd.Run()
		if follows && ctx.Err() != nil {
			err = nil
		}
		return o.String(), e.String(), err
	}

	ran := 0
	for _, b := range blocks(t, "README.md") {
		if b.note != "run" {
			require.NotContains(t, b.text, "evlog append", "README.md:%d: a block without <!-- run -->", b.line)
			continue
		}
		for _, s := range sessionOf(b) {
			ran++
			stdout, stderr, err := run(s.command)
			require.NoError(t, err, "README.md:%d: %s\n%s", b.line, s.command, stderr)
			if b.lang == "console" {
				require.Equal(t, s.output, stdout, "README.md:%d: %s\n%s", b.line, s.command, stderr)
			}
		}
	}
	require.Greater(t, ran, 10)
}

type step struct{ command, output string }

// sessionOf divides a block into commands, in a console block with the output
// that follows each.
func sessionOf(b block) []step {
	var all []step
	for line := range strings.Lines(b.text) {
		command, ok := strings.CutPrefix(line, "$ ")
		switch {
		case b.lang == "sh" || ok:
			all = append(all, step{command: strings.TrimSpace(command)})
		case len(all) > 0:
			all[len(all)-1].output += line
		}
	}
	return all
}

// The two commands that the README promises are there as it says them.
func TestReadme_TwoCommands(t *testing.T) {
	readme := blocks(t, "README.md")
	i := 0
	for i < len(readme) && readme[i].lang != "sh" {
		i++
	}
	require.Less(t, i, len(readme))
	require.Equal(t, "go run ./examples/quickstart\ngo test ./...\n", readme[i].text)
	_, err := os.Stat(filepath.Join(root, "examples", "quickstart", "main.go"))
	require.NoError(t, err)
}

// The files that "Reading the source" names are there.
func TestReadme_Files(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	names := regexp.MustCompile("`((?:[a-z]+/)*)([a-z_]+\\.go)`").FindAllStringSubmatch(string(content), -1)
	require.NotEmpty(t, names)
	for _, m := range names {
		dir := m[1]
		if dir == "" {
			dir = "evlog"
		}
		_, err := os.Stat(filepath.Join(root, dir, m[2]))
		require.NoError(t, err)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)

// Links between the pages lead somewhere.
func TestPages_Links(t *testing.T) {
	for _, page := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/FORMAT.md", "docs/DESIGN.md", "docs/PERFORMANCE.md", "testdata/events/README.md"} {
		content, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			to := filepath.Join(root, filepath.Dir(page), filepath.FromSlash(target))
			if target == "" {
				to = filepath.Join(root, page)
			}
			linked, err := os.ReadFile(to)
			if errors.Is(err, os.ErrNotExist) || anchor == "" {
				require.NoError(t, err, "%s links to %s", page, target)
				continue
			}
			require.Contains(t, anchors(string(linked)), anchor, "%s links to %s#%s", page, target, anchor)
		}
	}
}

// anchors are the names that a page's headings can be linked by.
func anchors(page string) []string {
	var all []string
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = strings.ToLower(strings.TrimSpace(title))
			title = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(title, "")
			all = append(all, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return all
}
