package program

import (
	"bytes"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// Limits of an escrow.
const (
	MaxVoucherKeys   = 5
	MaxStandbys      = 8
	OpeningSlots     = 150 // how old the opening slot may be at opening, and must be at closing
	MaxEscrowSlots   = 1<<32 - 1
	MaxStandbyLeaves = 4 // of one AddStandbyTranche

	escrowHead     = 344
	escrowReserved = 9
	standbySize    = 80
	trancheHead    = 136
	leafStateSize  = 20
)

// EscrowState is the state of an escrow.
type EscrowState uint8

const (
	EscrowOpen     EscrowState = 1 // pays vouchers
	EscrowRefunded EscrowState = 2 // the rest went back: nobody can claim any more
)

// Escrow is one buyer's deposit for one order. The vault holds at least Outstanding + Fee; the rest of it is free.
type Escrow struct {
	Bump, VaultBump uint8
	State           EscrowState
	MintIndex       uint8 // on the network
	Network         sign.Key
	Buyer           sign.Key
	Order           market.OrderID
	Mint            sign.Key
	Vault           sign.Key
	RefundOwner     sign.Key // wallet with the token accounts for refunds
	Referrer        sign.Key // wallet; zero: none
	RentPayer       sign.Key
	Opened          uint64 // slot named at opening
	Deadline        uint64 // slot
	Deposited       uint64 // all that was put in
	Outstanding     uint64 // caps of the leaves, less the paid and freed parts of each
	Paid            uint64 // to providers, with the fees
	Fee             uint64 // kept of that, not yet swept
	Swept           uint64 // kept of that, and swept
	Refunded        uint64 // paid back
	Tranches        uint16 // ever opened
	Closed          uint16 // of them
	Keys            market.KeySet
	Standbys        []Standby
}

// Standby is a provider that the voucher keys may hire without the buyer.
type Standby struct {
	Provider sign.Key      `json:"provider"`
	Payout   sign.Key      `json:"payout"`
	MaxRate  market.Rate   `json:"max_rate"`
	Budget   market.Amount `json:"budget"` // bound of the sum of its leaves' further caps
}

// EscrowSize is the length of an escrow's account.
func EscrowSize(keys, standbys int) int {
	return escrowHead + sign.KeySize*keys + standbySize*standbys
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (e Escrow) Marshal() []byte {
	d := data{kindEscrow, accountVersion, e.Bump, e.VaultBump, uint8(e.State), e.MintIndex, 0, 0}
	d = d.key(e.Network).key(e.Buyer).bytes(e.Order[:]...)
	for _, k := range []sign.Key{e.Mint, e.Vault, e.RefundOwner, e.Referrer, e.RentPayer} {
		d = d.key(k)
	}
	for _, v := range []uint64{e.Opened, e.Deadline, e.Deposited, e.Outstanding, e.Paid, e.Fee, e.Swept, e.Refunded} {
		d = d.u64(v)
	}
	d = d.u16(e.Tranches).u16(e.Closed).u8(uint8(len(e.Keys.Keys))).u8(e.Keys.Threshold).u8(uint8(len(e.Standbys)))
	d = append(d, make([]byte, escrowReserved)...)
	for _, k := range e.Keys.Keys {
		d = d.key(k)
	}
	for _, s := range e.Standbys {
		d = d.standby(s)
	}
	return d
}

func (d data) standby(s Standby) data {
	return d.key(s.Provider).key(s.Payout).u64(uint64(s.MaxRate)).u64(uint64(s.Budget))
}

// UnmarshalEscrow reads an escrow's account. ErrAccount.
func UnmarshalEscrow(b []byte) (Escrow, error) {
	r := &reader{b: b}
	if r.u8() != kindEscrow || r.u8() != accountVersion {
		return Escrow{}, notOne("escrow", b)
	}
	e := Escrow{Bump: r.u8(), VaultBump: r.u8(), State: EscrowState(r.u8()), MintIndex: r.u8()}
	r.zeros(2)
	e.Network, e.Buyer, e.Order = r.key(), r.key(), market.OrderID(r.hash())
	e.Mint, e.Vault, e.RefundOwner, e.Referrer, e.RentPayer = r.key(), r.key(), r.key(), r.key(), r.key()
	e.Opened, e.Deadline, e.Deposited, e.Outstanding = r.u64(), r.u64(), r.u64(), r.u64()
	e.Paid, e.Fee, e.Swept, e.Refunded = r.u64(), r.u64(), r.u64(), r.u64()
	e.Tranches, e.Closed = r.u16(), r.u16()
	keys, threshold, standbys := r.u8(), r.u8(), r.u8()
	r.zeros(escrowReserved)
	if r.failed || keys > MaxVoucherKeys || standbys > MaxStandbys {
		return Escrow{}, notOne("escrow", b)
	}
	e.Keys.Threshold = threshold
	for range keys {
		e.Keys.Keys = append(e.Keys.Keys, r.key())
	}
	for range standbys {
		e.Standbys = append(e.Standbys, Standby{Provider: r.key(), Payout: r.key(), MaxRate: market.Rate(r.u64()),
			Budget: market.Amount(r.u64())})
	}
	if !r.done() || e.State != EscrowOpen && e.State != EscrowRefunded || !lawful(e.Keys) {
		return Escrow{}, notOne("escrow", b)
	}
	return e, nil
}

// lawful reports whether the program accepts a key set; it does not check for keys of small order.
func lawful(ks market.KeySet) bool {
	for i := 1; i < len(ks.Keys); i++ {
		if bytes.Compare(ks.Keys[i-1][:], ks.Keys[i][:]) >= 0 {
			return false
		}
	}
	return len(ks.Keys) <= MaxVoucherKeys && ks.Threshold >= 1 && int(ks.Threshold) <= len(ks.Keys)
}

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

// Commitment is the root under which the tranche's leaves are.
func (t Tranche) Commitment() tranche.Root {
	return tranche.Root{Hash: t.Root, Sum: market.Amount(t.Sum), Count: uint16(len(t.Leaves))}
}

// LeafState is the state of one leaf.
type LeafState struct {
	Paid   uint64 // with the fee
	Freed  uint64 // this much of the cap can never be claimed any more
	Window uint32 // 0, or while it is being retired the last slot in which it may be claimed, counted from Opened
}

// Left is the part of a leaf's cap that could still be claimed.
func (s LeafState) Left(limit market.Amount) uint64 {
	left := uint64(limit) - min(uint64(limit), s.Freed)
	return left - min(left, s.Paid)
}

// TrancheSize is the length of a tranche's account.
func TrancheSize(leaves int) int { return trancheHead + leafStateSize*leaves }

// Marshal returns the account's bytes (PROTOCOL.md).
func (t Tranche) Marshal() []byte {
	d := data{kindTranche, accountVersion, t.Bump, uint8(t.By), 0, 0, 0, 0}.key(t.Escrow).u16(t.Index).
		u16(uint16(len(t.Leaves))).u32(0)
	d = d.u64(t.Opened).u64(t.Sum).hash(t.Root).u64(t.Outstanding).key(t.RentPayer)
	for _, l := range t.Leaves {
		d = d.u64(l.Paid).u64(l.Freed).u32(l.Window)
	}
	return d
}

// UnmarshalTranche reads a tranche's account. ErrAccount.
func UnmarshalTranche(b []byte) (Tranche, error) {
	r := &reader{b: b}
	if r.u8() != kindTranche || r.u8() != accountVersion {
		return Tranche{}, notOne("tranche", b)
	}
	t := Tranche{Bump: r.u8(), By: OpenedBy(r.u8())}
	r.zeros(4)
	t.Escrow, t.Index = r.key(), r.u16()
	leaves := int(r.u16())
	r.zeros(4)
	t.Opened, t.Sum, t.Root, t.Outstanding, t.RentPayer = r.u64(), r.u64(), r.hash(), r.u64(), r.key()
	if r.failed || leaves < 1 || leaves > MaxLeaves || len(r.b) != leafStateSize*leaves || t.By > ByKeys {
		return Tranche{}, notOne("tranche", b)
	}
	t.Leaves = make([]LeafState, leaves)
	for i := range t.Leaves {
		t.Leaves[i] = LeafState{Paid: r.u64(), Freed: r.u64(), Window: r.u32()}
	}
	return t, nil
}
