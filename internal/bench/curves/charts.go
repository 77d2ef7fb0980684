package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/vg/draw"
)

// chart is one picture.
type chart struct {
	name, table string
	title       string
	x, y        string // what the axes are
	xTick       func(float64) string
	figure      func(x float64, t turn) float64
	sides       []side
}

// side is a line of a chart.
type side struct {
	name, label string
	style       style
}

type style struct {
	color  color.Color
	glyph  draw.GlyphDrawer
	dashed bool
}

// recordOverhead is what a record of package limit takes beside its value.
const recordOverhead = 28 + 16

func perSecond(_ float64, t turn) float64 { return 1e9 / t.ns }
func p99Millis(_ float64, t turn) float64 { return t.p99 / 1e6 }
func millis(_ float64, t turn) float64    { return t.ns / 1e6 }

// bytesPerSecond is of whole records, in MB; x is the size of the value.
func bytesPerSecond(x float64, t turn) float64 { return (x + recordOverhead) / t.ns * 1e3 }

var (
	durable = []side{
		{"evlog", "evlog", styleEvlog},
		{"limit-zeroed", "limit, zeroed file", styleLimit},
		{"limit", "limit, growing file", styleGrowing},
		{"sqlite", "SQLite table", styleSQLite},
	}
	reading = []side{
		{"evlog", "evlog", styleEvlog},
		{"limit", "limit", styleLimit},
		{"sqlite", "SQLite table", styleSQLite},
	}
	opening = []side{
		{"evlog", "evlog, clean", styleEvlog},
		{"evlog-crash", "evlog, crashed", styleEvlog.dash()},
		{"limit", "limit, clean", styleLimit.solid()},
		{"limit-crash", "limit, crashed", styleLimit},
		{"sqlite", "SQLite, clean", styleSQLite},
	}
)

var charts = []chart{
	{
		"callers-throughput", "callers", "Durable appends of 100 B: throughput", "callers at the same time", "records/s",
		count, perSecond, durable,
	},
	{
		"callers-p99", "callers", "Durable appends of 100 B: 99th percentile of a call", "callers at the same time",
		"milliseconds", count, p99Millis, durable,
	},
	{
		"value-throughput", "value", "Durable appends, one caller: throughput", "bytes of the value", "MB/s",
		size, bytesPerSecond, durable,
	},
	{
		"value-p99", "value", "Durable appends, one caller: 99th percentile of a call", "bytes of the value",
		"milliseconds", size, p99Millis, durable,
	},
	{
		"batch-throughput", "batch", "Durable batches of 100 B, one caller: throughput", "records in a batch", "records/s",
		count, perSecond, durable,
	},
	{
		"batch-p99", "batch", "Durable batches of 100 B, one caller: 99th percentile of a call", "records in a batch",
		"milliseconds", count, p99Millis, durable,
	},
	{
		"scan-throughput", "scan", "Reading all records from the page cache, one goroutine", "bytes of the value", "MB/s",
		size, bytesPerSecond, reading,
	},
	{
		"open", "open", "Opening for writing", "records of 100 B in the log", "milliseconds",
		count, millis, opening,
	},
}

// count is a number with three digits and a prefix.
func count(x float64) string {
	for _, u := range []struct {
		name string
		of   float64
	}{{"M", 1e6}, {"k", 1e3}} {
		if x >= u.of {
			return fmt.Sprintf("%g %s", x/u.of, u.name)
		}
	}
	return fmt.Sprintf("%g", x)
}

// size is a number of bytes.
func size(x float64) string {
	switch {
	case x >= 1<<20 && math.Mod(x, 1<<20) == 0:
		return fmt.Sprintf("%g MiB", x/(1<<20))
	case x >= 1<<10 && math.Mod(x, 1<<10) == 0:
		return fmt.Sprintf("%g KiB", x/(1<<10))
	}
	return fmt.Sprintf("%g B", x)
}
