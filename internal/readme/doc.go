// Package readme holds the tests of the project's pages: every Go block of
// README.md is a region of a file that is compiled and run here, every command
// line in it is run, and the hex dumps of docs/FORMAT.md are decoded.
package readme
