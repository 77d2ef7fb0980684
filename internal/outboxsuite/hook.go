package outboxsuite

import (
	"sync/atomic"

	"github.com/evlog-go/evlog/internal/vfs"
)

type atomicHook struct{ atomic.Pointer[vfs.Hook] }

func (a *atomicHook) call(op vfs.Op) error {
	if h := a.Load(); h != nil {
		return (*h)(op)
	}
	return nil
}
