package outbox_test

import (
	"testing"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/evlog-go/evlog/internal/outboxsuite"
)

func TestMain(m *testing.M) {
	outboxsuite.Child("sqlite")
	goleak.VerifyTestMain(m)
}

// TestSuite_Modernc runs the suite that internal/drivers runs on other drivers.
func TestSuite_Modernc(t *testing.T) { outboxsuite.Run(t, "sqlite") }
