package settle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/tranche"
)

// cashier is a chain that shows one escrow, and counts how often somebody looked.
type cashier struct {
	Chain
	account program.Network
	view    escrow.View
	err     error
	looks   int
}

func (c *cashier) Network(context.Context) (program.Network, error) { return c.account, nil }

func (c *cashier) Look(_ context.Context, _ sign.Key, _ []uint16, level escrow.Level) (escrow.View, error) {
	if c.looks++; level != escrow.Finalized {
		return escrow.View{}, errors.New("it could be forked away")
	}
	return c.view, c.err
}

// The chain is asked again for what may have grown, after a while, and never for what is enough.
func TestPaymentsAreRemembered(t *testing.T) {
	t.Parallel()
	mint := sign.Key{7}
	p := program.Params{Network: "test", Mints: []program.MintTerms{program.DefaultTerms(mint, 6)}}
	g := market.Genesis{Network: "test", Program: sign.Key{8}, Mint: mint, Escrow: program.NetworkAddress(sign.Key{8}, p)}
	c := &cashier{account: program.NewNetwork(p), err: chain.ErrDown}
	network := NewNetwork(g, c, store.NewMemory())
	net, err := network.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	core := market.LeaseCore{Version: market.LeaseVersion, Units: 1, Buyer: sign.Key{1}, Order: market.OrderID{2}, Rate: 1, Cap: 100, Start: 5, End: 9}
	tree, err := tranche.Build([]tranche.Leaf{tranche.LeafOf(core, 0)})
	if err != nil {
		t.Fatal(err)
	}
	f := escrow.Funding{Opened: 4, Proof: tranche.Proof{}}
	shows := func(paid uint64) {
		c.view = escrow.View{
			Escrow: &program.Escrow{Network: net.Address(), Buyer: core.Buyer, Order: core.Order, Opened: 4, Mint: mint},
			Tranches: map[uint16]program.Tranche{0: {
				Escrow: net.EscrowOf(core, f), Root: tree.Root().Hash, Sum: 100, Leaves: []program.LeafState{{Paid: paid}},
			}},
		}
	}
	shows(40)
	now := time.Unix(1000, 0)
	pay := NewPayments(c, network, func() time.Time { return now })
	for i, step := range []struct {
		after  time.Duration
		err    error // of the chain from now on
		paid   uint64
		enough market.Amount
		want   market.Amount
		fails  error
		looks  int
	}{
		{0, chain.ErrDown, 40, 50, 0, chain.ErrDown, 1},
		{paidFresh - 1, nil, 40, 50, 0, chain.ErrDown, 1}, // it is not asked again at once
		{1, nil, 40, 50, 40, nil, 2},
		{1, nil, 60, 50, 40, nil, 2},
		{paidFresh, nil, 60, 50, 60, nil, 3},
		{time.Hour, chain.ErrDown, 60, 50, 60, nil, 3}, // it is enough for ever
		{time.Hour, chain.ErrDown, 60, 61, 0, chain.ErrDown, 4},
	} {
		now = now.Add(step.after)
		c.err = step.err
		shows(step.paid)
		got, err := pay.Of(t.Context(), core, f, step.enough)
		if got != step.want || !errors.Is(err, step.fails) || c.looks != step.looks {
			t.Errorf("step %d: %d, %v after %d looks; want %d, %v after %d", i, got, err, c.looks, step.want, step.fails, step.looks)
		}
	}
	other := f
	other.Index = 1
	if _, err := pay.Of(t.Context(), core, other, 50); err == nil {
		t.Error("another leaf's answer is this one's")
	}
	c.err = nil
	for i := range maxPaid + 1 {
		o := core
		o.Rank = uint32(i + 1)
		if _, err := pay.Of(t.Context(), o, f, 1); !errors.Is(err, escrow.ErrLeaf) {
			t.Fatal(err)
		}
	}
	if len(pay.seen) > maxPaid {
		t.Errorf("%d leases are remembered", len(pay.seen))
	}
}
