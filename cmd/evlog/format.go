package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/jsonl"
)

// formatFlags choose how records are printed.
type formatFlags struct {
	name     string
	json     bool
	template string
	embed    bool
	local    bool
	noOffset bool // no flag: the records are in no log
}

var recordFormats = []string{"text", "jsonl", "value", "raw"}

// formatHelp is the part of a command's help that explains the formats.
const formatHelp = `
Formats:
  text   offset, time, key and value, separated by tabs, for people: what is not
         printable shows as an escape, "-" is no key
  jsonl  one JSON object a line, which "append --format jsonl" takes back as it
         is: {"offset":9,"ts_ms":1758337200123,"schema":1,"key":"a","value":""}
         with key_b64 and value_b64 where the bytes are not UTF-8, no key
         where there is none, and "tombstone":true added on an empty value that
         has a key
  value  each value and a newline
  raw    the values as they are, with nothing between them
  -F     ` + recordTokens + `,
         ` + valueTokens + `;
         ` + templateEscapes

func (f *formatFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "format", "text", "in this `FORMAT`: "+strings.Join(recordFormats, ", "))
	flags.BoolVarP(&f.json, "jsonl", "J", false, "the same as --format jsonl")
	flags.StringVarP(&f.template, "template", "F", "", "each record by this `TEMPLATE`, such as '%o %T %k %s\\n'")
	flags.BoolVar(&f.embed, "embed-json", false, "in jsonl, put values that are JSON objects or arrays in as they are")
	flags.BoolVar(&f.local, "local", false, "in text, times in the local zone")
	completeWords(cmd, "format", recordFormats)
}

// recordEncoder appends a record's printed form.
type recordEncoder func(dst []byte, r evlog.Record) []byte

// encoder is what the flags ask for.
func (f *formatFlags) encoder(cmd *cobra.Command) (recordEncoder, error) {
	chosen := cmd.Flags().Changed("format")
	if cmd.Flags().Changed("template") {
		if chosen || f.json {
			return nil, usagef(cmd, "-F and another format")
		}
		t, err := compileTemplate(f.template)
		if err != nil {
			return nil, usagef(cmd, "-F: %v", err)
		}
		return t.append, f.checkEmbed(cmd, false)
	}
	if f.json {
		if chosen && f.name != "jsonl" {
			return nil, usagef(cmd, "-J and --format %s", f.name)
		}
		f.name = "jsonl"
	}
	if !slices.Contains(recordFormats, f.name) {
		return nil, usagef(cmd, "unknown format %q (there are: %s)", f.name, strings.Join(recordFormats, ", "))
	}
	return f.named(), f.checkEmbed(cmd, f.name == "jsonl")
}

func (f *formatFlags) checkEmbed(cmd *cobra.Command, isJSON bool) error {
	if f.embed && !isJSON {
		return usagef(cmd, "--embed-json goes with -J")
	}
	return nil
}

func (f *formatFlags) named() recordEncoder {
	switch f.name {
	case "jsonl":
		opts := jsonl.Options{EmbedJSON: f.embed, NoOffset: f.noOffset}
		return func(dst []byte, r evlog.Record) []byte {
			return append(jsonl.Append(dst, r, opts), '\n')
		}
	case "value":
		return func(dst []byte, r evlog.Record) []byte {
			return append(append(dst, r.Value...), '\n')
		}
	case "raw":
		return func(dst []byte, r evlog.Record) []byte { return append(dst, r.Value...) }
	case "text":
		times := timePrinter{local: f.local}
		return func(dst []byte, r evlog.Record) []byte { return appendText(dst, r, times) }
	}
	panic(fmt.Sprintf("no format %q", f.name))
}

// appendText writes the line for people.
func appendText(dst []byte, r evlog.Record, times timePrinter) []byte {
	dst = strconv.AppendUint(dst, r.Offset, 10)
	dst = append(dst, '\t')
	dst = times.append(dst, r.Time)
	dst = append(dst, '\t')
	if len(r.Key) == 0 {
		dst = append(dst, '-')
	}
	dst = appendPrintable(dst, r.Key)
	dst = append(dst, '\t')
	if r.Tombstone() {
		dst = append(dst, "(tombstone)"...)
	}
	dst = appendPrintable(dst, r.Value)
	return append(dst, '\n')
}

// recordPrinter prints records to standard output.
type recordPrinter struct {
	a      *app
	encode recordEncoder
	buf    []byte
}

func (p *recordPrinter) print(r evlog.Record) error {
	const keep = 1 << 20 // one huge record must not hold its memory for ever
	p.buf = p.encode(p.buf[:0], r)
	_, err := p.a.out.Write(p.buf)
	if cap(p.buf) > keep {
		p.buf = nil
	}
	return err
}
