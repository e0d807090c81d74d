package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
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

// MaxRecordSize bounds a record's journal form: MaxUnitsPerLease units, a core and a full key set.
const MaxRecordSize = 128 << 10

// MaxFunding bounds the buyer's statement of the place of a lease's leaf, in bytes.
const MaxFunding = 2 << 10

const maxEndReason = 256

// errTrailing means that bytes follow a record.
var errTrailing = errors.New("data after the record")

// Marshal returns the record's form in the journal: JSON, with times in UTC.
func (r Record) Marshal() ([]byte, error) {
	r.OrderExpires, r.HoldExpires, r.Made = r.OrderExpires.UTC(), r.HoldExpires.UTC(), r.Made.UTC()
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding hold record: %w", err)
	}
	return b, nil
}

// UnmarshalRecord reads the journal form and validates it. ErrRecord for anything this package would not write.
func UnmarshalRecord(b []byte) (r Record, err error) {
	if len(b) > MaxRecordSize {
		return Record{}, fmt.Errorf("%w: %d bytes, at most %d", ErrRecord, len(b), MaxRecordSize)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err = d.Decode(&r); err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = errTrailing
		}
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
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
	if err := r.validateCore(); err != nil {
		return bad("%v", err)
	}
	if c := r.Core; c != nil && (c.Order != r.Order || c.Buyer != r.Buyer || c.Rank != r.Rank ||
		int(c.Units) != len(r.Units) || c.UnitsRoot != market.UnitsRoot(r.Units) || c.VoucherKeys != r.Keys.Hash()) {
		return bad("lease: differs from the record")
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

// validateCore returns an error if the lease or its keys are malformed, or there are keys without a lease.
func (r Record) validateCore() error {
	switch c := r.Core; {
	case c == nil && (len(r.Keys.Keys) > 0 || !r.BuyerSig.IsZero() || !r.Lease.IsZero()):
		return errors.New("keys, signature or id without a lease")
	case c == nil:
		return nil
	case c.ID() != r.Lease:
		return fmt.Errorf("lease %s: id of another one, %s", c.ID().Short(), r.Lease.Short())
	default:
		return errors.Join(c.Validate(), r.Keys.Validate())
	}
}

// validateLine returns an error if the record's place in its line is impossible.
func (r Record) validateLine(bad func(format string, args ...any) error) error {
	successor := r.Core != nil && r.Core.Successor()
	switch {
	case successor != !r.Root.IsZero() || successor != !r.Previous.IsZero() || !successor && r.Since != 0:
		return bad("root and previous lease are set for successors only")
	case successor && (r.Core.Nonce != market.Nonce(r.Previous[:16]) || r.Since >= r.Core.Start || r.State == Held):
		return bad("lease: successor of another lease")
	case !r.HandedTo.IsZero() && (r.State != Ending && r.State != Ended || r.HandedTo == r.Lease):
		return bad("%s with a successor", r.State)
	}
	return nil
}
