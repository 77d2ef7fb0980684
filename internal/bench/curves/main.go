// Command curves draws what make curves has measured: for each chart a picture in
// SVG, from the tables in the directory that it is given. It is a module of its own,
// so that what draws stays out of evlog's go.mod: gonum.org/v1/plot (BSD-3-Clause).
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: curves DIRECTORY")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1], os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}

// drawAll draws the charts whose tables are in a directory into another one.
func drawAll(from, to string) error {
	for _, c := range charts {
		t, err := readTable(filepath.Join(from, c.table+".tsv"))
		if err != nil {
			return err
		}
		svg, err := c.draw(t)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := os.WriteFile(filepath.Join(to, c.name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}
