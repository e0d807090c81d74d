package chain_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

const anchoredIn = market.Slot(5000)

var domain = market.Genesis{Network: "test", Symbol: "STAR", Chain: sign.Hash{1}, SlotMillis: 400, IntervalSlots: 150, Simulated: true}.Domain()

// testimony is that of a receipt until a slot, signed by both, under an anchor of three.
func testimony(t testing.TB, to market.Slot, paid market.Amount) chain.Testimony {
	t.Helper()
	provider, buyer := sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})
	r := verify.Receipt{ReceiptCore: verify.ReceiptCore{
		Version: verify.ReceiptVersion, Units: 1, Lease: market.LeaseID{9}, Seq: 1, Provider: provider.Key(), Buyer: buyer.Key(), From: to - 100, To: to, Amount: paid, Cumulative: paid,
	}}
	r.Prev = sign.Hash(r.Lease)
	var err error
	if r.ProviderSig, err = r.Sign(domain, provider); err == nil {
		r.BuyerSig, err = r.Sign(domain, buyer)
	}
	if err != nil {
		t.Fatal(err)
	}
	hashes := []sign.Hash{{2}, r.SignedHash(), {3}}
	return chain.Testimony{Receipt: r, In: chain.Include(chain.Anchor{Root: chain.RootOf(hashes), Count: 3, Ref: chain.Ref{4}}, hashes, 1, "tx", anchoredIn)}
}

func TestTestimony(t *testing.T) {
	t.Parallel()
	const ahead = 10
	for name, c := range map[string]struct {
		change func(x *chain.Testimony)
		make   chain.Testimony
		holds  bool
	}{
		"good":                {make: testimony(t, anchoredIn-1, 5), holds: true},
		"a clock ahead":       {make: testimony(t, anchoredIn+ahead, 5), holds: true},
		"after its anchor":    {make: testimony(t, anchoredIn+ahead+1, 5)},
		"of nothing":          {make: testimony(t, anchoredIn-1, 0)},
		"another place":       {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.In.Index = 0 }},
		"another root":        {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.In.Anchor.Root[0] ^= 1 }},
		"another count":       {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.In.Anchor.Count = 1 << 40 }},
		"of records":          {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.In.Anchor.Of = chain.OfRecords }},
		"one signature":       {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.Receipt.BuyerSig = x.Receipt.ProviderSig }},
		"another amount":      {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.Receipt.Cumulative++ }},
		"between one and one": {make: testimony(t, anchoredIn-1, 5), change: func(x *chain.Testimony) { x.Receipt.Buyer = x.Receipt.Provider }},
	} {
		if c.change != nil {
			c.change(&c.make)
		}
		if err := c.make.Check(domain, ahead); c.holds != (err == nil) || err != nil && !errors.Is(err, chain.ErrTestimony) {
			t.Errorf("%s: %v", name, err)
		}
	}
	x := testimony(t, anchoredIn-1, 5)
	on := chain.Commitment{Anchor: x.In.Anchor, Slot: anchoredIn, By: x.Receipt.Buyer}
	memo := on
	memo.By = sign.Key{}
	for _, good := range []chain.Commitment{on, memo} {
		if err := x.CheckOn(good); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(c *chain.Commitment){
		"slot": func(c *chain.Commitment) { c.Slot++ }, "root": func(c *chain.Commitment) { c.Root[1] ^= 1 }, "count": func(c *chain.Commitment) { c.Count++ },
		"author": func(c *chain.Commitment) { c.By = x.Receipt.Provider }, "kind": func(c *chain.Commitment) { c.Of = chain.OfRecords }, "ref": func(c *chain.Commitment) { c.Ref[0]++ },
	} {
		bad := on
		change(&bad)
		if err := x.CheckOn(bad); !errors.Is(err, chain.ErrUnanchored) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if n := len(x.Marshal()); n > chain.MaxTestimony {
		t.Errorf("%d bytes", n)
	}
}

// FuzzTestimony holds the form to one reading, and its check to an error or to what both signed.
func FuzzTestimony(f *testing.F) {
	x := testimony(f, anchoredIn-1, 5)
	f.Add(x.Marshal())
	f.Add(x.Marshal()[:verify.ReceiptSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := chain.UnmarshalTestimony(b)
		if err != nil {
			return
		}
		if !bytes.Equal(got.Marshal(), b) {
			t.Error("two forms")
		}
		if got.Check(domain, 10) == nil && got.Receipt != x.Receipt {
			t.Errorf("%+v was never signed", got.Receipt)
		}
	})
}
