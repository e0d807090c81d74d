package market_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func anyCard(t *rapid.T) market.Card {
	return market.Card{
		Class: market.Class(rapid.StringMatching(`[a-z0-9/-]{1,32}`).Draw(t, "class")), Tag: sign.Sum(rapid.SliceOf(rapid.Byte()).Draw(t, "tag")), Index: rapid.Uint32().Draw(t, "index"),
	}
}

// A card is read as it was written, and opens the id of a unit of one provider alone.
func TestCard(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, other := anyCard(t), anyCard(t)
		got, err := market.UnmarshalCard(c.Marshal())
		if err != nil || got != c || len(c.Marshal()) > market.MaxCard {
			t.Fatalf("%+v is read as %+v: %v", c, got, err)
		}
		p, q := provider.Key(), buyer.Key()
		if (c.Unit(p) == other.Unit(p)) != (c == other) || c.Unit(p) == c.Unit(q) {
			t.Fatal("an id names another unit too")
		}
	})
	u, err := market.NewUnit(provider.Key(), "gpu/h100", "a GPU", "GPU-1", 2, market.Resources{})
	if err != nil || u.Card().Unit(provider.Key()) != u.ID || !u.Class.Alone() {
		t.Errorf("%+v: %v", u.Card(), err)
	}
	if market.Class("cpu").Alone() || market.Class("cpu/x").Alone() {
		t.Error("a processor is known by its machine's id, and machines are copied")
	}
}

func FuzzCard(f *testing.F) {
	f.Add(market.Card{Class: "gpu/h100", Tag: market.TagOf("GPU-1")}.Marshal())
	f.Add([]byte{255})
	f.Add(make([]byte, 37))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := market.UnmarshalCard(b)
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(c.Marshal(), b) {
			t.Fatalf("%x is written as %x", b, c.Marshal())
		}
	})
}
