package escrow

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

const (
	hiredTogether = 2   // tranches that one transaction of a Hire opens: 8 leaves
	maxHired      = 256 // leases that a Deposit believes to be hired
)

// Hiring is the constant part of a supervisor's hiring for an escrow while its buyer is away.
type Hiring struct {
	Order      market.OrderID // of the escrow; the leases name later ones
	Buyer      sign.Key       // its opener
	Opened     uint64         // the slot in its address
	Deadline   market.Slot    // its deadline
	Keys       market.KeySet  // its voucher keys, of which a threshold sign every hire
	LeaseBuyer sign.Key       // the buyer that leases name; zero means Buyer
	Hirer      sign.Key       // the ledger's key: pays fees, and rent that comes back to it
}

// Hire sets an escrow's money aside for standbys, with signatures of its voucher keys. The supervisor that replaces a
// job's buyer uses it. It is a Deposit that neither opens nor fills nor empties its escrow, and its events are a
// Deposit's, except Hired. Fund requests leases of standbys, whose Deadline and Deposit mean nothing here; Retire gives
// them up. End gives up all, and ends when nothing that the hirer paid rent for is left. Its effects are Funded, Void
// and Closed.
//
// Its transactions are signed by the ledger's key and a threshold of voucher keys, which Drive gets as others. It takes
// the ones with the hirer's own, and after each failure the next ones, so that some may be away. The ledger's key signs
// before any other, and its signature is given to nobody: a transaction signed by others cannot be sent before it is in
// the journal.
type Hire struct{ d Deposit }

// NewHire returns a Hire for an escrow from which this machine has hired nothing yet. It returns ErrEvent for an
// impossible escrow.
func NewHire(net Net, h Hiring, p Params) (Hire, error) {
	d := Deposit{net: net, params: p, hirer: h.Hirer, deadline: h.Deadline, opened: h.Opened, fleet: fleet{number: 1},
		asked: 1, deal: Deal{Order: h.Order, Buyer: h.Buyer, Keys: h.Keys, LeaseBuyer: h.LeaseBuyer}}
	if h.Hirer.IsZero() {
		return Hire{}, fmt.Errorf("%w: nobody hires", ErrEvent)
	}
	if err := d.check(); err != nil {
		return Hire{}, err
	}
	return Hire{d.named(h.Opened)}, nil
}

// RestoreHire parses the journal form, which is a Deposit's. It refuses, with market.ErrMalformed, states that Step
// cannot reach. Send Ticked next.
func RestoreHire(b []byte, net Net, p Params) (Hire, error) {
	d, err := restore(b, net, p, true)
	return Hire{d}, err
}

// Step takes one event and returns the next state and its effects, in order. On an error the state is unchanged.
// Errors: ErrEvent, ErrLease, ErrTooMany, ErrEnding, ErrReceipt, ErrDeadline, market.ErrOverflow.
func (h Hire) Step(now time.Time, ev Event) (Hire, []Effect, error) {
	if _, deposit := ev.(Hired); deposit {
		return h, nil, fmt.Errorf("%w: a hire takes no %T", ErrEvent, ev)
	}
	d, effects, err := h.d.Step(now, ev)
	return Hire{d}, effects, err
}

// Marshal gives the journal form. A hire has one.
func (h Hire) Marshal() []byte { return h.d.Marshal() }

// Next is when Ticked should come. Zero: nothing to wait for. After restoring, Ticked should come at once.
func (h Hire) Next() time.Time { return h.d.Next() }

// Escrow is the address that vouchers name.
func (h Hire) Escrow() sign.Key { return h.d.at }

// Funding says where a lease's money lies, or is to lie, as Deposit.Funding does.
func (h Hire) Funding(lease market.LeaseID) (f Funding, ok bool) { return h.d.Funding(lease) }

// Closed reports whether it is over: End was received, and the hirer's rent is back.
func (h Hire) Closed() bool { return h.d.closed }

// Ending reports whether End was received.
func (h Hire) Ending() bool { return h.d.ending }

// Reason is the error of the last attempt, or else the event that is awaited; empty when all goes well.
func (h Hire) Reason() string { return h.d.Reason() }

// standbysFor finds the standby to hire for each leaf. A failure is permanent, as budgets only shrink.
func standbysFor(v View, leaves []tranche.Leaf) (out []program.StandbyLeaf, err error) {
	switch {
	case v.Escrow == nil:
		return nil, ErrNoEscrow
	case v.Escrow.State != program.EscrowOpen:
		return nil, ErrRefunded
	}
	spent := make([]market.Amount, len(v.Escrow.Standbys))
	for _, l := range leaves {
		no := fmt.Errorf("%w: %s, paid as %s", ErrStandby, l.Provider.Short(), l.Payout.Short())
		switch {
		case uint64(l.End) > v.Escrow.Deadline:
			return nil, fmt.Errorf("%w: lease %s ends at %d, the escrow's deadline is %d",
				ErrStandby, l.Lease.Short(), l.End, v.Escrow.Deadline)
		case l.Start < v.Slot && uint64(v.Slot-l.Start) > program.OpeningSlots:
			return nil, fmt.Errorf("%w: lease %s began at %d, too long before %d",
				ErrStandby, l.Lease.Short(), l.Start, v.Slot)
		}
		for i, s := range v.Escrow.Standbys {
			switch left := s.Budget - min(s.Budget, spent[i]); {
			case s.Provider != l.Provider || s.Payout != l.Payout:
			case l.Rate > s.MaxRate:
				no = fmt.Errorf("%w: %s for %d a million slots, at most %d",
					ErrStandby, l.Provider.Short(), l.Rate, s.MaxRate)
			case l.Cap > left:
				no = fmt.Errorf("%w: %s for up to %d, %d are left of its budget",
					ErrStandby, l.Provider.Short(), l.Cap, left)
			default:
				spent[i] += l.Cap
				out, no = append(out, program.StandbyLeaf{Standby: uint8(i), Lease: l.Lease, Rate: l.Rate, Cap: l.Cap,
					Start: l.Start, End: l.End}), nil
			}
			if no == nil {
				break
			}
		}
		if no != nil {
			return nil, no
		}
	}
	return out, nil
}

// enough reports whether the escrow's money is. It may be later, when leases were retired.
func enough(v View, leaves []tranche.Leaf) error {
	var sum market.Amount
	for _, l := range leaves {
		var err error
		if sum, err = sum.Add(l.Cap); err != nil {
			return fmt.Errorf("%w: %w", ErrFree, err)
		}
	}
	if have := free(v); have < sum {
		return fmt.Errorf("%w: %d, %d needed", ErrFree, have, sum)
	}
	return nil
}

// hires reports whether this is a Hire's.
func (d *Deposit) hires() bool { return !d.hirer.IsZero() }

func (d *Deposit) check() error {
	switch {
	case !d.hires():
		return d.deal.check()
	case d.opened == 0 || d.deadline == 0 || !d.deal.Source.IsZero() || !d.deal.RefundOwner.IsZero() ||
		!d.deal.Referrer.IsZero() || len(d.deal.Standbys) > 0:
		return fmt.Errorf("%w: an escrow opened in slot %d, with the deadline %d", ErrEvent, d.opened, d.deadline)
	}
	return d.deal.checkKeys()
}

// fit is the number of leaves that the tranches of a number of leases have together. Tranches of voucher keys have
// other trees than those of the buyer.
func (d *Deposit) fit(leases int, hired bool) int {
	if hired || d.hires() {
		return min(LeavesFit(d.deal.Keys), program.MaxStandbyLeaves)
	}
	return leavesOf(d.deal.Keys, leases)
}

// most is how many leases one transaction sets money aside for.
func (d *Deposit) most() int {
	if d.hires() {
		return d.fit(0, true) * hiredTogether
	}
	return LeavesFit(d.deal.Keys) * maxTogether
}

// shared reports whether others may open tranches too.
func (d *Deposit) shared() bool { return d.hires() || len(d.deal.Standbys) > 0 }

// retirers are the keys that sign that a leaf is retired.
func (d *Deposit) retirers(fails uint8) []sign.Key {
	if d.hires() {
		return d.voters(fails)
	}
	return []sign.Key{d.deal.Buyer}
}

// voters is a threshold of voucher keys, ascending: with the hirer's own, if it has one, and after each failure others.
func (d *Deposit) voters(fails uint8) []sign.Key {
	var sets [][]sign.Key
	var own uint
	for i, k := range d.deal.Keys.Keys {
		if k == d.hirer {
			own = 1 << i
		}
	}
	for set := range uint(1) << len(d.deal.Keys.Keys) {
		if bits.OnesCount(set) != int(d.deal.Keys.Threshold) || set&own != own {
			continue
		}
		var keys []sign.Key
		for i, k := range d.deal.Keys.Keys {
			if set&(1<<i) != 0 {
				keys = append(keys, k)
			}
		}
		sets = append(sets, keys)
	}
	return sets[int(fails)%len(sets)]
}

// gone reports whether nothing is left that an ended Hire paid rent for, and nothing can come.
func (d *Deposit) gone(c, f View) bool {
	if !d.ending || len(d.fleet.flights) > 0 || d.flying() || f.Slot < d.landed {
		return false
	}
	for _, v := range []View{c, f} {
		for _, t := range v.Tranches {
			if t.RentPayer == d.hirer {
				return false
			}
		}
	}
	return true
}

// hear records leases that the voucher keys are reported to have hired.
func (d *Deposit) hear(ev Hired) (change bool, err error) {
	known, total := d.known(ev.Leases), len(ev.Leases)
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
		return false, fmt.Errorf("%w: some are known", ErrLease)
	case len(ev.Leases) == 0:
		return false, fmt.Errorf("%w: no leases", ErrEvent)
	case len(ev.Leases) > fit || total > maxHired:
		return false, fmt.Errorf("%w: %d hired, at most %d together and %d in all",
			ErrTooMany, len(ev.Leases), fit, maxHired)
	}
	b := batch{stage: stageWanted, hired: true}
	var sum market.Amount
	for i, core := range ev.Leases {
		if !d.names(core) {
			return false, fmt.Errorf("%w: %s is of another buyer or key set, or malformed", ErrLease, core.ID().Short())
		}
		if sum, err = sum.Add(core.Cap); err != nil {
			return false, err
		}
		b.leases = append(b.leases, entry{leaf: tranche.LeafOf(core, uint16(i)), before: core.ActivateBefore})
	}
	if err := b.build(fit); err != nil {
		return false, err
	}
	d.batches = append(d.batches, b)
	return true, nil
}

// adopt finds batches that stand under another number than their own, or had none: the voucher keys hired them for a
// Deposit, or for another supervisor.
func (d *Deposit) adopt(v View) {
	for i := range d.batches {
		b := &d.batches[i]
		if _, there := b.landedIn(v); there || b.stage == stageFunded || !b.hired && !d.hires() || d.underBatch(i) ||
			v.Escrow == nil {
			continue
		}
		for k := range v.Escrow.Tranches {
			if t, ok := v.Tranches[k]; ok && rootOf(t) == b.trees[0].Root() {
				b.first = k
				break
			}
		}
	}
}

// owner is the batch of a tranche that is there, and which of its trees it is; own says that it has the batch's number.
// Nil: nobody knows its leaves here.
func (d *Deposit) owner(t program.Tranche) (b *batch, tree int, own bool) {
	root := rootOf(t)
	for i := range d.batches {
		for k, x := range d.batches[i].trees {
			if x.Root() == root {
				return &d.batches[i], k, d.batches[i].first+uint16(k) == t.Index
			}
		}
	}
	return nil, 0, false
}

// planStrangers recovers the money in tranches of no batch. At the end these are unreported hires of the voucher keys;
// at once it is the second tranche of leases that have one, so that they are not paid for twice. Unknown leaves can be
// retired, but their unclaimed money comes back only after the deadline.
func (d *Deposit) planStrangers(c View, add asking) {
	if d.over(c) || c.Escrow.State != program.EscrowOpen {
		return
	}
	for k := range c.Escrow.Tranches {
		t, ok := c.Tranches[k]
		if !ok || t.Outstanding == 0 {
			continue
		}
		b, tree, own := d.owner(t)
		twice := false
		if b != nil {
			_, twice = b.landedIn(c)
		}
		if own || !twice && (!d.ending || d.hires()) {
			continue
		}
		for i, s := range t.Leaves {
			leaf := uint16(i)
			over := t.Opened + uint64(s.Window)
			switch {
			case s.Window == 0:
				add(task{kind: kindBegin, tranche: k, leaf: leaf}, 0, func(fails uint8) []program.Instruction {
					return []program.Instruction{program.RetireBegin{Escrow: d.at, Tranche: d.tranche(k),
						Network: d.net.address, Signers: d.retirers(fails), Index: leaf}.Instruction(d.net.Program)}
				})
			case uint64(c.Slot) <= over:
				d.reasonFor = fmt.Sprintf("providers may claim until slot %d", over)
			case b == nil:
				d.reasonFor = fmt.Sprintf("what guardians hired is not known: the rest comes back after slot %d",
					c.Escrow.Deadline+d.net.margin())
			default:
				j := tree*d.fit(len(b.leases), b.hired) + i
				if b.leases[j].left(s) == 0 {
					continue
				}
				add(task{kind: kindFinish, tranche: k, leaf: leaf}, market.Amount(b.leases[j].left(s)),
					func(uint8) []program.Instruction {
						return []program.Instruction{program.RetireFinish{Escrow: d.at, Tranche: d.tranche(k),
							Leaf: b.leases[j].leaf, Proof: d.funding(b, j).Proof}.Instruction(d.net.Program)}
					})
			}
		}
	}
}

// retiring reports whether a tranche that is no batch's can still be had back before the deadline.
func (d *Deposit) retiring(f View) bool {
	for _, t := range f.Tranches {
		b, _, own := d.owner(t)
		if own || t.Outstanding == 0 {
			continue
		}
		for _, s := range t.Leaves {
			if b != nil || s.Window == 0 || uint64(f.Slot) <= t.Opened+uint64(s.Window) {
				return true
			}
		}
	}
	return false
}

// hopeless says why no standbys can ever be hired for a batch; nil: they may be, or are.
func (d *Deposit) hopeless(b *batch, f View) error {
	if !d.hires() || f.Escrow == nil {
		return nil
	}
	_, err := standbysFor(f, b.leaves())
	if errors.Is(err, ErrNoEscrow) {
		return nil
	}
	return err
}
