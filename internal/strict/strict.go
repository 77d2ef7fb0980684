// Package strict is how packages that decide for themselves what follows when
// retention has overtaken them ask a reader to say so, whatever its options tell
// it to do.
package strict

import "context"

type key struct{}

// Context asks readers to end where they have fallen behind.
func Context(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether ctx asks for that.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
