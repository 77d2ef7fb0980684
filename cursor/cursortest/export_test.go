package cursortest

import "context"

// CheckLog and CheckStore run one rule on a fixture, for tests that want to see
// it fail.
func CheckLog(ctx context.Context, rule string, f LogFixture) error {
	for _, r := range logRules {
		if r.name == rule {
			return r.check(ctx, f)
		}
	}
	panic("no rule " + rule)
}

func CheckStore(ctx context.Context, rule string, f StoreFixture) error {
	for _, r := range storeRules {
		if r.name == rule {
			return r.check(ctx, f)
		}
	}
	panic("no rule " + rule)
}

// Rules are the names of all rules.
func Rules() (log, store []string) {
	for _, r := range logRules {
		log = append(log, r.name)
	}
	for _, r := range storeRules {
		store = append(store, r.name)
	}
	return log, store
}
