package account

import (
	"github.com/starling-network/starling/market/sign"
)

// Payout is an epoch's accepted rewards.
type Payout struct {
	Bump, VaultBump uint8
	Source          uint8
	Network         sign.Key
	RentPayer       sign.Key
	Root            sign.Hash
	Epoch           uint64
	Sum             uint64
	Paid            uint64 // of it
	Stays           uint64 // last slot that it stays at least
	Count           uint32 // of payees
	Claims          uint32 // how many were paid
	Claimed         []byte // a bit for each payee, lowest first
}

const payoutHead = 144

// PayoutSize is the length of the account of rewards for count payees.
func PayoutSize(count uint32) int { return payoutHead + int(count+7)/8 }

// WasPaid reports whether payee number i was.
func (p Payout) WasPaid(i uint32) bool { return i < p.Count && p.Claimed[i/8]>>(i%8)&1 == 1 }

// Marshal returns the account's bytes (PROTOCOL.md).
func (p Payout) Marshal() []byte {
	d := head(kindPayout, p.Bump, p.Source, p.VaultBump).Key(p.Network).Key(p.RentPayer).Hash(p.Root)
	return d.U64(p.Epoch).U64(p.Sum).U64(p.Paid).U64(p.Stays).U32(p.Count).U32(p.Claims).Bytes(p.Claimed...)
}

// UnmarshalPayout reads the account of accepted rewards. It returns ErrAccount.
func UnmarshalPayout(b []byte) (Payout, error) {
	r := read(b)
	bump, source, vault := r.head(kindPayout)
	p := Payout{Bump: bump, VaultBump: vault, Source: source, Network: r.Key(), RentPayer: r.Key(), Root: r.Hash(),
		Epoch: r.U64(), Sum: r.U64(), Paid: r.U64(), Stays: r.U64(), Count: r.U32(), Claims: r.U32()}
	if p.Count == 0 || p.Count > MaxPayees {
		return Payout{}, notOne("payout", b)
	}
	p.Claimed = r.Take(int(p.Count+7) / 8)
	if !r.Done() {
		return Payout{}, notOne("payout", b)
	}
	p.Claimed = append([]byte{}, p.Claimed...)
	return p, nil
}
