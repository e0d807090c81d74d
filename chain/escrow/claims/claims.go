// Package claims is the provider's side of an escrow. Claims is a machine that claims the vouchers of one lease:
// regularly during the work, and in time at its end.
//
//	VoucherKept, LeaseOver ─▶ Claims ─▶ Look ─▶ Looked ─▶ book ─▶ plan ─▶ Sign ─▶ queue
//
//	                 ┌── all is paid ─────────────▶ settled ─┐
//	claims ──────────┤                                       ├──▶ lookup table closed ─▶ done
//	                 └── the rest cannot be had ──▶ lost ────┘
package claims

import (
	"errors"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
)

// Claims are a provider's, for one lease: a value; Step returns the next one.
type Claims struct {
	leaf
	vouchers
	params escrow.Params
	when   escrow.When

	paid         market.Amount // finalized
	landedAmount market.Amount // sum of our finalized claims, if nothing was freed
	landed       market.Slot   // of the tranche, finalized; 0: it was not seen
	final        market.Slot   // newest final view
	landedAt     market.Slot   // newest slot of a finalized claim
	asked        market.Slot   // when the last claim was signed
	end          ending
	lostBy       string // why, when it ended so
	table        table
	queue        escrow.Queue

	// The rest is not kept over a restart.
	apart   bool // claim and opening the payout's account do not fit together
	open    bool // the payout's account was seen open
	looking bool
	lookAt  time.Time
	waits   string
	repeat  bool // final events must be repeated: they may not have been received before a restart
}

// ending is the outcome of the claims.
type ending uint8

const (
	endNot ending = iota
	endSettled
	endLost
)

// New returns the claims of a lease. Its core and key set were checked, and its buyer named the funding. It returns
// ErrKeys if claims do not fit into a transaction.
func New(
	net escrow.Net, core market.LeaseCore, keys market.KeySet, f escrow.Funding, when escrow.When, p escrow.Params,
) (Claims, error) {
	c := Claims{params: p, when: when, queue: escrow.NewQueue(),
		leaf: leaf{net: net, core: core, keys: keys, funding: f, escrow: net.EscrowOf(core, f)}}
	return c, c.check()
}

// Lease is the lease of these claims.
func (c Claims) Lease() market.LeaseCore { return c.core }

// Funding is where its money lies.
func (c Claims) Funding() escrow.Funding { return c.funding }

// Owed is the known total to claim.
func (c Claims) Owed() market.Amount {
	amount, _ := c.target()
	return amount
}

// Paid is the finalized total of payments, before the fee.
func (c Claims) Paid() market.Amount { return c.paid }

// Over reports whether the claims have ended. Lost reports whether a part was not paid. See Done.
func (c Claims) Over() (over, lost bool) { return c.end != endNot, c.end == endLost }

// Done reports whether the claims have ended, and the provider has no accounts left on chain.
func (c Claims) Done() bool { return c.end != endNot && c.table.slot == 0 }

// Reason is the error of the last attempt, or else the event that is awaited; empty when all goes well.
func (c Claims) Reason() string {
	if c.queue.Reason != "" {
		return c.queue.Reason
	}
	return c.waits
}

// Next is the time of the next Ticked; zero means none. At the beginning, and after restoring, Ticked is due
// immediately.
func (c Claims) Next() time.Time {
	switch {
	case c.Done():
		return time.Time{}
	case c.looking: // the answer sets the time of the next Look
		return c.queue.Soonest(time.Time{})
	}
	return c.queue.Soonest(c.lookAt)
}

// Retired reports whether, in a view of the funding's tranche, the lease's money is being taken back, or was. Amounts
// earned later than the network's response slots allow can then no longer be claimed.
func (c Claims) Retired(v escrow.View) bool {
	leaf, _, err := c.in(v)
	return err == nil && (leaf.Window != 0 || leaf.Freed != 0) || errors.Is(err, escrow.ErrRefunded)
}

// target is the total to claim in the end, once that is certain.
func (c *Claims) target() (amount market.Amount, certain bool) { return c.vouchers.target(c.all()) }

// settle ends the claims if the whole amount is paid and finalized, and no pending claim can add to it.
func (c *Claims) settle() []escrow.Effect {
	more := c.queue.Under(func(t escrow.Task) bool {
		return t.Kind == escrow.TaskClaim && min(t.Amount, c.all()) > c.paid
	})
	if target, certain := c.target(); certain && c.paid >= target && c.end == endNot && !more {
		return c.finish(endSettled, "")
	}
	return nil
}

// lose ends the claims if nothing more can be claimed, unless a pending claim could have landed in time.
func (c *Claims) lose(reason string) []escrow.Effect {
	if c.queue.Under(claims) {
		return nil
	}
	target, _ := c.target()
	c.paid = max(c.paid, min(c.landedAmount, target))
	if c.paid >= target {
		return c.finish(endSettled, "")
	}
	return c.finish(endLost, reason)
}

// because is a reason for which money is lost, with why the last attempt to claim it failed.
func because(last, reason string) string {
	if last == "" {
		return reason
	}
	return "not claimed in time: " + last + "; " + reason
}

// claims selects the tasks of a claim, and of its prerequisite.
func claims(t escrow.Task) bool { return t.Kind == escrow.TaskClaim || t.Kind == escrow.TaskOpenToken }

func (c *Claims) finish(as ending, reason string) []escrow.Effect {
	c.queue.Drop(claims)
	c.end, c.queue.Reason, c.waits, c.lookAt = as, "", "", time.Time{}
	c.lostBy = escrow.Clip(reason)
	return c.reportEnd()
}

func (c *Claims) reportEnd() []escrow.Effect {
	if c.end == endSettled {
		return []escrow.Effect{escrow.Settled{Lease: c.core.ID(), Paid: c.paid}}
	}
	target, _ := c.target()
	return []escrow.Effect{escrow.Lost{Lease: c.core.ID(), Paid: c.paid, Owed: target, Reason: c.lostBy,
		Unfunded: c.landed == 0 && c.landedAmount == 0}}
}

// replay repeats final events, once after a restart.
func (c *Claims) replay() (effects []escrow.Effect) {
	c.repeat = false
	if c.paid > 0 {
		effects = append(effects, escrow.Paid{Lease: c.core.ID(), Cumulative: c.paid})
	}
	if c.end != endNot {
		effects = append(effects, c.reportEnd()...)
	}
	return effects
}
