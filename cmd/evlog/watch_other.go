//go:build !unix

package main

import (
	"context"
	"io"
)

// watchReader ends the context when nobody reads w any more, where the system
// can tell.
func watchReader(parent context.Context, _ io.Writer) (context.Context, func()) {
	return context.WithCancel(parent)
}
