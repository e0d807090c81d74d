package match_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

var now = time.Unix(1_000_000, 0).UTC()

func testWeights() match.Weights {
	return match.Weights{Price: 50, Reputation: 25, RTT: 10, Region: 5, Stake: 5, Work: 15, Warm: 3, StakeHalf: 1000, SlotMillis: 400, Decimals: 2, Audited: true}
}

func key(i int) sign.Key { return sign.Key(sign.Sum(fmt.Appendf(nil, "provider %d", i))) }

func candidate(i int) match.Candidate {
	return match.Candidate{Route: "gossip", Reputation: 500_000, Shown: match.Shown{Units: 4}, Offer: market.Offer{
		Provider: key(i), Class: "cpu", Region: "local", Units: 4, Total: 4, PerUnit: market.Resources{MilliCPU: 1000, MemoryMiB: 512},
		Price: 30, MinSlots: 10, MaxSlots: 1000, Runtimes: []string{"wasm"}, Expires: now.Add(time.Minute)}}
}

func testOrder() market.Order {
	return market.Order{ID: market.OrderID(sign.Sum([]byte("order"))), Buyer: key(-1), Class: "cpu", Count: 3, UnitsPer: 1, Runtime: "wasm",
		Slots: 100, Ceiling: 40, Expires: now.Add(time.Minute)}
}

func TestEveryRefusalHasItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason market.Reason
		detail string
		change func(*market.Order, *match.Candidate)
	}{
		{market.ReasonOwn, "provider: the buyer itself", func(o *market.Order, c *match.Candidate) { o.Buyer = c.Offer.Provider }},
		{market.ReasonExcluded, "provider: excluded by the order", func(o *market.Order, c *match.Candidate) { o.Exclude = []sign.Key{key(5), c.Offer.Provider} }},
		{market.ReasonExpired, "offer or quote: expired 1s ago", func(_ *market.Order, c *match.Candidate) { c.Offer.Expires = now.Add(-time.Second) }},
		{market.ReasonNotYet, "offer: begins in 1s", func(_ *market.Order, c *match.Candidate) { c.Offer.NotBefore = now.Add(time.Second) }},
		{market.ReasonRegion, "region local is not among [eu us]", func(o *market.Order, _ *match.Candidate) { o.Regions = []market.Region{"eu", "us"} }},
		{market.ReasonRuntime, "runtime docker is not offered, wasm are", func(o *market.Order, _ *match.Candidate) { o.Runtime = "docker" }},
		{market.ReasonEgress, "this provider gives containers no way to the internet; pass the data as inputs", func(o *market.Order, _ *match.Candidate) {
			o.Egress = market.EgressInternet
		}},
		{market.ReasonEgress, "this provider lets containers reach only its listed addresses; pass other data as inputs", func(o *market.Order, c *match.Candidate) {
			o.Egress, c.Offer.Egress = market.EgressInternet, market.EgressListed
		}},
		{market.ReasonResources, "a unit has memory 512 MiB, asked 1024 MiB", func(o *market.Order, _ *match.Candidate) { o.Min.MemoryMiB = 1024 }},
		{market.ReasonResources, "NVIDIA L4 (simulated) has GPU memory 0 MiB, asked 40960 MiB", func(o *market.Order, c *match.Candidate) {
			c.Offer.Model, c.Offer.Simulated, o.Min.VRAMMiB = "NVIDIA L4", true, 40960
		}},
		{market.ReasonCapability, "NVIDIA L4 has compute capability 8.9, asked 9.0", func(o *market.Order, c *match.Candidate) {
			c.Offer.Model, c.Offer.Capability, o.MinCapability = "NVIDIA L4", 89, 90
		}},
		{market.ReasonCapability, "a unit has compute capability unknown, asked 8.0", func(o *market.Order, _ *match.Candidate) { o.MinCapability = 80 }},
		{market.ReasonConflict, "quote: other units than in the offer", func(o *market.Order, c *match.Candidate) {
			c.Quote = &market.Quote{Order: o.ID, Provider: c.Offer.Provider, Class: "gpu/l4", Price: 30, Leases: 1, Region: "local", PerUnit: c.Offer.PerUnit, Expires: now.Add(time.Minute)}
		}},
		{market.ReasonDuration, "13m20s requested, want 4s to 6m40s", func(o *market.Order, _ *match.Candidate) { o.Slots = 2000 }},
		{market.ReasonStake, "stake: got 0.00, want 1.00", func(o *market.Order, _ *match.Candidate) { o.MinStake = 100 }},
		{market.ReasonCapacity, "5 units asked for a lease, 4 are free", func(o *market.Order, _ *match.Candidate) { o.UnitsPer = 5 }},
		{market.ReasonUnproven, "2 units asked for a lease, 1 have a fresh audit record: its record is not checked yet", func(o *market.Order, c *match.Candidate) {
			o.UnitsPer, c.Shown.Units, c.Shown.Doubt = 2, 1, "its record is not checked yet"
		}},
		{market.ReasonCapacity, "5 units asked for a lease, 4 are free", func(o *market.Order, c *match.Candidate) { o.UnitsPer, c.Shown.Units = 5, 4 }},
		{market.ReasonPrice, "price 0.52 is over the ceiling 0.40", func(_ *market.Order, c *match.Candidate) { c.Offer.Price = 52 }},
		{market.ReasonConflict, "quote: for another order", func(_ *market.Order, c *match.Candidate) {
			c.Quote = &market.Quote{Order: market.OrderID{1}, Price: 30, Leases: 1, Region: "local", PerUnit: c.Offer.PerUnit, Expires: now.Add(time.Minute)}
		}},
	} {
		o, cand := testOrder(), candidate(1)
		c.change(&o, &cand)
		res := match.Rank(o, []match.Candidate{cand}, now, testWeights())
		if len(res.Ranked) != 0 || len(res.Refused) != 1 || res.Refused[0].Reason != c.reason || res.Refused[0].Detail != c.detail || res.Counts[c.reason] != 1 {
			t.Errorf("%s: %+v", c.detail, res)
		}
	}
	res := match.Rank(testOrder(), []match.Candidate{candidate(1)}, now, testWeights())
	if len(res.Ranked) != 1 || res.Feasible != 1 {
		t.Errorf("the plain case: %+v", res)
	}
}

// What no offer gives is named with the nearest one.
func TestEgressNamesTheNearest(t *testing.T) {
	t.Parallel()
	o := testOrder()
	o.Egress = market.EgressListed
	cands := []match.Candidate{candidate(1), candidate(2), candidate(3)}
	cands[1].Offer.Price, cands[2].Offer.Egress = 20, market.EgressInternet
	res := match.Rank(o, cands, now, testWeights())
	_, _, none := match.Select(o, res, 3, true)
	if want := "2 egress (nearest is " + key(2).Short() + " at 0.20: this provider gives containers no way to the internet; pass the data as inputs)"; len(res.Ranked) != 1 || none == nil || !strings.Contains(none.Error(), want) {
		t.Errorf("%v, want %s", none, want)
	}
}

// A processor that says it is an L40S shows what any GPU shows, for no floor tells an L40S from another: it is never sold as one to an order that
// wants proof, whatever the order asks; it is sold as a GPU.
func TestAttackProcessorAsL40S(t *testing.T) {
	t.Parallel()
	cand := candidate(1)
	cand.Offer.Class, cand.Offer.Model, cand.Shown.Class = "gpu/l40s", "NVIDIA L40S", "gpu"
	for _, quoted := range []bool{false, true} {
		o := testOrder()
		o.Class = "gpu/l40s"
		if quoted {
			cand.Quote = &market.Quote{Order: o.ID, Provider: cand.Offer.Provider, Class: "gpu/l40s", Model: "NVIDIA L40S", Price: 30, Leases: 1, Region: "local", PerUnit: cand.Offer.PerUnit, Expires: now.Add(time.Minute)}
		}
		res := match.Rank(o, []match.Candidate{cand}, now, testWeights())
		if len(res.Ranked) > 0 || res.Refused[0].Reason != market.ReasonUnproven ||
			res.Refused[0].Detail != "class gpu/l40s: audits cannot distinguish it; its units are proven and sold as gpu" {
			t.Errorf("it is sold as a proven L40S: %+v", res)
		}
		o.Unproven = true
		if res := match.Rank(o, []match.Candidate{cand}, now, testWeights()); len(res.Ranked) != 1 || res.Ranked[0].Leases == 0 {
			t.Errorf("an order that wants no proof: %+v", res)
		}
		o.Class, o.Unproven = "gpu", false
		if res := match.Rank(o, []match.Candidate{cand}, now, testWeights()); len(res.Ranked) != 1 || res.Ranked[0].Leases == 0 {
			t.Errorf("an order for any GPU: %+v", res)
		}
	}
}

func TestUnschedulableSaysWhy(t *testing.T) {
	t.Parallel()
	o := testOrder()
	var cands []match.Candidate
	for i := range 4 {
		c := candidate(i)
		c.Offer.Price = market.Price(52 - i) // nearest is 0.49
		cands = append(cands, c)
	}
	far := candidate(10)
	far.Offer.Region = "mars"
	o.Regions = []market.Region{"local"}
	cands = append(cands, far, candidate(11))
	_, _, err := match.Select(o, match.Rank(o, cands, now, testWeights()), 3, true)
	want := "1 of 3 leases can be placed; 6 offers considered, refused: 4 over the ceiling 0.40, nearest is 0.49; 1 region"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, _, err = match.Select(o, match.Rank(o, cands[4:5], now, testWeights()), 1, true)
	if want := "0 of 1 leases can be placed; 1 offers considered, refused: 1 region (region mars is not among [local])"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	o.Class = "gpu/h200"
	_, _, err = match.Select(o, match.Rank(o, cands, now, testWeights()), 3, true)
	if err == nil || err.Error() != "class gpu/h200: no offers; offered classes: cpu" {
		t.Errorf("%v", err)
	}
	_, _, err = match.Select(o, match.Rank(o, nil, now, testWeights()), 3, true)
	if err == nil || err.Error() != "0 of 3 leases can be placed: no offer is known" {
		t.Errorf("%v", err)
	}
}

func TestSpreadAndPack(t *testing.T) {
	t.Parallel()
	o := testOrder()
	var cands []match.Candidate
	for i := range 4 {
		c := candidate(i)
		c.Offer.Units = 2
		c.Offer.Price = market.Price(30 + i)
		cands = append(cands, c)
	}
	res := match.Rank(o, cands, now, testWeights())
	list := func(chosen []match.Assignment, spares []sign.Key, err *match.Unschedulable) string {
		var b strings.Builder
		name := func(k sign.Key) int {
			return slices.IndexFunc(cands, func(c match.Candidate) bool { return c.Offer.Provider == k })
		}
		for i, a := range chosen {
			if int(a.Rank) != i {
				t.Errorf("rank %d is %d", i, a.Rank)
			}
			fmt.Fprintf(&b, "%d ", name(a.Provider))
		}
		b.WriteString("|")
		for _, s := range spares {
			fmt.Fprintf(&b, " %d", name(s))
		}
		if err != nil {
			fmt.Fprintf(&b, "%d of %d", err.Found, err.Need)
		}
		return b.String()
	}
	for _, c := range []struct {
		n      int
		spread bool
		want   string
	}{{3, true, "0 1 2 | 3"}, {3, false, "0 0 1 | 1 2 2 3 3"}, {4, true, "0 1 2 3 |"}, {5, true, "|4 of 5"}, {8, false, "0 0 1 1 2 2 3 3 |"}, {9, false, "|8 of 9"}} {
		if got := list(match.Select(o, res, c.n, c.spread)); got != c.want {
			t.Errorf("%d, spread %v: %s, want %s", c.n, c.spread, got, c.want)
		}
	}
}

// About one seat in NewcomerOneIn goes to a newcomer, over many orders, though newcomers rank last; and never more are
// moved up than the quota.
func TestNewcomersGetASeat(t *testing.T) {
	t.Parallel()
	w := testWeights()
	w.NewcomerOneIn = 8
	var cands []match.Candidate
	for i := range 40 {
		c := candidate(i)
		if i >= 30 {
			c.Newcomer, c.Reputation = true, 0
		}
		cands = append(cands, c)
	}
	snap := match.NewSnapshot(cands)
	for _, n := range []int{1, 3, 8, 20} {
		seats := 0
		const orders = 400
		for i := range orders {
			o := testOrder()
			o.ID, o.Count = market.OrderID(sign.Sum(fmt.Appendf(nil, "order %d", i))), uint32(n)
			chosen, spares, err := match.Select(o, snap.Rank(o, now, w), n, true)
			if err != nil {
				t.Fatal(err)
			}
			all := map[sign.Key]bool{}
			for _, a := range chosen {
				all[a.Provider] = true
				if slices.ContainsFunc(cands[30:], func(c match.Candidate) bool { return c.Offer.Provider == a.Provider }) {
					seats++
				}
			}
			for _, s := range spares {
				all[s] = true
			}
			if len(all) != len(chosen)+len(spares) {
				t.Fatal("a provider is listed twice")
			}
		}
		if share := float64(seats) / float64(orders*n); share < 0.08 || share > 0.17 {
			t.Errorf("%d seats: newcomers got a share of %.3f, one in eight expected", n, share)
		}
	}
}

// Equal offers are not always served in the same order: the tie-break depends on the order's id.
func TestTiesAreSpread(t *testing.T) {
	t.Parallel()
	var cands []match.Candidate
	for i := range 10 {
		cands = append(cands, candidate(i))
	}
	snap := match.NewSnapshot(cands)
	first := map[sign.Key]int{}
	for i := range 1000 {
		o := testOrder()
		o.ID = market.OrderID(sign.Sum(fmt.Appendf(nil, "order %d", i)))
		first[snap.Rank(o, now, testWeights()).Ranked[0].Candidate.Offer.Provider]++
	}
	for k, n := range first {
		if n < 50 || n > 170 {
			t.Errorf("%s is first %d times of 1000, about 100 expected", k.Short(), n)
		}
	}
	if len(first) != 10 {
		t.Errorf("only %d of 10 equal providers are ever first", len(first))
	}
}

func randomCandidate(t *rapid.T, i int) match.Candidate {
	c := candidate(i)
	pick := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	c.Offer.Class = []market.Class{"cpu", "cpu", "cpu", "cpu/arm", "gpu/h200", "gpu/l4"}[pick("class", 5)]
	c.Offer.Capability = market.Capability(10 * pick("capability", 9))
	if i > 0 && pick("another of the last provider's", 4) == 0 {
		c.Offer.Provider = key(i - 1)
	}
	c.Offer.Region = []market.Region{"local", "eu", "us"}[pick("region", 2)]
	c.Offer.Price = market.Price(pick("price", 60))
	c.Offer.Units = uint32(pick("units", 4))
	c.Shown.Units = uint32(pick("shown", 4))
	c.Offer.PerUnit.MemoryMiB = uint32(256 * pick("memory", 4))
	c.Offer.Runtimes = [][]string{{"wasm"}, {"docker"}, {"docker", "wasm"}}[pick("runtimes", 2)]
	c.Offer.MaxSlots = uint64(50 + 50*pick("max", 3))
	c.Offer.Expires = now.Add(time.Duration(pick("expires", 5)-1) * time.Second)
	c.Stake = market.Amount(100 * pick("stake", 2))
	c.Reputation, c.Shunned = 100_000*uint32(pick("reputation", 10)), pick("shunned", 4) == 0
	c.RTT = time.Duration(pick("rtt", 100)) * time.Millisecond
	c.Shown.Operations = uint64(pick("operations", 1000)) * 1e9
	c.Newcomer = pick("newcomer", 3) == 0
	if pick("quoted", 2) == 0 {
		id := testOrder().ID
		if pick("other order", 4) == 0 {
			id = market.OrderID{1}
		}
		c.Quote = &market.Quote{Order: id, Provider: c.Offer.Provider, Class: c.Offer.Class, Capability: c.Offer.Capability, Price: market.Price(pick("quote", 60)), Leases: 1 + uint32(pick("leases", 3)),
			Region: c.Offer.Region, PerUnit: c.Offer.PerUnit, Expires: now.Add(time.Duration(pick("quote expires", 5)-1) * time.Second)}
	}
	return c
}

// feasible is the plain meaning of what the index does fast.
func feasible(o market.Order, c match.Candidate, audited bool) bool {
	if audited && !o.Unproven && c.Shown.Units < o.UnitsPer {
		return false
	}
	if c.Offer.Provider == o.Buyer || slices.Contains(o.Exclude, c.Offer.Provider) || !o.Class.Accepts(c.Offer.Class) || c.Offer.Capability < o.MinCapability || !c.Offer.Expires.After(now) {
		return false
	}
	if c.Quote != nil && (c.Quote.Order != o.ID || !c.Quote.Expires.After(now)) || c.Quote == nil && c.Offer.Units < o.UnitsPer {
		return false
	}
	return c.Price() <= o.Ceiling && (len(o.Regions) == 0 || slices.Contains(o.Regions, c.Offer.Region)) && slices.Contains(c.Offer.Runtimes, o.Runtime) &&
		c.Offer.PerUnit.Covers(o.Min) && o.Slots >= c.Offer.MinSlots && o.Slots <= c.Offer.MaxSlots && c.Stake >= o.MinStake
}

// Whose record speaks against it comes after all others, however cheap it is, and is taken when nobody else can. A floor
// refuses, with its reason.
func TestReputation(t *testing.T) {
	t.Parallel()
	bad, good, fresh := candidate(1), candidate(2), candidate(3)
	bad.Reputation, bad.Shunned, bad.Offer.Price = 400_000, true, 1
	good.Reputation = 900_000
	fresh.Reputation, fresh.Newcomer = 6155, true
	cands := []match.Candidate{bad, good, fresh}
	var order []sign.Key
	for _, s := range match.Rank(testOrder(), cands, now, testWeights()).Ranked {
		order = append(order, s.Candidate.Offer.Provider)
	}
	if !slices.Equal(order, []sign.Key{key(2), key(3), key(1)}) {
		t.Errorf("ranked %v", order)
	}
	w := testWeights()
	w.MinReputation = 500_000
	res := match.Rank(testOrder(), cands, now, w)
	if len(res.Ranked) != 1 || res.Counts[market.ReasonReputation] != 2 {
		t.Errorf("with a floor: %+v", res)
	}
	if res.Refused[0].Reason != market.ReasonReputation || !strings.Contains(res.Refused[0].Detail, "0.5000") {
		t.Errorf("refused %+v", res.Refused[0])
	}
}

// Of two that ask the same the one that was proven to compute more comes first, and twice the work is worth twice the price; what is not
// proven, or asked for next to nothing, changes nothing between the others.
func TestProvenWorkCounts(t *testing.T) {
	t.Parallel()
	offer := func(i int, price market.Price, operations uint64) match.Candidate {
		c := candidate(i)
		c.Offer.Price, c.Shown.Operations = price, operations
		return c
	}
	place := func(res match.Result, i int) (at int, s match.Scored) {
		for at, s := range res.Ranked {
			if s.Candidate.Offer.Provider == key(i) {
				return at, s
			}
		}
		t.Fatalf("provider %d is not ranked", i)
		return 0, s
	}
	o, w := testOrder(), testWeights()
	price := o.Ceiling / 2
	cands := []match.Candidate{offer(1, price, 1e12), offer(2, price, 2e12), offer(3, price, 4e12), offer(4, price, 0), offer(5, price/2, 1e12)}
	res := match.Rank(o, cands, now, w)
	var parts [6]uint32
	for i := 1; i <= 5; i++ {
		_, s := place(res, i)
		parts[i] = s.Parts.Work
	}
	if parts[2] != 500_000 || !(parts[1] < parts[2] && parts[2] < parts[3]) || parts[4] != 0 || parts[5] != parts[2] {
		t.Errorf("work counts %v", parts)
	}
	first, _ := place(res, 3)
	second, _ := place(res, 2)
	third, _ := place(res, 1)
	last, _ := place(res, 4)
	if !(first < second && second < third && third < last) {
		t.Errorf("places %d, %d, %d, %d", first, second, third, last)
	}
	dust := match.Rank(o, append(slices.Clone(cands), offer(6, 1, 4e12)), now, w)
	a, sa := place(dust, 3)
	b, sb := place(dust, 2)
	if a > b || sa.Parts.Work < sb.Parts.Work+100_000 {
		t.Errorf("beside one that asks next to nothing: %d with %d, %d with %d", a, sa.Parts.Work, b, sb.Parts.Work)
	}
	w.Work = 0
	if _, s := place(match.Rank(o, cands, now, w), 1); s.Score == 0 {
		t.Errorf("%+v", s)
	}
}

// TestMatchProperties: what is ranked is exactly what is feasible, and what is not has a reason (safety); if n providers
// are feasible, n are chosen (liveness); the order in which candidates are listed does not matter.
func TestMatchProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var cands []match.Candidate
		for i := range rapid.IntRange(0, 40).Draw(t, "candidates") {
			cands = append(cands, randomCandidate(t, i))
		}
		o := testOrder()
		o.UnitsPer, o.Min.MemoryMiB = uint32(rapid.IntRange(1, 3).Draw(t, "units per")), uint32(rapid.IntRange(0, 600).Draw(t, "min"))
		o.Class = []market.Class{"cpu", "cpu/arm", "gpu", "gpu/l4"}[rapid.IntRange(0, 3).Draw(t, "class")]
		o.MinCapability = market.Capability(rapid.IntRange(0, 50).Draw(t, "min capability"))
		o.Regions = [][]market.Region{nil, {"local"}, {"us", "eu"}}[rapid.IntRange(0, 2).Draw(t, "regions")]
		o.MinStake = market.Amount(rapid.IntRange(0, 150).Draw(t, "min stake"))
		o.Count = uint32(rapid.IntRange(1, 8).Draw(t, "count"))
		if rapid.Bool().Draw(t, "exclude") {
			o.Exclude, o.Buyer = []sign.Key{key(1), key(2)}, key(3)
		}
		w := testWeights()
		w.Audited, o.Unproven = rapid.Bool().Draw(t, "audited"), rapid.Bool().Draw(t, "unproven will do")
		w.Keep, w.NewcomerOneIn = 100, uint32(rapid.IntRange(0, 4).Draw(t, "newcomers"))
		res := match.Rank(o, cands, now, w)

		want, refused := 0, 0
		for _, c := range cands {
			if feasible(o, c, w.Audited) {
				want++
			}
		}
		for _, n := range res.Counts {
			refused += n
		}
		if len(res.Ranked) != want || res.Feasible != want || res.Feasible+refused != len(cands) {
			t.Fatalf("%d feasible, ranked %d, refused %v of %d", want, len(res.Ranked), res.Counts, len(cands))
		}
		for i, s := range res.Ranked {
			if !feasible(o, s.Candidate, w.Audited) {
				t.Fatal("safety: ranked and not feasible")
			}
			if w.Audited && !o.Unproven && s.Leases*o.UnitsPer > s.Candidate.Shown.Units {
				t.Fatal("safety: more is counted on than was shown")
			}
			if i > 0 && (res.Ranked[i-1].Candidate.Shunned && !s.Candidate.Shunned || res.Ranked[i-1].Candidate.Shunned == s.Candidate.Shunned && res.Ranked[i-1].Score < s.Score) {
				t.Fatal("safety: a better one ranks lower")
			}
		}
		other := slices.Clone(cands)
		rand.New(rand.NewPCG(1, uint64(len(cands)))).Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		again := match.Rank(o, other, now, w)
		for i := range res.Ranked {
			if res.Ranked[i].Candidate.Offer.Provider != again.Ranked[i].Candidate.Offer.Provider {
				t.Fatal("safety: the ranking depends on how candidates are listed")
			}
		}
		checkSelect(t, o, res, rapid.Bool().Draw(t, "spread"))
	})
}

func checkSelect(t *rapid.T, o market.Order, res match.Result, spread bool) {
	n := int(o.Count)
	room := 0
	leases := map[sign.Key]int{}
	for _, s := range res.Ranked {
		if _, twice := leases[s.Candidate.Offer.Provider]; twice {
			continue // only the best of a provider's offers counts
		}
		leases[s.Candidate.Offer.Provider] = int(s.Leases)
		if spread {
			leases[s.Candidate.Offer.Provider] = 1
		}
		room += leases[s.Candidate.Offer.Provider]
	}
	chosen, spares, err := match.Select(o, res, n, spread)
	if (err == nil) != (room >= n) {
		t.Fatalf("liveness: room for %d of %d: %v", room, n, err)
	}
	if err != nil {
		if chosen != nil || spares != nil || err.Error() == "" {
			t.Fatal("safety: half a choice")
		}
		return
	}
	if len(chosen) != n {
		t.Fatalf("liveness: %d of %d chosen", len(chosen), n)
	}
	for i, a := range chosen {
		if a.Rank != uint32(i) || a.Price > o.Ceiling {
			t.Fatalf("safety: %+v", a)
		}
		leases[a.Provider]--
	}
	for _, s := range spares {
		leases[s]--
	}
	for k, left := range leases {
		if left < 0 {
			t.Fatalf("safety: %s is given more than it can take", k.Short())
		}
	}
}

// market100k is a large market: half CPU in five regions, the rest in four GPU classes.
func market100k(n int) []match.Candidate {
	rng := rand.New(rand.NewPCG(1, 2))
	regions := []market.Region{"eu-west", "eu-north", "us-east", "us-west", "asia"}
	classes := []market.Class{"cpu", "cpu", "cpu", "cpu", "gpu/h100", "gpu/h200", "gpu/a100", "gpu/4090"}
	cands := make([]match.Candidate, n)
	for i := range cands {
		c := candidate(i)
		c.Offer.Class, c.Offer.Region = classes[rng.IntN(len(classes))], regions[rng.IntN(len(regions))]
		c.Offer.Price, c.Offer.Units = market.Price(1000+rng.IntN(9000)), uint32(rng.IntN(9))
		c.Shown.Units, c.Shown.Operations = c.Offer.Units, 1e12+rng.Uint64N(9e12)
		c.Reputation, c.RTT = rng.Uint32N(1e6), time.Duration(rng.IntN(200_000))*time.Microsecond
		c.Stake, c.Newcomer = market.Amount(rng.IntN(5000)), rng.IntN(10) == 0
		cands[i] = c
	}
	return cands
}

// BenchmarkMatch100k is Rank and Select over 100,000 offers: a usual order, one for a family of four classes, the worst one (everything in one class and
// under the ceiling, so that every offer is scored), and one that nothing fits.
func BenchmarkMatch100k(b *testing.B) {
	usual := market100k(100_000)
	worst := market100k(100_000)
	for i := range worst {
		worst[i].Offer.Class, worst[i].Offer.Units, worst[i].Shown.Units = "cpu", 4, 4
	}
	w := testWeights()
	w.NewcomerOneIn = 8
	for _, c := range []struct {
		name   string
		snap   *match.Snapshot
		change func(*market.Order)
	}{
		{"usual", match.NewSnapshot(usual), func(o *market.Order) { o.Regions = []market.Region{"eu-west", "eu-north"}; o.Ceiling = 4000 }},
		{"family", match.NewSnapshot(usual), func(o *market.Order) { o.Class, o.Ceiling = "gpu", 20000 }},
		{"worst", match.NewSnapshot(worst), func(o *market.Order) { o.Ceiling = 20000 }},
		{"nothing-fits", match.NewSnapshot(worst), func(o *market.Order) { o.Ceiling = 20000; o.Min.MemoryMiB = 1 << 20 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := testOrder()
			o.Count = 8
			c.change(&o)
			b.ReportAllocs()
			for b.Loop() {
				_, _, err := match.Select(o, c.snap.Rank(o, now, w), 8, true)
				if (err != nil) != (c.name == "nothing-fits") {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSnapshot100k is what a fresh index costs.
func BenchmarkSnapshot100k(b *testing.B) {
	cands := market100k(100_000)
	b.ReportAllocs()
	for b.Loop() {
		match.NewSnapshot(cands)
	}
}
