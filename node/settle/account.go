package settle

import (
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
)

// Account is what came of money that is claimed. Amounts are before the network's fee.
type Account struct {
	Owed    market.Amount // what the best voucher says
	Claimed market.Amount // of that, paid for ever
	Lost    market.Amount // of that, what can never be claimed any more
}

// AccountOf is what a lease's claims have come to.
func AccountOf(m escrow.Claims) Account {
	a := Account{Owed: m.Owed(), Claimed: m.Paid()}
	if _, lost := m.Over(); lost {
		a.Lost = a.Owed - min(a.Claimed, a.Owed)
	}
	return a
}
