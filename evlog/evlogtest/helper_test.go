package evlogtest_test

import (
	"context"
	"fmt"
	"testing"
)

// exampleTB stands in for a *testing.T in an example.
type exampleTB struct {
	testing.TB
	ctx   context.Context
	clean []func()
}

func (e *exampleTB) Helper()                           {}
func (e *exampleTB) Context() context.Context          { return e.ctx }
func (e *exampleTB) Cleanup(f func())                  { e.clean = append(e.clean, f) }
func (e *exampleTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (e *exampleTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func runAsTest(test func(t testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &exampleTB{ctx: ctx}
	test(e)
	cancel()
	for i := len(e.clean) - 1; i >= 0; i-- {
		e.clean[i]()
	}
}
