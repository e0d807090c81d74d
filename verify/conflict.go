package verify

import (
	"bytes"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

const unitProofHead = 5 // index u16 ‖ units u16 ‖ count u8

// MaxConflict is the largest conflict: two proofs of ten siblings, for leases of 1024 units.
const MaxConflict = 2*ReceiptSize + sign.HashSize + 2*(unitProofHead+10*sign.HashSize)

// Conflict is the proof that a provider sold one unit twice: two receipts that it signed, of two leases, that both
// contain the unit and share a slot. It can be checked offline, and only the provider's key can make one. Layout:
//
//	offset  size  field
//	     0   384  receipt A
//	   384   384  receipt B, of the lease with the higher id
//	   768    32  unit id
//	   800     n  proof that the unit is in A's units root (market.UnitProof)
//	 800+n     m  the same for B
//
// Two receipts of one lease are no conflict: a provider restored from an old backup may sign an interval again, and its
// buyer still pays once.
type Conflict struct {
	A, B     Receipt
	Unit     market.UnitID
	InA, InB market.UnitProof
}

// NewConflict builds the proof from two receipts and the units of their leases. The result passes CheckConflict;
// otherwise the error names the broken rule.
func NewConflict(d sign.Domain, a, b Receipt, unitsA, unitsB []market.UnitID) (Conflict, error) {
	if bytes.Compare(a.Lease[:], b.Lease[:]) > 0 {
		a, b, unitsA, unitsB = b, a, unitsB, unitsA
	}
	in := make(map[market.UnitID]bool, len(unitsA))
	for _, u := range unitsA {
		in[u] = true
	}
	for _, u := range unitsB {
		if !in[u] {
			continue
		}
		c := Conflict{A: a, B: b, Unit: u}
		var err error
		if c.InA, err = market.ProveUnit(unitsA, u); err != nil {
			return Conflict{}, err
		}
		if c.InB, err = market.ProveUnit(unitsB, u); err != nil {
			return Conflict{}, err
		}
		return c, CheckConflict(d, c)
	}
	return Conflict{}, broken(RuleUnits, "the leases share no unit")
}

// CheckConflict checks every rule of the proof: parties (one provider), different, overlap, units, and both signatures
// of both receipts. A receipt without its buyer's signature was never paid for and proves nothing.
func CheckConflict(d sign.Domain, c Conflict) error {
	switch order := bytes.Compare(c.A.Lease[:], c.B.Lease[:]); {
	case c.A.Provider != c.B.Provider:
		return broken(RuleParties, "receipts of providers %s and %s", c.A.Provider.Short(), c.B.Provider.Short())
	case order == 0:
		return broken(RuleDifferent, "both receipts are of lease %s", c.A.Lease.Short())
	case order > 0:
		return malformed("conflict", "receipts: not in ascending order of lease ids")
	case max(c.A.From, c.B.From) >= min(c.A.To, c.B.To):
		return broken(RuleOverlap, "slots %d to %d and %d to %d", c.A.From, c.A.To, c.B.From, c.B.To)
	}
	for _, side := range []struct {
		r  Receipt
		in market.UnitProof
	}{{c.A, c.InA}, {c.B, c.InB}} {
		if side.in.Units != side.r.Units {
			return broken(RuleUnits, "proof among %d units, the receipt has %d", side.in.Units, side.r.Units)
		}
		if err := side.in.Verify(side.r.UnitsRoot, c.Unit); err != nil {
			return &RuleError{Rule: RuleUnits, Detail: err.Error(), Err: err}
		}
		if err := side.r.CheckSignatures(d); err != nil {
			return err
		}
	}
	return nil
}

// Marshal returns the layout.
func (c Conflict) Marshal() []byte {
	out := append(make([]byte, 0, MaxConflict), c.A.Marshal()...)
	out = append(out, c.B.Marshal()...)
	out = append(out, c.Unit[:]...)
	out = append(out, c.InA.Marshal()...)
	return append(out, c.InB.Marshal()...)
}

// UnmarshalConflict decodes the layout without trailing bytes. It does not verify; CheckConflict does.
func UnmarshalConflict(b []byte) (Conflict, error) {
	const head = 2*ReceiptSize + sign.HashSize
	if len(b) < head+2*unitProofHead || len(b) > MaxConflict {
		return Conflict{}, malformed("conflict", "%d bytes", len(b))
	}
	var c Conflict
	var err error
	if c.A, err = UnmarshalReceipt(b[:ReceiptSize]); err != nil {
		return Conflict{}, err
	}
	if c.B, err = UnmarshalReceipt(b[ReceiptSize : 2*ReceiptSize]); err != nil {
		return Conflict{}, err
	}
	c.Unit = market.UnitID(b[2*ReceiptSize : head])
	b = b[head:]
	n := unitProofHead + int(b[unitProofHead-1])*sign.HashSize
	if b[unitProofHead-1] > merkle.MaxDepth || len(b) < n {
		return Conflict{}, malformed("conflict", "first unit proof of %d bytes", len(b))
	}
	if c.InA, err = market.UnmarshalUnitProof(b[:n]); err != nil {
		return Conflict{}, err
	}
	if c.InB, err = market.UnmarshalUnitProof(b[n:]); err != nil {
		return Conflict{}, err
	}
	return c, nil
}
