package ncruces

import (
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"

	"github.com/evlog-go/evlog/internal/outboxsuite"
	"github.com/evlog-go/evlog/internal/sqlsuite"
)

var driver = sqlsuite.Driver{Name: "sqlite3"}

func TestMain(m *testing.M) {
	outboxsuite.Child(driver.Name)
	sqlsuite.Main(m, driver)
}

func TestSuite(t *testing.T) { sqlsuite.Run(t, driver) }

func TestOutbox(t *testing.T) { outboxsuite.Run(t, driver.Name) }

func BenchmarkSQLBridge(b *testing.B) { sqlsuite.Benchmark(b, driver) }
