package audit

import (
	"context"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/verify/audit"
)

// OnChain is what the program says of the fees that burn.
type OnChain struct {
	Network  *settle.Network
	Payments *settle.Payments
}

var _ Burns = OnChain{}

// Terms are the fees that hold now.
func (c OnChain) Terms(ctx context.Context) (fee audit.Fee, err error) {
	net, err := c.Network.Get(ctx)
	if err != nil {
		return fee, err
	}
	for i, m := range net.Account.Params.Mints {
		if m.Mint == net.Mint {
			t := net.Account.Terms(i)
			fee = audit.Fee{Fee: t.FeeBps, Burn: t.BurnBps}
		}
	}
	return fee, nil
}

// Paid is what the escrow has paid that the lease's funding names.
func (c OnChain) Paid(ctx context.Context, w audit.Worked) (market.Amount, error) {
	f := w.Funded
	return c.Payments.Of(ctx, w.Lease.Core, escrow.Funding{
		Opened: f.Opened, Tranche: f.Tranche, Index: f.Index, Proof: f.Proof, Buyer: f.Buyer, Order: f.Order,
	}, w.Receipt.Cumulative)
}
