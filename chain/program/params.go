package program

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of a network's parameters.
const (
	MaxMints       = 4
	MaxFeeBps      = 1000  // hundredths of a percent of what is claimed
	MinFeeBps      = 10    // or wash trading is free
	MinBurnBps     = 2000  // of the fee, likewise
	Shares         = 10000 // what the shares of a fee add up to
	paramsHead     = 184
	mintTermsSize  = 48
	paramsReserved = 7
	mintReserved   = 5
)

// Params is what never changes in a network's account. The account's address is made of their hash.
type Params struct {
	Network        string      `json:"network"` // id
	Chain          sign.Hash   `json:"chain"`
	Treasury       sign.Key    `json:"treasury"`   // wallet; zero: none, its share burns
	Authority      sign.Key    `json:"authority"`  // who may draw from the pool; zero: nobody, ever, and the pool's share burns
	StakeMint      sign.Key    `json:"stake_mint"` // the token that providers stake
	MarginSlots    uint32      `json:"margin_slots"`
	ResponseSlots  uint32      `json:"response_slots"`
	UnbondingSlots uint64      `json:"unbonding_slots"`
	EvidenceSlots  uint64      `json:"evidence_slots"`
	MinStake       uint64      `json:"min_stake"`
	Mints          []MintTerms `json:"mints"`
}

// MintTerms is what a claim in one token costs, and who gets the fee.
type MintTerms struct {
	Mint        sign.Key `json:"mint"`
	FeeBps      uint16   `json:"fee_bps"` // of what is claimed
	BurnBps     uint16   `json:"burn_bps"`
	PoolBps     uint16   `json:"pool_bps"`
	TreasuryBps uint16   `json:"treasury_bps"`
	ReferrerBps uint16   `json:"referrer_bps"`
	Decimals    uint8    `json:"decimals"`
}

// DefaultTerms are of a token for whose network nobody wanted others: 2 % of what is claimed, of which half burns.
func DefaultTerms(mint sign.Key, decimals uint8) MintTerms {
	return MintTerms{Mint: mint, FeeBps: 200, BurnBps: 5000, PoolBps: 2500, TreasuryBps: 1500, ReferrerBps: 1000, Decimals: decimals}
}

// Validate reports the first rule that is broken: ErrParams.
func (p Params) Validate() error {
	if err := (sign.Domain{Network: p.Network}).Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrParams, err)
	}
	switch {
	case p.EvidenceSlots >= p.UnbondingSlots:
		return fmt.Errorf("%w: evidence is good for %d slots, stake leaves after %d: it must stay longer", ErrParams, p.EvidenceSlots, p.UnbondingSlots)
	case p.ResponseSlots == 0:
		return fmt.Errorf("%w: no slots to respond when a leaf is retired", ErrParams)
	case len(p.Mints) < 1 || len(p.Mints) > MaxMints:
		return fmt.Errorf("%w: %d mints, want 1 to %d", ErrParams, len(p.Mints), MaxMints)
	}
	for i, m := range p.Mints {
		if err := m.validate(); err != nil {
			return fmt.Errorf("mint %d: %w", i, err)
		}
		for _, other := range p.Mints[:i] {
			if other.Mint == m.Mint {
				return fmt.Errorf("%w: mint %s stands twice", ErrParams, m.Mint)
			}
		}
	}
	return nil
}

func (m MintTerms) validate() error {
	switch sum := int(m.BurnBps) + int(m.PoolBps) + int(m.TreasuryBps) + int(m.ReferrerBps); {
	case m.FeeBps < MinFeeBps || m.FeeBps > MaxFeeBps:
		return fmt.Errorf("%w: fee of %d bps, want %d to %d", ErrParams, m.FeeBps, MinFeeBps, MaxFeeBps)
	case m.BurnBps < MinBurnBps:
		return fmt.Errorf("%w: %d bps of the fee burn, at least %d must", ErrParams, m.BurnBps, MinBurnBps)
	case sum != Shares:
		return fmt.Errorf("%w: the fee's shares add up to %d bps, want %d", ErrParams, sum, Shares)
	case m.Decimals > market.MaxDecimals:
		return fmt.Errorf("%w: %d decimals, at most %d", ErrParams, m.Decimals, market.MaxDecimals)
	}
	return nil
}

// Domain is where vouchers and receipts are signed that the program takes for this network.
func (p Params) Domain(program sign.Key) sign.Domain {
	return sign.Domain{Network: p.Network, Chain: p.Chain, Program: program}
}

// Hash is SHA-256 of "starling/params/v1" ‖ layout: the seed of the network's address.
func (p Params) Hash() sign.Hash { return sign.Sum([]byte("starling/params/v1"), p.Marshal()) }

// Marshal returns the layout (PROTOCOL.md). The parameters must be valid.
func (p Params) Marshal() []byte {
	var network [sign.NetworkSize]byte
	copy(network[:], p.Network)
	d := data(network[:]).hash(p.Chain).key(p.Treasury).key(p.Authority).key(p.StakeMint)
	d = d.u32(p.MarginSlots).u32(p.ResponseSlots).u64(p.UnbondingSlots).u64(p.EvidenceSlots).u64(p.MinStake)
	d = append(d.u8(uint8(len(p.Mints))), make([]byte, paramsReserved)...)
	for _, m := range p.Mints {
		d = d.key(m.Mint).u16(m.FeeBps).u16(m.BurnBps).u16(m.PoolBps).u16(m.TreasuryBps).u16(m.ReferrerBps).u8(m.Decimals)
		d = append(d, make([]byte, mintReserved)...)
	}
	return d
}

// UnmarshalParams reads the layout and nothing after it, and validates. ErrParams.
func UnmarshalParams(b []byte) (Params, error) {
	r := &reader{b: b}
	p := r.params()
	if !r.done() {
		return Params{}, fmt.Errorf("%w: %d bytes", ErrParams, len(b))
	}
	if err := p.Validate(); err != nil {
		return Params{}, err
	}
	return p, nil
}

func (r *reader) params() Params {
	network := r.bytes(sign.NetworkSize)
	n := 0
	for n < len(network) && network[n] != 0 {
		n++
	}
	for _, c := range network[n:] {
		r.failed = r.failed || c != 0
	}
	p := Params{
		Network: string(network[:n]), Chain: r.hash(), Treasury: r.key(), Authority: r.key(), StakeMint: r.key(),
		MarginSlots: r.u32(), ResponseSlots: r.u32(), UnbondingSlots: r.u64(), EvidenceSlots: r.u64(), MinStake: r.u64(),
	}
	count := r.u8()
	r.zeros(paramsReserved)
	if count > MaxMints {
		r.failed = true
		return Params{}
	}
	for range count {
		p.Mints = append(p.Mints, MintTerms{Mint: r.key(), FeeBps: r.u16(), BurnBps: r.u16(), PoolBps: r.u16(), TreasuryBps: r.u16(),
			ReferrerBps: r.u16(), Decimals: r.u8()})
		r.zeros(mintReserved)
	}
	return p
}

// ParamsSize is the length of the layout.
func ParamsSize(mints int) int { return paramsHead + mintTermsSize*mints }

// Network is a network's account.
type Network struct {
	Bump      uint8
	Authority sign.Key // now; once zero it stays so
	Params    Params
}

// NetworkSize is the length of a network's account.
func NetworkSize(mints int) int { return headSize + sign.KeySize + ParamsSize(mints) }

// Marshal returns the account's bytes (PROTOCOL.md).
func (n Network) Marshal() []byte {
	return head(kindNetwork, n.Bump, 0, 0).key(n.Authority).bytes(n.Params.Marshal()...)
}

// UnmarshalNetwork reads a network's account. ErrAccount.
func UnmarshalNetwork(b []byte) (Network, error) {
	r := &reader{b: b}
	bump, flags, more := r.head(kindNetwork)
	n := Network{Bump: bump, Authority: r.key(), Params: r.params()}
	if !r.done() || flags|more != 0 || n.Params.Validate() != nil {
		return Network{}, notOne("network", b)
	}
	return n, nil
}
