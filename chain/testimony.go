package chain

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Testimony is the last receipt of a lease with its buyer's anchor: all the data for a check of two other peers' lease.
type Testimony struct {
	Receipt verify.Receipt
	In      Inclusion // of Receipt.SignedHash
}

// MaxTestimony is the length in bytes of the longest form.
const MaxTestimony = verify.ReceiptSize + MaxInclusion

// Errors of testimonies.
var (
	// ErrTestimony means that a testimony is invalid, from any source.
	ErrTestimony = errors.New("receipt proves nothing")
	// ErrUnanchored reports that the chain does not have the claimed anchor.
	ErrUnanchored = errors.New("receipt is not anchored there")
)

// Marshal gives the one form: receipt ‖ inclusion.
func (x Testimony) Marshal() []byte {
	r := x.Receipt.Marshal()
	return append(r[:], x.In.Marshal()...)
}

// UnmarshalTestimony decodes the layout without trailing bytes. It returns market.ErrMalformed or ErrMalformed
// otherwise. It does not verify; Check does.
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

// Check verifies the testimony without the chain: a positive payment between two different parties, at most ahead slots
// after the anchor; the receipt's path to the anchor's root; and both signatures. It returns ErrTestimony with the
// reason.
func (x Testimony) Check(d sign.Domain, ahead uint64) error {
	r := x.Receipt
	switch {
	case r.Provider == r.Buyer || r.Provider.IsZero() || r.Buyer.IsZero():
		return fmt.Errorf("%w: parties: %s and %s", ErrTestimony, r.Provider.Short(), r.Buyer.Short())
	case r.Cumulative == 0:
		return fmt.Errorf("%w: amount: 0", ErrTestimony)
	case x.In.Anchor.Of != OfReceipts:
		return fmt.Errorf("%w: anchor: of %s", ErrTestimony, x.In.Anchor.Of)
	case r.To > x.In.Slot && uint64(r.To-x.In.Slot) > ahead: // the two sides' clocks may be ahead of the chain
		return fmt.Errorf("%w: slot %d: later than its anchor's, %d", ErrTestimony, r.To, x.In.Slot)
	}
	if err := x.In.Check(r.SignedHash()); err != nil {
		return fmt.Errorf("%w: %w", ErrTestimony, err)
	}
	if err := r.CheckSignatures(d); err != nil {
		return fmt.Errorf("%w: %w", ErrTestimony, err)
	}
	return nil
}

// Commitment is the content of a final anchoring transaction.
type Commitment struct {
	Anchor
	Slot market.Slot
	By   sign.Key // the signer that anchored it
}

// CheckOn compares a testimony with its transaction's commitment. It returns ErrUnanchored.
func (x Testimony) CheckOn(on Commitment) error {
	in := x.In
	switch {
	case on.Anchor != in.Anchor || on.Slot != in.Slot:
		return fmt.Errorf("%w: transaction %s is of slot %d and has %d receipts under root %s",
			ErrUnanchored, in.Tx, on.Slot, on.Count, on.Root.Short())
	case !on.By.IsZero() && on.By != x.Receipt.Buyer:
		return fmt.Errorf("%w: transaction %s is by %s, the buyer is %s",
			ErrUnanchored, in.Tx, on.By.Short(), x.Receipt.Buyer.Short())
	}
	return nil
}
