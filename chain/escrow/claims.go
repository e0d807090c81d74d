package escrow

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// When says how much a provider lets run up before it claims. It is not part of the machine's state.
type When struct {
	Amount market.Amount // claim when so much is earned and not claimed
	Slots  uint64        // or when so many slots have passed since the last claim
}

// Claims are a provider's, for one lease: a value; Step returns the next one.
type Claims struct {
	net     Net
	params  Params
	when    When
	core    market.LeaseCore
	keys    market.KeySet
	funding Funding
	escrow  sign.Key

	best    *verify.SignedVoucher // highest number; values behind pointers are never changed
	earned  *verify.SignedVoucher // the newest known to be earned, or else the first
	next    *verify.SignedVoucher // between the two: the best of when earned last changed, which is earned next
	closing *verify.SignedVoucher // the final one
	over    bool                  // LeaseOver was received
	owed    market.Amount         // by then
	sure    market.Amount         // amount that both sides have signed for
	paid    market.Amount         // for ever
	flown   market.Amount         // sum of our finalized claims, if nothing was freed
	landed  market.Slot           // of the tranche, for ever; 0: it was not seen
	final   market.Slot           // newest final view
	flewAt  market.Slot           // newest slot in which a claim landed for ever
	asked   market.Slot           // when the last claim was signed
	end     ending
	lostBy  string // why, when it ended so
	table   table
	fleet   fleet
	apart   bool // claim and opening the payout's account do not fit together; not kept over a restart
	open    bool // the payout's account was seen open; not kept either
	looking bool
	lookAt  time.Time
	waits   string
	retell  bool // final events must be repeated: they may not have been received before a restart
}

// ending says how it ended.
type ending uint8

const (
	endNot ending = iota
	endSettled
	endLost
)

// NewClaims returns the claims of a lease. Its core and key set were checked, and its buyer named the funding. It
// returns ErrKeys if claims do not fit into a transaction.
func NewClaims(net Net, core market.LeaseCore, keys market.KeySet, f Funding, when When, p Params) (Claims, error) {
	c := Claims{net: net, params: p, when: when, core: core, keys: keys, funding: f, escrow: net.EscrowOf(core, f),
		fleet: fleet{number: 1}}
	return c, c.check()
}

func (c Claims) check() error {
	if c.core.VoucherKeys != c.keys.Hash() || LeavesFit(c.keys) == 0 {
		return ErrKeys
	}
	if f := c.funding; int(f.Index) >= LeavesFit(c.keys) || len(f.Proof) > tranche.MaxDepth || f.Tranche == 1<<16-1 ||
		f.Buyer.IsZero() != f.Order.IsZero() {
		return fmt.Errorf("%w: funding", ErrEvent)
	}
	return nil
}

// Lease is the lease of these claims.
func (c Claims) Lease() market.LeaseCore { return c.core }

// Funding is where its money lies.
func (c Claims) Funding() Funding { return c.funding }

// Owed is the known total to claim.
func (c Claims) Owed() market.Amount {
	amount, _ := c.target()
	return amount
}

// Paid is the finalized total of payments, before the fee.
func (c Claims) Paid() market.Amount { return c.paid }

// Over reports that nothing is left to claim; lost, that not all was paid. See Done.
func (c Claims) Over() (over, lost bool) { return c.end != endNot, c.end == endLost }

// Reason is the error of the last attempt, or else the event that is awaited; empty when all goes well.
func (c Claims) Reason() string {
	if c.fleet.reason != "" {
		return c.fleet.reason
	}
	return c.waits
}

// Next is when Ticked should come. Zero: nothing to wait for. At the beginning, and after restoring, Ticked should come
// at once.
func (c Claims) Next() time.Time {
	switch {
	case c.Done():
		return time.Time{}
	case c.looking: // the answer says when to look again
		return c.fleet.soonest(time.Time{})
	}
	return c.fleet.soonest(c.lookAt)
}

// Retired reports whether, in a view of the funding's tranche, the lease's money is being taken back, or was. Amounts
// earned later than the network's response slots allow can then no longer be claimed.
func (c Claims) Retired(v View) bool {
	leaf, _, err := c.leafIn(v)
	return err == nil && (leaf.Window != 0 || leaf.Freed != 0) || errors.Is(err, ErrRefunded)
}

// Step takes one event and returns the next state and its effects, in order. On an error the state is unchanged.
// Errors: ErrEvent, ErrVoucher.
func (c Claims) Step(now time.Time, ev Event) (Claims, []Effect, error) {
	next := c
	next.fleet = c.fleet.clone()
	change, effects, err := next.apply(now, ev)
	if err != nil {
		return c, nil, err
	}
	if next.end != endNot && !next.Done() && next.lookAt.IsZero() {
		next.lookAt = now
	}
	if change {
		effects = append([]Effect{Persist{State: next.Marshal()}}, effects...)
	}
	return next, effects, nil
}

func (c *Claims) apply(now time.Time, ev Event) (change bool, effects []Effect, err error) {
	if _, tick := ev.(Ticked); tick && c.retell {
		effects = c.recall()
	}
	if c.end != endNot {
		change, more, err := c.windUp(now, ev)
		return change, append(effects, more...), err
	}
	switch ev := ev.(type) {
	case VoucherKept:
		if change, err = c.keep(ev.Voucher, ev.Earned); err != nil || !change {
			return false, nil, err
		}
		return true, append(c.settle(), c.soon(now)...), nil
	case LeaseOver:
		change = !c.over
		c.over, c.owed = true, max(c.owed, ev.Owed)
		return change, append(c.settle(), c.soon(now)...), nil
	case Signed:
		effects, change, tooLong := c.fleet.signed(now, c.params, ev, func(task) bool { return true })
		c.unsigned()
		for _, t := range tooLong {
			if t.kind == kindClaim && !c.apart { // once more, in two
				c.apart = true
				c.fleet.succeeded(t)
				return change, c.look(), nil
			}
		}
		return change, effects, nil
	case Pushed:
		return c.pushed(now, ev)
	case Looked:
		return c.looked(now, ev)
	case Ticked:
		effects = append(effects, c.fleet.tick(now, c.params, func(task) bool { return true })...)
		if c.lookAt.IsZero() || !now.Before(c.lookAt) {
			effects = append(effects, c.look()...)
		}
		return false, effects, nil
	}
	return false, nil, fmt.Errorf("%w: claims take no %T", ErrEvent, ev)
}

// keep adds a voucher and the earned amount.
func (c *Claims) keep(v verify.SignedVoucher, earned market.Amount) (change bool, err error) {
	if err := v.Check(c.net.Domain(), c.core); err != nil {
		return false, fmt.Errorf("%w: %w", ErrVoucher, err)
	}
	if v.Escrow != c.escrow {
		return false, fmt.Errorf("%w: of escrow %s, not %s", ErrVoucher, v.Escrow, c.escrow)
	}
	if earned > c.sure {
		c.sure, change = earned, true
	}
	if c.next != nil && c.next.Cumulative <= c.sure {
		c.earned, c.next = c.next, nil
	}
	switch {
	case v.Final():
		if c.closing != nil {
			return change, nil
		}
		c.closing = &v
	case c.best == nil:
		c.best = &v
	case v.Seq <= c.best.Seq:
		return change, nil
	default:
		switch { // several vouchers are paid ahead, so that the best may not be earned for long
		case c.earned == nil || c.best.Cumulative <= c.sure:
			c.earned, c.next = c.best, nil
		case c.next == nil:
			c.next = c.best
		}
		c.best = &v
	}
	return true, nil
}

// soon looks at the next opportunity: the wiring ticks at Next.
func (c *Claims) soon(now time.Time) []Effect {
	if c.end == endNot && (c.closing != nil || c.over) {
		return c.look()
	}
	if c.lookAt.IsZero() {
		c.lookAt = now
	}
	return nil
}

func (c *Claims) look() []Effect {
	if c.looking || c.Done() {
		return nil
	}
	c.looking = true
	return []Effect{Look{Escrow: c.escrow, Tranches: []uint16{c.funding.Tranche}}}
}

func (c *Claims) pushed(now time.Time, ev Pushed) (change bool, effects []Effect, err error) {
	x, status, known, over, effects := c.fleet.pushed(now, c.params, ev)
	if over && status.State == chain.Finalized {
		c.flewAt = max(c.flewAt, status.Slot)
		switch x.task.kind {
		case kindClaim:
			c.flown = max(c.flown, min(x.task.amount, c.accrued(status.Slot)))
		case kindOpenToken:
			c.open = true
		}
	}
	if over {
		c.tabled(x, status)
	}
	if known && x.task.kind == kindOpenToken && x.state == chain.Confirmed {
		c.open = true
	}
	if over && x.task.kind == kindClaim && status.State != chain.Finalized {
		c.open = false
	}
	if known || over {
		effects = append(effects, c.look()...)
	}
	return over, effects, nil
}

// accrued is the cost of the lease's slots up to now.
func (c *Claims) accrued(now market.Slot) market.Amount {
	passed := min(max(now, c.core.Start), c.core.End) - c.core.Start
	owed, err := c.core.Rate.Owed(uint64(passed))
	if err != nil {
		return c.core.Cap // the core was checked, so this cannot be
	}
	return min(owed, c.core.Cap)
}

// target is the total to claim in the end, once that is certain.
func (c *Claims) target() (amount market.Amount, certain bool) {
	switch all := c.accrued(c.core.End); {
	case c.closing != nil:
		return min(c.closing.Cumulative, all), true
	case c.best != nil:
		amount = min(c.best.Cumulative, all)
	}
	if c.over {
		return min(amount, c.owed), true
	}
	return amount, false
}

// settle ends it when all that there is to claim is paid for ever, and no claim under way can add to that.
func (c *Claims) settle() []Effect {
	more := c.fleet.under(func(t task) bool {
		return t.kind == kindClaim && min(t.amount, c.accrued(c.core.End)) > c.paid
	})
	if target, certain := c.target(); certain && c.paid >= target && c.end == endNot && !more {
		return c.finish(endSettled, "")
	}
	return nil
}

// lose ends it when nothing more can be claimed, unless a claim under way could have been in time.
func (c *Claims) lose(reason string) []Effect {
	if c.claiming() {
		return nil
	}
	target, _ := c.target()
	c.paid = max(c.paid, min(c.flown, target))
	if c.paid >= target {
		return c.finish(endSettled, "")
	}
	return c.finish(endLost, reason)
}

// because is a reason for which money is lost, with why the last attempt to claim it failed.
func (c *Claims) because(reason string) string {
	if c.fleet.reason == "" {
		return reason
	}
	return "it could not be claimed in time: " + c.fleet.reason + "; " + reason
}

// claiming reports whether a claim, or its prerequisite, is under way.
func (c *Claims) claiming() bool {
	return c.fleet.under(func(t task) bool { return t.kind == kindClaim || t.kind == kindOpenToken })
}

func (c *Claims) finish(as ending, reason string) []Effect {
	c.fleet.drop(func(x flight) bool { return x.task.kind == kindClaim || x.task.kind == kindOpenToken })
	c.end, c.fleet.reason, c.waits, c.lookAt = as, "", "", time.Time{}
	c.lostBy = clip(reason)
	return c.tellEnd()
}

func (c *Claims) tellEnd() []Effect {
	if c.end == endSettled {
		return []Effect{Settled{Lease: c.core.ID(), Paid: c.paid}}
	}
	target, _ := c.target()
	return []Effect{Lost{Lease: c.core.ID(), Paid: c.paid, Owed: target, Reason: c.lostBy,
		Unfunded: c.landed == 0 && c.flown == 0}}
}

// recall repeats final events, once after a restart.
func (c *Claims) recall() (effects []Effect) {
	c.retell = false
	if c.paid > 0 {
		effects = append(effects, Paid{Lease: c.core.ID(), Cumulative: c.paid})
	}
	if c.end != endNot {
		effects = append(effects, c.tellEnd()...)
	}
	return effects
}
