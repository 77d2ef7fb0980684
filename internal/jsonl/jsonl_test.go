package jsonl_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/jsonl"
)

func TestAppend(t *testing.T) {
	at := time.UnixMilli(1758337200123).UTC()
	tests := []struct {
		name string
		rec  evlog.Record
		opts jsonl.Options
		want string
	}{
		{
			name: "all fields",
			rec:  evlog.Record{Offset: 9, Time: at, Schema: 1, Key: []byte("doc:42"), Value: []byte("hello")},
			want: `{"offset":9,"ts_ms":1758337200123,"schema":1,"key":"doc:42","value":"hello"}`,
		},
		{
			name: "no key, no value",
			rec:  evlog.Record{Time: time.UnixMilli(0)},
			want: `{"offset":0,"ts_ms":0,"schema":0,"value":""}`,
		},
		{
			name: "tombstone",
			rec:  evlog.Record{Offset: math.MaxUint64, Time: time.UnixMilli(-1), Schema: 65535, Key: []byte("k")},
			want: `{"offset":18446744073709551615,"ts_ms":-1,"schema":65535,"key":"k","value":"","tombstone":true}`,
		},
		{
			name: "bytes that are not UTF-8",
			rec:  evlog.Record{Time: at, Key: []byte{0xff, 0}, Value: []byte("a\xc3")},
			want: `{"offset":0,"ts_ms":1758337200123,"schema":0,"key_b64":"/wA=","value_b64":"YcM="}`,
		},
		{
			name: "escapes, and none for HTML",
			rec:  evlog.Record{Time: at, Value: []byte("\"\\/\b\f\n\r\t\x00\x1f\x7f<&>\u2028\u2029é𝄞")},
			want: `{"offset":0,"ts_ms":1758337200123,"schema":0,"value":"\"\\/\b\f\n\r\t\u0000\u001f` +
				"\x7f<&>\u2028\u2029é𝄞" + `"}`,
		},
		{
			name: "JSON is text unless asked for",
			rec:  evlog.Record{Time: at, Value: []byte(`{"a":1}`)},
			want: `{"offset":0,"ts_ms":1758337200123,"schema":0,"value":"{\"a\":1}"}`,
		},
		{
			name: "embedded object",
			rec:  evlog.Record{Time: at, Key: []byte("k"), Value: []byte(`{"a": [1,"\ud800"], "a":{}}`)},
			opts: jsonl.Options{EmbedJSON: true},
			want: `{"offset":0,"ts_ms":1758337200123,"schema":0,"key":"k","value":{"a": [1,"\ud800"], "a":{}}}`,
		},
		{
			name: "embedded array",
			rec:  evlog.Record{Time: at, Value: []byte(`[]`)},
			opts: jsonl.Options{EmbedJSON: true},
			want: `{"offset":0,"ts_ms":1758337200123,"schema":0,"value":[]}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := jsonl.Append([]byte("x"), tt.rec, tt.opts)
			require.Equal(t, "x"+tt.want, string(got))
			requireSameBack(t, tt.rec, tt.opts)
		})
	}
}

// Values that look like JSON and would come back changed stay strings.
func TestAppend_EmbedsOnlyWhatComesBack(t *testing.T) {
	for _, value := range []string{
		"", "1", "true", "null", `"text"`, " {}", "{} ", "[1]\t", "{\"a\":\n1}", "{\r}", "{", "[1,]", "{]", "[}",
		"[1", `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:2}`, "[\"\xff\"]", "[\"\x01\"]", "[01]", "[1.]", "[1e]", "[-]", "[+1]",
		`["\x"]`, `["\u12g4"]`, "[tru]", "[1 2]", "[]]", "{}{}", strings.Repeat("[", 1000),
	} {
		rec := evlog.Record{Time: time.UnixMilli(1), Value: []byte(value)}
		embedding := jsonl.Append(nil, rec, jsonl.Options{EmbedJSON: true})
		require.Equal(t, string(jsonl.Append(nil, rec, jsonl.Options{})), string(embedding), "value %q", value)
		requireSameBack(t, rec, jsonl.Options{EmbedJSON: true})
	}
}

func TestDecode(t *testing.T) {
	ms := func(n int64) time.Time { return time.UnixMilli(n).UTC() }
	tests := []struct {
		name string
		line string
		want evlog.Record
	}{
		{"value alone", `{"value":"v"}`, evlog.Record{Value: []byte("v")}},
		{
			"all fields, other order", ` { "value" : "v" , "key":"k", "schema":7,"ts_ms":-5,"tombstone":false,"offset":3 } ` + "\r",
			evlog.Record{Time: ms(-5), Schema: 7, Key: []byte("k"), Value: []byte("v")},
		},
		{"object as it stands", `{"value":{"b": 1,  "a":[ ]}}`, evlog.Record{Value: []byte(`{"b": 1,  "a":[ ]}`)}},
		{"array", `{"value":[1, "\ud800"]}`, evlog.Record{Value: []byte(`[1, "\ud800"]`)}},
		{"number", `{"value":-0.10E+07}`, evlog.Record{Value: []byte("-0.10E+07")}},
		{"true", `{"value":true}`, evlog.Record{Value: []byte("true")}},
		{"false", `{"value":false }`, evlog.Record{Value: []byte("false")}},
		{"null is empty", `{"key":"k","value":null}`, evlog.Record{Key: []byte("k")}},
		{"null key is none", `{"key":null,"value":"v"}`, evlog.Record{Value: []byte("v")}},
		{"empty strings", `{"key":"","value":""}`, evlog.Record{}},
		{"empty base64", `{"key_b64":"","value_b64":""}`, evlog.Record{}},
		{"base64", `{"key_b64":"/wA=","value_b64":"YcM="}`, evlog.Record{Key: []byte{0xff, 0}, Value: []byte("a\xc3")}},
		{
			"escapes", `{"value":"\"\\\/\b\f\n\r\t\u0041\u00e9\u2028\ud834\udd1E"}`,
			evlog.Record{Value: []byte("\"\\/\b\f\n\r\tAé\u2028𝄞")},
		},
		{"escaped names", `{"\u0076alue":"v"}`, evlog.Record{Value: []byte("v")}},
		{"escaped base64", `{"value_b64":"\u0059cM\u003d"}`, evlog.Record{Value: []byte("a\xc3")}},
		{"raw DEL and line separators", "{\"value\":\"\x7f\u2028\u0085\"}", evlog.Record{Value: []byte("\x7f\u2028\u0085")}},
		{"lowest time", `{"ts_ms":-9223372036854775808,"value":""}`, evlog.Record{Time: ms(math.MinInt64)}},
		{"highest time", `{"ts_ms":9223372036854775807,"value":""}`, evlog.Record{Time: ms(math.MaxInt64)}},
		{"time 0 is kept", `{"ts_ms":0,"value":""}`, evlog.Record{Time: ms(0)}},
		{"ignored fields may hold anything", `{"offset":{"a":[null]},"tombstone":"x","value":1}`, evlog.Record{Value: []byte("1")}},
		{"highest schema", `{"schema":65535,"value":""}`, evlog.Record{Schema: 65535}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := jsonl.Decode([]byte(tt.line))
			require.NoError(t, err)
			require.Equal(t, tt.want.Time.IsZero(), got.Time.IsZero())
			require.True(t, tt.want.Equal(got), "want %v, got %v", tt.want, got)
		})
	}
}

func TestDecode_Refuses(t *testing.T) {
	tests := []struct {
		name, line, want string
	}{
		{"empty line", ``, "byte 1: line ends where '{' should be"},
		{"no object", `[1]`, "byte 1: '[' where '{' should be"},
		{"byte order mark", "\ufeff{}", `byte 1: '\ufeff' where '{' should be`},
		{"text behind", `{"value":1} x`, "byte 13: 'x' where the end of the line should be"},
		{"cut off", `{"value":"ab`, "value: byte 13: line ends where the end of a string should be"},
		{"cut off after a comma", `{"value":1,`, "byte 12: line ends where a field name should be"},
		{"trailing comma", `{"value":1,}`, "byte 12: '}' where a field name should be"},
		{"no value", `{"key":"k"}`, "no value: neither value nor value_b64 is there"},
		{"nothing", `{}`, "no value: neither value nor value_b64 is there"},
		{"unknown field", `{"value":1,"topic":"t"}`, `byte 12: unknown field "topic"`},
		{"names are exact", `{"Value":1}`, `byte 2: unknown field "Value"`},
		{"both forms of value", `{"value":1,"value_b64":""}`, "byte 12: value_b64 for the second time"},
		{"both forms of key", `{"key_b64":"","key":null,"value":1}`, "byte 15: key for the second time"},
		{"field twice", `{"value":1,"value":1}`, "byte 12: value for the second time"},
		{"ignored field twice", `{"offset":1,"offset":1,"value":1}`, "byte 13: offset for the second time"},
		{"key that is no text", `{"key":1,"value":1}`, "key: byte 8: '1' where a string should be"},
		{"base64 that is no text", `{"value_b64":null}`, "value_b64: byte 14: 'n' where a string should be"},
		{"bad base64", `{"value_b64":"YcM"}`, "value_b64: byte 19: illegal base64 data"},
		{"base64 with a line end", `{"value_b64":"YcM=\n"}`, "value_b64: byte 22: line end inside base64"},
		{"base64 with bits left over", `{"value_b64":"YcN="}`, "value_b64: byte 20: illegal base64 data at input byte 3"},
		{"time with a fraction", `{"ts_ms":1.0,"value":1}`, "ts_ms: byte 10: 1.0 where a whole number of milliseconds should be"},
		{"time with an exponent", `{"ts_ms":1e3,"value":1}`, "ts_ms: byte 10: 1e3 where a whole number of milliseconds should be"},
		{
			"time beyond 64 bits", `{"ts_ms":9223372036854775808,"value":1}`,
			"ts_ms: byte 10: 9223372036854775808 where a whole number of milliseconds should be",
		},
		{"time as text", `{"ts_ms":"1","value":1}`, `ts_ms: byte 10: '"' where a whole number of milliseconds should be`},
		{"time null", `{"ts_ms":null,"value":1}`, "ts_ms: byte 10: 'n' where a whole number of milliseconds should be"},
		{"schema too high", `{"schema":65536,"value":1}`, "schema: byte 11: 65536 where a number from 0 to 65535 should be"},
		{"schema negative", `{"schema":-1,"value":1}`, "-1 where a number from 0 to 65535 should be"},
		{"half a surrogate pair", `{"value":"a\ud834"}`, `value: \ud834 is half of a character`},
		{"low half alone", `{"value":"\udd1e"}`, `value: \udd1e is half of a character`},
		{"two high halves", `{"value":"\ud834\ud834"}`, `value: \ud834\ud834 is no character`},
		{"half a pair in a name", `{"\ud834":1}`, `\ud834 is half of a character`},
		{"not UTF-8", "{\"value\":\"\xff\"}", "not UTF-8; bytes that are no text go into key_b64 and value_b64"},
		{"not UTF-8 inside JSON", "{\"value\":[\"\xff\"]}", "not UTF-8; bytes that are no text go into key_b64 and value_b64"},
		{"raw control character", "{\"value\":\"\x01\"}", `value: byte 11: control character 0x01 in a string, write it as \u0001`},
		{"bad escape", `{"value":"\x41"}`, "value: byte 12: 'x' where an escape should be"},
		{"bad hex", `{"value":"\u00g0"}`, "value: byte 15: 'g' where a hexadecimal digit should be"},
		{"bad word", `{"value":nul}`, "value: byte 10: 'n' where a value should be"},
		{"bad number", `{"value":01}`, "byte 11: '1' where ',' or '}' should be"},
		{"wrong bracket", `{"value":[1}}`, `value: byte 12: '}' where ',' or ']' should be`},
		{"bad ignored value", `{"offset":,"value":1}`, "offset: byte 11: ',' where a value should be"},
		{"NUL", "{\x00}", `byte 2: '\x00' where a field name should be`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jsonl.Decode([]byte(tt.line))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestDecode_DeepNestingIsCheap(t *testing.T) {
	const depth = 1_000_000
	value := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	rec, err := jsonl.Decode([]byte(`{"value":` + value + `}`))
	require.NoError(t, err)
	require.Len(t, rec.Value, 2*depth)
	_, err = jsonl.Decode([]byte(`{"value":` + strings.Repeat(`{"a":`, depth)))
	require.Error(t, err)
}

func TestDecodeDefault(t *testing.T) {
	def := evlog.Record{Schema: 3, Key: []byte("d")}
	rec, err := jsonl.DecodeDefault([]byte(`{"value":"v"}`), def)
	require.NoError(t, err)
	require.True(t, rec.Equal(evlog.Record{Schema: 3, Key: []byte("d"), Value: []byte("v")}))
	rec, err = jsonl.DecodeDefault([]byte(`{"value":"v","key":null,"schema":0}`), def)
	require.NoError(t, err)
	require.True(t, rec.Equal(evlog.Record{Value: []byte("v")}))
}

// The millisecond of Go's zero time is a time like any other.
func TestDecode_ZeroTimeIsNotStamped(t *testing.T) {
	want := time.Time{}.UnixMilli()
	line := jsonl.Append(nil, evlog.Record{Time: time.UnixMilli(want), Value: []byte("v")}, jsonl.Options{})
	rec, err := jsonl.Decode(line)
	require.NoError(t, err)
	require.False(t, rec.Time.IsZero())
	require.Equal(t, want, rec.Time.UnixMilli())
}

// Every line of the event data comes back byte for byte, and as JSON that other
// programs read the same way.
func TestRoundTrip_EventFiles(t *testing.T) {
	files := eventFiles(t)
	if len(files) == 0 {
		t.Skip("no event data here")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			n := 0
			eachLine(t, file, func(line []byte) {
				rec, err := jsonl.Decode(line)
				require.NoError(t, err, "%.200s", line)
				sameBack(t, rec, jsonl.Options{})
				sameBack(t, rec, jsonl.Options{EmbedJSON: true})
				if n++; n%16 == 0 || strings.Contains(file, "nasty") {
					requireSameBack(t, rec, jsonl.Options{EmbedJSON: n%32 == 0})
				}
			})
		})
	}
}

// sameBack encodes, decodes and compares. It returns the line.
func sameBack(t *testing.T, rec evlog.Record, opts jsonl.Options) []byte {
	t.Helper()
	line := jsonl.Append(nil, rec, opts)
	back, err := jsonl.Decode(line)
	back.Offset = rec.Offset
	if err != nil || !rec.Equal(back) || bytes.IndexByte(line, '\n') >= 0 {
		t.Fatalf("want %v, got %v, %v of %.200s", rec, back, err, line)
	}
	return line
}

// requireSameBack is sameBack that has encoding/json agree.
func requireSameBack(t *testing.T, rec evlog.Record, opts jsonl.Options) {
	t.Helper()
	line := sameBack(t, rec, opts)

	var other struct {
		Value json.RawMessage `json:"value"`
		Bytes []byte          `json:"value_b64"`
	}
	require.NoError(t, json.Unmarshal(line, &other))
	var text string
	switch {
	case other.Value == nil:
		require.True(t, bytes.Equal(rec.Value, other.Bytes))
	case json.Unmarshal(other.Value, &text) == nil:
		require.Equal(t, string(rec.Value), text)
	default:
		require.True(t, opts.EmbedJSON)
		require.Equal(t, string(rec.Value), string(other.Value))
	}
}

// eventFiles lists the event data in the repository, and in the directory that
// EVLOG_SHARED_DATA names.
func eventFiles(t testing.TB) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{filepath.Join("..", "..", "testdata", "events"), os.Getenv("EVLOG_SHARED_DATA")} {
		if dir == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
		require.NoError(t, err)
		files = append(files, found...)
	}
	return files
}

func eachLine(t testing.TB, file string, do func(line []byte)) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		do(lines.Bytes())
	}
	require.NoError(t, lines.Err())
}
