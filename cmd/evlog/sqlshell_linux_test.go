package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

const endless = "with recursive c(i) as (select 1 union all select i + 1 from c) select count(*) from c;\r"

// shellLog makes a log for a shell, and returns the directory it is in.
func shellLog(t *testing.T, values ...string) string {
	dir := t.TempDir()
	ctx := context.Background()
	l, err := evlog.Open(ctx, filepath.Join(dir, "log"), nil)
	require.NoError(t, err)
	for _, v := range values {
		_, err := l.Append(ctx, evlog.Record{Value: []byte(v)})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	return dir
}

// A shell on a terminal: statements of several lines, errors that end nothing,
// Ctrl-C at the prompt and in a query, Ctrl-D.
func TestSQLShell(t *testing.T) {
	dir := shellLog(t, "hello", "world")
	history := filepath.Join(dir, "state", "evlog", "sql_history")
	p := startOnTerminal(t, dir, 80, nil, []string{"XDG_STATE_HOME=" + filepath.Join(dir, "state"), "EVLOG_HISTORY="},
		"sql", "log")
	p.expect("% .help lists the commands")
	p.expect("evlog> ")
	p.keys("select offset, value\r")
	p.expect("  ...> ")
	p.keys("from log;\r")
	p.expect("     0  hello\r\n     1  world\r\n")
	p.expect("evlog> ")

	p.keys("selec 1;\r")
	p.expect("evlog: near \"selec\": syntax error\r\n")
	p.expect("evlog> ")
	p.keys("delete from log;\r")
	p.expect("not allowed; evlog sql only reads")
	p.expect("evlog> ")

	p.keys("select 'never typed to the\r")
	p.expect("  ...> ")
	p.keys("end\x03")
	p.expect("^C\r\n")
	p.expect("evlog> ")
	p.keys(endless)
	p.expect("\r\n")
	p.keys("\x03")
	p.expect("evlog: interrupted\r\n")
	p.expect("evlog> ")
	p.keys("select 6 * 7 answer;\r") // the connection is as it was
	p.expect("    42\r\n")
	p.expect("evlog> ")

	p.keys("\x1b[A") // the last statement again
	p.expect("select 6 * 7 answer;")
	p.keys("\r")
	p.expect("    42\r\n")
	p.expect("evlog> ")
	p.keys(".mode jsonl\rselect 1 a;\r")
	p.expect("{\"a\":1}\r\n")
	p.expect("evlog> ")
	p.keys("select\t2\tb\r;\r") // as it is pasted
	p.expect("{\"b\":2}\r\n")
	p.expect("evlog> ")
	p.keys("select 1;" + strings.Repeat(" ", 4096) + "select 2;\r") // more than the editor holds
	p.expect("a line of 4096 characters or more")
	p.expect("evlog> ")
	p.keys("\x04")
	p.end(0)

	b, err := os.ReadFile(history)
	require.NoError(t, err)
	require.Equal(t, "select offset, value from log;\nselec 1;\ndelete from log;\n"+strings.TrimSpace(endless)+
		"\nselect 6 * 7 answer;\n.mode jsonl\nselect 1 a;\nselect 2 b ;\n", string(b))
	info, err := os.Stat(history)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(filepath.Dir(history))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	// The next shell has it, and one that is told so keeps none.
	p = startOnTerminal(t, dir, 80, nil, []string{"EVLOG_HISTORY=" + history}, "sql", "log")
	p.expect("evlog> ")
	p.keys("\x1b[A\x1b[A\x1b[A\x1b[A\r")
	p.expect("    42\r\n")
	p.keys("help;\r")
	p.expect(".tables             the tables\r\n")
	p.keys("\\dt\r")
	p.expect("consumers\r\nlog\r\nsegments\r\n")
	p.keys("quit\r")
	p.end(0)
	again, err := os.ReadFile(history)
	require.NoError(t, err)
	require.Equal(t, string(b)+"select 6 * 7 answer;\n.help\n.tables\n.quit\n", string(again))
	for _, off := range []struct{ env, flag string }{{"EVLOG_HISTORY=off", "-q"}, {"EVLOG_HISTORY=" + history, "--no-history"}} {
		p = startOnTerminal(t, dir, 80, nil, []string{off.env}, "sql", "log", off.flag)
		p.expect("evlog> ")
		p.keys("select 'secret';\r")
		p.expect("evlog> ")
		p.keys(".quit\r")
		p.end(0)
	}
	b, err = os.ReadFile(history)
	require.NoError(t, err)
	require.Equal(t, again, b)
	require.NoFileExists(t, filepath.Join(dir, "off"))
}

// Wide values are cut so that a row fits, nothing moves the cursor, and both are
// so on a terminal alone.
func TestSQLShell_Cells(t *testing.T) {
	dir := shellLog(t, strings.Repeat("x", 100), "a\x1b[2Jb\nc")
	p := startOnTerminal(t, dir, 40, nil, []string{"EVLOG_HISTORY=off"}, "sql", "log", "select offset, value, value v from log")
	out := p.expect("% wide values are cut to fit the terminal")
	require.NotContains(t, out, "\x1b")
	p.end(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, want := range []string{
		"\r\n     0  xxxxxxxxxxxxxx…  xxxxxxxxxxxxxx…\r\n",
		"\r\n     1  a\\x1b[2Jb\\nc     a\\x1b[2Jb\\nc\r\n",
	} {
		require.Contains(t, p.output.String(), want)
	}
	require.Equal(t, 1, strings.Count(p.output.String(), "are cut"))

	// csv is exact for other programs, and harmless on a terminal.
	p2 := startOnTerminal(t, dir, 40, nil, nil, "sql", "log", "--format", "csv", "select value from log where offset = 1")
	p2.expect("a\\x1b[2Jb\\nc\r\n")
	p2.end(0)
}

// The prompt and what is typed are not in the output.
func TestSQLShell_Redirected(t *testing.T) {
	dir := shellLog(t, "hello")
	out, err := os.Create(filepath.Join(dir, "out"))
	require.NoError(t, err)
	p := startOnTerminal(t, dir, 80, out, []string{"EVLOG_HISTORY=off"}, "sql", "log", "-J")
	require.NoError(t, out.Close())
	p.expect("evlog> ")
	p.keys("select value from log;\r")
	p.expect("evlog> ")
	p.keys("\x04")
	p.end(0)
	b, err := os.ReadFile(filepath.Join(dir, "out"))
	require.NoError(t, err)
	require.Equal(t, "{\"value\":\"hello\"}\n", string(b))
}

// A request to terminate ends the shell, and leaves the terminal as it was.
func TestSQLShell_Terminated(t *testing.T) {
	dir := shellLog(t, "hello")
	p := startOnTerminal(t, dir, 80, nil, []string{"EVLOG_HISTORY=off"}, "sql", "log")
	p.expect("evlog> ")
	require.Eventually(t, func() bool { return terminalModes(t, p) != p.modes }, patience, patience/10000)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.end(143)
	require.Equal(t, p.modes, terminalModes(t, p))
}
