package main

import (
	"bytes"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

// filterFlags choose records by what is in them.
type filterFlags struct {
	key    bytesValue
	prefix bytesValue
	schema schemaValue
	value  regexpValue
}

func (f *filterFlags) register(cmd *cobra.Command) {
	f.key.name, f.prefix.name = "KEY", "PREFIX"
	flags := cmd.Flags()
	flags.VarP(&f.key, "key", "k", "only records with this key; an empty one means without key")
	flags.Var(&f.prefix, "key-prefix", "only records whose key starts so")
	flags.Var(&f.schema, "schema", "only records with this schema id")
	flags.VarP(&f.value, "grep", "g", "only records whose value matches")
}

// match reports whether the record passes every filter.
func (f *filterFlags) match(r evlog.Record) bool {
	switch {
	case f.key.set && !bytes.Equal(r.Key, f.key.b):
		return false
	case f.prefix.set && !bytes.HasPrefix(r.Key, f.prefix.b):
		return false
	case f.schema.set && r.Schema != f.schema.id:
		return false
	case f.value.re != nil && !f.value.re.Match(r.Value):
		return false
	}
	return true
}
