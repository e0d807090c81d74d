package account

import (
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// MaxLeaves is the most leaves of a tranche, as in verify/tranche.
const MaxLeaves = 256

const (
	trancheHead   = 136
	leafStateSize = 20
)

// OpenedBy is the opener of a tranche.
type OpenedBy uint8

const (
	ByBuyer OpenedBy = 0 // of any leaves
	ByKeys  OpenedBy = 1 // of leaves for standbys
)

// Tranche is an append-only set of leaves of an escrow, with the state of each.
type Tranche struct {
	Bump        uint8
	By          OpenedBy
	Escrow      sign.Key
	Index       uint16
	Opened      uint64 // slot
	Sum         uint64 // of the leaves' caps
	Root        sign.Hash
	Outstanding uint64 // the sum, less everything paid and freed
	RentPayer   sign.Key
	Leaves      []LeafState
}

// LeafState is the state of one leaf.
type LeafState struct {
	Paid   uint64 // with the fee
	Freed  uint64 // part of the cap that can no longer be claimed
	Window uint32 // 0, or while it is being retired the last slot in which it may be claimed, counted from Opened
}

// Left is the part of a leaf's cap that could still be claimed.
func (s LeafState) Left(limit market.Amount) uint64 {
	left := uint64(limit) - min(uint64(limit), s.Freed)
	return left - min(left, s.Paid)
}

// TrancheSize is the length of a tranche's account.
func TrancheSize(leaves int) int { return trancheHead + leafStateSize*leaves }

// TrancheRent is the rent of an open tranche with this number of leaves.
func TrancheRent(leaves int) uint64 { return svm.Rent(TrancheSize(leaves)) }

// Marshal returns the account's bytes (PROTOCOL.md).
func (t Tranche) Marshal() []byte {
	d := fields.Data{kindTranche, Version, t.Bump, uint8(t.By), 0, 0, 0, 0}.Key(t.Escrow).U16(t.Index).
		U16(uint16(len(t.Leaves))).U32(0)
	d = d.U64(t.Opened).U64(t.Sum).Hash(t.Root).U64(t.Outstanding).Key(t.RentPayer)
	for _, l := range t.Leaves {
		d = d.U64(l.Paid).U64(l.Freed).U32(l.Window)
	}
	return d
}

// UnmarshalTranche reads a tranche's account. It returns ErrAccount.
func UnmarshalTranche(b []byte) (Tranche, error) {
	r := read(b)
	r.kind(kindTranche)
	t := Tranche{Bump: r.U8(), By: OpenedBy(r.U8())}
	r.Zeros(4)
	t.Escrow, t.Index = r.Key(), r.U16()
	leaves := int(r.U16())
	r.Zeros(4)
	t.Opened, t.Sum, t.Root, t.Outstanding, t.RentPayer = r.U64(), r.U64(), r.Hash(), r.U64(), r.Key()
	if r.Bad || leaves < 1 || leaves > MaxLeaves || len(r.Rest) != leafStateSize*leaves || t.By > ByKeys {
		return Tranche{}, notOne("tranche", b)
	}
	t.Leaves = make([]LeafState, leaves)
	for i := range t.Leaves {
		t.Leaves[i] = LeafState{Paid: r.U64(), Freed: r.U64(), Window: r.U32()}
	}
	return t, nil
}
