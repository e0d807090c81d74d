package replica

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// The least rate is what the formula says, never below it, and at it a false result has no higher expected value than none.
func TestLeast(t *testing.T) {
	t.Parallel()
	p := params()
	for stake, want := range map[market.Amount]Odds{ // R = 1000; 1/(0.64·0.99·(1+m))
		0: Always, 1: Always, 1000: 789_141_415, 5000: 263_047_139, 20_000: 75_156_326, 100_000: 15_626_563,
	} {
		if got := p.Least(1000, stake); got != want {
			t.Errorf("S = %d: %d, want %d", stake, got, want)
		}
	}
	if got := p.Least(math.MaxUint64, math.MaxUint64); got < 789_141_414 || got > 789_141_416 {
		t.Errorf("the largest amounts: %d", got)
	}
	if p.Least(0, 0) != Always || p.Least(0, 5) != 0 || p.Odds(0, 5, Trust{Valid: MaxTrust}) != Billion/MaxTrust {
		t.Error("a price of nothing")
	}
	rapid.Check(t, func(t *rapid.T) {
		price, stake := rapid.Uint64Range(1, 1e12).Draw(t, "price"), rapid.Uint64Range(1, 1e14).Draw(t, "stake")
		x := Params{rapid.Uint64Range(1, 1000).Draw(t, "c"), rapid.Uint64Range(0, 999).Draw(t, "g"), rapid.Uint64Range(1, 1000).Draw(t, "d"), 10, 1, 1}
		got := x.Least(market.Amount(price), market.Amount(stake))
		c, g, d := float64(x.CostMille)/1000, float64(x.ColludingMille)/1000, float64(x.DetectMille)/1000
		want := min(1, c*float64(price)/((1-g)*(1-g)*d*(float64(price)+float64(stake))))
		if diff := float64(got) - want*Billion; diff < -1 || diff > 2 {
			t.Fatalf("%d, the formula gives %f", got, want*Billion)
		}
		if y := x.Least(market.Amount(price), market.Amount(stake+price)); y > got {
			t.Fatalf("more at stake, and checked more: %d after %d", y, got)
		}
	})
}

func TestOdds(t *testing.T) {
	t.Parallel()
	p := params()
	last := Always
	for v := range uint32(3 * MaxTrust) {
		got := p.Odds(1000, 100_000, Trust{Valid: v})
		if got > last || v < p.AdaptiveAfter && got != Always || got < p.Least(1000, 100_000) {
			t.Fatalf("V = %d: %d", v, got)
		}
		last = got
	}
	if last != p.Least(1000, 100_000) {
		t.Errorf("with a long record %d", last)
	}
	trust := Trust{}
	for range 2 * MaxTrust {
		trust = trust.Agreed()
	}
	if trust.Valid != MaxTrust || trust.Differed() != (Trust{Wrong: 1}) || p.Odds(1000, 100_000, trust.Differed()) != Always {
		t.Errorf("a record that is long can be spent: %+v", trust)
	}
	if (Trust{Wrong: math.MaxUint32}).Differed().Wrong != math.MaxUint32 {
		t.Error("the count of wrong results begins again")
	}
}

// drawer gives blocks as a chain does: nobody knows the next one.
type drawer struct {
	rng  *rand.Rand
	slot market.Slot
}

func newDrawer(seed uint64) *drawer { return &drawer{rand.New(rand.NewPCG(seed, 1)), 0} }

func (d *drawer) block() Beacon {
	d.slot++
	var h sign.Hash
	for i := 0; i < len(h); i += 8 {
		binary.LittleEndian.PutUint64(h[i:], d.rng.Uint64())
	}
	return Beacon{d.slot, h}
}

// The draw comes out as often as the odds say.
func TestDrawn(t *testing.T) {
	t.Parallel()
	d := newDrawer(1)
	r := committed("a", "x", true)
	for _, odds := range []Odds{0, 1, Billion / 1000, Billion / 20, Billion / 2, Always - 1, Always} {
		const n = 200_000
		hits := 0
		for range n {
			if Drawn(odds, d.block(), Nonce{3}, r) {
				hits++
			}
		}
		p := float64(odds) / Billion
		if diff := math.Abs(float64(hits) - n*p); diff > 6*math.Sqrt(n*p*(1-p))+1 {
			t.Errorf("odds of %f came out %d times of %d", p, hits, n)
		}
	}
	b := d.block()
	if draw("t", b, Nonce{1}, r) == draw("t", b, Nonce{2}, r) || draw("t", b, Nonce{1}, r) == draw("t", b, Nonce{1}, committed("a", "y", true)) {
		t.Error("nonce or output do not matter")
	}
	if (Nonce{1}).OrderNonce(0) == (Nonce{1}).OrderNonce(1) || (Nonce{1}).OrderNonce(0) == (Nonce{2}).OrderNonce(0) {
		t.Error("two orders have one nonce")
	}
}

// history runs so many jobs of one provider through whole checks and says how many replicas were bought, and what the provider
// earned in units of the price when it cheats with some probability, a part of the replicas colluding.
func history(d *drawer, jobs int, stake, price market.Amount, cheat, collude float64) (replicas int, earned float64, lies, caught int) {
	var trust Trust
	lose := float64(stake) / float64(price)
	for i := range jobs {
		x := terms(price, stake, trust.Valid)
		name := "x"
		lied := d.rng.Float64() < cheat
		if lied {
			name = "forged"
			lies++
		}
		first := committed("a", name, true)
		first.Lease[0], first.Lease[1] = byte(i), byte(i>>8)
		c, _, err := New(x, first, d.slot)
		if err != nil {
			panic(err)
		}
		b := d.block()
		b.Slot += 4
		c, _, err = c.Step(b.Slot, BeaconSeen{b})
		for n := 0; err == nil && !c.State().Ended(); n++ {
			replicas++
			res := "x"
			if lied && d.rng.Float64() < collude {
				res = "forged"
			}
			c, _, err = c.Step(b.Slot, ReplicaCommitted{c.Attempt(), committed(string(rune('b'+n)), res, true)})
		}
		if err != nil {
			panic(err)
		}
		v := c.Verdict()
		switch {
		case v.State == Differs && v.Results[v.Wrong[0]].Party == first.Party:
			trust = trust.Differed()
			earned -= lose
			caught++
			continue
		case v.State == Equal:
			trust = trust.Agreed()
		}
		earned++
	}
	return replicas, earned, lies, caught
}

// What an honest provider's first thousand results cost in replicas. Figures: ../BENCHMARKS.md, "Replication".
func TestOverhead(t *testing.T) {
	t.Parallel()
	const providers, jobs = 40, 1000
	for _, c := range []struct {
		stake market.Amount // in prices of a job
		most  float64       // of the first thousand
		rate  float64       // of those after it
	}{{20, 0.095, 0.076}, {50, 0.05, 0.031}, {100, 0.05, 0.025}, {1000, 0.05, 0.025}} {
		d := newDrawer(uint64(c.stake))
		n := 0
		for range providers {
			r, _, _, wrong := history(d, jobs, c.stake*1000, 1000, 0, 0)
			if n += r; wrong > 0 {
				t.Fatal("an honest provider was blamed")
			}
		}
		got := float64(n) / (providers * jobs)
		after := float64(params().Odds(1000, c.stake*1000, Trust{Valid: 45})) / Billion
		t.Logf("S = %d R: %.2f %% extra executions over %d jobs, at most %.2f %% of those after them", c.stake, 100*got, jobs, 100*after)
		if got > c.most || after > c.rate {
			t.Errorf("S = %d R: %.4f over the first thousand, %.4f after", c.stake, got, after)
		}
	}
}

// A false result is worth nothing, however a provider mixes them with honest ones and after whatever record, also when a fifth of all
// replicas would lie as it does. Figures: ../BENCHMARKS.md.
func TestCheatingLoses(t *testing.T) {
	t.Parallel()
	for _, m := range []market.Amount{5, 20, 100} {
		p := params()
		least := float64(p.Least(1000, m*1000)) / Billion
		// It is paid unless a replica is drawn, it and the third are honest, and they compare: then what is at stake is lost.
		hit := least * 0.8 * 0.8 * 0.99
		if ev := (1 - hit) - hit*float64(m); ev > 0 {
			t.Errorf("m = %d: a false result is worth %f prices at p* = %f", m, ev, least)
		}
		for _, mix := range []float64{1, 0.3, 0.05} {
			d := newDrawer(uint64(m)*100 + uint64(mix*100))
			const jobs = 8000
			_, earned, lies, caught := history(d, jobs, m*1000, 1000, mix, 0.2)
			gain := (earned - float64(jobs-lies)) / float64(lies) // beside what the honest ones earned
			t.Logf("m = %d, %.0f %% false: %+.3f prices for each, %d of %d caught; p* = %.4f", m, 100*mix, gain, caught, lies, least)
			if noise := 4 * math.Sqrt(float64(m)/float64(lies)); gain > noise {
				t.Errorf("m = %d, %.0f %% false: a false result is worth %+f, noise %f", m, 100*mix, gain, noise)
			}
			if mix == 1 && gain > -1 {
				t.Errorf("m = %d: one that only lies loses %f prices each", m, -gain)
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	var all []Candidate
	for i := range 1000 {
		k := sign.Key(sign.Sum(binary.LittleEndian.AppendUint64(nil, uint64(i))))
		all = append(all, Candidate{k, k, true})
	}
	b.ReportAllocs()
	for b.Loop() {
		Pick(sign.Hash{1}, 1, all, nil)
	}
}

// What no vote could take does not count as staked.
func TestRisk(t *testing.T) {
	t.Parallel()
	good := Risk{Stake: 500, Own: 99, Bonded: 300, LeastBonded: 300}
	for name, c := range map[string]struct {
		change func(*Risk)
		want   market.Amount
	}{
		"all is well":            {func(*Risk) {}, 500},
		"nothing is voted on":    {func(r *Risk) { r.LeastBonded = 0 }, 0},
		"too little is bonded":   {func(r *Risk) { r.LeastBonded = 301 }, 0},
		"it has a third":         {func(r *Risk) { r.Own = 100 }, 0},
		"it has nearly all":      {func(r *Risk) { r.Own = 300 }, 0},
		"it has nothing bonded":  {func(r *Risk) { r.Own = 0 }, 500},
		"it has nothing at risk": {func(r *Risk) { r.Stake = 0 }, 0},
		"it cannot be, but was":  {func(r *Risk) { r.Own = 400 }, 0},
	} {
		r := good
		c.change(&r)
		if got := r.Taken(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if p := params(); p.Odds(10, good.Taken(), Trust{Valid: MaxTrust}) == Always || p.Odds(10, Risk{Stake: 1 << 60, Bonded: 5}.Taken(), Trust{Valid: MaxTrust}) != Always {
		t.Error("a result by who cannot lose its stake is always computed again")
	}
}

// A stake counts exactly where all others together are more than two thirds of what is bonded, as the program counts.
func TestRiskIsWhatVotesTake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bonded := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 30)).Draw(t, "bonded")
		own := rapid.OneOf(rapid.Uint64Range(0, bonded), rapid.Just(bonded/3), rapid.Just(min(bonded, bonded/3+1))).Draw(t, "own")
		all, others := new(big.Int).SetUint64(bonded), new(big.Int).SetUint64(bonded-own)
		carried := others.Mul(others, big.NewInt(3)).Cmp(all.Mul(all, big.NewInt(2))) > 0
		if got := (Risk{Stake: 7, Own: own, Bonded: bonded, LeastBonded: 1}).Taken(); (got == 7) != (carried && bonded > 0) {
			t.Fatalf("%d of %d: %d", own, bonded, got)
		}
	})
}
