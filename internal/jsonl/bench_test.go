package jsonl_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/jsonl"
)

func benchRecord(value string) evlog.Record {
	return evlog.Record{
		Offset: 123456, Time: time.UnixMilli(1758337200123), Schema: 1, Key: []byte("doc:42"), Value: []byte(value),
	}
}

// benchValues are a text without escapes and one that is all JSON.
func benchValues() map[string]string {
	return map[string]string{
		"text": string(bytes.Repeat([]byte("ten bytes "), 10)),
		"json": `{"txn":17,"patches":[[10,0,"a"],[11,0,"\n"],[12,1,""],[13,0,"some longer text here"]],"parents":[]}`,
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, value := range benchValues() {
		b.Run("value="+name, func(b *testing.B) {
			rec := benchRecord(value)
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst = jsonl.Append(dst[:0], rec, jsonl.Options{})
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, value := range benchValues() {
		b.Run("value="+name, func(b *testing.B) {
			line := jsonl.Append(nil, benchRecord(value), jsonl.Options{})
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jsonl.Decode(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
