package buyer

import "github.com/starling-network/starling/market"

// Totals are what all jobs of this peer's own have come to. Paid and Fees never become less.
type Totals struct {
	Paid market.Amount // claimed by providers, with the network's fees
	Held market.Amount // in escrows now
	Fees uint64        // lamports that transactions took, about
}

// Totals sums up all jobs, those that have left memory too.
func (b *Buyer) Totals() (t Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !b.owned(s.peek()) {
			continue
		}
		j := s.snapshot()
		j.Escrows = b.pay.escrows(j.ID)
		paid, held := claimed(j.Escrows)
		t.Paid, t.Held, t.Fees = t.Paid+paid, t.Held+held, t.Fees+j.took().Fees
	}
	for _, p := range b.past {
		t.Paid, t.Fees = t.Paid+p.Spent, t.Fees+p.Fees
	}
	return t
}
