package verify

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Chain walks the receipts of one lease in order, and alone defines which receipt may follow which. The metering
// machines build their receipts with Next and accept one another's with Follow; CheckChain replays both. A Chain is a
// value; its zero value is not usable, NewChain makes one.
type Chain struct {
	lease market.LeaseCore
	id    market.LeaseID
	last  ReceiptCore // Seq 0: none yet
	prev  sign.Hash
	start market.Slot // From of the first receipt, once there is one
}

// NewChain begins the chain of a lease with a checked core.
func NewChain(lease market.LeaseCore) Chain {
	id := lease.ID()
	return Chain{lease: lease, id: id, prev: sign.Hash(id)}
}

// Resume is the chain of a lease after receipt last, as journalled: the first receipt began at start.
func (c Chain) Resume(last ReceiptCore, start market.Slot) Chain {
	if last.Seq > 0 {
		c.last, c.prev, c.start = last, last.Hash(), start
	}
	return c
}

// Last is the last receipt of the chain; its Seq is 0 if there is none yet.
func (c Chain) Last() ReceiptCore { return c.last }

// Start is the slot in which the first receipt begins; meaningless before there is one.
func (c Chain) Start() market.Slot { return c.start }

// owed is the cost of the lease from start to slot to.
func (c Chain) owed(start, to market.Slot) (market.Amount, *RuleError) {
	owed, err := c.lease.Rate.Owed(uint64(to - start))
	if err != nil {
		return 0, &RuleError{Rule: RuleCumulative, Detail: err.Error(), Err: err}
	}
	return owed, nil
}

// Next is the receipt core for the slots from to to after the chain's last receipt. It fills in all that follows from
// lease and chain; usage, supervision, output and finality are the caller's. The result passes Follow; the error is the
// reason if none can.
func (c Chain) Next(from, to market.Slot, fill func(*ReceiptCore)) (ReceiptCore, error) {
	start := from
	if c.last.Seq > 0 {
		start = c.start
	}
	if from < start || to < from {
		return ReceiptCore{}, broken(RuleTo, "slots %d to %d of a lease that started at %d", from, to, start)
	}
	cumulative, broke := c.owed(start, to)
	if broke != nil {
		return ReceiptCore{}, broke
	}
	r := ReceiptCore{
		Version: ReceiptVersion, Units: c.lease.Units, RankEpoch: c.lease.RankEpoch, Lease: c.id, Seq: c.last.Seq + 1,
		Prev: c.prev, Provider: c.lease.Provider, Buyer: c.lease.Buyer, UnitsRoot: c.lease.UnitsRoot,
		Supervision: c.last.Supervision, From: from, To: to, Amount: cumulative - c.last.Cumulative,
		Cumulative: cumulative,
	}
	fill(&r)
	if broke := c.check(&r); broke != nil {
		return ReceiptCore{}, broke
	}
	return r, nil
}

// Follow checks every rule for r as the next receipt but its signatures, and gives the chain that ends with r.
// The error is a *RuleError.
func (c Chain) Follow(r ReceiptCore) (Chain, error) {
	if broke := c.check(&r); broke != nil {
		return c, broke
	}
	b := r.Marshal()
	return c.advance(r, &b), nil
}

func (c Chain) advance(r ReceiptCore, b *[ReceiptCoreSize]byte) Chain {
	if c.last.Seq == 0 {
		c.start = r.From
	}
	c.last, c.prev = r, hashReceipt(b)
	return c
}

// check is nil when r may follow.
func (c Chain) check(r *ReceiptCore) *RuleError {
	if broke := c.identity(r); broke != nil {
		return broke
	}
	if broke := c.slots(r); broke != nil {
		return broke
	}
	start := c.start
	if c.last.Seq == 0 {
		start = r.From
	}
	cumulative, broke := c.owed(start, r.To)
	switch {
	case broke != nil:
		return broke
	case r.Cumulative != cumulative:
		return broken(RuleCumulative, "%d for %d slots, want by the rate %d", r.Cumulative, r.To-start, cumulative)
	case r.Amount != cumulative-c.last.Cumulative:
		return broken(RuleAmount, "%d for slots %d to %d, want by the rate %d",
			r.Amount, r.From, r.To, cumulative-c.last.Cumulative)
	case r.Cumulative > c.lease.Cap:
		return broken(RuleCap, "%d is over the cap of %d", r.Cumulative, c.lease.Cap)
	}
	return nil
}

func (c Chain) identity(r *ReceiptCore) *RuleError {
	switch {
	case r.Version != ReceiptVersion || r.Flags&^ReceiptFinal != 0:
		return &RuleError{Rule: RuleLease, Detail: "unknown version or flags", Err: market.ErrMalformed}
	case r.Lease != c.id:
		return broken(RuleLease, "of lease %s, not %s", r.Lease.Short(), c.id.Short())
	case c.last.Final():
		return broken(RuleFinal, "receipt %d was the last", c.last.Seq)
	case r.Seq != c.last.Seq+1:
		return broken(RuleSeq, "number %d after %d", r.Seq, c.last.Seq)
	case r.Prev != c.prev:
		return broken(RulePrev, "follows %s, the chain ends with %s", r.Prev.Short(), c.prev.Short())
	case r.Provider != c.lease.Provider || r.Buyer != c.lease.Buyer:
		return broken(RuleParties, "between other peers than the lease")
	case r.Units != c.lease.Units || r.UnitsRoot != c.lease.UnitsRoot:
		return broken(RuleUnits, "%d units under %s, the lease has %d under %s",
			r.Units, r.UnitsRoot.Short(), c.lease.Units, c.lease.UnitsRoot.Short())
	case r.RankEpoch != c.lease.RankEpoch:
		return broken(RuleRankEpoch, "%d, the lease has %d", r.RankEpoch, c.lease.RankEpoch)
	case r.Supervision < c.last.Supervision:
		return broken(RuleSupervision, "%d after %d", r.Supervision, c.last.Supervision)
	}
	return nil
}

func (c Chain) slots(r *ReceiptCore) *RuleError {
	switch {
	case c.last.Seq > 0 && r.From != c.last.To:
		return broken(RuleFrom, "begins at slot %d, want %d", r.From, c.last.To)
	case c.last.Seq == 0 && (r.From < c.lease.Start || r.From > c.lease.ActivateBefore):
		return broken(RuleFrom, "begins at slot %d, want %d to %d", r.From, c.lease.Start, c.lease.ActivateBefore)
	case r.To < r.From || r.To == r.From && !r.Final():
		return broken(RuleTo, "slots %d to %d", r.From, r.To)
	case r.To > c.lease.End:
		return broken(RuleTo, "ends at slot %d, the lease at %d", r.To, c.lease.End)
	}
	return nil
}

// CheckChain checks offline that rs, in order and from the first, is a receipt chain of the lease: every rule of
// [Chain.Follow] and both signatures of every receipt, strictly. The lease core must be that of a checked lease. The
// chain may be incomplete: see the last receipt's Final. The error is a *ChainError; an empty chain breaks rule empty.
//
// The cost is two Ed25519 verifications a receipt; all other work is below a twentieth of that. The same two keys sign
// all receipts of a lease, so their multiples are computed once ([sign.Verifier]). The signatures are not batched. The
// usual batch equation holds only up to torsion, or by chance: a signer that adds a point of small order to R makes
// signatures that pass a batch with probability 1/8 or more. They never pass the strict, cofactorless check of Solana's
// precompile, so a receipt could be valid here and worthless on chain. Excluding that means proving every R
// torsion-free, which costs as much as the batch saves.
func CheckChain(d sign.Domain, lease market.LeaseCore, rs []Receipt) error {
	if len(rs) == 0 {
		return &ChainError{RuleError: *broken(RuleEmpty, "no receipts")}
	}
	chain := NewChain(lease)
	preimage := d.Preimage(sign.TagReceipt, make([]byte, ReceiptCoreSize))
	// check holds every core to these keys
	provider, buyer := sign.NewVerifier(lease.Provider), sign.NewVerifier(lease.Buyer)
	for i := range rs {
		r, at := &rs[i], uint64(i)+1
		if broke := chain.check(&r.ReceiptCore); broke != nil {
			return &ChainError{Seq: at, RuleError: *broke}
		}
		core := r.ReceiptCore.Marshal()
		copy(preimage[sign.PrefixSize:], core[:])
		if broke := r.checkSignatures(preimage, provider, buyer); broke != nil {
			return &ChainError{Seq: at, RuleError: *broke}
		}
		chain = chain.advance(r.ReceiptCore, &core)
	}
	return nil
}
