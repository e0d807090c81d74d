package market

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
)

// Order is a buyer's request for Count leases of UnitsPer units each, all or none.
type Order struct {
	ID       OrderID   `json:"id"`      // set by SealOrder and DecodeOrder
	Buyer    sign.Key  `json:"buyer"`   // the signer
	Nonce    Nonce     `json:"nonce"`   // random, so that no two orders are the same
	Class    Class     `json:"class"`   // or a family, of which any member will do
	Regions  []Region  `json:"regions"` // best first; empty means anywhere
	Count    uint32    `json:"count"`   // leases
	UnitsPer uint32    `json:"units_per"`
	Min      Resources `json:"min"` // per unit
	Runtime  string    `json:"runtime"`
	Slots    uint64    `json:"slots"` // duration wanted
	Expires  time.Time `json:"expires"`
	ReplyKey ReplyKey  `json:"reply_key"` // quotes that come over gossip are sealed to it
	MinStake Amount    `json:"min_stake"`
	// providers quote if their hash is not above it: a fraction of 2³² of them
	Draw uint32 `json:"draw"`
	// only providers in this shard quote, 1 to Shards; 0: those of all shards
	Shard    uint32     `json:"shard,omitempty"`
	Exclude  []sign.Key `json:"exclude"`
	JobTerms sign.Hash  `json:"job_terms"` // hash of the workload's terms

	MinCapability Capability `json:"min_capability,omitempty"` // compute capability wanted; 0 means any
	// Agent is the peer that acts for the buyer: the buyer of a detached job is the job's key, which has no address.
	// Zero means the buyer itself.
	Agent sign.Key `json:"agent,omitzero"`
	// Consent is the agent's signature: it acts for this order. ByAgent makes it.
	Consent sign.Signature `json:"consent,omitzero"`
	// Funds is the account that pays: a token account that Peer owns or is the delegate of, or the escrow that leases
	// are hired from. Zero: Peer's own associated token account alone.
	Funds sign.Key `json:"funds,omitzero"`
	// Unproven also accepts units without a fresh audit record. It has no effect on a network without audits.
	Unproven bool `json:"unproven,omitempty"`
	// Egress is the least that its containers must reach outside.
	Egress Egress `json:"egress,omitempty"`

	// Ceiling is the most that the buyer pays per unit-hour. It is not sent: a decoded order has none.
	Ceiling Price `json:"-"`
	// Image is the image that is to run, zero if none is or offers do not name it. It is not sent.
	Image ImagePrefix `json:"-"`
}

// Peer is the peer that receives messages about the order.
func (o Order) Peer() sign.Key {
	if o.Agent.IsZero() {
		return o.Buyer
	}
	return o.Agent
}

// ByAgent is the order with an agent that consents to act for its buyer.
func (o Order) ByAgent(d sign.Domain, buyer sign.Key, agent sign.Signer) (Order, error) {
	o.Agent = agent.Key()
	var err error
	if o.Consent, err = agent.Sign(d.Preimage(sign.TagAgent, o.consents(buyer))); err != nil {
		return o, fmt.Errorf("signing as an order's agent: %w", err)
	}
	return o, nil
}

// consents returns the bytes that an agent signs.
func (o Order) consents(buyer sign.Key) []byte { return slices.Concat(buyer[:], o.Nonce[:]) }

// Validate reports the first field out of range. Times are checked by DecodeOrder, against a clock.
func (o Order) Validate() error {
	if err := o.Class.Check(); err != nil {
		return err
	}
	if len(o.Regions) > MaxRegions {
		return malformed("order regions", "%d, at most %d", len(o.Regions), MaxRegions)
	}
	for _, r := range o.Regions {
		if err := r.Check(); err != nil {
			return err
		}
	}
	if o.Count < 1 || o.Count > MaxCount {
		return malformed("order count", "%d, want 1 to %d", o.Count, MaxCount)
	}
	if o.UnitsPer < 1 || o.UnitsPer > MaxUnitsPerLease {
		return malformed("order units_per", "%d, want 1 to %d", o.UnitsPer, MaxUnitsPerLease)
	}
	if err := checkRuntime(o.Runtime); err != nil {
		return err
	}
	if o.Slots < 1 || o.Slots > MaxLeaseSlots {
		return malformed("order slots", "%d, want 1 to %d", o.Slots, uint64(MaxLeaseSlots))
	}
	if o.MinCapability > MaxCapability {
		return malformed("order min_capability", "%d, want at most %d", uint32(o.MinCapability), MaxCapability)
	}
	if err := o.Egress.check("order egress"); err != nil {
		return err
	}
	if o.Expires.IsZero() {
		return malformed("order expires", "not set")
	}
	if !o.Agent.IsZero() && o.Agent.Check() != nil {
		return malformed("order agent", "%v", o.Agent.Check())
	}
	if o.ReplyKey == (ReplyKey{}) {
		return malformed("order reply_key", "not set")
	}
	if o.Draw == 0 {
		return malformed("order draw", "0, want 1 to %d", uint32(math.MaxUint32))
	}
	switch {
	case o.Shard > Shards:
		return malformed("order shard", "%d, want 0 to %d", o.Shard, Shards)
	case o.Shard != 0 && o.Draw >= 1<<32/Shards:
		return malformed("order draw", "%d of a shard, want at most %d", o.Draw, 1<<32/Shards-1)
	}
	if len(o.Exclude) > MaxExclude {
		return malformed("order exclude", "%d, at most %d", len(o.Exclude), MaxExclude)
	}
	return nil
}

// MaxCost is the most that all leases together can cost, at the ceiling.
func (o Order) MaxCost(slotMillis uint64) (Amount, error) {
	rate, err := RateOf(o.Ceiling, int(o.UnitsPer), slotMillis)
	if err != nil {
		return 0, err
	}
	one, err := rate.Owed(o.Slots)
	if err != nil {
		return 0, err
	}
	return one.Times(uint64(o.Count))
}

// SealOrder validates and signs the order. It returns it as DecodeOrder would, with Buyer, ID and times in
// milliseconds, but with its Ceiling and Image, and the envelope's bytes.
func SealOrder(d sign.Domain, o Order, s sign.Signer) (Order, []byte, error) {
	if err := o.Validate(); err != nil {
		return Order{}, nil, err
	}
	m := &marketpb.Order{
		Nonce: o.Nonce[:], Class: string(o.Class), Count: o.Count, UnitsPer: o.UnitsPer, Min: ResourcesToPB(o.Min),
		Runtime: o.Runtime, Slots: o.Slots, Expires: millis(o.Expires), ReplyKey: o.ReplyKey[:],
		MinStake: uint64(o.MinStake), Draw: o.Draw, Shard: o.Shard, JobTerms: o.JobTerms[:],
		MinCapability: uint32(o.MinCapability), Unproven: o.Unproven, Egress: uint32(o.Egress),
	}
	if !o.Agent.IsZero() {
		m.Agent, m.Consent = o.Agent[:], o.Consent[:]
	}
	if !o.Funds.IsZero() {
		m.Funds = o.Funds[:]
	}
	for _, r := range o.Regions {
		m.Regions = append(m.Regions, string(r))
	}
	for i := range o.Exclude {
		m.Exclude = append(m.Exclude, o.Exclude[i][:])
	}
	e, err := seal(d, sign.TagOrder, m, MaxOrderPayload, s)
	if err != nil {
		return Order{}, nil, err
	}
	out, err := orderFromPB(e, m)
	out.Ceiling, out.Image = o.Ceiling, o.Image
	return out, e.Marshal(), err
}

// Encode is SealOrder for callers that need only the bytes.
func (o Order) Encode(d sign.Domain, s sign.Signer) ([]byte, error) {
	_, b, err := SealOrder(d, o, s)
	return b, err
}

// DecodeOrder verifies and validates an order as received. ErrMalformed, ErrBadSignature, ErrExpired or ErrNotYet.
func DecodeOrder(d sign.Domain, b []byte, now time.Time) (Order, error) {
	var m marketpb.Order
	e, err := open(d, sign.TagOrder, b, MaxOrderPayload, &m)
	if err != nil {
		return Order{}, fmt.Errorf("order: %w", err)
	}
	o, err := orderFromPB(e, &m)
	if err != nil {
		return Order{}, err
	}
	if !o.Agent.IsZero() {
		if err := sign.Verify(o.Agent, d.Preimage(sign.TagAgent, o.consents(o.Buyer)), o.Consent); err != nil {
			return Order{}, fmt.Errorf("order agent: %w: %w", ErrBadSignature, err)
		}
	}
	return o, checkTimes("order", now, time.Time{}, o.Expires, MaxOrderValidity)
}

func orderFromPB(e sign.Envelope, m *marketpb.Order) (Order, error) {
	o := Order{
		ID:    OrderID(sign.Sum([]byte("starling/order/v1"), e.Key[:], e.Payload)),
		Buyer: e.Key, Class: Class(m.Class), Count: m.Count, UnitsPer: m.UnitsPer, Min: ResourcesFromPB(m.Min),
		Runtime: m.Runtime, Slots: m.Slots,
		MinStake: Amount(m.MinStake), Draw: m.Draw, Shard: m.Shard, MinCapability: Capability(m.MinCapability),
		Unproven: m.Unproven,
	}
	if len(m.Nonce) != len(o.Nonce) {
		return Order{}, malformed("order nonce", "%d bytes, want %d", len(m.Nonce), len(o.Nonce))
	}
	copy(o.Nonce[:], m.Nonce)
	for _, r := range m.Regions {
		o.Regions = append(o.Regions, Region(r))
	}
	for _, b := range m.Exclude {
		k, err := exactly[sign.Key]("order exclude", b)
		if err != nil {
			return Order{}, err
		}
		o.Exclude = append(o.Exclude, k)
	}
	var err error
	if o.Egress, err = egressFrom("order egress", m.Egress); err != nil {
		return Order{}, err
	}
	if len(m.Agent) > 0 {
		if o.Agent, err = exactly[sign.Key]("order agent", m.Agent); err != nil {
			return Order{}, err
		}
		if len(m.Consent) != sign.SignatureSize {
			return Order{}, malformed("order consent", "%d bytes, want %d", len(m.Consent), sign.SignatureSize)
		}
		o.Consent = sign.Signature(m.Consent)
	}
	if len(m.Funds) > 0 {
		if o.Funds, err = exactly[sign.Key]("order funds", m.Funds); err != nil {
			return Order{}, err
		}
	}
	if o.ReplyKey, err = exactly[ReplyKey]("order reply_key", m.ReplyKey); err != nil {
		return Order{}, err
	}
	if o.JobTerms, err = exactly[sign.Hash]("order job_terms", m.JobTerms); err != nil {
		return Order{}, err
	}
	if o.Expires, err = fromMillis("order expires", m.Expires); err != nil {
		return Order{}, err
	}
	return o, o.Validate()
}
