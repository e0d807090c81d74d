package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"google.golang.org/protobuf/proto"
)

// Record is the journal's record of one hold or lease. Records are never changed, only replaced.
type Record struct {
	ID           market.HoldID     `json:"id"`
	State        State             `json:"state"`
	Order        market.OrderID    `json:"order"`
	OrderCount   uint32            `json:"order_count"` // leases of the order
	Buyer        sign.Key          `json:"buyer"`
	Rank         uint32            `json:"rank"`
	Class        market.Class      `json:"class"`    // of the units
	PerUnit      market.Resources  `json:"per_unit"` // resources of each unit
	Units        []market.UnitID   `json:"units"`    // ascending
	Price        market.Price      `json:"price"`    // agreed, per unit-hour
	Slots        uint64            `json:"slots"`    // duration agreed
	JobTerms     sign.Hash         `json:"job_terms"`
	OrderExpires time.Time         `json:"order_expires"`
	HoldExpires  time.Time         `json:"hold_expires"`
	Core         *market.LeaseCore `json:"core,omitempty"` // nil until signed
	Lease        market.LeaseID    `json:"lease,omitzero"` // of Core
	Keys         market.KeySet     `json:"keys,omitzero"`  // voucher keys; Core carries their hash
	BuyerSig     sign.Signature    `json:"buyer_sig,omitzero"`
	EndReason    string            `json:"end_reason,omitempty"`
	Root         market.LeaseID    `json:"root,omitzero"`      // first lease of the line; zero unless a successor
	Previous     market.LeaseID    `json:"previous,omitzero"`  // the lease before it, likewise
	Since        market.Slot       `json:"since,omitempty"`    // start of Root, likewise
	HandedTo     market.LeaseID    `json:"handed_to,omitzero"` // the successor that took over the execution, if any
	Escrow       sign.Key          `json:"escrow,omitzero"`    // where its leaf is, or will be; zero on a free network
	Funding      []byte            `json:"funding,omitempty"`  // proof of that, as the buyer gave it
	// it ends unless its leaf was seen on chain by then; 0 once it was
	FundBy market.Slot `json:"fund_by,omitempty"`
	Agent  sign.Key    `json:"agent,omitzero"` // the peer that commands it; zero: the buyer
	// epoch that a Supervised gave the agent; 0: none, the order named it
	Supervision uint64    `json:"supervision,omitempty"`
	Overlay     bool      `json:"overlay,omitempty"`  // an overlay key was named, which Core's nonce commits to
	Newcomer    bool      `json:"newcomer,omitempty"` // Backing.Newcomer, when it was made
	Made        time.Time `json:"made,omitzero"`      // when the units were set aside
}

// Peer is the peer that commands the lease and receives messages about it.
func (r Record) Peer() sign.Key {
	if r.Agent.IsZero() {
		return r.Buyer
	}
	return r.Agent
}

// MaxRecordSize bounds a record's wire form: MaxUnitsPerLease units, a core and a full key set.
const MaxRecordSize = 48 << 10

// MaxFunding bounds the buyer's statement of the place of a lease's leaf, in bytes.
const MaxFunding = 2 << 10

const maxEndReason = 256

// Marshal returns the journal form, a marketpb.HoldRecord.
func (r Record) Marshal() ([]byte, error) {
	m := &marketpb.HoldRecord{
		Hold: r.ID[:], Order: r.Order[:], Buyer: r.Buyer[:], State: uint32(r.State), Rank: r.Rank,
		Price: uint64(r.Price), Slots: r.Slots, JobTerms: r.JobTerms[:], OrderExpires: r.OrderExpires.UnixMilli(),
		HoldExpires: r.HoldExpires.UnixMilli(), EndReason: r.EndReason, Class: string(r.Class),
		OrderCount: r.OrderCount, Overlay: r.Overlay,
	}
	m.PerUnit, m.Newcomer = market.ResourcesToPB(r.PerUnit), r.Newcomer
	if !r.Made.IsZero() {
		m.Made = r.Made.UnixMilli()
	}
	if !r.Root.IsZero() {
		m.Root, m.Previous, m.Since = r.Root[:], r.Previous[:], uint64(r.Since)
	}
	if !r.HandedTo.IsZero() {
		m.HandedTo = r.HandedTo[:]
	}
	if !r.Escrow.IsZero() {
		m.Escrow, m.Funding, m.FundBy = r.Escrow[:], r.Funding, uint64(r.FundBy)
	}
	if !r.Agent.IsZero() {
		m.Agent, m.Supervision = r.Agent[:], r.Supervision
	}
	for i := range r.Units {
		m.Units = append(m.Units, r.Units[i][:])
	}
	if r.Core != nil {
		core := r.Core.Marshal()
		m.Core, m.Keys, m.BuyerSignature = core[:], r.Keys.Marshal(), r.BuyerSig[:]
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding hold record: %w", err)
	}
	return b, nil
}

// UnmarshalRecord reads the journal form and validates it. ErrRecord for anything this package would not write.
func UnmarshalRecord(b []byte) (Record, error) {
	if len(b) > MaxRecordSize {
		return Record{}, fmt.Errorf("%w: %d bytes, at most %d", ErrRecord, len(b), MaxRecordSize)
	}
	var m marketpb.HoldRecord
	if err := proto.Unmarshal(b, &m); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if len(m.Hold) != 16 || len(m.Order) != 32 || len(m.Buyer) != 32 || len(m.JobTerms) != 32 || m.State > 255 {
		return Record{}, fmt.Errorf("%w: a field has a wrong size", ErrRecord)
	}
	r := Record{
		ID: market.HoldID(m.Hold), State: State(m.State), Order: market.OrderID(m.Order), OrderCount: m.OrderCount,
		Buyer: sign.Key(m.Buyer), Rank: m.Rank, Class: market.Class(m.Class), Price: market.Price(m.Price),
		Slots: m.Slots, JobTerms: sign.Hash(m.JobTerms), OrderExpires: time.UnixMilli(m.OrderExpires).UTC(),
		HoldExpires: time.UnixMilli(m.HoldExpires).UTC(), EndReason: m.EndReason,
		PerUnit: market.ResourcesFromPB(m.PerUnit), Overlay: m.Overlay, Newcomer: m.Newcomer,
	}
	if m.Made != 0 {
		r.Made = time.UnixMilli(m.Made).UTC()
	}
	for _, u := range m.Units {
		if len(u) != 32 {
			return Record{}, fmt.Errorf("%w: a unit id has %d bytes", ErrRecord, len(u))
		}
		r.Units = append(r.Units, market.UnitID(u))
	}
	if len(m.Core) > 0 {
		core, err := market.UnmarshalLeaseCore(m.Core)
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
		}
		keys, err := market.UnmarshalKeySet(m.Keys)
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
		}
		if len(m.BuyerSignature) != sign.SignatureSize {
			return Record{}, fmt.Errorf("%w: buyer signature of %d bytes", ErrRecord, len(m.BuyerSignature))
		}
		r.Core, r.Lease, r.Keys, r.BuyerSig = &core, core.ID(), keys, sign.Signature(m.BuyerSignature)
	} else if len(m.Keys) > 0 || len(m.BuyerSignature) > 0 {
		return Record{}, fmt.Errorf("%w: keys or signature without a lease", ErrRecord)
	}
	for _, f := range []struct {
		to   *market.LeaseID
		from []byte
	}{{&r.Root, m.Root}, {&r.Previous, m.Previous}, {&r.HandedTo, m.HandedTo}} {
		switch len(f.from) {
		case 0:
		case len(market.LeaseID{}):
			*f.to = market.LeaseID(f.from)
		default:
			return Record{}, fmt.Errorf("%w: a lease id of %d bytes", ErrRecord, len(f.from))
		}
	}
	r.Since = market.Slot(m.Since)
	switch len(m.Escrow) {
	case 0:
	case sign.KeySize:
		r.Escrow = sign.Key(m.Escrow)
	default:
		return Record{}, fmt.Errorf("%w: an escrow's address of %d bytes", ErrRecord, len(m.Escrow))
	}
	r.Funding, r.FundBy, r.Supervision = m.Funding, market.Slot(m.FundBy), m.Supervision
	switch len(m.Agent) {
	case 0:
	case sign.KeySize:
		r.Agent = sign.Key(m.Agent)
	default:
		return Record{}, fmt.Errorf("%w: an agent's key of %d bytes", ErrRecord, len(m.Agent))
	}
	return r, r.validate()
}

func (r Record) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: hold %s: %s", ErrRecord, r.ID.Short(), fmt.Sprintf(format, args...))
	}
	if _, known := stateNames[r.State]; !known {
		return bad("unknown state %d", uint8(r.State))
	}
	if len(r.EndReason) > maxEndReason {
		return bad("end reason of %d bytes", len(r.EndReason))
	}
	if sorted, err := market.SortUnits(r.Units); err != nil {
		return bad("%v", err)
	} else if !slices.Equal(sorted, r.Units) {
		return bad("units are not ascending")
	}
	needs := r.State == Signed || r.State == Active || r.State == Ending || r.State == Ended || r.State == Void
	if needs && r.Core == nil {
		return bad("%s without a lease", r.State)
	}
	if r.State == Held && r.Core != nil {
		return bad("held with a lease already signed")
	}
	if c := r.Core; c != nil && (c.Order != r.Order || c.Buyer != r.Buyer || c.Rank != r.Rank ||
		int(c.Units) != len(r.Units) || c.UnitsRoot != market.UnitsRoot(r.Units) || c.VoucherKeys != r.Keys.Hash()) {
		return bad("its lease is about something else")
	}
	if r.Escrow.IsZero() != (len(r.Funding) == 0) || len(r.Funding) > MaxFunding || r.Escrow.IsZero() && r.FundBy != 0 {
		return bad("funding of %d bytes in escrow %s", len(r.Funding), r.Escrow.Short())
	}
	if r.Agent.IsZero() && r.Supervision > 0 || !r.Agent.IsZero() && r.Agent.Check() != nil {
		return bad("commanded by %s under epoch %d", r.Agent.Short(), r.Supervision)
	}
	if paid := r.State == Active || r.State == Ending || r.State == Ended; !paid && !r.Escrow.IsZero() {
		return bad("%s with an escrow", r.State)
	}
	return r.validateLine(bad)
}

// validateLine returns an error if the record's place in its line is impossible.
func (r Record) validateLine(bad func(format string, args ...any) error) error {
	successor := r.Core != nil && r.Core.Successor()
	switch {
	case successor != !r.Root.IsZero() || successor != !r.Previous.IsZero() || !successor && r.Since != 0:
		return bad("a successor names the leases before it, and no other lease does")
	case successor && (r.Core.Nonce != market.Nonce(r.Previous[:16]) || r.Since >= r.Core.Start || r.State == Held):
		return bad("its lease follows on another one")
	case !r.HandedTo.IsZero() && (r.State != Ending && r.State != Ended || r.HandedTo == r.Lease):
		return bad("%s, and handed over", r.State)
	}
	return nil
}
