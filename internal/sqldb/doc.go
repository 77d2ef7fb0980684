// Package sqldb is what packages sqlbridge and outbox both have to know about
// SQLite behind database/sql. It imports no driver: what drivers have no common
// type for is told by SQLite's own words, which they all pass on.
package sqldb
