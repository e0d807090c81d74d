package audit

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/verify/audit"
)

// OnChain is what the program says of the fees that burn.
type OnChain struct {
	Network     *settle.Network
	Payments    *settle.Payments
	WindowSlots uint64
}

var _ Burns = OnChain{}

// Terms are the fees that hold now. What a unit could earn in a window is at most what the whole network is given for one: of that the
// greatest month.
func (c OnChain) Terms(ctx context.Context) (fee audit.Fee, reward market.Amount, err error) {
	net, err := c.Network.Get(ctx)
	if err != nil {
		return fee, 0, err
	}
	for i, m := range net.Account.Params.Mints {
		if m.Mint == net.Mint {
			t := net.Account.Terms(i)
			fee = audit.Fee{Fee: t.FeeBps, Burn: t.BurnBps}
		}
	}
	reward, err = worth(net.Account.Params, net, c.WindowSlots)
	return fee, reward, err
}

// worth is the most that a network gives for a window of so many slots; 0 where it gives nothing.
func worth(p program.Params, net escrow.Net, slots uint64) (market.Amount, error) {
	v := p.Votes
	if !v.On() || v.Emission == 0 {
		return 0, nil
	}
	if p.StakeMint != net.Mint {
		return 0, fmt.Errorf("rewards are paid in %s, leases in %s: nobody is excused", p.StakeMint.Short(), net.Mint.Short())
	}
	epoch := program.MonthOfEmission(v.Emission, 0) / uint64(max(v.EpochsOfMonth, 1))
	windows := max(v.EpochSlots/max(slots, 1), 1)
	return market.Amount(epoch/windows + 1), nil
}

// Paid is what the escrow has paid that the lease's funding names.
func (c OnChain) Paid(ctx context.Context, w audit.Worked) (market.Amount, error) {
	f := w.Funded
	return c.Payments.Of(ctx, w.Lease.Core, escrow.Funding{
		Opened: f.Opened, Tranche: f.Tranche, Index: f.Index, Proof: f.Proof, Buyer: f.Buyer, Order: f.Order,
	}, w.Receipt.Cumulative)
}
