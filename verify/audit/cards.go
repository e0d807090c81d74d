package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Bounds of what is remembered of claims to cards.
const (
	// Gone is after how many windows without a record a unit claims its card no more, and after how many it is forgotten that two
	// units passed at once.
	Gone = MaxRates
	// MaxClaims is how many claims to one card are looked at: those with the oldest lines.
	MaxClaims = 16
	// MaxCards bounds all that is remembered of all cards.
	MaxCards = 1 << 15
)

// Claim is what the records of one unit that passed say of the card that it claims.
type Claim struct {
	Provider sign.Key
	Unit     market.UnitID
	Line     Moment   // when its line of records began
	Passed   []Moment // ascending, of the last Gone windows
}

// newest is the last window in which it passed.
func (c Claim) newest() Window { return c.Passed[len(c.Passed)-1].Window }

// gone reports whether it passed too long ago to claim anything.
func (c Claim) gone(now Window) bool { return len(c.Passed) == 0 || c.newest()+Gone < now }

// together reports whether two units passed at once in the last Gone windows: one card cannot. Whoever passes in a window worked at its
// instant, in whichever attempt that was judged (Instants), so nobody keeps another from it by answering in a later one.
func (c Claim) together(o Claim, now Window) bool {
	return slices.ContainsFunc(c.Passed, func(m Moment) bool {
		return m.Window+Gone >= now && slices.ContainsFunc(o.Passed, func(n Moment) bool { return n.Window == m.Window })
	})
}

// Hold is what a unit's claim to its card is worth.
type Hold uint8

// The holds.
const (
	Unclaimed Hold = 0 // Its unit showed no record of the last Gone windows.
	Sole      Hold = 1 // Nobody else claims the card.
	First     Hold = 2 // Others claim it too; this one's line of records is the oldest.
	Beside    Hold = 3 // It passed at once with all that claimed it before: there are as many cards, and somebody copied a UUID.
	Frozen    Hold = 4 // Another claims it since before, and the two have not passed at once.
	Twice     Hold = 5 // Its own provider claims it for another unit too.
)

// String names the hold.
func (h Hold) String() string {
	return [...]string{"unclaimed", "sole", "first", "beside", "frozen", "twice"}[min(h, Twice)]
}

// Held is a hold, and the other unit that it is by: what freezes it, what its provider has besides, or who else claims its card.
type Held struct {
	Hold Hold
	By   Claim // the zero value of Unclaimed and Sole
}

// Err is why a unit is not sold as proven; nil where its claim does not forbid it. RuleCard.
func (h Held) Err() error {
	switch h.Hold {
	case Frozen:
		return broken(RuleCard, "frozen: its card is also claimed by unit %s of %s, since window %d; both must pass in one window", h.By.Unit.Short(), h.By.Provider.Short(), h.By.Line.Window)
	case Twice:
		return broken(RuleCard, "its provider claims the same card for unit %s", h.By.Unit.Short())
	}
	return nil
}

// Note is what there is to say of a claim that forbids nothing; "" of one that nobody else makes.
func (h Held) Note() string {
	if h.Hold != First && h.Hold != Beside {
		return ""
	}
	text := fmt.Sprintf("its card's UUID is also claimed by unit %s of %s", h.By.Unit.Short(), h.By.Provider.Short())
	if h.Hold == First {
		return text + ", since a later window"
	}
	return text + "; both passed at once, so there are two cards and one of them has a UUID that is not its own"
}

// Holds says what each of the claims to one card is worth in window now. It is the same for everybody with the same records, in whatever
// order they came:
//
//	older line ──▶ First      who has the oldest line of records keeps what it has, whoever claims the card later
//	younger ─────▶ Frozen     until it and all that hold the card passed in one window, of the last Gone: then Beside
//	one provider's two units  the one that passed last counts; two that passed last in one window are both refused (Twice)
//	no record of the last Gone windows: the claim is none
//
// Lines that began in one window belong to units that passed at once; when that is forgotten, the earlier attempt and then the lower unit id
// is the older. Nothing of it is a proof that anybody lied: a UUID can be copied, by anybody, to hurt its owner.
func Holds(now Window, claims []Claim) []Held {
	out := make([]Held, len(claims))
	var order []int
	for i, c := range claims {
		if c.gone(now) {
			continue
		}
		other := rival(now, claims, i)
		if other >= 0 {
			out[i] = Held{Twice, claims[other]}
			continue
		}
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := claims[i], claims[j]
		return cmp.Or(a.Line.Compare(b.Line), a.Unit.Compare(b.Unit))
	})
	var holders []int
	for _, i := range order {
		apart := slices.IndexFunc(holders, func(h int) bool { return !claims[i].together(claims[h], now) })
		switch {
		case apart >= 0:
			out[i] = Held{Frozen, claims[holders[apart]]}
			continue
		case len(holders) > 0:
			out[i] = Held{Beside, claims[holders[0]]}
		case len(order) > 1:
			out[i] = Held{First, claims[order[1]]}
		default:
			out[i] = Held{Hold: Sole}
		}
		holders = append(holders, i)
	}
	return out
}

// rival is a unit of the same provider that passed no earlier; −1: none.
func rival(now Window, claims []Claim, i int) int {
	return slices.IndexFunc(claims, func(o Claim) bool {
		return o.Provider == claims[i].Provider && o.Unit != claims[i].Unit && !o.gone(now) && o.newest() >= claims[i].newest()
	})
}

// Cards is what a reader saw of the claims to cards: for one goroutine, and bounded. What it says follows from the records that it was
// given and not from their order.
type Cards struct {
	claims map[sign.Hash][]Claim // by tag
	n      int
}

// See takes a record of a unit that passed and was checked.
func (c *Cards) See(now Window, tag sign.Hash, r Record) {
	if c.claims == nil {
		c.claims = map[sign.Hash][]Claim{}
	}
	a, m := r.Answer, r.Moment()
	of := func(x Claim) bool { return x.Unit == a.Unit }
	if c.n >= MaxCards && !slices.ContainsFunc(c.claims[tag], of) {
		c.sweep(now)
	}
	cs := c.claims[tag]
	i := slices.IndexFunc(cs, of)
	if i < 0 {
		c.n++
		cs, i = append(cs, Claim{Provider: a.Provider, Unit: a.Unit, Line: r.Line()}), len(cs)
	}
	x := &cs[i]
	if at, known := slices.BinarySearchFunc(x.Passed, m, Moment.Compare); !known {
		x.Passed = slices.Insert(x.Passed, at, m)
	}
	// The line is that of the newest record: an older one may be of a line that ended.
	if x.Passed[len(x.Passed)-1] == m {
		x.Line = r.Line()
	}
	newest := x.newest()
	x.Passed = slices.DeleteFunc(x.Passed, func(m Moment) bool { return m.Window+Gone < newest })
	if len(cs) > MaxClaims {
		cs = c.cut(now, cs)
	}
	c.claims[tag] = cs
}

// cut drops a claim to a card: one that is gone, or the youngest.
func (c *Cards) cut(now Window, cs []Claim) []Claim {
	worst := 0
	for i, x := range cs {
		y := cs[worst]
		if g := x.gone(now); g != y.gone(now) && g || g == y.gone(now) && cmp.Or(x.Line.Compare(y.Line), x.Unit.Compare(y.Unit)) > 0 {
			worst = i
		}
	}
	c.n--
	return slices.Delete(cs, worst, worst+1)
}

// sweep makes room: what is gone goes, and where nothing is, the card whose oldest line is the youngest.
func (c *Cards) sweep(now Window) {
	var youngest sign.Hash
	var line Moment
	for tag, cs := range c.claims {
		left := slices.DeleteFunc(cs, func(x Claim) bool { return x.gone(now) })
		c.n -= len(cs) - len(left)
		if len(left) == 0 {
			delete(c.claims, tag)
			continue
		}
		c.claims[tag] = left
		oldest := slices.MinFunc(left, func(a, b Claim) int { return a.Line.Compare(b.Line) }).Line
		if o := cmp.Or(oldest.Compare(line), slices.Compare(tag[:], youngest[:])); o > 0 {
			youngest, line = tag, oldest
		}
	}
	if c.n >= MaxCards {
		c.n -= len(c.claims[youngest])
		delete(c.claims, youngest)
	}
}

// Providers are those whose units claim a card.
func (c *Cards) Providers(tag sign.Hash) (out []sign.Key) {
	for _, x := range c.claims[tag] {
		out = append(out, x.Provider)
	}
	return out
}

// Saw reports whether a record's unit was seen to pass then.
func (c *Cards) Saw(tag sign.Hash, r Record) bool {
	return slices.ContainsFunc(c.claims[tag], func(x Claim) bool {
		return x.Unit == r.Answer.Unit && slices.Contains(x.Passed, r.Moment())
	})
}

// Held is what a unit's claim to a card is worth, by what was seen.
func (c *Cards) Held(now Window, tag sign.Hash, unit market.UnitID) Held {
	cs := c.claims[tag]
	holds := Holds(now, cs)
	for i, x := range cs {
		if x.Unit == unit {
			return holds[i]
		}
	}
	for i, h := range holds { // so many claim it that this one was not kept
		if h.Hold == First || h.Hold == Sole {
			return Held{Frozen, cs[i]}
		}
	}
	return Held{}
}
