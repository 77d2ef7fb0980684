// Package cursortest tests whether another log or another store keeps the
// contracts of package cursor. What passes can stand behind cursor.Run and
// package sqlbridge in place of an *evlog.Reader or a *cursor.File.
//
//	func TestConformance(t *testing.T) {
//		cursortest.TestLog(t, func(t *testing.T) cursortest.LogFixture {
//			l := openMine(t)
//			return cursortest.LogFixture{Log: l, Append: l.Append}
//		})
//	}
package cursortest
