// Package evtest is what evlog's own tests share: record generators, a model
// of a log, and a second implementation of the format.
//
// The second implementation (ref.go, image.go) is written from docs/FORMAT.md
// alone and uses nothing of evlog or internal/format. It is slow and simple: a
// whole log as bytes in memory. Where it and evlog disagree, one of them is
// wrong about the page.
package evtest
