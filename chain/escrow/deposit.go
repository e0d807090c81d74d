package escrow

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// Limits of one Deposit.
const (
	MaxLeases   = 4096 // over its life
	maxTogether = 6    // tranches that one transaction opens
)

// Deal is the constant part of a buyer's escrow. The ledger's key is the buyer.
type Deal struct {
	Order       market.OrderID
	Buyer       sign.Key // pays rent, which comes back to it, and fees
	Source      sign.Key // token account that deposits come from; the buyer is its owner or delegate
	RefundOwner sign.Key // wallet with the associated token account for refunds
	Referrer    sign.Key // wallet; zero: none
	Keys        market.KeySet
	Standbys    []program.Standby
	// LeaseBuyer is the buyer that leases name, if it is not Buyer: the key of a job that outlives its buyer's absence.
	// Zero means Buyer.
	LeaseBuyer sign.Key
}

// leaseBuyer is the buyer that leases name.
func (d Deal) leaseBuyer() sign.Key {
	if d.LeaseBuyer.IsZero() {
		return d.Buyer
	}
	return d.LeaseBuyer
}

// Deposit is a buyer's escrow for one order, from the first lease to the last lamport: a value; Step returns the next
// one.
type Deposit struct {
	net    Net
	params Params
	deal   Deal
	hirer  sign.Key // of a Hire: the ledger's key, which is not the buyer's then. Zero: it is a buyer's deposit

	opened    uint64      // slot in the address; 0: none was chosen
	at, vault sign.Key    // which it makes
	deadline  market.Slot // fixed once opened is chosen
	seen      bool        // there is, or was, such an escrow, for ever
	final     market.Slot // newest final view: an older one is of a node that lags
	ending    bool
	closed    bool
	refunded  market.Amount // for ever
	batches   []batch
	fleet     fleet
	landed    market.Slot // a view of before this slot lacks something that is final
	asked     uint16      // tranches from the first that are looked at; not kept over a restart
	apart     bool        // the opening and the first tranches do not fit together; not kept over a restart
	back      bool        // money that nobody can claim is refunded, finally; not kept over a restart
	looking   bool        // Look was not answered yet
	lookAt    time.Time
	reasonFor string // the event that is awaited
	retell    bool   // final events must be repeated: they may not have been received before a restart
}

// NewDeposit is the escrow of an order for which nothing was funded yet. ErrEvent for a deal that no escrow can be
// opened for.
func NewDeposit(net Net, deal Deal, p Params) (Deposit, error) {
	if err := deal.check(); err != nil {
		return Deposit{}, err
	}
	deal.Standbys = slices.Clone(deal.Standbys)
	return Deposit{net: net, params: p, deal: deal, fleet: fleet{number: 1}, asked: 1}.named(0), nil
}

// named chooses the slot in the address. (Addresses take long to find.)
func (d Deposit) named(opened uint64) Deposit {
	d.opened, d.at = opened, d.net.Escrow(d.deal.Buyer, d.deal.Order, opened)
	d.vault = program.VaultAddress(d.net.Program, d.at)
	return d
}

func (d Deal) check() error {
	switch {
	case d.Source.IsZero() || d.RefundOwner.IsZero():
		return fmt.Errorf("%w: deal: source and refund owner must be set", ErrEvent)
	case len(d.Standbys) > program.MaxStandbys:
		return fmt.Errorf("%w: deal: too many standbys", ErrEvent)
	}
	return d.checkKeys()
}

// checkKeys checks the rules that a Hire's deal must keep, too.
func (d Deal) checkKeys() error {
	switch {
	case d.Order.IsZero() || d.Buyer.IsZero():
		return fmt.Errorf("%w: deal: order and buyer must be set", ErrEvent)
	case d.Keys.Validate() != nil || len(d.Keys.Keys) > program.MaxVoucherKeys || LeavesFit(d.Keys) == 0:
		return fmt.Errorf("%w: deal: voucher keys", ErrEvent)
	}
	return nil
}

// Deal is the deal that it was made with.
func (d Deposit) Deal() Deal { return d.deal }

// Escrow is the address that vouchers name; ok is false before it is decided.
func (d Deposit) Escrow() (escrow sign.Key, ok bool) {
	return d.at, d.opened != 0
}

// Deadline is the slot after which, and the network's margin, everything goes back.
func (d Deposit) Deadline() market.Slot { return d.deadline }

// Refunded is the finalized amount of refunds, as far as was seen.
func (d Deposit) Refunded() market.Amount { return d.refunded }

// Owing returns the sum that unseen transactions are to take from the deal's Source.
func (d Deposit) Owing() (sum market.Amount) {
	for i := range d.batches {
		b := &d.batches[i]
		if b.stage == stageWanted && b.pursued(&d) || b.stage == stageSigned && b.near == 0 && b.opened == 0 {
			sum = sum.Plus(max(b.deposit, b.caps()))
		}
	}
	return sum
}

// Closed reports that it is over and nothing is left on chain.
func (d Deposit) Closed() bool { return d.closed }

// Back reports whether End was received and everything that can come back without the providers is refunded, finally.
// They can claim the rest.
func (d Deposit) Back() bool { return d.closed || d.ending && d.back }

// Landed reports whether the money of a lease was seen on chain in time. It is permanent once Funded was reported with
// Final; before that it may in rare cases be forked away.
func (d Deposit) Landed(lease market.LeaseID) bool {
	for i := range d.batches {
		b := &d.batches[i]
		for _, e := range b.leases {
			if e.leaf.Lease == lease {
				return !e.void &&
					(b.stage == stageFunded || b.stage == stageSigned && b.near != 0 && b.near <= e.before)
			}
		}
	}
	return false
}

// Ending reports whether End was received.
func (d Deposit) Ending() bool { return d.ending }

// Reason is the error of the last attempt, or else the event that is awaited; empty when all goes well.
func (d Deposit) Reason() string {
	if d.fleet.reason != "" {
		return d.fleet.reason
	}
	return d.reasonFor
}

// Funding says where a lease's money lies, or is to lie; ok is false for one that is not in a signed transaction, or is
// void. Only Funded says that it is there.
func (d Deposit) Funding(lease market.LeaseID) (f Funding, ok bool) {
	for i := range d.batches {
		b := &d.batches[i]
		for j, e := range b.leases {
			if e.leaf.Lease == lease && (b.stage == stageSigned || b.stage == stageFunded) {
				return d.funding(b, j), true
			}
		}
	}
	return Funding{}, false
}

// Void reports that a lease was not on chain in time, for ever.
func (d Deposit) Void(lease market.LeaseID) bool {
	e := d.entry(lease)
	return e != nil && e.void
}

func (d *Deposit) funding(b *batch, j int) Funding {
	n := j / d.fit(len(b.leases), b.hired)
	leaf := b.leases[j].leaf
	proof, err := b.trees[n].Prove(int(leaf.Index))
	if err != nil {
		panic("escrow: " + err.Error()) // build made the leaf with this index
	}
	f := Funding{Opened: d.opened, Tranche: b.first + uint16(n), Index: leaf.Index, Proof: proof}
	if d.hires() || b.hired || d.deal.leaseBuyer() != d.deal.Buyer {
		f.Buyer, f.Order = d.deal.Buyer, d.deal.Order
	}
	return f
}

// Next is when Ticked should come. Zero: nothing to wait for. After restoring, Ticked should come at once.
func (d Deposit) Next() time.Time {
	switch {
	case d.closed:
		return time.Time{}
	case d.looking: // the answer says when to look again
		return d.fleet.soonest(time.Time{})
	}
	return d.fleet.soonest(d.lookAt)
}

// Step takes one event and returns the next state and its effects, in order. On an error the state is unchanged.
// Errors: ErrEvent, ErrLease, ErrTooMany, ErrEnding, ErrReceipt, ErrDeadline, market.ErrOverflow.
func (d Deposit) Step(now time.Time, ev Event) (Deposit, []Effect, error) {
	next := d
	next.batches = slices.Clone(d.batches)
	for i := range next.batches {
		next.batches[i].leases = slices.Clone(next.batches[i].leases)
	}
	next.fleet = d.fleet.clone()
	change, effects, err := next.apply(now, ev)
	if err != nil {
		return d, nil, err
	}
	if change {
		effects = append([]Effect{Persist{State: next.Marshal()}}, effects...)
	}
	return next, effects, nil
}

// apply reports whether the journalled state changed.
func (d *Deposit) apply(now time.Time, ev Event) (change bool, effects []Effect, err error) {
	switch ev := ev.(type) {
	case Fund:
		if change, err = d.fund(ev); err != nil {
			return false, nil, err
		}
		return change, d.look(), nil
	case Hired:
		if change, err = d.hear(ev); err != nil {
			return false, nil, err
		}
		return change, d.look(), nil
	case Retire:
		if change, err = d.retire(ev); err != nil {
			return false, nil, err
		}
		return change, d.look(), nil
	case End:
		change, d.ending = !d.ending, true
		return change, d.look(), nil
	case Signed:
		effects, change, tooLong := d.fleet.signed(now, d.params, ev, d.wants)
		for _, t := range tooLong {
			if t.kind == kindOpen && !d.apart { // once more, in two
				d.apart, d.batches[t.tranche].stage = true, stageWanted
				d.fleet.succeeded(t)
				return true, append(effects, d.look()...), nil
			}
		}
		if d.lookAt.IsZero() {
			d.lookAt = now.Add(d.params.LookEvery)
		}
		return change, effects, nil
	case Pushed:
		return d.pushed(now, ev)
	case Looked:
		return d.looked(now, ev)
	case Ticked:
		effects := append(d.recall(), d.fleet.tick(now, d.params, d.wants)...)
		if !d.lookAt.IsZero() && now.Before(d.lookAt) {
			return false, effects, nil
		}
		return false, append(effects, d.look()...), nil
	}
	return false, nil, fmt.Errorf("%w: a deposit takes no %T", ErrEvent, ev)
}

// look asks for the escrow, unless there is no reason to.
func (d *Deposit) look() []Effect {
	if d.closed || !d.busy() {
		d.lookAt = time.Time{}
		return nil
	}
	if d.looking {
		return nil
	}
	d.looking = true
	tranches := make([]uint16, d.asked)
	for i := range tranches {
		tranches[i] = uint16(i)
	}
	return []Effect{Look{Escrow: d.at, Tranches: tranches}}
}

// busy reports whether anything is to be done or waited for.
func (d *Deposit) busy() bool {
	return d.ending || len(d.fleet.flights) > 0 || slices.ContainsFunc(d.batches, func(b batch) bool {
		return b.stage == stageWanted && !b.hired || b.stage == stageSigned ||
			(b.stage == stageFunded || b.hired) && slices.ContainsFunc(b.leases, func(e entry) bool {
				return e.retire && !e.done
			})
	})
}

// wants reports whether a transaction that was signed is still worth sending.
func (d *Deposit) wants(t task) bool {
	if t.kind != kindOpen && t.kind != kindAdd {
		return true
	}
	b := &d.batches[t.tranche]
	// an opening may go before its tranches
	return b.pursued(d) && (b.stage == stageSigned || b.stage == stageWanted && t.kind == kindOpen)
}

// fund takes leases in.
func (d *Deposit) fund(ev Fund) (change bool, err error) {
	if known := d.known(ev.Leases); known == len(ev.Leases) && known > 0 {
		return false, nil // repeated after a crash
	} else if known > 0 {
		return false, fmt.Errorf("%w: some were funded before", ErrLease)
	}
	most, fit, total := d.most(), d.fit(len(ev.Leases), false), len(ev.Leases)
	for _, b := range d.batches {
		total += len(b.leases)
	}
	switch {
	case d.ending:
		return false, ErrEnding
	case len(ev.Leases) == 0:
		return false, fmt.Errorf("%w: no leases", ErrEvent)
	case len(ev.Leases) > most || total > MaxLeases:
		return false, fmt.Errorf("%w: %d, at most %d together and %d in all",
			ErrTooMany, len(ev.Leases), most, MaxLeases)
	}
	deadline := d.deadline
	if d.opened == 0 {
		deadline = max(deadline, ev.Deadline)
	}
	b := batch{stage: stageWanted, deposit: ev.Deposit}
	var sum market.Amount
	for i, core := range ev.Leases {
		if core.Order != d.deal.Order && !d.hires() && d.deal.LeaseBuyer.IsZero() || !d.names(core) {
			return false, fmt.Errorf("%w: %s is of another order, buyer or key set, or malformed",
				ErrLease, core.ID().Short())
		}
		if margin := market.Slot(d.net.margin()); core.End > math.MaxUint64-margin || core.End+margin > deadline {
			return false, fmt.Errorf("%w: slot %d, lease %s ends at %d and %d slots more must be left",
				ErrDeadline, deadline, core.ID().Short(), core.End, margin)
		}
		if sum, err = sum.Add(core.Cap); err != nil {
			return false, err
		}
		b.leases = append(b.leases, entry{leaf: tranche.LeafOf(core, uint16(i%fit)), before: core.ActivateBefore})
	}
	if err := b.build(fit); err != nil {
		return false, err
	}
	d.deadline = deadline
	d.batches = append(d.batches, b)
	return true, nil
}

// names reports whether a lease is well-formed and of the deal's buyer and voucher keys.
func (d *Deposit) names(core market.LeaseCore) bool {
	return core.Buyer == d.deal.leaseBuyer() && core.VoucherKeys == d.deal.Keys.Hash() && core.Validate() == nil
}

func (d *Deposit) retire(ev Retire) (change bool, err error) {
	for _, r := range ev.Leases {
		e := d.entry(r.Lease)
		if e == nil {
			return false, fmt.Errorf("%w: %s was never funded here", ErrLease, r.Lease.Short())
		}
		change = change || !e.retire
		e.retire = true
		if r.Final == nil || e.final != nil {
			continue
		}
		core := r.Final.ReceiptCore
		if !core.Final() || core.Lease != r.Lease || core.Provider != e.leaf.Provider {
			return false, fmt.Errorf("%w: %s", ErrReceipt, r.Lease.Short())
		}
		if err := core.VerifyBy(d.net.Domain(), core.Provider, r.Final.ProviderSig); err != nil {
			return false, fmt.Errorf("%w: %s: %w", ErrReceipt, r.Lease.Short(), err)
		}
		e.final = &finalReceipt{core: core, by: r.Final.ProviderSig}
		e.done, change = false, true
	}
	return change, nil
}
