package reputation

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// Anchored is the last receipt of a lease and where its buyer anchored it: all that is needed to check what two others did.
type Anchored struct {
	Receipt verify.Receipt
	In      chain.Inclusion // of Receipt.SignedHash
}

// MaxAnchoredSize is the length in bytes of the longest form.
const MaxAnchoredSize = verify.ReceiptSize + chain.MaxInclusion

// Errors of what others show.
var (
	// ErrAnchored says that an anchored receipt shows nothing, whoever brings it.
	ErrAnchored = errors.New("the receipt shows nothing")
	// ErrUnanchored says that the chain has not what it says.
	ErrUnanchored = errors.New("the receipt is not anchored there")
)

// Marshal gives the one form: receipt ‖ inclusion.
func (a Anchored) Marshal() []byte {
	r := a.Receipt.Marshal()
	return append(r[:], a.In.Marshal()...)
}

// UnmarshalAnchored reads exactly that, and verifies nothing: Check does. market.ErrMalformed, chain.ErrMalformed.
func UnmarshalAnchored(b []byte) (a Anchored, err error) {
	if len(b) < verify.ReceiptSize {
		return a, fmt.Errorf("%w: anchored receipt of %d bytes", market.ErrMalformed, len(b))
	}
	if a.Receipt, err = verify.UnmarshalReceipt(b[:verify.ReceiptSize]); err != nil {
		return a, err
	}
	a.In, err = chain.UnmarshalInclusion(b[verify.ReceiptSize:])
	return a, err
}

// Check verifies all that needs no chain: that something was paid by one to another, before it was anchored, that the receipt is under
// the anchor's root, and both signatures. ErrAnchored with the reason.
func (a Anchored) Check(d sign.Domain, intervalSlots uint64) error {
	r := a.Receipt
	switch {
	case r.Provider == r.Buyer || r.Provider.IsZero() || r.Buyer.IsZero():
		return fmt.Errorf("%w: it is between %s and %s", ErrAnchored, r.Provider.Short(), r.Buyer.Short())
	case r.Cumulative == 0:
		return fmt.Errorf("%w: nothing was paid for", ErrAnchored)
	case a.In.Anchor.Of != chain.OfReceipts:
		return fmt.Errorf("%w: its anchor is of %s", ErrAnchored, a.In.Anchor.Of)
	case uint64(r.To) > addSlots(a.In.Slot, ahead*intervalSlots): // the two sides' clocks may be ahead of the chain
		return fmt.Errorf("%w: it is of slot %d, anchored in slot %d", ErrAnchored, r.To, a.In.Slot)
	}
	if err := a.In.Check(r.SignedHash()); err != nil {
		return fmt.Errorf("%w: %w", ErrAnchored, err)
	}
	if err := r.CheckSignatures(d); err != nil {
		return fmt.Errorf("%w: %w", ErrAnchored, err)
	}
	return nil
}

func addSlots(s market.Slot, n uint64) uint64 { return uint64(s) + min(n, ^uint64(0)-uint64(s)) }

// Anchor is what a final transaction committed to.
type Anchor struct {
	chain.Anchor
	Slot market.Slot
	By   sign.Key // who had the network's program write it down; zero where it is a memo, which anybody may pay for
}

// CheckOn holds an anchored receipt against what its transaction committed to. ErrUnanchored.
func (a Anchored) CheckOn(on Anchor) error {
	in := a.In
	switch {
	case on.Anchor != in.Anchor || on.Slot != in.Slot:
		return fmt.Errorf("%w: transaction %s is of slot %d and carries %s", ErrUnanchored, in.Tx, on.Slot, on.Memo())
	case !on.By.IsZero() && on.By != a.Receipt.Buyer:
		return fmt.Errorf("%w: transaction %s is by %s, the buyer is %s", ErrUnanchored, in.Tx, on.By.Short(), a.Receipt.Buyer.Short())
	}
	return nil
}

// facts are what it says of both sides.
func (a Anchored) facts() [2]reputation.Fact {
	return keptBy([2]sign.Key{a.Receipt.Provider, a.Receipt.Buyer}, a.Receipt)
}

// keptBy are the facts of a receipt, about its provider and about its buyer.
func keptBy(of [2]sign.Key, r verify.Receipt) (out [2]reputation.Fact) {
	for role, subject := range of {
		out[role] = reputation.Fact{ID: sign.Hash(r.Lease), Kind: reputation.Kept, Role: reputation.Role(role), Subject: subject, Rater: of[1-role],
			Value: r.Cumulative, At: r.To}
	}
	return out
}

// Source says by what a fact can be checked.
type Source struct {
	Receipt sign.Hash  `json:"receipt,omitzero"` // verify.Receipt.SignedHash of the last receipt that was read of the lease
	Record  sign.Hash  `json:"record,omitzero"`  // of the audit
	Tx      chain.TxID `json:"tx,omitempty"`     // that anchors it
}
