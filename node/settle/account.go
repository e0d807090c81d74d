package settle

import "github.com/starling-network/starling/market"

// Account is the outcome of claims. Amounts are before the network's fee.
type Account struct {
	Lease   market.LeaseCore // zero for the sum of several
	Owed    market.Amount    // by the best voucher
	Claimed market.Amount    // of that, paid and finalized
	Lost    market.Amount    // of that, can never be claimed
}

// Claims are a lease's: a machine of chain/escrow/claims.
type Claims interface {
	Owed() market.Amount
	Paid() market.Amount
	Over() (over, lost bool)
}

// AccountOf is the account of a lease's claims.
func AccountOf(m Claims) Account {
	a := Account{Owed: m.Owed(), Claimed: m.Paid()}
	if _, lost := m.Over(); lost {
		a.Lost = a.Owed - min(a.Claimed, a.Owed)
	}
	return a
}
