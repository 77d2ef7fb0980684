package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

func TestSmoke(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "a.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer db.Close()
	box, err := outbox.Open(ctx, db, nil)
	require.NoError(t, err)
	log, err := evlog.Open(ctx, filepath.Join(dir, "log"), &evlog.Options{OpenHook: box.Hook()})
	require.NoError(t, err)
	run, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- box.Run(run, log) }()
	require.NoError(t, box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range 2500 {
			if err := box.Put(ctx, tx, evlog.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	n := 0
	for r, err := range log.Reader().Follow(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("v%d", n), string(r.Value))
		if n++; n == 2500 {
			break
		}
	}
	time.Sleep(50 * time.Millisecond)
	s, err := outbox.ReadStatus(ctx, db)
	require.NoError(t, err)
	t.Logf("%+v %+v", s, box.Stats())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, log.Close())
	require.ErrorIs(t, box.Put(ctx, db, evlog.Record{}), outbox.ErrNotInTx)
}
