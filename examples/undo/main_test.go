package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/invariant"
	"github.com/evlog-go/evlog/testdata/events"
)

// TestMain lets the test binary be the editor that gets killed.
func TestMain(m *testing.M) {
	if os.Getenv(dirVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestUndo(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(context.Background(), &out))
	t.Log("\n" + out.String())

	for _, want := range []string{
		`(?m)^killed    an editor in the middle of typing; it had saved \d+ edits$`,
		`(?m)^reopened  in \S+: \d+ edits are there, -?\d+ more than were saved; `,
		`(?m)^undone    500 edits of the editor that is gone: exactly the text of that time$`,
		`(?m)^redone    all of them: exactly the text from before$`,
		`(?m)^typed     the other \d+ edits$`,
		`(?m)^replayed  \d+ events: exactly the recorded final text, 18451 characters; 18335 edits can be undone$`,
	} {
		require.Regexp(t, want, out.String())
	}
}

// The other recorded text is three times as long and was typed in 137,154 edits.
func TestReplay_EndContent(t *testing.T) {
	if testing.Short() || invariant.Enabled {
		t.Skip("takes seconds, and far longer under the race detector")
	}
	var d document
	for e, err := range events.All("edits_seph_blog1") {
		require.NoError(t, err)
		require.NoError(t, d.apply(evlog.Record{Schema: schemaEdit, Value: e.Value}))
	}
	want, err := events.EndContent("seph-blog1")
	require.NoError(t, err)
	require.True(t, d.String() == want)
}

func TestEditor(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	ed, err := openEditor(ctx, dir, "test")
	require.NoError(t, err)
	write := func(value string) error {
		return ed.write(ctx, evlog.Record{Key: ed.key, Value: []byte(value)})
	}

	require.ErrorIs(t, ed.undo(ctx), errNothing)
	require.ErrorIs(t, ed.redo(ctx), errNothing)
	require.NoError(t, write(`{"patches":[[0,0,"añ𝄞d"]]}`))
	require.NoError(t, write(`{"patches":[[3,0,"c"],[1,2,"b"]]}`), "positions count code points, not bytes")
	require.Equal(t, "abcd", ed.String())
	require.NoError(t, ed.undo(ctx))
	require.Equal(t, "añ𝄞d", ed.String())
	require.NoError(t, ed.redo(ctx))
	require.Equal(t, "abcd", ed.String())
	require.ErrorIs(t, write(`{"patches":[[0,0,"x"],[9,0,"y"]]}`), errPatch)
	require.Equal(t, "abcd", ed.String(), "an edit that cannot be made changes nothing")
	require.NoError(t, ed.undo(ctx))
	require.NoError(t, write(`{"patches":[[0,4,"new"]]}`))
	require.ErrorIs(t, ed.redo(ctx), errNothing, "a new edit ends what could be redone")
	require.NoError(t, ed.close())

	ed, err = openEditor(ctx, dir, "test")
	require.NoError(t, err)
	require.Equal(t, "new", ed.String())
	require.NoError(t, ed.undo(ctx))
	require.NoError(t, ed.undo(ctx))
	require.Equal(t, "", ed.String())
	require.NoError(t, ed.close())
}
