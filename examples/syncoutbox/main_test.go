package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain lets the test binary be the peers that get killed.
func TestMain(m *testing.M) {
	if os.Getenv(peerVar) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestSyncoutbox(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp) // Unix
	t.Setenv("TMP", temp)    // Windows
	picture := filepath.Join(t.TempDir(), "picture.html")
	var out strings.Builder
	require.NoError(t, run(t.Context(), uint64(time.Now().UnixNano())%1_000_000, oneIn, picture, &out), out.String())
	t.Log("\n" + out.String())

	wants := []string{
		`(?m)^seed      \d+$`,
		`(?m)^input     [1-9][\d,]* changes of paths in [1-9][\d,]* saves, [1-9][\d,]* keystrokes in [1-9]\d* saves, by 3 peers in 12 rounds$`,
		`(?m)^killed    10 processes: \d+ while the user saved, \d+ when a save was done, \d+ while they got changes$`,
		`(?m)^exchanged [1-9][\d,]* records, applied once each, and acknowledged; \d+ segments of the logs were dropped$`,
		`(?m)^held      the changes that \w+ made with a clock 2h0m0s ahead, [1-9]\d* times by the others, until that time had come$`,
		`(?m)^logs      [1-9][\d,]* changes, each once and in order in the log of its peer and in no other; [\d,]+ of them have been dropped since$`,
		`(?m)^equal     the 3 databases: [1-9]\d* notes, sha256 [0-9a-f]{16}…; and equal to all [\d,]+ changes done in the order of their stamps$`,
		`(?m)^files     [1-9]\d* notes are files, exactly those of the repository's last commit$`,
		`(?m)^conflicts [1-9][\d,]* pairs of changes of [1-9]\d* fields did not know of each other: [1-9]\d* of lines, [1-9][\d,]* of files, [1-9]\d* with a deletion$`,
		`(?m)^ {10}clownschool/page \d+, line \d\d: \w+'s ".*" \(.{19}\) stays, \w+'s ".*" \(.{19}\) goes$`,
		`(?m)^picture   ` + regexp.QuoteMeta(picture) + `$`,
	}
	if oneIn == 1 {
		wants = append(wants,
			`(?m)^input     3,045 changes of paths in 1,018 saves, 23,136 keystrokes in 505 saves, by 3 peers in 12 rounds$`,
			`(?m)^exchanged [1-9][\d,]* records, applied once each, and acknowledged; [1-9]\d* segments of the logs were dropped$`,
			`(?m)^refetched \w+, away for 4 rounds, from \w+: [1-9]\d* fields \(offset \d+ is below the first one left, \d+\)$`,
			`(?m)^logs      4,151 changes, each once and in order in the log of its peer and in no other; [1-9][\d,]* of them have been dropped since$`,
			`(?m)^equal     the 3 databases: 169 notes, sha256 [0-9a-f]{16}…; and equal to all 4,151 changes done in the order of their stamps$`,
			`(?m)^files     158 notes are files, exactly those of the repository's last commit$`,
		)
	}
	for _, want := range wants {
		require.Regexp(t, want, out.String())
	}
	require.LessOrEqual(t, strings.Count(out.String(), "\n"), 20, "readable")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "the directory is removed")
	checkPicture(t, picture)
}

// checkPicture looks whether what happened is in the picture.
func checkPicture(t *testing.T, path string) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	page := string(b)
	svg := page[strings.Index(page, `<svg viewBox="0 0 1500`):strings.LastIndex(page, "</svg>")] + "</svg>"
	n := map[string]int{} // elements by class
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := dec.Token()
		if token == nil {
			require.ErrorContains(t, err, "EOF", "the picture is well-formed")
			break
		}
		element, ok := token.(xml.StartElement)
		if i := slices.IndexFunc(element.Attr, func(a xml.Attr) bool { return a.Name.Local == "class" }); ok && i >= 0 {
			for class := range strings.FieldsSeq(element.Attr[i].Value) {
				n[class]++
			}
		}
	}
	require.Equal(t, 3, n["lane"])
	require.Equal(t, 9, n["curve"])
	require.Equal(t, 3, n["own"])
	require.Equal(t, kills, n["killed"])
	require.Equal(t, rounds+1, n["roundline"])
	require.Equal(t, 1, n["wrong"])
	for _, class := range []string{"online", "arrow", "held", "bar"} {
		require.NotZero(t, n[class], class)
	}
	if oneIn == 1 {
		require.NotZero(t, n["refetch"])
		require.NotZero(t, n["refetched"])
	}
	require.NotContains(t, page, "ZgotmplZ", "nothing was refused by the template")
	require.NotContains(t, page, "http:", "it needs nothing else")
}
