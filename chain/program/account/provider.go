package account

import (
	"github.com/starling-network/starling/market/sign"
)

// Provider is a provider's registration: its keys, its owner, its payout, its stake and its votes.
type Provider struct {
	Bump, VaultBump uint8
	WasSlashed      bool
	Network         sign.Key
	Peer            sign.Key // the one key that it sells under; its address is made of it
	Owner           sign.Key
	Payout          sign.Key  // a wallet
	Inventory       sign.Hash // of its units
	Stake           uint64    // base units of the stake mint
	Unbonding       uint64    // no longer stake, but slashed with it until the withdrawal
	Ready           uint64    // slot from which it can be withdrawn; 0 without unbonding stake
	Slashed         uint64    // slot of the last slash, 0 never
	Registered      uint64    // slot
	Sequence        uint64    // changes above Stake so far
	Bonded          uint64    // part of the stake, which votes
	Raised          uint64    // slot in which Bonded was last raised
	Frozen          uint64    // last slot of the votes that it took part in: until then Bonded cannot be released
}

// ProviderSize is the length of a provider's account.
const ProviderSize = 256

const providerReserved = 16

// Marshal returns the account's bytes (PROTOCOL.md).
func (p Provider) Marshal() []byte {
	d := head(kindProvider, p.Bump, flag(p.WasSlashed), p.VaultBump)
	for _, k := range []sign.Key{p.Network, p.Peer, p.Owner, p.Payout} {
		d = d.Key(k)
	}
	d = d.Hash(p.Inventory)
	for _, v := range []uint64{p.Stake, p.Unbonding, p.Ready, p.Slashed, p.Registered, p.Sequence, p.Bonded, p.Raised,
		p.Frozen} {
		d = d.U64(v)
	}
	return d.Zeros(providerReserved)
}

// UnmarshalProvider reads a provider's account. It returns ErrAccount.
func UnmarshalProvider(b []byte) (Provider, error) {
	r := read(b)
	bump, flags, vault := r.head(kindProvider)
	p := Provider{
		Bump: bump, VaultBump: vault, WasSlashed: flags == 1,
		Network: r.Key(), Peer: r.Key(), Owner: r.Key(), Payout: r.Key(), Inventory: r.Hash(),
		Stake: r.U64(), Unbonding: r.U64(), Ready: r.U64(), Slashed: r.U64(), Registered: r.U64(), Sequence: r.U64(),
		Bonded: r.U64(), Raised: r.U64(), Frozen: r.U64(),
	}
	r.Zeros(providerReserved)
	if !r.Done() || flags > 1 {
		return Provider{}, notOne("provider", b)
	}
	return p, nil
}

// Anchored is the content of an anchor's account: these receipts existed in this slot.
type Anchored struct {
	Authority sign.Key // the anchoring key
	Root      sign.Hash
	Count     uint64 // of receipts under the root
	Slot      uint64
}

// AnchorSize is the length of an anchor's account.
const AnchorSize = 88

// Marshal returns the account's bytes (PROTOCOL.md).
func (a Anchored) Marshal() []byte {
	return head(kindAnchor, 0, 0, 0).Key(a.Authority).Hash(a.Root).U64(a.Count).U64(a.Slot)
}

// UnmarshalAnchored reads an anchor's account. It returns ErrAccount.
func UnmarshalAnchored(b []byte) (Anchored, error) {
	r := read(b)
	bump, flags, more := r.head(kindAnchor)
	a := Anchored{Authority: r.Key(), Root: r.Hash(), Count: r.U64(), Slot: r.U64()}
	if !r.Done() || bump|flags|more != 0 {
		return Anchored{}, notOne("anchor", b)
	}
	return a, nil
}
