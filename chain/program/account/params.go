package account

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of a network's parameters.
const (
	MaxMints       = 4
	MaxFeeBps      = 1000  // hundredths of a percent of a claim
	MinFeeBps      = 10    // or wash trading is free
	MinBurnBps     = 2000  // of the fee, likewise
	Shares         = 10000 // sum of the shares of a fee
	paramsHead     = 248
	mintTermsSize  = 48
	paramsReserved = 7
	mintReserved   = 5
)

// Params is the constant part of a network's account. The account's address is derived from their hash. Fees, response,
// unbonding and least stake are the network's initial values; the current ones are in its Rules.
type Params struct {
	Network  string    `json:"network"` // id
	Chain    sign.Hash `json:"chain"`
	Treasury sign.Key  `json:"treasury"` // wallet; zero: none, its share burns
	// may draw from the pool; zero: no key may, and the pool's share burns
	Authority      sign.Key    `json:"authority"`
	StakeMint      sign.Key    `json:"stake_mint"` // the token that providers stake
	MarginSlots    uint32      `json:"margin_slots"`
	ResponseSlots  uint32      `json:"response_slots"`
	UnbondingSlots uint64      `json:"unbonding_slots"`
	EvidenceSlots  uint64      `json:"evidence_slots"`
	MinStake       uint64      `json:"min_stake"`
	Votes          Votes       `json:"votes,omitzero"`       // zero: no votes
	AuditSlots     uint32      `json:"audit_slots,omitzero"` // of a window of audits; 0: lies of audits are not slashed
	Mints          []MintTerms `json:"mints"`
}

// Votes are the parameters of votes by a network's verifiers, and of rewards.
type Votes struct {
	VotingSlots   uint64 `json:"voting_slots"`    // that a ballot is open
	LockSlots     uint64 `json:"lock_slots"`      // between the end of a vote and its effect
	LeastBonded   uint64 `json:"least_bonded"`    // base units of the stake mint that must be bonded before a vote
	LeastBond     uint64 `json:"least_bond"`      // of a ballot's opener, base units of the stake mint
	Emission      uint64 `json:"emission"`        // base units of the stake mint in the whole schedule; 0: none
	FirstSlot     uint64 `json:"first_slot"`      // of epoch 0
	EpochSlots    uint64 `json:"epoch_slots"`     //
	EpochsOfMonth uint32 `json:"epochs_of_month"` //
}

// claimMonths is for how long rewards can be claimed.
const claimMonths = 3

// On reports whether anything is voted on.
func (v Votes) On() bool { return v.VotingSlots > 0 }

// EpochEnd is the first slot after an epoch, or the last slot if the epoch never ends.
func (v Votes) EpochEnd(epoch uint64) uint64 {
	over, n := bits.Mul64(epoch, v.EpochSlots)
	n, carry := bits.Add64(n, v.EpochSlots, 0)
	n, more := bits.Add64(n, v.FirstSlot, 0)
	if over > 0 || carry+more > 0 {
		return math.MaxUint64
	}
	return n
}

// Month is the length of a month in slots. An epoch's rewards can be accepted for one month after it.
func (v Votes) Month() uint64 { return v.EpochSlots * uint64(v.EpochsOfMonth) }

// Claiming is for how many slots accepted rewards can be claimed, at least.
func (v Votes) Claiming() uint64 { return claimMonths * v.Month() }

// Allowance is the most that an epoch's rewards may take of the emission.
func (v Votes) Allowance(epoch uint64) uint64 { return Allowance(v.Emission, v.EpochsOfMonth, epoch) }

func (v Votes) validate() error {
	if !v.On() {
		if v != (Votes{}) {
			return fmt.Errorf("%w: vote parameters without votes", ErrParams)
		}
		return nil
	}
	hi, month := bits.Mul64(v.EpochSlots, uint64(v.EpochsOfMonth))
	switch {
	case v.LockSlots == 0:
		return fmt.Errorf("%w: lock slots: 0", ErrParams)
	case v.LeastBonded == 0:
		return fmt.Errorf("%w: least bonded: 0", ErrParams)
	case v.LeastBond == 0:
		return fmt.Errorf("%w: least bond: 0", ErrParams)
	case hi != 0 || month == 0 || month > math.MaxUint64/claimMonths:
		return fmt.Errorf("%w: a month of %d epochs of %d slots", ErrParams, v.EpochsOfMonth, v.EpochSlots)
	}
	return nil
}

// MintTerms are the fee of a claim in one token, and its receivers.
type MintTerms struct {
	Mint        sign.Key `json:"mint"`
	FeeBps      uint16   `json:"fee_bps"` // of a claim
	BurnBps     uint16   `json:"burn_bps"`
	PoolBps     uint16   `json:"pool_bps"`
	TreasuryBps uint16   `json:"treasury_bps"`
	ReferrerBps uint16   `json:"referrer_bps"`
	Decimals    uint8    `json:"decimals"`
}

// DefaultTerms are the terms of a token by default: 2 % of a claim, of which half burns.
func DefaultTerms(mint sign.Key, decimals uint8) MintTerms {
	return MintTerms{Mint: mint, FeeBps: 200, BurnBps: 5000, PoolBps: 2500, TreasuryBps: 1500, ReferrerBps: 1000,
		Decimals: decimals}
}

// Validate reports the first rule that is broken: ErrParams.
func (p Params) Validate() error {
	if err := (sign.Domain{Network: p.Network}).Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrParams, err)
	}
	switch {
	case p.EvidenceSlots >= p.UnbondingSlots:
		return fmt.Errorf("%w: evidence slots %d, unbonding slots %d: want unbonding longer than evidence",
			ErrParams, p.EvidenceSlots, p.UnbondingSlots)
	case p.ResponseSlots == 0:
		return fmt.Errorf("%w: no slots to respond when a leaf is retired", ErrParams)
	case len(p.Mints) < 1 || len(p.Mints) > MaxMints:
		return fmt.Errorf("%w: %d mints, want 1 to %d", ErrParams, len(p.Mints), MaxMints)
	}
	if err := p.Votes.validate(); err != nil {
		return err
	}
	for i, m := range p.Mints {
		if err := m.validate(); err != nil {
			return fmt.Errorf("mint %d: %w", i, err)
		}
		for _, other := range p.Mints[:i] {
			if other.Mint == m.Mint {
				return fmt.Errorf("%w: mint %s: duplicate", ErrParams, m.Mint)
			}
		}
	}
	return nil
}

func (m MintTerms) validate() error {
	switch err := m.Fees().validate(); {
	case err != nil:
		return err
	case m.Decimals > market.MaxDecimals:
		return fmt.Errorf("%w: %d decimals, at most %d", ErrParams, m.Decimals, market.MaxDecimals)
	}
	return nil
}

// Domain is the signing domain of vouchers and receipts of this network.
func (p Params) Domain(program sign.Key) sign.Domain {
	return sign.Domain{Network: p.Network, Chain: p.Chain, Program: program}
}

// Hash is SHA-256 of "starling/params/v1" ‖ layout: the seed of the network's address.
func (p Params) Hash() sign.Hash { return sign.Sum([]byte("starling/params/v1"), p.Marshal()) }

// Marshal returns the layout (PROTOCOL.md). The parameters must be valid.
func (p Params) Marshal() []byte {
	var network [sign.NetworkSize]byte
	copy(network[:], p.Network)
	d := fields.Data(network[:]).Hash(p.Chain).Key(p.Treasury).Key(p.Authority).Key(p.StakeMint)
	d = d.U32(p.MarginSlots).U32(p.ResponseSlots).U64(p.UnbondingSlots).U64(p.EvidenceSlots).U64(p.MinStake)
	d = append(d.U8(uint8(len(p.Mints))), make([]byte, paramsReserved)...)
	v := p.Votes
	d = d.U64(v.VotingSlots).U64(v.LockSlots).U64(v.LeastBonded).U64(v.LeastBond).U64(v.Emission).U64(v.FirstSlot).
		U64(v.EpochSlots).U32(v.EpochsOfMonth).U32(p.AuditSlots)
	for _, m := range p.Mints {
		d = d.Key(m.Mint).U16(m.FeeBps).U16(m.BurnBps).U16(m.PoolBps).U16(m.TreasuryBps).U16(m.ReferrerBps).
			U8(m.Decimals)
		d = d.Zeros(mintReserved)
	}
	return d
}

// UnmarshalParams decodes the layout without trailing bytes, and validates. It returns ErrParams otherwise.
func UnmarshalParams(b []byte) (Params, error) {
	r := read(b)
	p := r.params()
	if !r.Done() {
		return Params{}, fmt.Errorf("%w: %d bytes", ErrParams, len(b))
	}
	if err := p.Validate(); err != nil {
		return Params{}, err
	}
	return p, nil
}

func (r *reader) params() Params {
	network := r.Take(sign.NetworkSize)
	n := 0
	for n < len(network) && network[n] != 0 {
		n++
	}
	for _, c := range network[n:] {
		r.Bad = r.Bad || c != 0
	}
	p := Params{
		Network: string(network[:n]), Chain: r.Hash(), Treasury: r.Key(), Authority: r.Key(), StakeMint: r.Key(),
		MarginSlots: r.U32(), ResponseSlots: r.U32(), UnbondingSlots: r.U64(), EvidenceSlots: r.U64(),
		MinStake: r.U64(),
	}
	count := r.U8()
	r.Zeros(paramsReserved)
	p.Votes = Votes{VotingSlots: r.U64(), LockSlots: r.U64(), LeastBonded: r.U64(), LeastBond: r.U64(),
		Emission: r.U64(), FirstSlot: r.U64(), EpochSlots: r.U64(), EpochsOfMonth: r.U32()}
	p.AuditSlots = r.U32()
	if count > MaxMints {
		r.Bad = true
		return Params{}
	}
	for range count {
		p.Mints = append(p.Mints, MintTerms{Mint: r.Key(), FeeBps: r.U16(), BurnBps: r.U16(), PoolBps: r.U16(),
			TreasuryBps: r.U16(), ReferrerBps: r.U16(), Decimals: r.U8()})
		r.Zeros(mintReserved)
	}
	return p
}

// ParamsSize is the length of the layout.
func ParamsSize(mints int) int { return paramsHead + mintTermsSize*mints }
