package sqlbridge_test

import (
	"testing"

	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/evlog-go/evlog/internal/sqlsuite"
)

var modernc = sqlsuite.Driver{Name: "sqlite"}

func TestMain(m *testing.M) { sqlsuite.Main(m, modernc) }

// TestSuite_Modernc runs the suite that internal/drivers runs on other drivers.
func TestSuite_Modernc(t *testing.T) { sqlsuite.Run(t, modernc) }
