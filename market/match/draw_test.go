package match_test

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
)

// numbered is the id of the order i.
func numbered(i uint64) (o market.OrderID) {
	binary.BigEndian.PutUint64(o[:], i)
	return o
}

// answered counts those of n providers that are drawn for the order i.
func answered(i uint64, n int, draw uint32) (quotes int) {
	o := numbered(i)
	for p := range n {
		if match.Drawn(market.Order{ID: o, Draw: draw}, key(p)) {
			quotes++
		}
	}
	return quotes
}

func TestDrawn(t *testing.T) {
	t.Parallel()
	const n = 10_000
	for _, c := range []struct {
		draw        uint32
		least, most int
	}{{match.DrawAll, n, n}, {1 << 31, n/2 - 300, n/2 + 300}, {1 << 24, 10, 80}, {1, 0, 1}} {
		if got := answered(7, n, c.draw); got < c.least || got > c.most {
			t.Errorf("draw %d: %d of %d are drawn, want %d to %d", c.draw, got, n, c.least, c.most)
		}
	}
}

// Whatever the size of a network, orders bring enough quotes to choose from and not many more: all in a small one, some
// 48 in a large one. The first order of a newcomer, which knows about how many peers there are, does too; where far
// fewer sell, it is asked again.
func TestDrawAtAnySize(t *testing.T) {
	t.Parallel()
	for _, n := range []int{20, 48, 100, 300, 1000, 10_000} {
		want := min(n, 48)
		for _, first := range []int{n, 2 * n, n / 2, 0} {
			p, sum, orders := match.Guess(first), 0, 0
			for i := range uint64(20) {
				draw := p.Draw(1, 0)
				quotes := answered(uint64(n)<<32|i, n, draw)
				if i == 0 && first == n && (quotes < want/2 || quotes > 2*want) {
					t.Errorf("%d providers: the first order of a newcomer brings %d quotes", n, quotes)
				}
				p = p.Learn(draw, min(quotes, match.MaxQuotes(1)), match.MaxQuotes(1))
				if i >= 10 { // as many as it takes from no idea at all
					sum, orders = sum+quotes, orders+1
				}
			}
			if mean := float64(sum) / float64(orders); mean < float64(min(n, 32)) || mean > 64 {
				t.Errorf("%d providers, at first taken for %d: orders bring %.1f quotes", n, first, mean)
			}
		}
	}
}

// A buyer that took 10,000 peers for providers finds the 20 that are by asking again.
func TestDrawAgain(t *testing.T) {
	t.Parallel()
	p, quotes, asked := match.Guess(10_000), 0, 0
	for ; quotes < 20 && asked < 10; asked++ {
		quotes = answered(uint64(asked), 20, p.Draw(1, asked))
	}
	if quotes < 20 || asked > 5 {
		t.Errorf("%d of 20 quote after %d orders", quotes, asked)
	}
}

// TestAttackDrawAll: a network of 10,000 providers, all of which used to answer an order whose draw was 0, and 2,000
// any order: an order brings a hundredth. Quotes that were made up lower the next draw, and asking again makes up for
// it; however many there are, an estimate stays one.
func TestAttackDrawAll(t *testing.T) {
	t.Parallel()
	const n = 10_000
	if quotes := answered(1, n, match.Guess(n).Draw(1, 0)); quotes > 100 {
		t.Errorf("%d of %d providers quote for one order", quotes, n)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := match.Guess(rapid.Int().Draw(t, "guess"))
		for range rapid.IntRange(1, 20).Draw(t, "orders") {
			leases := rapid.Uint32Range(1, market.MaxCount).Draw(t, "leases")
			draw := p.Draw(leases, 0)
			if draw == 0 {
				t.Fatal("nobody is drawn")
			}
			if all := p.Draw(leases, 8); all != match.DrawAll {
				t.Fatalf("asked eight times, and the draw is still %d", all)
			}
			p = p.Learn(draw, rapid.IntRange(0, 2048).Draw(t, "quotes"), match.MaxQuotes(leases))
			if n := p.Size(); n < 0 || n > math.MaxInt32 {
				t.Fatalf("%d providers", n)
			}
		}
	})
}
