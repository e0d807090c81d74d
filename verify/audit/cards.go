package audit

import (
	"cmp"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Bounds of a reader's memory of cards.
const (
	// Gone is the number of audits, on average, without a record after which a unit's claim to its card lapses.
	Gone = MaxRates
	// MaxCards is how many units that claim cards are remembered. Each has passed an audit.
	MaxCards = 1 << 15
)

// Cards records the units that claim to be one card, by the tag of its UUID. A UUID can be copied by any peer, so a
// duplicate is not punished. The unit that the reader saw pass in the earliest window keeps the card. A newcomer waits
// until both pass in one window: all units answer at one instant, so there are two cards. Cards is not safe for
// concurrent use.
type Cards struct {
	gone Window                   // Gone
	of   map[sign.Hash][]claimant // by tag, the earliest first
	n    int
}

// NewCards returns empty Cards.
func NewCards(i Instants) *Cards {
	return &Cards{gone: i.Audits(Gone), of: map[sign.Hash][]claimant{}}
}

// claimant is a unit that claims a card.
type claimant struct {
	provider sign.Key
	unit     market.UnitID
	since    Window   // the earliest that was seen
	passed   []Window // ascending, none older than the newest by gone
}

func (c claimant) newest() Window { return c.passed[len(c.passed)-1] }

// See adds a checked record of a unit that claims a card. Of two units of one provider, the one with the latest pass
// counts.
func (c *Cards) See(now Window, tag sign.Hash, t Target) {
	if c.n >= MaxCards {
		c.sweep(now)
	}
	is := func(x claimant) bool { return x.provider == t.Provider && x.unit == t.Unit }
	cs := slices.DeleteFunc(c.of[tag], func(x claimant) bool {
		return x.newest()+c.gone < now || x.provider == t.Provider && x.unit != t.Unit && x.newest() < t.Window
	})
	c.n -= len(c.of[tag]) - len(cs)
	i := slices.IndexFunc(cs, is)
	if i < 0 && c.n < MaxCards {
		cs, i = append(cs, claimant{provider: t.Provider, unit: t.Unit, since: t.Window}), len(cs)
		c.n++
	}
	if i >= 0 {
		x := &cs[i]
		x.since = min(x.since, t.Window)
		if at, known := slices.BinarySearch(x.passed, t.Window); !known {
			x.passed = slices.Insert(x.passed, at, t.Window)
		}
		x.passed = slices.DeleteFunc(x.passed, func(w Window) bool { return w+c.gone < x.newest() })
	}
	slices.SortStableFunc(cs, func(a, b claimant) int { return cmp.Compare(a.since, b.since) })
	if c.of[tag] = cs; len(cs) == 0 {
		delete(c.of, tag)
	}
}

// sweep forgets units that passed too long ago.
func (c *Cards) sweep(now Window) {
	for tag, cs := range c.of {
		left := slices.DeleteFunc(cs, func(x claimant) bool { return x.newest()+c.gone < now })
		c.n -= len(cs) - len(left)
		if c.of[tag] = left; len(left) == 0 {
			delete(c.of, tag)
		}
	}
}

// Check returns an error of RuleCard if a passed unit does not count as proven, because another unit claims its card
// since an earlier window, and both have not passed in one window.
func (c *Cards) Check(now Window, tag sign.Hash, t Target) error {
	cs := c.of[tag]
	i := slices.IndexFunc(cs, func(x claimant) bool { return x.provider == t.Provider && x.unit == t.Unit })
	for k, x := range cs {
		if k == i {
			return nil
		}
		together := func(w Window) bool { return slices.Contains(cs[i].passed, w) }
		if x.newest()+c.gone < now || i >= 0 && slices.ContainsFunc(x.passed, together) {
			continue
		}
		return broken(RuleCard,
			"card: also claimed by unit %s of %s since an earlier window; waiting until both pass in one",
			x.unit.Short(), x.provider.Short())
	}
	return nil
}
