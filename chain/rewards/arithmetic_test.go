package rewards

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market/sign"
)

func integer(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// share and quotientLess are exact where the products do not fit into 64 bits.
func TestExactQuotients(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64Min(1).Draw(t, "b")
		c, d := rapid.Uint64().Draw(t, "c"), rapid.Uint64Min(1).Draw(t, "d")
		want := new(big.Int).Div(new(big.Int).Mul(integer(a), integer(c)), integer(b))
		if most := integer(1<<64 - 1); want.Cmp(most) > 0 {
			want = most
		}
		if got := share(a, c, b); integer(got).Cmp(want) != 0 {
			t.Fatalf("%d · %d / %d is %d, want %s", a, c, b, got, want)
		}
		less := new(big.Int).Mul(integer(a), integer(d)).Cmp(new(big.Int).Mul(integer(c), integer(b))) < 0
		if got := quotientLess(a, b, c, d); got != less {
			t.Fatalf("%d/%d < %d/%d: %v", a, b, c, d, got)
		}
	})
}

// A quotient of 2⁶⁴ or just above is the largest integer.
func TestShareAtTheEdge(t *testing.T) {
	t.Parallel()
	for k := uint64(1); k < 1<<62; k *= 3 {
		if got := share(1<<63, 2*k, k); got != 1<<64-1 {
			t.Errorf("2⁶³ · %d / %d is %d", 2*k, k, got)
		}
		if got := share(1<<64-1, k, k); got != 1<<64-1 {
			t.Errorf("the largest · %d / %d is %d", k, k, got)
		}
	}
}

// A pool is divided but for less than a sixteenth, the same whether a verifier reads it once or twice, and never less
// for more.
func TestDivisibleProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		holds := rapid.Uint64().Draw(t, "holds")
		part := Divisible(holds)
		if part > holds || holds-part > holds/16 || Divisible(part) != part {
			t.Fatalf("%d of %d, again %d", part, holds, Divisible(part))
		}
		if more := rapid.Uint64Min(holds).Draw(t, "more"); Divisible(more) < part {
			t.Fatalf("%d of %d, %d of %d", Divisible(more), more, part, holds)
		}
	})
}

// Turns follow one another without a gap from the first slot on, and each is somebody's of the voters, the same for
// every verifier in whatever order it lists registrations.
func TestTurnsProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := turnVotes
		v.VotingSlots = rapid.Uint64Range(0, 1000).Draw(t, "voting slots")
		first := rapid.Uint64Range(60, 1<<40).Draw(t, "first")
		var all []account.Provider
		bonded := map[sign.Key]bool{}
		for i := range rapid.IntRange(0, 8).Draw(t, "providers") {
			p := account.Provider{Peer: sign.Key{byte(i + 1)}, Bonded: rapid.SampledFrom([]uint64{0, 99, 100, 5000}).Draw(t, "bond"),
				Raised: rapid.Uint64Range(40, 60).Draw(t, "raised")}
			all = append(all, p)
			bonded[p.Peer] = p.Bonded >= v.LeastBond && p.Raised < v.EpochEnd(0)
		}
		address := func(p account.Provider) sign.Key { return p.Peer }
		turns := NewTurns(v, 0, 1, first, sign.Hash{7}, all, address)
		slices.Reverse(all)
		other := NewTurns(v, 0, 1, first, sign.Hash{7}, all, address)
		if _, ok := turns.At(first - 1); ok {
			t.Fatal("a turn before the first")
		}
		slot := first + rapid.Uint64Range(0, 5000).Draw(t, "slots")
		turn, ok := turns.At(slot)
		if begins := first + turn*TurnSlots(v); !ok || slot < begins || slot >= begins+TurnSlots(v) {
			t.Fatalf("slot %d is in turn %d, which begins at %d, %v", slot, turn, begins, ok)
		}
		who, ok := turns.Of(turn)
		again, _ := other.Of(turn)
		any := slices.ContainsFunc(all, func(p account.Provider) bool { return bonded[p.Peer] })
		if ok != any || ok && !bonded[who] || who != again {
			t.Fatalf("turn %d is %s's, in another order %s's, %v", turn, who.Short(), again.Short(), ok)
		}
	})
}

// The largest claims are those, each once and by their names: no claim left out is larger than one taken.
func TestLargestProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var gs []Guarded
		nets := map[sign.Signature]uint64{}
		for range rapid.IntRange(0, 30).Draw(t, "claims") {
			id := sign.Signature{rapid.Byte().Draw(t, "id")}
			if _, there := nets[id]; !there {
				nets[id] = rapid.Uint64Range(1, 20).Draw(t, "net")
			}
			gs = append(gs, Guarded{ID: id, Net: nets[id]})
		}
		n := rapid.IntRange(0, 20).Draw(t, "most")
		before := slices.Clone(gs)
		got := Largest(gs, n)
		if len(got) != min(n, len(nets)) || !slices.EqualFunc(gs, before, func(a, b Guarded) bool { return a.ID == b.ID }) {
			t.Fatalf("%d of %d, want %d", len(got), len(nets), n)
		}
		least, taken := uint64(1<<64-1), map[sign.Signature]bool{}
		for i, g := range got {
			if i > 0 && bytes.Compare(got[i-1].ID[:], g.ID[:]) >= 0 || g.Net != nets[g.ID] {
				t.Fatalf("%+v", got)
			}
			least, taken[g.ID] = min(least, g.Net), true
		}
		for id, net := range nets {
			if !taken[id] && net > least {
				t.Fatalf("a claim of %d is left out, one of %d is in", net, least)
			}
		}
	})
}

// More wallets than a payout may have: those with the largest amounts are paid, and no more is paid than there is.
func TestMostPayees(t *testing.T) {
	t.Parallel()
	weights := map[sign.Key]uint64{}
	for i := range account.MaxPayees + 10 {
		weights[sign.Key{byte(i), byte(i >> 8), byte(i >> 16), 1}] = uint64(1000 + i)
	}
	const sum = 1 << 50
	payees := divide(sum, weights, map[sign.Key]uint64{})
	if len(payees) != account.MaxPayees {
		t.Fatalf("%d payees", len(payees))
	}
	var paid uint64
	least := slices.MinFunc(payees, func(a, b Payee) int { return cmp.Compare(a.Amount, b.Amount) })
	for _, p := range payees {
		paid += p.Amount
		delete(weights, p.Wallet)
	}
	for wallet, w := range weights {
		if w >= 1010 {
			t.Errorf("%s of weight %d is not paid, the least gets %d", wallet.Short(), w, least.Amount)
		}
	}
	if len(weights) != 10 || paid > sum {
		t.Errorf("%d are left out, %d of %d paid", len(weights), paid, uint64(sum))
	}
}
