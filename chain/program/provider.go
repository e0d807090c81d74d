package program

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
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
	Unbonding       uint64    // no stake any more, but slashed with it until it is withdrawn
	Ready           uint64    // slot from which that can be; 0 when nothing is unbonding
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
		d = d.key(k)
	}
	d = d.hash(p.Inventory)
	for _, v := range []uint64{p.Stake, p.Unbonding, p.Ready, p.Slashed, p.Registered, p.Sequence, p.Bonded, p.Raised,
		p.Frozen} {
		d = d.u64(v)
	}
	return append(d, make([]byte, providerReserved)...)
}

// UnmarshalProvider reads a provider's account. ErrAccount.
func UnmarshalProvider(b []byte) (Provider, error) {
	r := &reader{b: b}
	bump, flags, vault := r.head(kindProvider)
	p := Provider{
		Bump: bump, VaultBump: vault, WasSlashed: flags == 1,
		Network: r.key(), Peer: r.key(), Owner: r.key(), Payout: r.key(), Inventory: r.hash(),
		Stake: r.u64(), Unbonding: r.u64(), Ready: r.u64(), Slashed: r.u64(), Registered: r.u64(), Sequence: r.u64(),
		Bonded: r.u64(), Raised: r.u64(), Frozen: r.u64(),
	}
	r.zeros(providerReserved)
	if !r.done() || flags > 1 {
		return Provider{}, notOne("provider", b)
	}
	return p, nil
}

// Attested is a receipt with both signatures checked by the program.
type Attested struct {
	Bump     uint8
	Network  sign.Key
	Reporter sign.Key // its reporter, which paid the rent
	Core     verify.ReceiptCore
	Slot     uint64 // in which it was shown
}

// AttestedSize is the length of an attested receipt's account.
const AttestedSize = 336

// Marshal returns the account's bytes (PROTOCOL.md).
func (a Attested) Marshal() []byte {
	core := a.Core.Marshal()
	return head(kindAttested, a.Bump, 0, 0).key(a.Network).key(a.Reporter).bytes(core[:]...).u64(a.Slot)
}

// UnmarshalAttested reads an attested receipt's account. ErrAccount.
func UnmarshalAttested(b []byte) (Attested, error) {
	r := &reader{b: b}
	bump, flags, more := r.head(kindAttested)
	a := Attested{Bump: bump, Network: r.key(), Reporter: r.key()}
	core, err := verify.UnmarshalReceiptCore(r.bytes(verify.ReceiptCoreSize))
	a.Core, a.Slot = core, r.u64()
	if !r.done() || flags != 0 || more != 0 || err != nil {
		return Attested{}, notOne("attested receipt", b)
	}
	return a, nil
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
	return head(kindAnchor, 0, 0, 0).key(a.Authority).hash(a.Root).u64(a.Count).u64(a.Slot)
}

// UnmarshalAnchored reads an anchor's account. ErrAccount.
func UnmarshalAnchored(b []byte) (Anchored, error) {
	r := &reader{b: b}
	bump, flags, more := r.head(kindAnchor)
	a := Anchored{Authority: r.key(), Root: r.hash(), Count: r.u64(), Slot: r.u64()}
	if !r.done() || bump|flags|more != 0 {
		return Anchored{}, notOne("anchor", b)
	}
	return a, nil
}
