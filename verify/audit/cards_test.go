package audit_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// unit n of provider p, in a window.
func claims(p, n byte, w audit.Window) audit.Target {
	return audit.Target{Provider: sign.Key{p}, Unit: market.UnitID{n}, Window: w, Attempt: 1}
}

// A newcomer with a card's UUID waits until both passed in one window, and nobody else does.
func TestCards(t *testing.T) {
	t.Parallel()
	tag := market.TagOf("GPU")
	for name, c := range map[string]struct {
		seen []audit.Target // in window 100
		of   audit.Target
		want audit.Rule
	}{
		"one": {[]audit.Target{claims(1, 1, 100)}, claims(1, 1, 100), ""},
		"the first": {[]audit.Target{claims(1, 1, 98), claims(2, 2, 99)}, claims(1, 1, 98),
			""}, "a newcomer": {[]audit.Target{claims(1, 1, 98), claims(2, 2, 99)}, claims(2, 2, 99), audit.RuleCard},
		"a newcomer that was seen first": {[]audit.Target{claims(2, 2, 99), claims(1, 1, 98)}, claims(2, 2, 99),
			audit.RuleCard}, "both passed in one window": {[]audit.Target{claims(1, 1, 98), claims(2, 2, 99),
			claims(1, 1, 99)}, claims(2, 2, 99), ""},
		"both passed, in different windows": {[]audit.Target{claims(1, 1, 97), claims(2, 2, 98), claims(1, 1, 99),
			claims(2, 2, 100)}, claims(2, 2, 100), audit.RuleCard},
		"a third that passed with one of two": {[]audit.Target{claims(1, 1, 97), claims(2, 2, 97), claims(1, 1, 99),
			claims(3, 3, 99)}, claims(3, 3, 99), audit.RuleCard},
		"the first passed too long ago": {[]audit.Target{claims(1, 1, 99-audit.Gone), claims(2, 2, 100)},
			claims(2, 2, 100), ""}, "one that was never seen": {[]audit.Target{claims(1, 1, 99)}, claims(2, 2, 99),
			audit.RuleCard}, "its provider's former unit": {[]audit.Target{claims(1, 1, 98), claims(1, 2, 99)},
			claims(1, 2, 99),
			""}, "two of a provider that passed at once": {[]audit.Target{claims(1, 1, 99), claims(1, 2, 99)},
			claims(1, 2, 99), ""},
	} {
		cards := audit.NewCards(audit.Instants{})
		for _, x := range c.seen {
			cards.See(100, tag, x)
		}
		wantRule(t, name, cards.Check(100, tag, c.of), c.want)
		wantRule(t, name+", another card", cards.Check(100, market.TagOf("other"), c.of), "")
	}
}

// What follows does not depend on the order in which records are read, and what is remembered is bounded.
func TestCardsAnyOrder(t *testing.T) {
	t.Parallel()
	tag := market.TagOf("GPU")
	rapid.Check(t, func(t *rapid.T) {
		var seen []audit.Target
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			n := rapid.ByteRange(1, 3).Draw(t, "provider")
			seen = append(seen, claims(n, n, audit.Window(rapid.Uint64Range(100-audit.Gone, 100).Draw(t, "window"))))
		}
		one, other := audit.NewCards(audit.Instants{}), audit.NewCards(audit.Instants{})
		for _, x := range seen {
			one.See(100, tag, x)
		}
		for _, x := range rapid.Permutation(slices.Clone(seen)).Draw(t, "order") {
			other.See(100, tag, x)
		}
		sold := 0
		for _, x := range seen {
			a, b := one.Check(100, tag, x), other.Check(100, tag, x)
			ties := slices.ContainsFunc(seen, func(y audit.Target) bool {
				return y.Provider != x.Provider && y.Window == x.Window
			})
			if (a == nil) != (b == nil) && !ties {
				t.Fatalf("unit %d of %v: %v, in another order %v", x.Unit[0], seen, a, b)
			}
			if a == nil {
				sold++
			}
		}
		if sold == 0 {
			t.Fatal("a copied UUID took everybody off the market")
		}
	})
	cards := audit.NewCards(audit.Instants{})
	for i := range audit.MaxCards + 10 {
		cards.See(100, sign.Sum([]byte{byte(i), byte(i >> 8)}), claims(byte(i), byte(i>>8), 100))
	}
	cards.See(101+audit.Gone, tag, claims(1, 1, 101+audit.Gone))
	wantRule(t, "room is made", cards.Check(101+audit.Gone, tag, claims(2, 2, 101)), audit.RuleCard)
	// Where few windows have an audit, a card is claimed for as long as that many audits take.
	few := audit.NewCards(audit.Instants{OneIn: 30})
	few.See(5000, tag, claims(1, 1, 5000-30*audit.Gone))
	few.See(5000, tag, claims(2, 2, 5000))
	wantRule(t, "as long as claims last", few.Check(5000, tag, claims(2, 2, 5000)), audit.RuleCard)
	wantRule(t, "longer", few.Check(5001, tag, claims(2, 2, 5000)), "")
}
