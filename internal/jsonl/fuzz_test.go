package jsonl_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/jsonl"
)

// FuzzDecode: any line is either refused, or means a record that is written
// and read again without a change.
func FuzzDecode(f *testing.F) {
	for _, line := range []string{
		`{"offset":9,"ts_ms":1758337200123,"schema":1,"key":"doc:42","value":"..."}`,
		`{"key_b64":"/wA=","value_b64":"YcM=","tombstone":true}`,
		`{"value":{"a":[1,-2.5e+3,"\ud834\udd1e",null,true,false,{}]}}`,
		`{"value":"\u0000\b\f\n\r\t\"\\\/"}`,
		`{"value":null,"key":null}`,
		`{"value":"\ud800"}`,
	} {
		f.Add([]byte(line))
	}
	seedEvents(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		rec, err := jsonl.Decode(line)
		require.Equal(t, before, line, "the line was changed")
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 300)
			return
		}
		for _, embed := range []bool{false, true} {
			requireSameBack(t, rec, jsonl.Options{EmbedJSON: embed})
		}
	})
}

// seedEvents adds some of the nasty lines.
func seedEvents(f *testing.F) {
	for _, file := range eventFiles(f) {
		if !strings.HasPrefix(filepath.Base(file), "nasty_") {
			continue
		}
		n := 0
		eachLine(f, file, func(line []byte) {
			if n++; n%8 == 0 && len(line) < 1000 {
				f.Add(bytes.Clone(line))
			}
		})
	}
}
