package account

import (
	"github.com/starling-network/starling/market/sign"
)

// Network is a network's account.
type Network struct {
	Bump      uint8
	Authority sign.Key // now; once zero it stays so
	Params    Params
	Sequence  uint64 // how often the rules were changed
	Bonded    uint64 // by all providers together
	Emitted   uint64 // rewards accepted from the emission so far
	Rules     Rules  // that hold now
}

const networkCounters = 24

// NewNetwork returns the account of a new network.
func NewNetwork(p Params) Network {
	return Network{Authority: p.Authority, Params: p, Rules: p.Rules()}
}

// Terms returns the current terms of mint number i.
func (n Network) Terms(i int) MintTerms {
	m, f := n.Params.Mints[i], n.Rules.Fees[i]
	return MintTerms{Mint: m.Mint, FeeBps: f.FeeBps, BurnBps: f.BurnBps, PoolBps: f.PoolBps, TreasuryBps: f.TreasuryBps,
		ReferrerBps: f.ReferrerBps, Decimals: m.Decimals}
}

// PaysPool reports whether the pools get their share of fees: they have an authority, or their payments are voted on.
func (n Network) PaysPool() bool { return !n.Authority.IsZero() || n.Params.Votes.On() }

// NetworkSize is the length of a network's account.
func NetworkSize(mints int) int {
	return headSize + sign.KeySize + ParamsSize(mints) + networkCounters + rulesHead + feesSize*mints
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (n Network) Marshal() []byte {
	d := head(kindNetwork, n.Bump, 0, 0).Key(n.Authority).Bytes(n.Params.Marshal()...)
	return d.U64(n.Sequence).U64(n.Bonded).U64(n.Emitted).Bytes(n.Rules.Marshal()...)
}

// UnmarshalNetwork reads a network's account. It returns ErrAccount.
func UnmarshalNetwork(b []byte) (Network, error) {
	r := read(b)
	bump, flags, more := r.head(kindNetwork)
	n := Network{Bump: bump, Authority: r.Key(), Params: r.params()}
	n.Sequence, n.Bonded, n.Emitted, n.Rules = r.U64(), r.U64(), r.U64(), r.rules(len(n.Params.Mints))
	if !r.Done() || flags|more != 0 || n.Params.Validate() != nil || n.Params.Allows(n.Rules) != nil {
		return Network{}, notOne("network", b)
	}
	return n, nil
}
