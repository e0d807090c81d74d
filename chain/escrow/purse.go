package escrow

import (
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// MaxPurses is how many accounts one request reads.
const MaxPurses = 100

// Purse is an account on chain that can pay an order: an unfrozen token account of the network's mint, or an escrow of
// the network. Zero: the account is neither.
type Purse struct {
	Owner, Delegate   sign.Key // of a token account; a zero Delegate: it has none
	Amount, Delegated market.Amount
	Escrow            *account.Escrow
}

// Spendable is the amount that a peer can spend from a token account.
func (p Purse) Spendable(by sign.Key) market.Amount {
	switch by {
	case p.Owner:
		return p.Amount
	case p.Delegate:
		return min(p.Amount, p.Delegated)
	}
	return 0
}

// Hires is the amount for which a peer can hire a provider from an escrow that names it as a standby. The voucher keys
// must sign, too.
func (p Purse) Hires(by, provider sign.Key) market.Amount {
	e := p.Escrow
	if e == nil || e.State != account.EscrowOpen || by != e.Buyer && !slices.Contains(e.Keys.Keys, by) {
		return 0
	}
	var budget market.Amount
	for _, s := range e.Standbys {
		if s.Provider == provider {
			budget = max(budget, s.Budget)
		}
	}
	gone := e.Paid + e.Refunded + e.Outstanding // at most the deposit
	return min(budget, market.Amount(e.Deposited-min(e.Deposited, gone)))
}
