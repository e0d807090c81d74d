package gang

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// State of the whole gang: how far its least advanced seat is.
type State uint8

// The states, one sentence each.
const (
	Reserving  State = iota + 1 // Some seat waits for units to be set aside.
	Measuring                   // All are held; how near they are to one another is being measured.
	Signing                     // All are held, and near enough; some lease is not yet signed.
	Activating                  // All are signed; some lease is not yet paid for.
	Running                     // All are active: the gang is formed. Final.
	Releasing                   // It failed; everything was released, some provider has not confirmed.
	Failed                      // The gang failed and all holds are released. Final.
)

var stateNames = [...]string{
	Reserving: "reserving", Measuring: "measuring", Signing: "signing", Activating: "activating",
	Running: "running", Releasing: "releasing", Failed: "failed",
}

// String names the state.
func (s State) String() string {
	if s >= Reserving && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Final reports whether the state is final.
func (s State) Final() bool { return s == Running || s == Failed }

// Phase of one seat.
type Phase uint8

// The phases, one sentence each.
const (
	PhaseAsked      Phase = iota + 1 // A hold is requested from the provider.
	PhaseHeld                        // It did.
	PhaseSigning                     // It was sent the lease to sign.
	PhaseSigned                      // It signed.
	PhaseActivating                  // It was sent the first payment.
	PhaseActive                      // It took it: the lease is active.
)

var phaseNames = [...]string{
	PhaseAsked: "asked", PhaseHeld: "held", PhaseSigning: "signing", PhaseSigned: "signed",
	PhaseActivating: "activating", PhaseActive: "active",
}

// String names the phase.
func (p Phase) String() string {
	if p >= PhaseAsked && int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// waiting reports whether a request is pending.
func (p Phase) waiting() bool { return p == PhaseAsked || p == PhaseSigning || p == PhaseActivating }

// Member gives one rank to one provider.
type Member struct {
	Rank     uint32
	Provider sign.Key
}

// Seat is one rank and its current provider.
type Seat struct {
	Rank           uint32
	Provider       sign.Key
	Hold           market.HoldID
	Phase          Phase
	Units          []market.UnitID   // once held
	Overlay        market.OverlayKey // once held, of a cluster's
	Lease          market.LeaseID    // once signed
	ActivateBefore market.Slot       // once signed
	deadline       time.Time         // of the pending request
	odd            bool              // it answered a request that it had not received yet
	until          time.Time         // the hold lapses then; zero if not known
	after          market.HoldID     // released before the request is sent; zero once it is
	slow           bool              // past the deadline, without another provider to try
}

// Params are the times of one gang.
type Params struct {
	Secret         [32]byte      // hold ids follow from it; random and never sent
	Started        time.Time     // now, when New is called
	StepTimeout    time.Duration // timeout of one provider's answer; doubled for activation
	FundTimeout    time.Duration // how long it may take to set the leases' money aside, before they are activated
	ReleaseTimeout time.Duration // how long to wait for a release to be confirmed
	Deadline       time.Time     // the gang is formed by then or fails
	Overlay        bool          // the ranks are a cluster's: each provider names an overlay key of its own
	MeasureTimeout time.Duration // how long measuring the paths between the seats may take; 0: they are not measured
	// Recruit is the shortest pause between two requests for further quotes; 0: a seat without a spare fails the gang.
	Recruit        time.Duration
	RecruitTimeout time.Duration // timeout of their answers
	FundingSlots   uint64        // slots that must be left before activate-before when leases are paid for
}

// activation is how long one provider may take to activate.
func (p *Params) activation() time.Duration { return p.FundTimeout + 2*p.StepTimeout }

// Failure is one provider that did not work out.
type Failure struct {
	Rank     uint32          `json:"rank"`
	Provider sign.Key        `json:"provider"`
	Refusal  *market.Refusal `json:"refusal"`
}

// Unfit is a seat with a provider that the measured paths exclude from the cluster.
type Unfit struct {
	Rank   uint32
	Hold   market.HoldID
	Reason *market.Refusal
}

// Event is an answer, or news from the shell. Rank and Hold are those of the request it answers.
type Event interface{ event() string }

type (
	// Held reports that a provider set units aside.
	Held struct {
		Rank    uint32
		Hold    market.HoldID
		Units   []market.UnitID
		Overlay market.OverlayKey // of a cluster's
		Until   time.Time         // the hold lapses then; zero if not known
	}
	// Measured answers a Measure: the seats that are too far from the others by the measured paths, or may not be
	// measured.
	Measured struct {
		Round uint32
		Unfit []Unfit
	}
	// Refused reports that a provider refused a request.
	Refused struct {
		Rank   uint32
		Hold   market.HoldID
		Reason *market.Refusal
	}
	// Signed reports that a provider signed the lease, and that its signature was checked.
	Signed struct {
		Rank           uint32
		Hold           market.HoldID
		Lease          market.LeaseID
		ActivateBefore market.Slot
	}
	// Activated reports that a lease is paid for and may be used.
	Activated struct {
		Rank uint32
		Hold market.HoldID
	}
	// Lost reports that a provider cannot be reached or broke the protocol.
	Lost struct {
		Rank   uint32
		Hold   market.HoldID
		Reason *market.Refusal
	}
	// Released reports that a provider confirmed a release, or never will.
	Released struct{ Hold market.HoldID }
	// Recruited answers a Recruit with providers that quoted, best first. None may have: the next Recruit follows.
	Recruited struct {
		Round     uint32
		Providers []sign.Key
	}
	// Cancelled reports that the buyer gave up the gang.
	Cancelled struct{ Reason string }
	// DeadlinePassed reports that time has passed. Every other event checks the deadlines as well.
	DeadlinePassed struct{}
)

func (Held) event() string           { return "held" }
func (Measured) event() string       { return "measured" }
func (Refused) event() string        { return "refused" }
func (Signed) event() string         { return "signed" }
func (Activated) event() string      { return "activated" }
func (Lost) event() string           { return "lost" }
func (Released) event() string       { return "released" }
func (Recruited) event() string      { return "recruited" }
func (Cancelled) event() string      { return "cancelled" }
func (DeadlinePassed) event() string { return "deadline passed" }

// Effect is an action for the shell. Effects on different ranks may be carried out in parallel.
type Effect interface{ effect() }

type (
	// Reserve requests a hold of a rank's units from a provider.
	Reserve struct {
		Rank     uint32
		Provider sign.Key
		Hold     market.HoldID
	}
	// Release releases the hold, and the lease if there is one.
	Release struct {
		Rank     uint32
		Provider sign.Key
		Hold     market.HoldID
		Lease    market.LeaseID
		Reason   string
	}
	// Measure requests measurements of the unmeasured paths between all seats. Measured is the answer, with the same
	// number.
	Measure struct {
		Round uint32
		Seats []Seat
	}
	// Recruit collects further quotes for ranks that have no provider, or a slow one. Recruited answers it, under its
	// number. Providers with a seat are excluded, unless the ranks may share a provider.
	Recruit struct {
		Round uint32
		Ranks []uint32
	}
	// Sign drafts, signs and sends the lease for a rank.
	Sign struct {
		Rank     uint32
		Provider sign.Key
		Hold     market.HoldID
		Units    []market.UnitID // ascending
		Overlay  market.OverlayKey
	}
	// Activate pays for a signed lease. The Activates of one Step belong into one escrow transaction.
	Activate struct {
		Rank     uint32
		Provider sign.Key
		Hold     market.HoldID
		Lease    market.LeaseID
	}
	// Formed reports that all leases are active. It comes at most once, and then Failed never does.
	Formed struct{ Seats []Seat }
	// FailedWith reports that the gang failed and all holds are released. It is emitted at most once.
	FailedWith struct {
		Reason  *market.Refusal
		Details []Failure // every provider that did not work out, in order
	}
)

func (Reserve) effect()    {}
func (Release) effect()    {}
func (Measure) effect()    {}
func (Recruit) effect()    {}
func (Sign) effect()       {}
func (Activate) effect()   {}
func (Formed) effect()     {}
func (FailedWith) effect() {}
