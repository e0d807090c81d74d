package buyer

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/pay"
)

// Totals are the sums over all of this peer's own jobs. Paid and Fees never become less.
type Totals struct {
	Paid market.Amount // claimed by providers, with the network's fees
	Held market.Amount // in escrows now
	Fees uint64        // lamports that transactions took, about
}

// Totals sums up all jobs, archived and removed ones too.
func (b *Buyer) Totals() (t Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !b.owned(s.peek()) {
			continue
		}
		j := s.snapshot()
		j.Escrows = b.pay.Escrows(j.ID)
		paid, held := pay.Claimed(j.Escrows)
		t.Paid, t.Held, t.Fees = t.Paid+paid, t.Held+held, t.Fees+took(j).Fees
	}
	archived := b.archive.Sums()
	t.Paid, t.Fees = t.Paid+archived.Paid, t.Fees+archived.Fees
	return t
}
