package wages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// draw has the other guardians sign the newly earned wage, if that is due, and claims it. Both are journalled before
// anything is sent.
func (x *Wages) draw(ctx context.Context, w wards.Ward, e *earner, name string) error {
	m, _, err := x.claims.Get(name)
	if err != nil {
		return err
	}
	now, err := x.Slots.Now(time.Now())
	if err != nil {
		return err
	}
	g, core := x.Genesis, m.Lease()
	x.mu.Lock()
	d := e.drawn[name]
	x.mu.Unlock()
	if d.over {
		return nil
	}
	from, every := max(d.until, core.Start), max(g.IntervalSlots, min(x.When.Slots, g.SlotsIn(wageEvery)))
	if d.hurry {
		every = g.IntervalSlots
	}
	apart := market.Slot(g.SlotsIn(time.Second)) // other guardians' clocks may be behind
	over := w.OverAt > 0 || now > core.End+apart
	until := min(now-min(now, apart), core.End)
	if w.OverAt > 0 {
		until = min(w.OverAt, now, core.End)
	}
	if !over && until < from+market.Slot(every) {
		return nil
	}
	amount := m.Owed()
	if until > from {
		v, err := x.voucher(ctx, w, m, from, until)
		if err != nil {
			return err
		}
		if err := x.claims.Ask(ctx, name, escrow.VoucherKept{Voucher: v, Earned: v.Cumulative}); err != nil {
			return err
		}
		amount = v.Cumulative
		x.note(e, name, func(d *drawn) { d.until = v.Horizon })
		over = over && v.Horizon == until
	}
	if !over {
		return nil
	}
	if err := x.claims.Ask(ctx, name, escrow.LeaseOver{Owed: amount}); err != nil {
		return err
	}
	x.note(e, name, func(d *drawn) { d.over = true })
	return nil
}

func (x *Wages) note(e *earner, name string, change func(*drawn)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := e.drawn[name]
	change(&d)
	e.drawn[name] = d
}

// voucher returns a co-signed voucher for the wage up to slot until, or up to the latest slot that the other guardians
// accept. They may have learned earlier that the job has ended.
func (x *Wages) voucher(
	ctx context.Context, w wards.Ward, m claims.Claims, from, until market.Slot,
) (verify.SignedVoucher, error) {
	_, panel, ok := x.Guardian.Guarded(w.Job)
	if !ok {
		return verify.SignedVoucher{}, fmt.Errorf("job %s is forgotten", w.Job.Short())
	}
	defer panel.Close()
	net, err := x.Network.Get(ctx)
	if err != nil {
		return verify.SignedVoucher{}, err
	}
	core := m.Lease()
	ask := func(until market.Slot) (verify.SignedVoucher, error) {
		owed, err := core.Rate.Owed(uint64(until - core.Start))
		if err != nil {
			return verify.SignedVoucher{}, err
		}
		return panel.Wage(ctx, verify.Voucher{
			Version: verify.VoucherVersion, Lease: core.ID(), Escrow: net.EscrowOf(core, m.Funding()),
			Seq:        uint64(until - core.Start), // grows with time, after any crash
			Cumulative: min(owed, core.Cap), Horizon: until, Supervision: 1,
		})
	}
	best, err := ask(until)
	if err == nil || !declined(err) {
		return best, err
	}
	found := false
	for low, high := from, until; high-low > 1; {
		mid := low + (high-low)/2
		v, no := ask(mid)
		switch {
		case no == nil:
			best, low, found = v, mid, true
		case declined(no):
			high = mid
		default:
			return v, no
		}
	}
	if found {
		err = nil
	}
	return best, err
}

// declined reports whether a guardian refused to sign because the amount is not earned.
func declined(err error) bool {
	var no *stream.Refused
	return errors.As(err, &no) && no.Code == guardian.CodeVoucher
}
