// Package evlogtest gives tests a log in a temporary directory or in memory,
// and a clock that they move.
//
// Every log that comes from here is closed when the test ends, and every byte
// of it is verified then: a problem fails the test. So a test of an application
// finds out when it used the log in a way that evlog did not survive.
//
//	func TestOrders(t *testing.T) {
//		dir := evlogtest.NewMemDir(t)
//		log := dir.Open(nil)
//		placeOrder(log)
//		for rec, err := range log.Reader().Records(t.Context(), 0) {
//			...
//		}
//	}
//
// A directory can be opened again after its log was closed, or as a power
// failure would have left it: [Dir.Crash].
package evlogtest
