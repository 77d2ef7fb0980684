// Syncoutbox is a small local-first notes app on three peers. Each has its own
// SQLite database and its own log, works offline most of the time, and is killed
// at random. When two of them are online at the same time they get each other's
// changes over HTTP. In the end all three databases say the same.
//
//	go run ./examples/syncoutbox
//	go run ./examples/syncoutbox -seed 7 -picture timeline.html
//
// A user's edit is one transaction: notes and outbox. The outbox's relay brings
// it into the peer's log, exactly once. Another peer reads that log from where
// its cursor stands, applies the changes together with the cursor (package
// sqlbridge), and acknowledges them; they go no further from there. A log keeps
// what others have not acknowledged, but not for ever: who was away for too long
// refetches. Conflicts are decided by a rule (see merge) on the stamps of a
// hybrid logical clock (see clock).
//
// The edits are recorded ones: the history of the files of the bbolt repository,
// and what three authors typed at the same time. The program writes a picture of
// who had what when.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "who is online, and who is killed when")
	picture := flag.String("picture", filepath.Join(os.TempDir(), "syncoutbox.html"), "where to write the picture")
	flag.Parse()
	ctx := context.Background()
	var err error
	if dir := os.Getenv(peerVar); dir != "" {
		err = runPeer(ctx, filepath.Base(dir), dir, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, *seed, 1, *picture, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "syncoutbox:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, oneIn uint32, picture string, out io.Writer) (err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "evlog-syncoutbox-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	in, err := loadInput(oneIn)
	if err != nil {
		return err
	}
	s := &story{out: out, dir: dir, seed: seed, in: in, schedule: newSchedule(in, seed)}
	s.say("seed", "%d", seed)
	s.say("input", "%s changes of paths in %s saves, %s keystrokes in %s saves, by %d peers in %d rounds",
		count(in.changes), count(in.commits), count(in.keystrokes), count(in.typed), len(names), rounds)
	if err := s.play(ctx); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.draw(picture); err != nil {
		return err
	}
	s.say("done", "%s", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// count writes a number with separators: 18,335.
func count[N int | uint64](n N) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
