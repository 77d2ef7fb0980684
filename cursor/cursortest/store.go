package cursortest

import (
	"context"
	"testing"

	"github.com/evlog-go/evlog/cursor"
)

// StoreFixture is a new store without consumers. Rules that need a function
// that is nil are left out.
type StoreFixture struct {
	Store cursor.Store
	// Reopen returns a store over the same place, for the same log, as another
	// process would open it.
	Reopen func(ctx context.Context) (cursor.Store, error)
	// OtherLog is the same for another log.
	OtherLog func(ctx context.Context) (cursor.Store, error)
}

// TestStore tests a store, one rule in each subtest. open returns a fresh one
// each time.
func TestStore(t *testing.T, open func(t *testing.T) StoreFixture) {
	for _, rule := range storeRules {
		t.Run(rule.name, func(t *testing.T) {
			f := open(t)
			if rule.needs != nil && !rule.needs(f) {
				t.Skip("the fixture has no function for this")
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := rule.check(ctx, f); err != nil {
				t.Error(err)
			}
		})
	}
}

type storeRule struct {
	name  string
	needs func(f StoreFixture) bool
	check func(ctx context.Context, f StoreFixture) error
}

var storeRules = []storeRule{
	{name: "an unknown consumer is an error", check: ruleUnknown},
	{name: "what was committed is loaded", check: ruleCommitted},
	{name: "a commit of the same position makes a consumer known", check: ruleRegistered},
	{name: "a commit from elsewhere is refused", check: ruleMoved},
	{name: "a commit does not go backwards", check: ruleForwards},
	{name: "consumers are listed by name", check: ruleList},
	{name: "a removed consumer is unknown", check: ruleRemove},
	{name: "names are kept exactly", check: ruleNames},
	{name: "names that cannot be are refused", check: ruleBadNames},
	{name: "high offsets are kept", check: ruleHigh},
	{name: "a context that has ended changes nothing", check: ruleStoreCancel},
	{name: "consumers do not lose each other's commits", check: ruleLostUpdate},
	{name: "of two consumers under one name one moves", check: ruleRace},
	{name: "another opening sees the same consumers", needs: func(f StoreFixture) bool { return f.Reopen != nil }, check: ruleShared},
	{name: "a cursor of another log is an error", needs: func(f StoreFixture) bool { return f.OtherLog != nil }, check: ruleOtherLog},
	{name: "a reset goes anywhere", needs: canReset, check: ruleReset},
	{name: "a reset binds to the log", needs: func(f StoreFixture) bool { return canReset(f) && f.OtherLog != nil }, check: ruleRebind},
}

func canReset(f StoreFixture) bool {
	_, ok := f.Store.(cursor.Resetter)
	return ok
}
