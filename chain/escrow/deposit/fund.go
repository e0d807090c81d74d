package deposit

import (
	"fmt"
	"math"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/tranche"
)

// fund adds the leases of a buyer, or of a supervisor.
func (d *Deposit) fund(ev escrow.Fund) (change bool, err error) {
	if known := d.batches.known(ev.Leases); known == len(ev.Leases) && known > 0 {
		return false, nil // repeated after a crash
	} else if known > 0 {
		return false, fmt.Errorf("%w: some were funded before", escrow.ErrLease)
	}
	most, total := d.most(), len(ev.Leases)
	for _, b := range d.batches {
		total += len(b.leases)
	}
	switch {
	case d.ending:
		return false, escrow.ErrEnding
	case len(ev.Leases) == 0:
		return false, fmt.Errorf("%w: no leases", escrow.ErrEvent)
	case len(ev.Leases) > most || total > MaxLeases:
		return false, fmt.Errorf("%w: %d, at most %d together and %d in all",
			escrow.ErrTooMany, len(ev.Leases), most, MaxLeases)
	}
	deadline := d.deadline
	if d.opened == 0 {
		deadline = max(deadline, ev.Deadline)
	}
	for _, core := range ev.Leases {
		if core.Order != d.deal.Order && !d.hires() && d.deal.LeaseBuyer.IsZero() || !d.deal.names(core) {
			return false, fmt.Errorf("%w: %s is of another order, buyer or key set, or malformed",
				escrow.ErrLease, core.ID().Short())
		}
		margin := market.Slot(d.net.Margin())
		if core.End > math.MaxUint64-margin || core.End+margin > deadline {
			return false, fmt.Errorf("%w: slot %d: lease %s ends at %d, with %d more slots required",
				escrow.ErrDeadline, deadline, core.ID().Short(), core.End, margin)
		}
	}
	b := batch{stage: stageWanted, deposit: ev.Deposit}
	if err := d.append(b, ev.Leases); err != nil {
		return false, err
	}
	d.deadline = deadline
	return true, nil
}

// addHired records leases that the voucher keys are reported to have hired.
func (d *Deposit) addHired(ev escrow.Hired) (change bool, err error) {
	known, total := d.batches.known(ev.Leases), len(ev.Leases)
	for _, b := range d.batches {
		if b.hired {
			total += len(b.leases)
		}
	}
	fit := d.fit(len(ev.Leases), true)
	switch {
	case known == len(ev.Leases) && known > 0:
		return false, nil
	case known > 0:
		return false, fmt.Errorf("%w: some are known", escrow.ErrLease)
	case len(ev.Leases) == 0:
		return false, fmt.Errorf("%w: no leases", escrow.ErrEvent)
	case len(ev.Leases) > fit || total > maxHired:
		return false, fmt.Errorf("%w: %d hired, at most %d together and %d in all",
			escrow.ErrTooMany, len(ev.Leases), fit, maxHired)
	}
	for _, core := range ev.Leases {
		if !d.deal.names(core) {
			return false, fmt.Errorf("%w: %s is of another buyer or key set, or malformed",
				escrow.ErrLease, core.ID().Short())
		}
	}
	return true, d.append(batch{stage: stageWanted, hired: true}, ev.Leases)
}

// append adds a batch of leases. It returns market.ErrOverflow if their caps are too many tokens, and ErrLease if one
// stands twice.
func (d *Deposit) append(b batch, leases []market.LeaseCore) error {
	fit := d.fit(len(leases), b.hired)
	var sum market.Amount
	var err error
	for i, core := range leases {
		if sum, err = sum.Add(core.Cap); err != nil {
			return err
		}
		b.leases = append(b.leases, entry{leaf: tranche.LeafOf(core, uint16(i%fit)), before: core.ActivateBefore})
	}
	if err := b.build(fit); err != nil {
		return err
	}
	d.batches = append(d.batches, b)
	return nil
}
