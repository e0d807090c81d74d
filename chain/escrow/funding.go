package escrow

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// Funding is the place of a lease's money on chain, together with buyer and order, which are the lease's if Funding has
// none. A buyer sends it to its provider, which verifies it with CheckFunding. Layout, little-endian:
//
//	offset  size  field
//	     0     8  opened: the slot in the escrow's address
//	     8     2  tranche
//	    10     2  index of the leaf
//	    12     n  proof: count u8, at most 8 ‖ count × ( sibling hash[32] ‖ sibling sum u64 )
//	  12+n    64  buyer[32] ‖ order[32] of the escrow, neither zero; left out where they are the lease's
type Funding struct {
	Opened  uint64        `json:"opened"`
	Tranche uint16        `json:"tranche"`
	Index   uint16        `json:"index"`
	Proof   tranche.Proof `json:"proof"`
	// Buyer and Order are the escrow's, if they differ from the lease's: the leases of a guarded job name the job's key
	// and, for a replaced rank, a later order. Both zero: they are the lease's.
	Buyer sign.Key       `json:"buyer,omitzero"`
	Order market.OrderID `json:"order,omitzero"`
}

const (
	fundingHead  = 12
	fundingOther = 2 * sign.KeySize // buyer and order
)

// MaxFunding is the largest Funding in bytes.
const MaxFunding = fundingHead + tranche.MaxProof + fundingOther

// Marshal returns the layout.
func (f Funding) Marshal() []byte {
	b := make([]byte, 0, MaxFunding)
	b = binary.LittleEndian.AppendUint64(b, f.Opened)
	b = binary.LittleEndian.AppendUint16(b, f.Tranche)
	b = binary.LittleEndian.AppendUint16(b, f.Index)
	b = append(b, f.Proof.Marshal()...)
	if f.Buyer.IsZero() && f.Order.IsZero() {
		return b
	}
	return append(append(b, f.Buyer[:]...), f.Order[:]...)
}

// of returns the buyer and order of the escrow.
func (f Funding) of(core market.LeaseCore) (buyer sign.Key, order market.OrderID) {
	if f.Buyer.IsZero() {
		return core.Buyer, core.Order
	}
	return f.Buyer, f.Order
}

// UnmarshalFunding decodes the layout without trailing bytes. It returns market.ErrMalformed otherwise.
func UnmarshalFunding(b []byte) (Funding, error) {
	if len(b) <= fundingHead || len(b) > MaxFunding {
		return Funding{}, fmt.Errorf("%w: funding of %d bytes", market.ErrMalformed, len(b))
	}
	le := binary.LittleEndian
	f := Funding{Opened: le.Uint64(b), Tranche: le.Uint16(b[8:]), Index: le.Uint16(b[10:])}
	if f.Index >= tranche.MaxLeaves {
		return Funding{}, fmt.Errorf("%w: funding: leaf %d", market.ErrMalformed, f.Index)
	}
	proof := b[fundingHead:]
	if end := len(proof) - fundingOther; end >= 1 && end == tranche.ProofSize(proof[0]) {
		f.Buyer, f.Order = sign.Key(proof[end:][:sign.KeySize]), market.OrderID(proof[end+sign.KeySize:])
		if f.Buyer.IsZero() || f.Order.IsZero() {
			return Funding{}, fmt.Errorf("%w: funding: an escrow of buyer %s, order %s",
				market.ErrMalformed, f.Buyer.Short(), f.Order.Short())
		}
		proof = proof[:end]
	}
	var err error
	if f.Proof, err = tranche.UnmarshalProof(proof); err != nil {
		return Funding{}, fmt.Errorf("funding: %w", err)
	}
	return f, nil
}

// CheckFunding reports whether a lease is funded: whether its provider can be sure to be paid the amounts of its
// vouchers. View is of EscrowOf and the funding's tranche; at level Confirmed the answer could still be forked away.
// Landed is the slot in which the tranche was opened. Keys is the key set of the lease, checked against its hash.
// Everything else is refused: ErrNoEscrow and ErrNoTranche may still change, the others do not.
func CheckFunding(
	net Net, view View, core market.LeaseCore, keys market.KeySet, f Funding,
) (landed market.Slot, err error) {
	if view.Escrow == nil {
		return 0, ErrNoEscrow
	}
	if err := checkEscrow(net, view, core, keys, f); err != nil {
		return 0, err
	}
	t, err := trancheIn(net, view, core, f)
	if err != nil {
		return 0, err
	}
	if len(t.Leaves) > LeavesFit(keys) {
		return 0, fmt.Errorf("%w: claims by %d keys fit with %d leaves, the tranche has %d",
			ErrKeys, keys.Threshold, LeavesFit(keys), len(t.Leaves))
	}
	if err := f.Proof.Verify(RootOf(t), tranche.LeafOf(core, f.Index)); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLeaf, err)
	}
	if s := t.Leaves[f.Index]; s.Freed != 0 || s.Window != 0 {
		return 0, ErrRetired
	}
	if landed = market.Slot(t.Opened); landed > core.ActivateBefore {
		return 0, fmt.Errorf("%w: slot %d, want by %d", ErrLate, landed, core.ActivateBefore)
	}
	return landed, nil
}

func checkEscrow(net Net, view View, core market.LeaseCore, keys market.KeySet, f Funding) error {
	e := view.Escrow
	if err := checkWhose(net, e, core, f); err != nil {
		return err
	}
	switch {
	case keys.Hash() != core.VoucherKeys || e.Keys.Threshold != keys.Threshold || !slices.Equal(e.Keys.Keys, keys.Keys):
		return ErrKeys
	case e.State != account.EscrowOpen:
		return ErrRefunded
	case uint64(core.End)+net.Margin() < uint64(core.End) || uint64(core.End)+net.Margin() > e.Deadline:
		return fmt.Errorf("%w: slot %d: the lease ends at %d, with %d more slots required",
			ErrDeadline, e.Deadline, core.End, net.Margin())
	case e.Outstanding+e.Fee < e.Fee || uint64(view.Vault) < e.Outstanding+e.Fee:
		return fmt.Errorf("%w: %d, and owes %d", ErrVault, view.Vault, e.Outstanding+e.Fee)
	}
	return nil
}

// checkWhose returns an error unless an escrow is the escrow of a funding, on this network and with its token.
func checkWhose(net Net, e *account.Escrow, core market.LeaseCore, f Funding) error {
	buyer, order := f.of(core)
	switch {
	case e.Network != net.address || e.Buyer != buyer || e.Order != order || e.Opened != f.Opened:
		return ErrOtherEscrow
	case e.Mint != net.Mint || e.MintIndex != net.index:
		return fmt.Errorf("%w: %s", ErrMint, e.Mint)
	}
	return nil
}

// RootOf is the root that commits to a tranche's leaves.
func RootOf(t account.Tranche) tranche.Root {
	return tranche.Root{Hash: t.Root, Sum: market.Amount(t.Sum), Count: uint16(len(t.Leaves))}
}

// trancheIn is the tranche that a funding names.
func trancheIn(net Net, view View, core market.LeaseCore, f Funding) (account.Tranche, error) {
	t, ok := view.Tranches[f.Tranche]
	if !ok {
		return t, fmt.Errorf("%w: %d of %d", ErrNoTranche, f.Tranche, view.Escrow.Tranches)
	}
	if t.Escrow != net.EscrowOf(core, f) || t.Index != f.Tranche {
		return t, fmt.Errorf("%w: tranche %d", ErrOtherEscrow, f.Tranche)
	}
	return t, nil
}
