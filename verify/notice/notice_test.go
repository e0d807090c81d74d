package notice

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

func private(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

var (
	domain   = sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}
	calendar = CalendarOf(market.Genesis{SlotMillis: 400})
	seller   = private("provider")
	units    = []market.UnitID{{1}, {2}, {3}}
)

// start is the first slot of an hour that begins at no round slot.
const start = market.Slot(9000 * 1001)

func placeOf(tb interface{ Fatal(...any) }, u market.UnitID, s market.Slot) Place {
	p, err := calendar.At(seller.Key(), u, s)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// sold is a lease of one buyer from slot from, and its receipts of so many slots each.
func sold(tb interface{ Fatal(...any) }, buyer string, us []market.UnitID, from market.Slot, slots ...uint64) (market.Lease, []verify.Receipt) {
	b := private(buyer)
	set, err := market.NewKeySet(1, b.Key())
	if err != nil {
		tb.Fatal(err)
	}
	end := from + 1
	for _, n := range slots {
		end += market.Slot(n)
	}
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: uint16(len(us)), Order: market.OrderID{1}, Buyer: b.Key(), Provider: seller.Key(), Payout: sign.Key{7},
		UnitsRoot: market.UnitsRoot(us), VoucherKeys: set.Hash(), Rate: 1_000_000, Cap: market.Amount(end - from), Start: from, ActivateBefore: from, End: end,
	}
	sig := func(s sign.Signature, err error) sign.Signature {
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
	l := market.Lease{Core: core, ProviderSig: sig(core.Sign(domain, seller)), BuyerSig: sig(core.Sign(domain, b))}
	chain := verify.NewChain(core)
	var rs []verify.Receipt
	for at := from; len(slots) > 0; slots = slots[1:] {
		r, err := chain.Next(at, at+market.Slot(slots[0]), func(*verify.ReceiptCore) {})
		if err != nil {
			tb.Fatal(err)
		}
		at = r.To
		if chain, err = chain.Follow(r); err != nil {
			tb.Fatal(err)
		}
		rs = append(rs, verify.Receipt{ReceiptCore: r, ProviderSig: sig(r.Sign(domain, seller)), BuyerSig: sig(r.Sign(domain, b))})
	}
	return l, rs
}

func equal(n int, slots uint64) []uint64 { return slices.Repeat([]uint64{slots}, n) }

func noticeOf(tb interface{ Fatal(...any) }, p Place, l market.Lease, us []market.UnitID, rs []verify.Receipt) Notice {
	n, err := Of(calendar, p, l, us, rs)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// genNotice is a notice of up to three leases at p, which may overlap, and whether two of them do.
func genNotice(t *rapid.T, p Place) Notice {
	var out Notice
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID).Draw(t, "buyers") {
		from := start + market.Slot(rapid.IntRange(0, 8000).Draw(t, "from"))
		l, rs := sold(t, name, units, from, rapid.SliceOfN(rapid.Uint64Range(1, 600), 1, 20).Draw(t, "slots")...)
		out = Join(calendar, p, out, noticeOf(t, p, l, units, rs))
	}
	return out
}

func reader(p Place) func([]byte) (Notice, error) {
	return func(b []byte) (Notice, error) { return Read(domain, calendar, p, b, nil) }
}

func same(x, y Notice) bool { return bytes.Equal(x.Marshal(), y.Marshal()) }

// Joining never loses: what comes of it is good, is at least as good as each part, and is the same in any order.
func TestJoin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := placeOf(t, units[1], start)
		a, b := genNotice(t, p), genNotice(t, p)
		j := Join(calendar, p, a, b)
		read, err := Read(domain, calendar, p, j.Marshal(), nil)
		if err != nil || !same(read, j) {
			t.Fatalf("a joint notice is not read as it was written: %v", err)
		}
		if compare(calendar, p, j, a) < 0 || compare(calendar, p, j, b) < 0 {
			t.Fatal("the joint is worse than a part")
		}
		if !same(j, Join(calendar, p, b, a)) || !same(j, Join(calendar, p, j, a)) {
			t.Fatal("the order of joining counts")
		}
		if (len(a.Conflicts(calendar, p)) > 0 || len(b.Conflicts(calendar, p)) > 0) && len(j.Conflicts(calendar, p)) == 0 {
			t.Fatal("a proof was lost by joining")
		}
		for _, c := range j.Conflicts(calendar, p) {
			if err := verify.CheckConflict(domain, c); err != nil {
				t.Fatalf("a proof found in a notice does not hold: %v", err)
			}
		}
		best, joint, err := Better(calendar, p, [][]byte{[]byte("junk"), a.Marshal(), b.Marshal(), j.Marshal()}, reader(p))
		if err != nil || best == 0 || !same(joint, j) {
			t.Fatalf("of junk, a, b and both together number %d is kept: %v", best, err)
		}
	})
}

// Two buyers that know nothing of each other keep receipts that meet, wherever their leases overlap by 1024 slots, even
// though a notice has room for a fraction of the receipts.
func TestOverlapIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.IntRange(0, 2000).Draw(t, "first")
		second := rapid.IntRange(first, 6000).Draw(t, "second")
		step := rapid.Uint64Range(20, 150).Draw(t, "interval")
		long := func(from int) int { return (second + 2048 + int(step) - from) / int(step) }
		p := placeOf(t, units[0], start)
		la, ra := sold(t, "a", units, start+market.Slot(first), equal(long(first), step)...)
		lb, rb := sold(t, "b", units[:1], start+market.Slot(second), equal(long(second), step)...)
		j := Join(calendar, p, noticeOf(t, p, la, units, ra), noticeOf(t, p, lb, units[:1], rb))
		if len(j.Conflicts(calendar, p)) != 1 {
			t.Fatalf("leases from slot %d and %d on share 2048 slots, and no two receipts of %d slots meet", first, second, step)
		}
	})
}

// A provider that fills the hour with leases of its own, which must not overlap with the buyer's, does not crowd its
// receipts out.
func TestCrowding(t *testing.T) {
	t.Parallel()
	p := placeOf(t, units[0], start)
	l, rs := sold(t, "victim", units, start+3000, equal(30, 40)...) // 1200 slots
	n := noticeOf(t, p, l, units, rs)
	// Every second slot outside gets a lease of its own whose one receipt covers it: the best that can be done.
	crowd := Notice{}
	for s := start; s < start+9000; s += 64 {
		if s+64 > start+2900 && s < start+4300 {
			continue
		}
		l, rs := sold(t, "sybil", units, s, 63)
		crowd = Join(calendar, p, crowd, noticeOf(t, p, l, units, rs))
	}
	if len(crowd.Receipts) != MaxReceipts {
		t.Fatalf("the crowd has only %d receipts", len(crowd.Receipts))
	}
	j := Join(calendar, p, crowd, n)
	if !slices.ContainsFunc(j.Receipts, func(r verify.Receipt) bool { return r.Lease == l.Core.ID() }) {
		t.Error("the victim's receipts were crowded out")
	}
	// Many receipts over one round slot, under one number or more, take one place.
	round, _ := roundestSlot(start, start+9000)
	var many []verify.Receipt
	lease, one := sold(t, "sybil", units, round-5, 10)
	for i := range 40 {
		core := one[0].ReceiptCore
		core.CPUMillis = uint64(i)
		b := private("sybil")
		ps, err := core.Sign(domain, seller)
		bs, err2 := core.Sign(domain, b)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		many = append(many, verify.Receipt{ReceiptCore: core, ProviderSig: ps, BuyerSig: bs})
	}
	if n := noticeOf(t, p, lease, units, many); len(n.Receipts) != 1 {
		t.Errorf("%d receipts over one slot are kept", len(n.Receipts))
	}
	if _, err := Read(domain, calendar, p, Notice{Leases: n.Leases[:1:1], Receipts: append(slices.Clone(n.Receipts), n.Receipts[0])}.Marshal(), nil); err == nil {
		t.Error("a notice with one receipt twice was read")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	p := placeOf(t, units[0], start)
	l, rs := sold(t, "a", units, start+10, 20, 20)
	good := noticeOf(t, p, l, units, rs)
	other, others := sold(t, "b", units, start+100, 20)
	late, lates := sold(t, "b", units, start+9000, 20)
	for name, change := range map[string]func(n *Notice, p *Place){
		"nothing wrong":        nil,
		"another provider":     func(_ *Notice, p *Place) { p.Provider = private("x").Key() },
		"another unit":         func(_ *Notice, p *Place) { p.Unit = units[1] },
		"another hour":         func(_ *Notice, p *Place) { p.Hour++ },
		"another day":          func(_ *Notice, p *Place) { p.Day++ },
		"no receipt":           func(n *Notice, _ *Place) { n.Receipts = nil },
		"no lease":             func(n *Notice, _ *Place) { n.Leases = nil },
		"lease unsigned":       func(n *Notice, _ *Place) { n.Leases[0].Lease.BuyerSig = sign.Signature{} },
		"lease without one":    func(n *Notice, _ *Place) { n.Leases = append(n.Leases, Leased{other, n.Leases[0].In}) },
		"receipt of no lease":  func(n *Notice, _ *Place) { n.Receipts = append(n.Receipts, others...) },
		"receipts turned":      func(n *Notice, _ *Place) { slices.Reverse(n.Receipts) },
		"receipt twice":        func(n *Notice, _ *Place) { n.Receipts[1] = n.Receipts[0] },
		"receipt unsigned":     func(n *Notice, _ *Place) { n.Receipts[0].ProviderSig[3] ^= 1 },
		"buyer did not sign":   func(n *Notice, _ *Place) { n.Receipts[0].BuyerSig = sign.Signature{} },
		"empty receipt":        func(n *Notice, _ *Place) { n.Receipts[0].To = n.Receipts[0].From },
		"before its lease":     func(n *Notice, _ *Place) { n.Receipts[0].From = start + 9 },
		"after its lease":      func(n *Notice, _ *Place) { n.Receipts[1].To = l.Core.End + 1 },
		"other units":          func(n *Notice, _ *Place) { n.Receipts[0].UnitsRoot[0]++ },
		"other count":          func(n *Notice, _ *Place) { n.Leases[0].In.Units++ },
		"receipt in next hour": func(n *Notice, _ *Place) { *n = Notice{Leases: []Leased{{late, n.Leases[0].In}}, Receipts: lates} },
	} {
		n, at := Notice{slices.Clone(good.Leases), slices.Clone(good.Receipts)}, p
		if change != nil {
			change(&n, &at)
		}
		if _, err := Read(domain, calendar, at, n.Marshal(), nil); (err == nil) != (change == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := domain
	elsewhere.Network = "other"
	if _, err := Read(elsewhere, calendar, p, good.Marshal(), nil); !errors.Is(err, market.ErrBadSignature) {
		t.Errorf("another network: %v", err)
	}
	if _, _, err := Better(calendar, p, [][]byte{nil, {1}}, reader(p)); !errors.Is(err, ErrNone) {
		t.Errorf("nothing good: %v", err)
	}
	if n := noticeOf(t, p, late, units, lates); len(n.Receipts) != 0 {
		t.Error("a receipt of another hour is in the notice")
	}
	if _, err := Of(calendar, p, l, units[1:], rs); !errors.Is(err, market.ErrUnits) {
		t.Errorf("another lease's unit: %v", err)
	}
}

func TestCalendar(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := CalendarOf(market.Genesis{SlotMillis: rapid.Uint64Range(1, market.MaxSlotMillis).Draw(t, "slot")})
		s := market.Slot(rapid.Uint64Range(0, 1<<40).Draw(t, "now"))
		p, err := c.At(seller.Key(), units[0], s)
		if err != nil {
			t.Fatal(err)
		}
		if from, to := c.Slots(p); s < from || s >= to || uint64(to-from) != c.HourSlots() {
			t.Fatalf("slot %d is not in %d to %d", s, from, to)
		}
		back, err := UnmarshalPlace(p.Marshal())
		if err != nil || back != p {
			t.Fatalf("%+v became %+v: %v", p, back, err)
		}
	})
	if _, err := calendar.At(seller.Key(), units[0], 1<<63); err == nil {
		t.Error("a day that cannot be counted has a place")
	}
}

func TestRoundestSlot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := market.Slot(rapid.Uint64Range(0, 2000).Draw(t, "from"))
		to := from + market.Slot(rapid.Uint64Range(1, 300).Draw(t, "slots"))
		got, round := roundestSlot(from, to)
		if got < from || got >= to || from > 0 && uint64(got)%(1<<round) != 0 {
			t.Fatalf("%d to %d: slot %d, round %d", from, to, got, round)
		}
		for s := from; s < to; s++ {
			if from > 0 && uint64(s)%(2<<round) == 0 {
				t.Fatalf("%d to %d: %d is rounder than %d", from, to, s, got)
			}
		}
	})
}

func FuzzNotice(f *testing.F) {
	p := placeOf(f, units[0], start)
	l, rs := sold(f, "a", units, start+10, 20, 20)
	other, others := sold(f, "b", units[:1], start+20, 20)
	n := noticeOf(f, p, l, units, rs)
	f.Add(n.Marshal())
	f.Add(Join(calendar, p, n, noticeOf(f, p, other, units[:1], others)).Marshal())
	f.Add([]byte{1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Unmarshal(b)
		if err != nil {
			return
		}
		if !bytes.Equal(n.Marshal(), b) {
			t.Fatal("a notice has two forms")
		}
		if n.Check(domain, calendar, p, nil) != nil {
			return
		}
		for _, c := range n.Conflicts(calendar, p) {
			if err := verify.CheckConflict(domain, c); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What was found good is not verified again, and nothing but that passes for it.
func TestOnce(t *testing.T) {
	t.Parallel()
	p := placeOf(t, units[0], start)
	l, rs := sold(t, "a", units, start, equal(3, 50)...)
	good, verified := map[sign.Hash]bool{}, 0
	once := func(part []byte, verify func() error) error {
		id := sign.Sum(part)
		if good[id] {
			return nil
		}
		verified++
		err := verify()
		good[id] = err == nil
		return err
	}
	for n := range 3 {
		said := noticeOf(t, p, l, units, rs[:n+1]).Marshal()
		for range 2 {
			if _, err := Read(domain, calendar, p, said, once); err != nil || verified != 2+n {
				t.Fatalf("a lease and %d receipts, read again and again: %d verified, %v", n+1, verified, err)
			}
		}
	}
	n := noticeOf(t, p, l, units, rs)
	forged := func(change func(*Notice)) []byte {
		f := Notice{Leases: slices.Clone(n.Leases), Receipts: slices.Clone(n.Receipts)}
		change(&f)
		return f.Marshal()
	}
	for name, b := range map[string][]byte{
		"lease's signature":   forged(func(f *Notice) { f.Leases[0].Lease.BuyerSig[3] ^= 1 }),
		"lease":               forged(func(f *Notice) { f.Leases[0].Lease.Core.Cap++ }),
		"receipt's signature": forged(func(f *Notice) { f.Receipts[1].ProviderSig[3] ^= 1 }),
		"receipt":             forged(func(f *Notice) { f.Receipts[2].CPUMillis++ }),
	} {
		for range 2 { // what was found bad is not remembered as good
			if _, err := Read(domain, calendar, p, b, once); err == nil {
				t.Errorf("another %s passes", name)
			}
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add(Place{Provider: seller.Key(), Unit: units[0], Day: 3, Hour: 23}.Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := UnmarshalPlace(b)
		if err == nil && !bytes.Equal(p.Marshal(), b) {
			t.Fatal("a place has two forms")
		}
	})
}
