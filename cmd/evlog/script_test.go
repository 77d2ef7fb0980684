package main

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite what the scripts expect to what they get")

// TestScript runs testdata/script/<verb>_<case>.txtar. The commands that the
// scripts have beside testscript's own are in scriptcmd_test.go.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "America/New_York")
			// The race detector's second of sleep at each exit adds up.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("BASH_COMPLETION", bashCompletion())
			env.Values[processesKey{}] = processes{}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "bash-completion" {
				return bashCompletion() != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":    cmdStatus,
			"flip":      cmdFlip,
			"truncate":  cmdTruncate,
			"zeros":     cmdZeros,
			"durable":   cmdDurable,
			"mklog":     cmdMakeLog,
			"openall":   cmdOpenAll,
			"hold":      cmdHold,
			"hook":      cmdHook,
			"start":     cmdStart,
			"feed":      cmdFeed,
			"eof":       cmdEOF,
			"await":     cmdAwait,
			"interrupt": cmdInterrupt,
			"ended":     cmdEnded,
			"lines":     cmdLines,
			"bridge":    cmdBridge,
			"outbox":    cmdOutbox,
			"events":    cmdEvents,
			"examples":  cmdExamples,
			"screen":    cmdScreen,
			"sqlexec":   cmdSQLExec,
			"holddb":    cmdHoldDB,
			"table":     cmdTable,
		},
	})
}

// bashCompletion is the package bash-completion, where it is installed.
func bashCompletion() string {
	for _, prefix := range []string{"/usr", "/usr/local", "/opt/homebrew"} {
		path := prefix + "/share/bash-completion/bash_completion"
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
