package account

import (
	"bytes"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of an escrow.
const (
	MaxVoucherKeys = 5
	MaxStandbys    = 8
	OpeningSlots   = 150 // how old the opening slot may be at opening, and must be at closing
	MaxEscrowSlots = 1<<32 - 1

	escrowHead     = 344
	escrowReserved = 9
	standbySize    = 80
)

// EscrowState is the state of an escrow.
type EscrowState uint8

const (
	EscrowOpen     EscrowState = 1 // pays vouchers
	EscrowRefunded EscrowState = 2 // the rest was refunded; claims fail
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

// Marshal returns a standby's layout (PROTOCOL.md).
func (s Standby) Marshal() []byte {
	return fields.Data{}.Key(s.Provider).Key(s.Payout).U64(uint64(s.MaxRate)).U64(uint64(s.Budget))
}

// EscrowSize is the length of an escrow's account.
func EscrowSize(keys, standbys int) int {
	return escrowHead + sign.KeySize*keys + standbySize*standbys
}

// EscrowRent is the rent of an open escrow with its keys and standbys: that of the account and of its vault.
func EscrowRent(keys, standbys int) uint64 {
	return svm.Rent(EscrowSize(keys, standbys)) + svm.Rent(svm.TokenSize)
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (e Escrow) Marshal() []byte {
	d := fields.Data{kindEscrow, Version, e.Bump, e.VaultBump, uint8(e.State), e.MintIndex, 0, 0}
	d = d.Key(e.Network).Key(e.Buyer).Bytes(e.Order[:]...)
	for _, k := range []sign.Key{e.Mint, e.Vault, e.RefundOwner, e.Referrer, e.RentPayer} {
		d = d.Key(k)
	}
	for _, v := range []uint64{e.Opened, e.Deadline, e.Deposited, e.Outstanding, e.Paid, e.Fee, e.Swept, e.Refunded} {
		d = d.U64(v)
	}
	d = d.U16(e.Tranches).U16(e.Closed).U8(uint8(len(e.Keys.Keys))).U8(e.Keys.Threshold).U8(uint8(len(e.Standbys)))
	d = d.Zeros(escrowReserved)
	for _, k := range e.Keys.Keys {
		d = d.Key(k)
	}
	for _, s := range e.Standbys {
		d = d.Bytes(s.Marshal()...)
	}
	return d
}

// UnmarshalEscrow reads an escrow's account. It returns ErrAccount.
func UnmarshalEscrow(b []byte) (Escrow, error) {
	r := read(b)
	r.kind(kindEscrow)
	e := Escrow{Bump: r.U8(), VaultBump: r.U8(), State: EscrowState(r.U8()), MintIndex: r.U8()}
	r.Zeros(2)
	e.Network, e.Buyer, e.Order = r.Key(), r.Key(), market.OrderID(r.Hash())
	e.Mint, e.Vault, e.RefundOwner, e.Referrer, e.RentPayer = r.Key(), r.Key(), r.Key(), r.Key(), r.Key()
	e.Opened, e.Deadline, e.Deposited, e.Outstanding = r.U64(), r.U64(), r.U64(), r.U64()
	e.Paid, e.Fee, e.Swept, e.Refunded = r.U64(), r.U64(), r.U64(), r.U64()
	e.Tranches, e.Closed = r.U16(), r.U16()
	keys, threshold, standbys := r.U8(), r.U8(), r.U8()
	r.Zeros(escrowReserved)
	if r.Bad || keys > MaxVoucherKeys || standbys > MaxStandbys {
		return Escrow{}, notOne("escrow", b)
	}
	e.Keys.Threshold = threshold
	for range keys {
		e.Keys.Keys = append(e.Keys.Keys, r.Key())
	}
	for range standbys {
		e.Standbys = append(e.Standbys, Standby{Provider: r.Key(), Payout: r.Key(), MaxRate: market.Rate(r.U64()),
			Budget: market.Amount(r.U64())})
	}
	if !r.Done() || e.State != EscrowOpen && e.State != EscrowRefunded || !lawful(e.Keys) {
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
