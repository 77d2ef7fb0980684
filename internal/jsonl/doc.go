// Package jsonl is the form of a record as one line of JSON, which the command
// line prints and reads:
//
//	{"offset":9,"ts_ms":1758337200123,"schema":1,"key":"doc:42","value":"..."}
//
// [Append] writes a line, [Decode] reads one. Both are exact: what Append wrote
// decodes to the same time, schema, key and value, byte for byte, whatever the
// bytes are. Decode refuses what it could only take by changing it, such as
// text that is not UTF-8 or half of a surrogate pair.
package jsonl
