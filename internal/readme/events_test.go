package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/testdata/events"
)

// The table of testdata/events/README.md says what is in the streams.
func TestEvents_Table(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "testdata", "events", "README.md"))
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(content)) {
		if cells := strings.Split(line, "|"); len(cells) == 9 && strings.Contains(cells[1], "_") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, name := range events.Names() {
		want = append(want, row(t, name))
	}
	require.Equal(t, want, rows)
}

func row(t *testing.T, name string) string {
	var deletes, back, longestKey, longestValue int
	keys := map[string]bool{}
	all, err := events.Load(name)
	require.NoError(t, err)
	var before time.Time
	for _, e := range all {
		if len(e.Value) == 0 {
			deletes++
		}
		if e.Time.Before(before) {
			back++
		}
		before = e.Time
		keys[string(e.Key)] = true
		longestKey, longestValue = max(longestKey, len(e.Key)), max(longestValue, len(e.Value))
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d |", name, len(all), deletes, len(keys), back, longestKey, longestValue)
}

// No data under a licence that reaches into what is built from it.
func TestEvents_Licences(t *testing.T) {
	for _, name := range events.Names() {
		require.False(t, strings.HasPrefix(name, "osm"), name)
	}
}

// What the raw files say must come out is there to compare with.
func TestEvents_Ends(t *testing.T) {
	for document, length := range map[string]int{"sveltecomponent": 18451, "seph-blog1": 56769} {
		text, err := events.EndContent(document)
		require.NoError(t, err)
		require.Len(t, []rune(text), length)
	}
	tree, err := events.FinalTree()
	require.NoError(t, err)
	require.Len(t, tree, 158)
	_, err = events.EndContent("nothing")
	require.Error(t, err)
}
