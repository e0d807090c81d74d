package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

func at(w audit.Window, attempt uint8) audit.Moment { return audit.Moment{Window: w, Attempt: attempt} }

// claim is that of unit n of a provider of its own, with the oldest line where since is the first window.
func claim(n byte, since audit.Window, passed ...audit.Moment) audit.Claim {
	return audit.Claim{Provider: sign.Key{n}, Unit: market.UnitID{n}, Line: at(since, 1), Passed: passed}
}

// What each of the claims to one card is worth, in window 100.
func TestHolds(t *testing.T) {
	t.Parallel()
	own := func(c audit.Claim, provider byte) audit.Claim {
		c.Provider = sign.Key{provider}
		return c
	}
	since := func(c audit.Claim, m audit.Moment) audit.Claim {
		c.Line = m
		return c
	}
	for _, x := range []struct {
		what   string
		claims []audit.Claim
		want   string
	}{
		{"one claim", []audit.Claim{claim(1, 9, at(100, 1))}, "sole"},
		{"the newcomer waits, and the older line does not", []audit.Claim{claim(1, 9, at(100, 1)), claim(2, 99, at(99, 1))}, "first frozen"},
		{"whoever is seen first", []audit.Claim{claim(2, 99, at(99, 1)), claim(1, 9, at(100, 1))}, "frozen first"},
		{"one window, in different attempts", []audit.Claim{claim(1, 9, at(100, 1)), claim(2, 99, at(100, 2))}, "first beside"},
		{"both at once: two cards", []audit.Claim{claim(1, 9, at(100, 1)), claim(2, 99, at(100, 1))}, "first beside"},
		{"both at once, some windows ago", []audit.Claim{claim(1, 9, at(80, 2)), claim(2, 70, at(80, 2), at(100, 1))}, "first beside"},
		{"both at once, too long ago", []audit.Claim{claim(1, 9, at(75, 1), at(99, 1)), claim(2, 70, at(75, 1), at(100, 1))}, "first frozen"},
		{"the older is gone", []audit.Claim{claim(1, 9, at(75, 1)), claim(2, 99, at(100, 1))}, "unclaimed sole"},
		{"the older worked for somebody", []audit.Claim{claim(1, 9, at(76, 1)), claim(2, 99, at(100, 1))}, "first frozen"},
		{"the older came back", []audit.Claim{claim(1, 9, at(60, 1), at(100, 1)), claim(2, 70, at(99, 1))}, "first frozen"},
		{"none passed for long", []audit.Claim{claim(1, 9, at(3, 1)), claim(2, 3)}, "unclaimed unclaimed"},
		{"a third that passed with the first alone", []audit.Claim{claim(1, 9, at(98, 1), at(100, 1)), claim(2, 97, at(98, 1)), claim(3, 99, at(100, 1))}, "first beside frozen"},
		{"a third that passed with both", []audit.Claim{claim(1, 9, at(99, 1), at(100, 1)), claim(2, 97, at(99, 1), at(100, 2)), claim(3, 99, at(100, 1))}, "first beside beside"},
		{"a third beside one that waits", []audit.Claim{claim(1, 9, at(100, 1)), claim(2, 97, at(98, 1)), claim(3, 99, at(100, 1))}, "first frozen beside"},
		{"begun in one window, in different attempts", []audit.Claim{since(claim(1, 0, at(99, 1)), at(50, 2)), since(claim(2, 0, at(100, 1)), at(50, 1))}, "frozen first"},
		{"begun at once, which is forgotten", []audit.Claim{claim(2, 50, at(99, 1)), claim(1, 50, at(100, 1))}, "frozen first"},
		{"two of one provider at once", []audit.Claim{claim(1, 9, at(100, 1)), own(claim(2, 99, at(100, 2)), 1)}, "twice twice"},
		{"two of one provider in turn", []audit.Claim{claim(1, 9, at(99, 1)), own(claim(2, 99, at(100, 1)), 1)}, "twice sole"},
		{"two of one provider hurt nobody else", []audit.Claim{claim(1, 9, at(100, 1)), own(claim(2, 9, at(100, 1)), 1), claim(3, 99, at(98, 1))}, "twice twice sole"},
		{"a clock that is behind", []audit.Claim{claim(1, 9, at(105, 1)), claim(2, 99, at(104, 1))}, "first frozen"},
	} {
		var got []string
		for _, h := range audit.Holds(100, x.claims) {
			got = append(got, h.Hold.String())
			refused := h.Hold == audit.Frozen || h.Hold == audit.Twice
			if (h.Err() != nil) != refused || refused && !broke(h.Err(), audit.RuleCard) || (h.Note() != "") != (h.Hold == audit.First || h.Hold == audit.Beside) {
				t.Errorf("%s: %s: %v, %q", x.what, h.Hold, h.Err(), h.Note())
			}
		}
		if s := strings.Join(got, " "); s != x.want {
			t.Errorf("%s: %s, want %s", x.what, s, x.want)
		}
	}
}

// anyClaims are claims to one card around window 100, some of one provider.
func anyClaims(t *rapid.T) []audit.Claim {
	n := rapid.IntRange(1, 6).Draw(t, "claims")
	out := make([]audit.Claim, n)
	for i := range out {
		ms := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) audit.Moment {
			return at(audit.Window(rapid.IntRange(70, 100).Draw(t, "window")), uint8(rapid.IntRange(1, audit.MaxAttempts).Draw(t, "attempt")))
		}), 1, 8, func(m audit.Moment) audit.Moment { return m }).Draw(t, "passed")
		slices.SortFunc(ms, audit.Moment.Compare)
		line := ms[0]
		if rapid.Bool().Draw(t, "older") {
			line = at(audit.Window(rapid.IntRange(1, 69).Draw(t, "since")), 1)
		}
		out[i] = audit.Claim{Provider: sign.Key{byte(rapid.IntRange(1, 5).Draw(t, "provider"))}, Unit: market.UnitID{byte(i)}, Line: line, Passed: ms}
	}
	return out
}

func byUnit(now audit.Window, cs []audit.Claim) map[market.UnitID]audit.Hold {
	out := map[market.UnitID]audit.Hold{}
	for i, h := range audit.Holds(now, cs) {
		out[cs[i].Unit] = h.Hold
	}
	return out
}

// Of the claims to a card, whatever they are: what comes of them does not hang on their order; one line is kept whole, the oldest that counts;
// all who may sell passed at once with each other; and nobody of another provider that comes later changes what the oldest line holds.
func TestHoldsRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cs := anyClaims(t)
		holds := byUnit(100, cs)
		if got := byUnit(100, rapid.Permutation(cs).Draw(t, "order")); fmt.Sprint(got) != fmt.Sprint(holds) {
			t.Fatalf("%v, in another order %v", holds, got)
		}
		var selling []audit.Claim
		firsts := 0
		for _, c := range cs {
			switch holds[c.Unit] {
			case audit.First, audit.Sole:
				firsts++
				for _, o := range cs {
					if h := holds[o.Unit]; (h == audit.Beside || h == audit.Frozen) && o.Line.Compare(c.Line) < 0 {
						t.Fatalf("an older line is %s", h)
					}
				}
				selling = append(selling, c)
			case audit.Beside:
				selling = append(selling, c)
			}
		}
		if firsts > 1 || firsts == 0 && len(selling) > 0 {
			t.Fatalf("%d are first", firsts)
		}
		for i, c := range selling {
			for _, o := range selling[:i] {
				if c.Provider == o.Provider || !slices.ContainsFunc(c.Passed, func(m audit.Moment) bool {
					return m.Window >= 76 && slices.ContainsFunc(o.Passed, func(n audit.Moment) bool { return n.Window == m.Window })
				}) {
					t.Fatal("two sell one card")
				}
			}
		}
		thief := claim(200, 0, at(100, uint8(rapid.IntRange(1, audit.MaxAttempts).Draw(t, "thief"))))
		thief.Line = thief.Passed[0]
		for u, h := range byUnit(100, append(slices.Clone(cs), thief)) {
			was := holds[u]
			older := func(c audit.Claim) bool { return c.Unit == u && c.Line.Compare(thief.Line) < 0 }
			if slices.ContainsFunc(cs, older) && h != was && (was != audit.Sole || h != audit.First) {
				t.Fatalf("a thief made %s of %s", h, was)
			}
		}
	})
}

// What a reader makes of records does not hang on the order in which it sees them.
func TestCardsAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cs := anyClaims(t)
		var records []audit.Record
		for _, c := range cs {
			for _, m := range c.Passed {
				r := audit.Record{Answer: audit.Answer{Target: audit.Target{Provider: c.Provider, Unit: c.Unit, Window: m.Window, Attempt: m.Attempt}}}
				if m != c.Line {
					r.Since = c.Line
				}
				records = append(records, r)
			}
		}
		tag := market.TagOf("GPU-1")
		holds := byUnit(100, cs)
		for range 2 {
			var c audit.Cards
			for _, r := range rapid.Permutation(records).Draw(t, "order") {
				c.See(100, tag, r)
			}
			for u, want := range holds {
				if got := c.Held(100, tag, u).Hold; got != want {
					t.Fatalf("unit %d: %s, want %s", u[0], got, want)
				}
				if got := c.Held(100, market.TagOf("GPU-2"), u).Hold; got != audit.Unclaimed {
					t.Fatalf("another card: %s", got)
				}
			}
		}
	})
}

// Whoever floods a reader drives out what is younger or gone, and not an older line.
func TestCardsBounded(t *testing.T) {
	t.Parallel()
	var c audit.Cards
	tag := market.TagOf("GPU-1")
	see := func(tag sign.Hash, n int, w, since audit.Window) market.UnitID {
		u := market.UnitID(sign.Sum(fmt.Append(nil, n)))
		r := audit.Record{Answer: audit.Answer{Target: audit.Target{Provider: sign.Key(u), Unit: u, Window: w, Attempt: 1}}}
		if since != w {
			r.Since = at(since, 1)
		}
		c.See(w, tag, r)
		return u
	}
	owner := see(tag, 0, 50, 3)
	var last market.UnitID
	for n := range audit.MaxClaims * 3 {
		last = see(tag, 1+n, 51+audit.Window(n)%20, 51+audit.Window(n)%20)
	}
	if h := c.Held(70, tag, owner); h.Hold != audit.First {
		t.Errorf("the owner of the card is %s", h.Hold)
	}
	if h := c.Held(70, tag, last); h.Hold != audit.Frozen {
		t.Errorf("the last of many that claim it is %s", h.Hold)
	}
	for n := range audit.MaxCards + 10 {
		see(sign.Sum(fmt.Append(nil, "flood", n)), 1000+n, 71, 71)
	}
	if h := c.Held(71, tag, owner); h.Hold != audit.First {
		t.Errorf("after a flood the owner is %s", h.Hold)
	}
}
