package account

import (
	"fmt"

	"github.com/starling-network/starling/chain/internal/fields"
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

// Rules returns the initial rules of a network with these parameters.
func (p Params) Rules() Rules {
	r := Rules{ResponseSlots: p.ResponseSlots, UnbondingSlots: p.UnbondingSlots, MinStake: p.MinStake}
	for _, m := range p.Mints {
		r.Fees = append(r.Fees, m.Fees())
	}
	return r
}

// Allows returns nil if a vote may set these rules on a network with these parameters, otherwise ErrParams with the
// reason. A window may be one to four times the parameter, so that no party has less time than promised. The minimum
// stake is a quarter to four times the parameter. Fees are within every network's limits.
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
	d := fields.Data{}.U32(r.ResponseSlots).U32(0).U64(r.UnbondingSlots).U64(r.MinStake)
	for _, f := range r.Fees {
		d = d.U16(f.FeeBps).U16(f.BurnBps).U16(f.PoolBps).U16(f.TreasuryBps).U16(f.ReferrerBps)
		d = d.Zeros(feesReserved)
	}
	return d
}

func (r *reader) rules(mints int) Rules {
	out := Rules{ResponseSlots: r.U32()}
	r.Zeros(4)
	out.UnbondingSlots, out.MinStake = r.U64(), r.U64()
	for range mints {
		out.Fees = append(out.Fees, Fees{FeeBps: r.U16(), BurnBps: r.U16(), PoolBps: r.U16(), TreasuryBps: r.U16(),
			ReferrerBps: r.U16()})
		r.Zeros(feesReserved)
	}
	return out
}
