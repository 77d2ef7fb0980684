//go:build race

package main

// oneIn leaves out most under the race detector, which makes SQLite twenty times slower.
// The logs are too short then for anybody to have to refetch.
const oneIn = 4
