package pay

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
)

// unfunded is the reason of leases without money on chain in time.
const unfunded = "the money of the lease was not on chain in time"

// Notify carries out the effects of a deposit.
func (x deposits) Notify(name string, ev escrow.Effect) {
	job, g := jobOf(name), x.cfg.Genesis
	note := func(kind trace.Kind, format string, args ...any) {
		x.cfg.Jobs.Note(job, trace.Step{At: time.Now(), Kind: kind, Detail: fmt.Sprintf(format, args...)})
	}
	switch ev := ev.(type) {
	case escrow.Opening:
		if !x.views.seen(name, ev.Escrow) { // each process has the effect again
			note(trace.Funded, "escrow %s is being opened", ev.Escrow)
		}
		x.moved(name, ev.Escrow)
	case escrow.Funded:
		n := x.counted(job, len(ev.Leases), func(id market.LeaseID) bool {
			return slices.ContainsFunc(ev.Leases, func(l escrow.FundedLease) bool { return l.Lease == id })
		})
		if ev.Final {
			note(trace.Funded, "%s are in escrow %s for good", n, ev.Escrow)
		} else {
			note(trace.Funded, "%s are in escrow %s, since slot %d", n, ev.Escrow, ev.Landed)
		}
	case escrow.Void:
		x.cfg.Leases.Void(ev.Leases, unfunded)
		n := x.counted(job, len(ev.Leases), func(id market.LeaseID) bool { return slices.Contains(ev.Leases, id) })
		note(trace.Funded, "%s are void: their money was not on chain in time", n)
	case escrow.Refunded:
		note(trace.Refunded, "%s are back", g.FormatAmount(ev.Amount))
	case escrow.Closed:
		x.views.change(name, func(e *record.Escrow) {
			e.Closed, e.Waiting = true, ""
			e.Refunded = max(e.Refunded, e.Deposited-min(e.Deposited, e.Paid))
		})
		note(trace.Refunded, "the escrow is closed, its rent is back")
	case escrow.Waiting:
		again := false
		x.views.change(name, func(e *record.Escrow) { again, e.Waiting = e.Waiting == ev.Reason, ev.Reason })
		if !again {
			note(trace.Funded, "the escrow waits: %s", ev.Reason)
		}
	}
}

// Notify carries out the effects of a hire.
func (x hires) Notify(name string, e escrow.Effect) {
	switch e := e.(type) {
	case escrow.Waiting:
		x.cfg.Log.Info("hiring a standby waits", "job", jobOf(name), "reason", e.Reason)
	case escrow.Funded:
		x.turns.end(name)
	case escrow.Void:
		x.turns.end(name)
		x.cfg.Leases.Void(e.Leases, unfunded)
	}
}

// counted returns the number of leases and that of wages among n leases, as text.
func (x *Payments) counted(job string, n int, has func(market.LeaseID) bool) string {
	wages := 0
	if guard, err := x.cfg.Jobs.Guard(job); err == nil && guard != nil {
		for _, wage := range guard.Wages {
			if has(wage.ID()) {
				wages++
			}
		}
	}
	if wages > 0 {
		return fmt.Sprintf("%d leases and %d wages", n-wages, wages)
	}
	return fmt.Sprintf("%d leases", n)
}

// moved voids the leases with vouchers that name another address of a deposit's escrow. An escrow whose opening failed
// is opened under a new address.
func (x *Payments) moved(name string, to sign.Key) {
	var gone []market.LeaseID
	for _, l := range x.cfg.Leases.Of(jobOf(name)) {
		if nameOf(l.Job, l.Core.Order) == name && l.Escrow != to {
			gone = append(gone, l.ID)
		}
	}
	x.cfg.Leases.Void(gone, "its escrow could not be opened in time")
}
