package reputation

import (
	"math/rand/v2"
	"testing"

	"github.com/starling-network/starling/market"
)

// fleet is 10,000 peers, a tenth of them providers, and 100,000 facts of 50,000 leases; the reader has 50 of its own.
func fleet() []Fact {
	rng := rand.New(rand.NewPCG(1, 2))
	var out []Fact
	for i := range 50_000 {
		p, by := rng.IntN(1000), rng.IntN(9000)
		if i < 50 {
			by = 0
		}
		out = append(out, lease(i, key(p), key(100_000+by), market.Amount(rng.IntN(1_000_000)), now-market.Slot(rng.IntN(5000)))...)
	}
	return out
}

func BenchmarkView(b *testing.B) {
	facts := fleet()
	b.Run("peers=10000/facts=100000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := NewView(params, key(100_000), now, facts, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	v, err := NewView(params, key(100_000), now, facts, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, n := range map[string]int{"one": 1, "hundred": 100} {
		b.Run("score="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.Scores(Provider, v.Peers(Provider)[:n]...)
			}
		})
	}
	b.Run("score=all", func(b *testing.B) { // each peer, in both roles
		for b.Loop() {
			v.Scores(Provider, v.Peers(Provider)...)
			v.Scores(Buyer, v.Peers(Buyer)...)
		}
	})
}
