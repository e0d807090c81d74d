package program

import (
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// Rules are the values of a network that a vote can change; its parameters have the initial ones.
type Rules struct {
	ResponseSlots  uint32 `json:"response_slots"`
	UnbondingSlots uint64 `json:"unbonding_slots"`
	MinStake       uint64 `json:"min_stake"`
	Fees           []Fees `json:"fees"` // of each mint, in the parameters' order
}

// Fees are the fee of a claim, and its receivers.
type Fees struct {
	FeeBps      uint16 `json:"fee_bps"` // of a claim
	BurnBps     uint16 `json:"burn_bps"`
	PoolBps     uint16 `json:"pool_bps"`
	TreasuryBps uint16 `json:"treasury_bps"`
	ReferrerBps uint16 `json:"referrer_bps"`
}

const (
	rulesHead    = 24
	feesSize     = 16
	feesReserved = 6
	// ruleTimes bounds votes: a window, or the least stake, becomes at most this multiple of the parameter.
	ruleTimes = 4
)

// Fees are the terms' own.
func (m MintTerms) Fees() Fees {
	return Fees{FeeBps: m.FeeBps, BurnBps: m.BurnBps, PoolBps: m.PoolBps, TreasuryBps: m.TreasuryBps,
		ReferrerBps: m.ReferrerBps}
}

func (f Fees) validate() error {
	switch sum := int(f.BurnBps) + int(f.PoolBps) + int(f.TreasuryBps) + int(f.ReferrerBps); {
	case f.FeeBps < MinFeeBps || f.FeeBps > MaxFeeBps:
		return fmt.Errorf("%w: fee of %d bps, want %d to %d", ErrParams, f.FeeBps, MinFeeBps, MaxFeeBps)
	case f.BurnBps < MinBurnBps:
		return fmt.Errorf("%w: %d bps of the fee burn, at least %d must", ErrParams, f.BurnBps, MinBurnBps)
	case sum != Shares:
		return fmt.Errorf("%w: the fee's shares add up to %d bps, want %d", ErrParams, sum, Shares)
	}
	return nil
}

// Rules are those that a network with these parameters begins with.
func (p Params) Rules() Rules {
	r := Rules{ResponseSlots: p.ResponseSlots, UnbondingSlots: p.UnbondingSlots, MinStake: p.MinStake}
	for _, m := range p.Mints {
		r.Fees = append(r.Fees, m.Fees())
	}
	return r
}

// Allows returns nil if a vote can make these the rules of a network with these parameters, and ErrParams with the
// reason otherwise. Windows get up to four times as long as in the parameters and never shorter, so that nobody has
// less time than promised. The least stake is a quarter to four times the parameter; fees are within every network's
// limits.
func (p Params) Allows(r Rules) error {
	switch {
	case r.ResponseSlots < p.ResponseSlots || atLeast(uint64(r.ResponseSlots)) > uint64(p.ResponseSlots):
		return fmt.Errorf("%w: %d slots to respond, want %d to %d times that",
			ErrParams, r.ResponseSlots, p.ResponseSlots, ruleTimes)
	case r.UnbondingSlots < p.UnbondingSlots || atLeast(r.UnbondingSlots) > p.UnbondingSlots:
		return fmt.Errorf("%w: unbonding for %d slots, want %d to %d times that",
			ErrParams, r.UnbondingSlots, p.UnbondingSlots, ruleTimes)
	case r.MinStake < p.MinStake/ruleTimes || atLeast(r.MinStake) > p.MinStake:
		return fmt.Errorf("%w: least stake of %d, want a quarter to %d times %d",
			ErrParams, r.MinStake, ruleTimes, p.MinStake)
	case len(r.Fees) != len(p.Mints):
		return fmt.Errorf("%w: fees for %d mints, the network has %d", ErrParams, len(r.Fees), len(p.Mints))
	}
	for i, f := range r.Fees {
		if err := f.validate(); err != nil {
			return fmt.Errorf("mint %d: %w", i, err)
		}
	}
	return nil
}

// atLeast is the least that times ruleTimes is n or more.
func atLeast(n uint64) uint64 { return n/ruleTimes + min(n%ruleTimes, 1) }

// Marshal returns the layout (PROTOCOL.md).
func (r Rules) Marshal() []byte {
	d := data{}.u32(r.ResponseSlots).u32(0).u64(r.UnbondingSlots).u64(r.MinStake)
	for _, f := range r.Fees {
		d = d.u16(f.FeeBps).u16(f.BurnBps).u16(f.PoolBps).u16(f.TreasuryBps).u16(f.ReferrerBps)
		d = append(d, make([]byte, feesReserved)...)
	}
	return d
}

func (r *reader) rules(mints int) Rules {
	out := Rules{ResponseSlots: r.u32()}
	r.zeros(4)
	out.UnbondingSlots, out.MinStake = r.u64(), r.u64()
	for range mints {
		out.Fees = append(out.Fees, Fees{FeeBps: r.u16(), BurnBps: r.u16(), PoolBps: r.u16(), TreasuryBps: r.u16(),
			ReferrerBps: r.u16()})
		r.zeros(feesReserved)
	}
	return out
}

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

// NewNetwork is the account of a network in which nothing has happened yet.
func NewNetwork(p Params) Network {
	return Network{Authority: p.Authority, Params: p, Rules: p.Rules()}
}

// Terms are those of mint number i that hold now.
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
	d := head(kindNetwork, n.Bump, 0, 0).key(n.Authority).bytes(n.Params.Marshal()...)
	return d.u64(n.Sequence).u64(n.Bonded).u64(n.Emitted).bytes(n.Rules.Marshal()...)
}

// UnmarshalNetwork reads a network's account. ErrAccount.
func UnmarshalNetwork(b []byte) (Network, error) {
	r := &reader{b: b}
	bump, flags, more := r.head(kindNetwork)
	n := Network{Bump: bump, Authority: r.key(), Params: r.params()}
	n.Sequence, n.Bonded, n.Emitted, n.Rules = r.u64(), r.u64(), r.u64(), r.rules(len(n.Params.Mints))
	if !r.done() || flags|more != 0 || n.Params.Validate() != nil || n.Params.Allows(n.Rules) != nil {
		return Network{}, notOne("network", b)
	}
	return n, nil
}
