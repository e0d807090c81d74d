package replica

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Everything is replicated until there is a record; then the odds fall with it, and a false result resets it.
func TestOdds(t *testing.T) {
	t.Parallel()
	p := params()
	last := Always
	for v := range uint32(3 * MaxTrust) {
		got := p.Odds(Trust{Valid: v})
		if got > last || v <= p.AdaptiveAfter && got != Always || got < Billion/100 {
			t.Fatalf("V = %d: %d", v, got)
		}
		last = got
	}
	for v, want := range map[uint32]Odds{10: Always, 11: 909_090_910, 40: 250_000_000, 1000: 10_000_000, 1 << 31: 10_000_000} {
		if got := p.Odds(Trust{Valid: v}); got != want {
			t.Errorf("V = %d: %d, want %d", v, got, want)
		}
	}
	trust := Trust{}
	for range 2 * MaxTrust {
		trust = trust.Agreed()
	}
	if trust.Valid != MaxTrust || trust.Differed() != (Trust{Wrong: 1}) || p.Odds(trust.Differed()) != Always {
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

// history has one provider give so many right results, and then false ones until the majority differs from one, through whole checks
// in which a part of the replicas colludes. It returns the replicas bought and the false results that passed.
func history(d *drawer, jobs int, thenForge bool, collude float64) (replicas, passed int) {
	var trust Trust
	for i := 0; i < jobs || thenForge; i++ {
		lied, name := i >= jobs, "x"
		if lied {
			name = "forged"
		}
		first := committed("a", name, true)
		first.Lease[0], first.Lease[1] = byte(i), byte(i>>8)
		c, _, err := New(terms(trust.Valid), first, d.slot)
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
			if !lied {
				panic("an honest provider was blamed")
			}
			return replicas, passed
		case v.State == Equal:
			trust = trust.Agreed()
		}
		if lied {
			passed++
		}
	}
	return replicas, passed
}

// An honest provider's first thousand results cost one in seven again. Figures: ../BENCHMARKS.md, "Replication".
func TestOverhead(t *testing.T) {
	t.Parallel()
	const providers, jobs = 10, 1000
	d, n := newDrawer(1), 0
	for range providers {
		r, _ := history(d, jobs, false, 0)
		n += r
	}
	got := float64(n) / (providers * jobs)
	after := float64(params().Odds(Trust{Valid: uint32(n / providers)})) / Billion
	t.Logf("%.2f %% extra executions over %d jobs, %.2f %% of those after them", 100*got, jobs, 100*after)
	if got > 0.15 || after > 0.08 {
		t.Errorf("%.4f over the first thousand, %.4f after", got, after)
	}
}

// A key that earns a record and then gives false results only is named before they are one in ten of all it gave, however long the
// record, when a fifth of all replicas lies as it does. Figures: ../BENCHMARKS.md.
func TestForgersShare(t *testing.T) {
	t.Parallel()
	for honest, most := range map[int]float64{0: 1, 10: 0.1, 30: 0.1, 50: 0.1, 500: 0.05} {
		const keys = 120
		d, right, wrong := newDrawer(uint64(honest)+7), 0, 0
		for range keys {
			_, passed := history(d, honest, true, 0.2)
			right, wrong = right+honest, wrong+passed
		}
		share := float64(wrong) / float64(right+wrong)
		t.Logf("after %d right results: %.2f false ones pass before a key is named, %.1f %% of all", honest, float64(wrong)/keys, 100*share)
		if share > most || wrong > keys*30 {
			t.Errorf("after %d right results: %.3f of all, want at most %.3f", honest, share, most)
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
