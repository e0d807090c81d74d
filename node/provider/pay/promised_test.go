package pay

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
)

// known is a chain that knows what the network is.
type known struct {
	settle.Chain
	account account.Network
}

func (k known) Network(context.Context) (account.Network, error) { return k.account, nil }

// paidBy is a provider's escrows on a network with so many response slots.
func paidBy(response uint32) *Escrowed {
	mint := sign.Key{7}
	p := account.Params{Network: "test", ResponseSlots: response, Mints: []account.MintTerms{account.DefaultTerms(mint, 6)}}
	g := market.Genesis{Network: "test", Program: sign.Key{8}, Mint: mint, Escrow: account.NetworkAddress(sign.Key{8}, p)}
	c := known{account: account.NewNetwork(p)}
	return &Escrowed{cfg: Config{Escrows: Escrows{
		Chain: c, Network: settle.NewNetwork(g, c, store.NewMemory()), Params: escrow.DefaultParams(),
	}}}
}

// A lease for which nothing could ever be claimed is refused when it is promised, before anything runs.
func TestPromisedRefuses(t *testing.T) {
	t.Parallel()
	key := func(n byte) sign.Key { return sign.NewPrivate([32]byte{n}).Key() }
	keys, err := market.NewKeySet(1, key(1))
	if err != nil {
		t.Fatal(err)
	}
	set := func(threshold uint8) market.KeySet {
		t.Helper()
		s, err := market.NewKeySet(threshold, key(1), key(2), key(3), key(4), key(5))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	two, three, five := set(2), set(3), set(5)
	for name, c := range map[string]struct {
		response uint32
		keys     market.KeySet
		funding  escrow.Funding
		want     string
	}{
		"good":              {escrow.MinResponseSlots, keys, escrow.Funding{Opened: 5, Index: 255}, ""},
		"two keys":          {escrow.MinResponseSlots, two, escrow.Funding{Opened: 5, Index: 63}, ""},
		"three keys":        {escrow.MinResponseSlots, three, escrow.Funding{Opened: 5, Index: 255}, ""},
		"a tree too large":  {escrow.MinResponseSlots, five, escrow.Funding{Opened: 5, Index: 8}, "could be claimed"},
		"no such tranche":   {escrow.MinResponseSlots, keys, escrow.Funding{Opened: 5, Tranche: 1<<16 - 1}, "could be claimed"},
		"too little time":   {escrow.MinResponseSlots - 1, keys, escrow.Funding{Opened: 5}, "response slots: got 95"},
		"not for this keys": {escrow.MinResponseSlots, market.KeySet{}, escrow.Funding{Opened: 5}, "voucher keys"},
	} {
		x := paidBy(c.response)
		core := market.LeaseCore{Version: market.LeaseVersion, VoucherKeys: c.keys.Hash()}
		r := lease.Record{Core: &core, Keys: c.keys}
		if name == "not for this keys" {
			r.Keys = keys
		}
		at, err := x.Promised(t.Context(), r, c.funding.Marshal())
		var no *stream.Refused
		switch {
		case c.want == "" && (err != nil || at.IsZero()):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.As(err, &no) || no.Code != string(market.ReasonUnfunded) || !strings.Contains(no.Reason, c.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}
