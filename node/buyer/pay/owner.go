package pay

import (
	"context"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
)

// deposits implements settle.Owner and settle.Cosigned with the deposits of this peer's jobs.
type deposits struct{ *Payments }

// Restore implements settle.Owner.
func (x deposits) Restore(ctx context.Context, state []byte) (deposit.Deposit, error) {
	net, err := x.cfg.Network.Get(ctx)
	if err != nil {
		return deposit.Deposit{}, err
	}
	return deposit.Restore(state, net, x.cfg.Params)
}

// Over implements settle.Owner.
func (deposits) Over(d deposit.Deposit) bool { return d.Closed() }

// Looked implements settle.Observer.
func (x deposits) Looked(name string, v escrow.View) { x.views.Looked(name, v) }

// Landed implements settle.Observer.
func (x deposits) Landed(name string, l settle.Landed) { x.views.Landed(name, l) }

// Others implements settle.Cosigned.
func (x deposits) Others(name string) []sign.Signer { return x.cfg.Jobs.Witnesses(jobOf(name)) }

// hires implements settle.Owner and settle.Cosigned with the hires of standbys. The deposit of the job's owner shows
// the escrow, so views and transactions of hires are not kept.
type hires struct{ *Payments }

// Restore implements settle.Owner.
func (x hires) Restore(ctx context.Context, state []byte) (deposit.Hire, error) {
	net, err := x.cfg.Network.Get(ctx)
	if err != nil {
		return deposit.Hire{}, err
	}
	return deposit.RestoreHire(state, net, x.cfg.Params)
}

// Over implements settle.Owner.
func (hires) Over(h deposit.Hire) bool { return h.Closed() }

// Looked implements settle.Observer.
func (hires) Looked(string, escrow.View) {}

// Landed implements settle.Observer.
func (hires) Landed(string, settle.Landed) {}

// Others implements settle.Cosigned.
func (x hires) Others(name string) []sign.Signer { return x.cfg.Jobs.Witnesses(jobOf(name)) }
