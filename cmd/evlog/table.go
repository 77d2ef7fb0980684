package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// tableFlags choose how a table is printed.
type tableFlags struct {
	json  bool
	times timePrinter
}

func (f *tableFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	cmd.Flags().BoolVar(&f.times.local, "local", false, "times in the local zone")
}

// writeDocument prints one JSON document, for people too.
func writeDocument(w io.Writer, doc any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// writeTable prints rows of cells, aligned; the first row is the head.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// plural is "1 record", "2 records".
func plural[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
