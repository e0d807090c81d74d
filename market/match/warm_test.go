package match_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/match"
)

// warmOrder is an order for an image, and the names of it and of another one in offers.
func warmOrder() (o market.Order, has, other images.Ready) {
	o = testOrder()
	o.Image = images.Prefix{7}
	return o, images.Ready{{3}, o.Image}, images.Ready{{3}}
}

// Of providers that are alike, the one with the order's image is first, alone and in a cluster.
func TestWarmIsPreferred(t *testing.T) {
	t.Parallel()
	o, has, other := warmOrder()
	var cands []match.Candidate
	for i := range 8 {
		c := candidate(i)
		c.Offer.Coordinate, c.Offer.Ready = at(5), other
		cands = append(cands, c)
	}
	cands[5].Offer.Ready = has
	for _, image := range []images.Prefix{o.Image, {}} {
		o.Image = image
		asked := image != images.Prefix{}
		res := rank(o, cands)
		first := res.Ranked[0]
		if asked && (first.Candidate.Offer.Provider != key(5) || first.Parts.Warm != 1e6 || first.Score <= res.Ranked[1].Score) {
			t.Errorf("%+v is first", first)
		}
		for _, s := range res.Ranked {
			if !asked && (s.Parts.Warm != 0 || s.Score != first.Score) {
				t.Errorf("an order without an image: %+v", s)
			}
		}
		got, err := match.SelectCluster(o, res, 2, true, match.Near{})
		if err != nil || asked && !slices.Contains(providers(got.Chosen), key(5)) {
			t.Errorf("cluster of %v: %v", got.Chosen, err)
		}
	}
}

// TestAttackWarmLiar: a provider that names every image gains the preference for images and no more: it never outranks
// a provider that is cheaper by more than Warm/Price of the ceiling, or better by more than Warm/Reputation of the
// reputations. Neither does it by naming an image several times.
func TestAttackWarmLiar(t *testing.T) {
	t.Parallel()
	o, has, _ := warmOrder()
	w := match.DefaultWeights(market.Genesis{Decimals: 2, SlotMillis: 400, AuditSlots: 1})
	if w.Warm == 0 || 5*w.Warm > w.Reputation || 10*w.Warm > w.Price {
		t.Fatalf("the default of Warm, %d, does not leave the choice to price %d and reputation %d", w.Warm, w.Price, w.Reputation)
	}
	rapid.Check(t, func(t *rapid.T) {
		honest, liar := candidate(1), candidate(2)
		o.Ceiling = 10_000
		margin := market.Price(uint64(o.Ceiling)*uint64(w.Warm)/uint64(w.Price)) + 2
		liar.Offer.Price = market.Price(rapid.IntRange(int(margin), int(o.Ceiling)).Draw(t, "price"))
		honest.Offer.Price = liar.Offer.Price - margin
		if rapid.Bool().Draw(t, "by reputation") {
			honest.Offer.Price = liar.Offer.Price
			honest.Reputation = liar.Reputation + 1e6*w.Warm/w.Reputation + 10
		}
		liar.Offer.Ready = has
		res := match.Rank(o, []match.Candidate{honest, liar}, now, w)
		if len(res.Ranked) != 2 || res.Ranked[0].Candidate.Offer.Provider != key(1) {
			t.Fatalf("the liar is first: %+v", res.Ranked)
		}
	})
	twice := images.Ready{o.Image, o.Image}
	if twice.Check() == nil {
		t.Error("an offer may name an image twice")
	}
}
