package notice

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// two is a notice of two leases that do not overlap, with three receipts each.
func two(t *testing.T) (Place, Notice) {
	t.Helper()
	p := placeOf(t, units[1], start)
	a, as := sold(t, "a", units, start, equal(3, 100)...)
	b, bs := sold(t, "b", units, start+1000, equal(3, 100)...)
	n := Join(calendar, p, noticeOf(t, p, a, units, as), noticeOf(t, p, b, units, bs))
	if len(n.Leases) != 2 || len(n.Receipts) != 6 {
		t.Fatalf("%d leases, %d receipts", len(n.Leases), len(n.Receipts))
	}
	return p, n
}

func TestLayoutRefused(t *testing.T) {
	t.Parallel()
	_, n := two(t)
	good := n.Marshal()
	if back, err := Unmarshal(good); err != nil || !same(back, n) {
		t.Fatal(err)
	}
	proof := 2 + market.LeaseSize // of the first lease
	depth := proof + proofHead - 1
	one := proof + proofHead + int(good[depth])*sign.HashSize - 2
	receipts := 2 + 2*one // their number
	set := func(at int, v byte) []byte {
		b := slices.Clone(good)
		b[at] = v
		return b
	}
	for what, b := range map[string][]byte{
		"nothing":                     nil,
		"a head alone":                {version, 0},
		"version 0":                   set(0, 0),
		"version 2":                   set(0, 2),
		"a lease less than it has":    set(1, 1),
		"a lease more than it has":    set(1, 3),
		"leases to the end and on":    set(1, 255),
		"an unknown lease":            set(2, 9),
		"a longer path":               set(depth, good[depth]+1),
		"a shorter path":              set(depth, good[depth]-1),
		"a path deeper than any":      set(depth, merkle.MaxDepth+1),
		"a receipt less than it has":  set(receipts, good[receipts]-1),
		"a receipt more than it has":  set(receipts, good[receipts]+1),
		"an unknown receipt":          set(receipts+1, 9),
		"a byte more":                 append(slices.Clone(good), 0),
		"longer than any":             append(slices.Clone(good), make([]byte, MaxSize)...),
		"no number of receipts":       good[:receipts],
		"receipts without their head": slices.Delete(slices.Clone(good), receipts, receipts+1),
	} {
		if n, err := Unmarshal(b); !errors.Is(err, market.ErrMalformed) || len(n.Leases)+len(n.Receipts) > 0 {
			t.Errorf("%s: %d leases, %d receipts, %v", what, len(n.Leases), len(n.Receipts), err)
		}
	}
	for size := range len(good) {
		if _, err := Unmarshal(good[:size]); !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("the first %d bytes of %d: %v", size, len(good), err)
		}
	}
}

// TestShapeRefused: what is wrong with the order or the bounds of a notice is found before any signature is verified.
func TestShapeRefused(t *testing.T) {
	t.Parallel()
	p, good := two(t)
	never := func([]byte, func() error) error { return errors.New("a signature was to be verified") }
	elsewhere := p
	elsewhere.Hour = (p.Hour + 1) % 24
	others := p
	others.Provider = private("another").Key()
	for what, c := range map[string]struct {
		place  Place
		change func(n *Notice)
	}{
		"no leases":              {p, func(n *Notice) { n.Leases = nil }},
		"no receipts":            {p, func(n *Notice) { n.Receipts = nil }},
		"a receipt too few":      {p, func(n *Notice) { n.Receipts = n.Receipts[:1] }},
		"17 receipts":            {p, func(n *Notice) { n.Receipts = slices.Repeat(n.Receipts, 3)[:MaxReceipts+1] }},
		"leases exchanged":       {p, func(n *Notice) { slices.Reverse(n.Leases) }},
		"a lease twice":          {p, func(n *Notice) { n.Leases[1] = n.Leases[0] }},
		"a lease of no receipt":  {p, func(n *Notice) { n.Receipts = n.Receipts[:3] }},
		"a receipt of no lease":  {p, func(n *Notice) { n.Leases = n.Leases[:1] }},
		"receipts exchanged":     {p, func(n *Notice) { slices.Reverse(n.Receipts) }},
		"two receipts exchanged": {p, func(n *Notice) { n.Receipts[0], n.Receipts[1] = n.Receipts[1], n.Receipts[0] }},
		"a receipt twice":        {p, func(n *Notice) { n.Receipts[1] = n.Receipts[0] }},
		"another hour":           {elsewhere, func(*Notice) {}},
		"another provider":       {others, func(*Notice) {}},
		"of more units":          {p, func(n *Notice) { n.Leases[0].In.Units++ }},
		"another buyer":          {p, func(n *Notice) { n.Receipts[0].Buyer[0]++ }},
		"another's receipt":      {p, func(n *Notice) { n.Receipts[0].Provider[0]++ }},
		"a receipt of one unit":  {p, func(n *Notice) { n.Receipts[0].Units = 1 }},
		"of other units":         {p, func(n *Notice) { n.Receipts[0].UnitsRoot[0]++ }},
		"of another rank epoch":  {p, func(n *Notice) { n.Receipts[0].RankEpoch++ }},
		"of no slots":            {p, func(n *Notice) { n.Receipts[0].To = n.Receipts[0].From }},
		"before its lease":       {p, func(n *Notice) { n.Receipts[0].From = n.Leases[0].Lease.Core.Start - 1 }},
		"after its lease":        {p, func(n *Notice) { n.Receipts[2].To = n.Leases[0].Lease.Core.End + 1 }},
	} {
		n := Notice{Leases: slices.Clone(good.Leases), Receipts: slices.Clone(good.Receipts)}
		c.change(&n)
		if err := n.Check(domain, calendar, c.place, never); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := good.Check(domain, calendar, p, nil); err != nil {
		t.Error(err)
	}
}

func TestPlaceRefused(t *testing.T) {
	t.Parallel()
	good := placeOf(t, units[0], start).Marshal()
	at := func(hour byte) []byte {
		b := slices.Clone(good)
		b[len(b)-1] = hour
		return b
	}
	for what, b := range map[string][]byte{
		"nothing": nil, "a byte less": good[:PlaceSize-1], "a byte more": append(slices.Clone(good), 0),
		"hour 24": at(24), "hour 255": at(255),
	} {
		if _, err := UnmarshalPlace(b); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p, err := UnmarshalPlace(at(23)); err != nil || p.Hour != 23 {
		t.Errorf("hour %d, %v", p.Hour, err)
	}
}

// TestHours: every slot lies in exactly one hour, that of its place, until days can no longer be counted.
func TestHours(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := CalendarOf(market.Genesis{SlotMillis: rapid.Uint64Range(0, 10_000_000).Draw(t, "millis")})
		s := market.Slot(rapid.Uint64().Draw(t, "slot"))
		p, err := c.At(seller.Key(), units[0], s)
		if last := uint64(s)/c.HourSlots()/24 <= math.MaxUint32; last != (err == nil) {
			t.Fatalf("slot %d with %d slots an hour: %v", s, c.HourSlots(), err)
		}
		if err != nil {
			return
		}
		from, to := c.Slots(p)
		if s < from || s >= to || uint64(to-from) != c.HourSlots() {
			t.Fatalf("slot %d has its place in %d to %d", s, from, to)
		}
		if back, err := UnmarshalPlace(p.Marshal()); err != nil || back != p {
			t.Fatalf("%+v comes back as %+v, %v", p, back, err)
		}
		if next, err := c.At(seller.Key(), units[0], to); err == nil && next == p {
			t.Fatal("two hours have one place")
		}
	})
}

// TestBetterInAnyOrder: peers that are offered the same notices keep the same one.
func TestBetterInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := placeOf(t, units[1], start)
		var offered [][]byte
		for range rapid.IntRange(1, 3).Draw(t, "offered") {
			if n := genNotice(t, p); len(n.Leases) > 0 {
				offered = append(offered, n.Marshal())
			}
		}
		bad := []byte("no notice")
		signed := func([]byte, func() error) error { return nil } // the choice does not depend on it
		read := func(b []byte) (Notice, error) { return Read(domain, calendar, p, b, signed) }
		best, _, err := Better(calendar, p, append(slices.Clone(offered), bad), read)
		if len(offered) == 0 {
			if !errors.Is(err, ErrNone) {
				t.Fatalf("of none: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		again := rapid.Permutation(append(slices.Clone(offered), bad)).Draw(t, "order")
		other, _, err := Better(calendar, p, again, read)
		if err != nil || string(again[other]) != string(offered[best]) {
			t.Fatalf("another order has another best: %v", err)
		}
	})
}
