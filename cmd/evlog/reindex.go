package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newReindexCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reindex DIR",
		Short: "Rebuild every .idx",
		Long: `Rebuild every .idx from its .log. It needs the log for itself: no writer may
have it open. Deleting indexes and opening the log does the same in time.

With --json: one object with path and rebuilt, the number of indexes written.`,
		Example:           `  evlog reindex events`,
		ValidArgsFunction: dirOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, _, err := a.dirAnd(cmd, args)
			if err != nil {
				return err
			}
			return a.reindex(cmd, dir, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (a *app) reindex(cmd *cobra.Command, dir string, asJSON bool) error {
	bar := a.newProgress("reindex", false)
	n, err := evlog.Reindex(cmd.Context(), dir, func(done, total int) { bar.set(int64(done), int64(total)) })
	bar.end()
	if errors.Is(err, evlog.ErrLocked) {
		return lockedHint(err, "close that program first")
	}
	a.noticeEnded(cmd.Context(), err, fmt.Sprintf("%d rebuilt, the others are as they were", n))
	if err != nil {
		return err
	}
	if asJSON {
		return writeDocument(a.out, struct {
			Path    string `json:"path"`
			Rebuilt int    `json:"rebuilt"`
		}{dir, n})
	}
	unit := "indexes"
	if n == 1 {
		unit = "index"
	}
	_, err = fmt.Fprintf(a.out, "rebuilt %d %s\n", n, unit)
	return err
}
