package lease

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// State of one record.
type State uint8

// The states, one sentence each. Journals have their names.
const (
	Held   State = 1 // Units are set aside for the buyer until HoldExpires.
	Signed State = 2 // The provider may have sent its signature. Ends if not activated in time.
	Active State = 3 // Funded: the buyer may use the units.
	Ended  State = 4 // The lease has run and ended; the units are free.
	// A successor given back before it was funded; the units are free. Other such holds are forgotten.
	Released State = 5
	Void     State = 6 // A successor signed and never funded in time, likewise.
	Ending   State = 7 // Over, but its execution still has to stop; the units are not free before it has.
)

var stateNames = map[State]string{Held: "held", Signed: "signed", Active: "active", Ended: "ended",
	Released: "released", Void: "void", Ending: "ending"}

// String names the state.
func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a state. ErrRecord for any other text.
func (s *State) UnmarshalText(text []byte) error {
	for state, name := range stateNames {
		if name == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("%w: state %.20q: unknown", ErrRecord, text)
}

// Live reports whether the record's units are reserved for it.
func (s State) Live() bool { return s == Held || s == Signed || s == Active || s == Ending }

// Now is the time as the provider sees it: its own clock for holds, the chain's slots for leases.
type Now struct {
	Time time.Time
	Slot market.Slot
}

// Event is a buyer's request, with a verified sender, or a report of the shell.
type Event interface{ event() string }

type (
	// ReserveRequested requests the units of one rank of an order. The order is a result of DecodeOrder.
	ReserveRequested struct {
		Hold  market.HoldID
		Order market.Order
		Price market.Price // agreed, per unit-hour
		Rank  uint32
		Class market.Class // of the units, as quoted; "" for the cheapest that fits
		// Overlay requests a key in the overlay of a cluster, to which the lease commits.
		Overlay bool
		Backing *Backing
	}
	// SignRequested brings the lease the buyer has signed for a hold.
	SignRequested struct {
		Hold     market.HoldID
		By       sign.Key
		Core     market.LeaseCore
		Keys     market.KeySet
		BuyerSig sign.Signature
	}
	// ExtendRequested brings the successor of an active lease that the buyer has signed.
	ExtendRequested struct {
		Lease    market.LeaseID // the predecessor
		By       sign.Key
		Core     market.LeaseCore
		BuyerSig sign.Signature
	}
	// FundingPromised reports that a lease's first voucher was checked, and that its buyer is putting its leaf into an
	// escrow. The lease is active from now on, and ends unless FundingSeen follows by slot By.
	FundingPromised struct {
		Lease   market.LeaseID
		Escrow  sign.Key
		Funding []byte // at most MaxFunding
		By      market.Slot
	}
	// FundingWrong reports that the deposit on chain differs from the promised one, and cannot become it. It also
	// reports that the buyer of a funded lease withdraws its money.
	FundingWrong struct {
		Lease  market.LeaseID
		Reason string
	}
	// FundingSeen reports that a lease is paid for: its leaf on chain in slot Landed, or, settled directly, its first
	// voucher checked.
	FundingSeen struct {
		Lease  market.LeaseID
		Landed market.Slot
	}
	// Supervised reports that By showed a valid statement of the job's guardians: it commands the line of a lease under
	// an epoch, from 1. Supervisors of lower epochs are no longer obeyed.
	Supervised struct {
		Lease market.LeaseID // the first of its line
		By    sign.Key
		Epoch uint64
	}
	// ReleaseRequested releases a hold or lease. Hold may be zero if Lease is set.
	ReleaseRequested struct {
		Hold  market.HoldID
		Lease market.LeaseID
		By    sign.Key
	}
	// ExecutionLost reports that an active lease's execution is permanently lost.
	ExecutionLost struct {
		Lease  market.LeaseID
		Reason string
	}
	// LeaseEnded reports that a lease's execution has stopped, for any reason, and its units are idle.
	LeaseEnded struct {
		Lease  market.LeaseID
		Reason string
	}
	// Ticked reports that time has passed. Every other event does the same on its way.
	Ticked struct{}
)

func (ReserveRequested) event() string { return "reserve" }
func (SignRequested) event() string    { return "sign" }
func (ExtendRequested) event() string  { return "extend" }
func (FundingPromised) event() string  { return "promise" }
func (FundingWrong) event() string     { return "wrong funding" }
func (FundingSeen) event() string      { return "funding" }
func (Supervised) event() string       { return "supervise" }
func (ReleaseRequested) event() string { return "release" }
func (ExecutionLost) event() string    { return "execution lost" }
func (LeaseEnded) event() string       { return "lease ended" }
func (Ticked) event() string           { return "tick" }

// Effect is an action for the shell. Effects are carried out one by one, in order.
type Effect interface{ effect() }

type (
	// Persist writes the record to the journal under its hold id, durably, before anything after it is done.
	Persist struct{ Record Record }
	// Forget removes the record from the journal. No request for it can be replayed then.
	Forget struct{ Hold market.HoldID }
	// AnswerHeld answers a reserve: these units, ascending, until Expires.
	AnswerHeld struct {
		Hold    market.HoldID
		Units   []market.UnitID
		Expires time.Time
		Overlay market.OverlayKey // zero unless requested
	}
	// AnswerSupervised answers a Supervised: By commands the line.
	AnswerSupervised struct{ Lease market.LeaseID }
	// AnswerSigned answers a sign: the provider signs Core and sends the signature. Ed25519 gives the same one every
	// time.
	AnswerSigned struct {
		Hold market.HoldID
		Core market.LeaseCore
	}
	// AnswerExtended answers an extend: the provider signs Core and sends the signature.
	AnswerExtended struct {
		Hold market.HoldID // under which the successor is kept
		Core market.LeaseCore
	}
	// AnswerActivated answers an activation: the lease may be used.
	AnswerActivated struct {
		Hold  market.HoldID
		Lease market.LeaseID
	}
	// AnswerReleased answers a release.
	AnswerReleased struct{ Hold market.HoldID }
	// AnswerRefused answers any request with a reason that may be shown to the buyer.
	AnswerRefused struct {
		Hold    market.HoldID
		Refusal *market.Refusal
	}
	// Activate lets the execution of the lease begin, and its metering.
	Activate struct{ Record Record }
	// EndLease stops the execution of the lease, or the part that the lease controls (Book.Commands). LeaseEnded must
	// follow.
	EndLease struct {
		Lease  market.LeaseID
		Reason string
	}
	// Unpaid reports that units were set aside for a peer that did not pay for them. It is carried out with the effects
	// that are journalled.
	Unpaid struct {
		Peer     sign.Key      // that commanded the hold
		Newcomer bool          // Record.Newcomer
		Held     time.Duration // for how long
		Lapsed   bool          // it did not give them back either
	}
	// UnitsFreed reports that these units can be offered again.
	UnitsFreed struct{ Units []market.UnitID }
)

func (Persist) effect()          {}
func (Forget) effect()           {}
func (AnswerHeld) effect()       {}
func (AnswerSigned) effect()     {}
func (AnswerExtended) effect()   {}
func (AnswerSupervised) effect() {}
func (AnswerActivated) effect()  {}
func (AnswerReleased) effect()   {}
func (AnswerRefused) effect()    {}
func (Activate) effect()         {}
func (Unpaid) effect()           {}
func (EndLease) effect()         {}
func (UnitsFreed) effect()       {}
