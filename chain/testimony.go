package chain

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Testimony is the last receipt of a lease and where its buyer anchored it: all that is needed to check what two others did.
type Testimony struct {
	Receipt verify.Receipt
	In      Inclusion // of Receipt.SignedHash
}

// MaxTestimony is the length in bytes of the longest form.
const MaxTestimony = verify.ReceiptSize + MaxInclusion

// Errors of what others show.
var (
	// ErrTestimony says that a testimony shows nothing, whoever brings it.
	ErrTestimony = errors.New("the receipt shows nothing")
	// ErrUnanchored says that the chain has not what it says.
	ErrUnanchored = errors.New("the receipt is not anchored there")
)

// Marshal gives the one form: receipt ‖ inclusion.
func (x Testimony) Marshal() []byte {
	r := x.Receipt.Marshal()
	return append(r[:], x.In.Marshal()...)
}

// UnmarshalTestimony reads exactly that, and verifies nothing: Check does. market.ErrMalformed, ErrMalformed.
func UnmarshalTestimony(b []byte) (x Testimony, err error) {
	if len(b) < verify.ReceiptSize {
		return x, fmt.Errorf("%w: anchored receipt of %d bytes", market.ErrMalformed, len(b))
	}
	if x.Receipt, err = verify.UnmarshalReceipt(b[:verify.ReceiptSize]); err != nil {
		return x, err
	}
	x.In, err = UnmarshalInclusion(b[verify.ReceiptSize:])
	return x, err
}

// Check verifies all that needs no chain: that something was paid by one to another, not later than so many slots after it was anchored,
// that the receipt is under the anchor's root, and both signatures. ErrTestimony with the reason.
func (x Testimony) Check(d sign.Domain, ahead uint64) error {
	r := x.Receipt
	switch {
	case r.Provider == r.Buyer || r.Provider.IsZero() || r.Buyer.IsZero():
		return fmt.Errorf("%w: it is between %s and %s", ErrTestimony, r.Provider.Short(), r.Buyer.Short())
	case r.Cumulative == 0:
		return fmt.Errorf("%w: nothing was paid for", ErrTestimony)
	case x.In.Anchor.Of != OfReceipts:
		return fmt.Errorf("%w: its anchor is of %s", ErrTestimony, x.In.Anchor.Of)
	case r.To > x.In.Slot && uint64(r.To-x.In.Slot) > ahead: // the two sides' clocks may be ahead of the chain
		return fmt.Errorf("%w: it is of slot %d, anchored in slot %d", ErrTestimony, r.To, x.In.Slot)
	}
	if err := x.In.Check(r.SignedHash()); err != nil {
		return fmt.Errorf("%w: %w", ErrTestimony, err)
	}
	if err := r.CheckSignatures(d); err != nil {
		return fmt.Errorf("%w: %w", ErrTestimony, err)
	}
	return nil
}

// Commitment is what a final transaction committed to.
type Commitment struct {
	Anchor
	Slot market.Slot
	By   sign.Key // who had the network's program write it down
}

// CheckOn holds a testimony against what its transaction committed to. ErrUnanchored.
func (x Testimony) CheckOn(on Commitment) error {
	in := x.In
	switch {
	case on.Anchor != in.Anchor || on.Slot != in.Slot:
		return fmt.Errorf("%w: transaction %s is of slot %d and has %d receipts under root %s", ErrUnanchored, in.Tx, on.Slot, on.Count, on.Root.Short())
	case !on.By.IsZero() && on.By != x.Receipt.Buyer:
		return fmt.Errorf("%w: transaction %s is by %s, the buyer is %s", ErrUnanchored, in.Tx, on.By.Short(), x.Receipt.Buyer.Short())
	}
	return nil
}
