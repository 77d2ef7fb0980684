// Package machine says on what machine figures were measured.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Describe is three lines: when, on what, and of which commit.
func Describe() string {
	return fmt.Sprintf("%s\n%s, %s/%s, %d cores, %s\ncommit %s, files in %s, kernel %s",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor(),
		output("git", "describe", "--always", "--dirty", "--exclude=*"), fileSystem(), output("uname", "-r"))
}

// Load is that of the machine, for 1, 5 and 15 minutes.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo") // nothing where there is none
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown processor"
}

// fileSystem is that of the temporary directory, where logs are made.
func fileSystem() string {
	_, name, ok := strings.Cut(output("df", "--output=fstype", os.TempDir()), "\n")
	if !ok {
		return "unknown"
	}
	return name
}

func output(name string, args ...string) string {
	b, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
