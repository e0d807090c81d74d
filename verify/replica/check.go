package replica

import (
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// State is where the check of one result stands.
type State string

// The states; the diagram is in the package comment.
const (
	Unchecked   State = "unchecked"   // committed; the block that decides does not exist yet
	Replicating State = "replicating" // drawn; a replica is being bought or runs
	NotDrawn    State = "not-drawn"   // the block did not have it replicated
	Equal       State = "equal"       // a replica by another provider is the same
	// more than half of the results agree, and at least one of the others differs from them
	Differs    State = "differs"
	Undecided  State = "undecided"  // MaxResults results without a majority; no provider is blamed
	Unverified State = "unverified" // no replica was available; no provider is blamed
)

// Ended reports whether the check is final.
func (s State) Ended() bool { return s != Unchecked && s != Replicating }

// Bounds of one check.
const (
	MaxResults  = 5  // results compared, the first one among them
	MaxAttempts = 12 // requested replicas, including failed ones
	maxReason   = 400

	lastSlot market.Slot = 1 << 62 // no network gets there; sums stay in 64 bits
)

// Committed is a provider's result. Signed reports whether the provider signed it in a final receipt. If it signed
// none, or another, the result is compared like any other, but proves nothing.
type Committed struct {
	Party
	Lease  market.LeaseID `json:"lease"`
	Output sign.Hash      `json:"output"` // Output(work, result), of the fetched result
	Signed bool           `json:"signed"` // the final receipt has this output
}

// Terms are fixed when the result is committed.
type Terms struct {
	Params Params `json:"params"`
	Trust  Trust  `json:"trust"` // the provider's record with this buyer
	Buyer  Party  `json:"buyer"`
	Nonce  Nonce  `json:"nonce"`
}

type state struct {
	State   State       `json:"state"`
	Terms   Terms       `json:"terms"`
	Since   market.Slot `json:"since"` // the commitment was here
	Until   market.Slot `json:"until"` // end of the current wait
	Odds    Odds        `json:"odds"`
	Beacon  *Beacon     `json:"beacon,omitempty"`
	Results []Committed `json:"results"`
	Attempt uint32      `json:"attempt,omitempty"` // replicas asked for
	Tried   []Party     `json:"tried,omitempty"`   // parties that failed to give one
	Reason  string      `json:"reason,omitempty"`
}

// Check is the machine of one result. It is a value; Step returns the next one.
type Check struct{ s state }

// Event is an input of a Check.
type Event interface{ event() }

// The events.
type (
	// BeaconSeen is the first block at or after the slot that AskBeacon named.
	BeaconSeen struct{ Beacon Beacon }
	// ReplicaCommitted is the result of the attempt-th replica, signed in the final receipt of its lease.
	ReplicaCommitted struct {
		Attempt uint32
		Result  Committed
	}
	// ReplicaFailed: the attempt brought no valid result. By is zero if no provider accepted it.
	ReplicaFailed struct {
		Attempt uint32
		By      Party
		Reason  string
	}
	// Ticked: time passed.
	Ticked struct{}
)

func (BeaconSeen) event()       {}
func (ReplicaCommitted) event() {}
func (ReplicaFailed) event()    {}
func (Ticked) event()           {}

// Effect is an action of the caller, in order: Persist before all that follow it.
type Effect interface{ effect() }

// The effects.
type (
	// Persist: State must be in the journal before anything that follows leaves the peer.
	Persist struct{ State []byte }
	// AskBeacon requests the first final block at slot From or after it.
	AskBeacon struct{ From market.Slot }
	// Replicate requests the work from the first provider of Pick(Seed, Attempt, …, Not) that accepts it.
	Replicate struct {
		Attempt uint32
		Seed    sign.Hash
		Not     []Party
	}
	// Ended: the verdict is final.
	Ended struct{ Verdict Verdict }
)

func (Persist) effect()   {}
func (AskBeacon) effect() {}
func (Replicate) effect() {}
func (Ended) effect()     {}

// Verdict is the outcome of a check.
type Verdict struct {
	State   State       `json:"state"`
	Odds    Odds        `json:"odds"`
	Beacon  *Beacon     `json:"beacon,omitempty"`
	Results []Committed `json:"results"` // the checked one first
	Right   int         `json:"right"`   // of the results: one of the majority; -1 without
	Wrong   []int       `json:"wrong,omitempty"`
	Reason  string      `json:"reason,omitempty"`
}

// New begins the check of a result committed by slot now, and returns its first effects. It returns ErrTerms.
func New(t Terms, first Committed, now market.Slot) (Check, []Effect, error) {
	if err := t.Params.Check(); err != nil {
		return Check{}, nil, err
	}
	t.Trust.Valid = min(t.Trust.Valid, MaxTrust)
	c := Check{state{State: Unchecked, Terms: t, Since: now, Odds: t.Params.Odds(t.Trust), Results: []Committed{first}}}
	if !first.Signed { // it signed another result, or none
		c.s.Odds = Always
	}
	if now > lastSlot || t.Buyer.same(Candidate{Provider: first.Provider, Owner: first.Owner}) {
		return Check{}, nil, fmt.Errorf("%w: of the buyer's own provider, or in slot %d", ErrTerms, now)
	}
	c.s.Until = c.block() + market.Slot(t.Params.PatienceSlots)
	return c.with(AskBeacon{c.block()})
}

// block is the slot from which on a block decides.
func (c Check) block() market.Slot { return c.s.Since + market.Slot(c.s.Terms.Params.DelaySlots) }

// State returns the check's state.
func (c Check) State() State { return c.s.State }

// Attempt is the number of the replica that is waited for; 0 before the first.
func (c Check) Attempt() uint32 { return c.s.Attempt }

// Wake is the latest slot for the next Ticked; 0 after the end.
func (c Check) Wake() market.Slot {
	if c.s.State.Ended() {
		return 0
	}
	return c.s.Until
}

// Resume returns the first effects of a new process.
func (c Check) Resume() []Effect {
	switch c.s.State {
	case Unchecked:
		return []Effect{AskBeacon{c.block()}}
	case Replicating:
		return []Effect{c.replicate()}
	}
	return []Effect{Ended{c.Verdict()}}
}

// Step applies one event. An event that is repeated, or comes after the end, changes nothing. Step returns ErrEvent for
// an impossible event.
func (c Check) Step(now market.Slot, e Event) (Check, []Effect, error) {
	if c.s.State.Ended() {
		return c, nil, nil
	}
	now = min(now, lastSlot)
	switch e := e.(type) {
	case BeaconSeen:
		return c.drawn(now, e.Beacon)
	case ReplicaCommitted:
		if e.Attempt > c.s.Attempt {
			return c, nil, fmt.Errorf("%w: replica %d, asked for were %d", ErrEvent, e.Attempt, c.s.Attempt)
		}
		if c.s.State != Replicating || e.Attempt < c.s.Attempt {
			return c, nil, nil
		}
		return c.compared(now, e.Result)
	case ReplicaFailed:
		if e.Attempt > c.s.Attempt {
			return c, nil, fmt.Errorf("%w: replica %d, asked for were %d", ErrEvent, e.Attempt, c.s.Attempt)
		}
		if c.s.State != Replicating || e.Attempt < c.s.Attempt {
			return c, nil, nil
		}
		return c.failed(now, e.By, e.Reason)
	case Ticked:
		switch {
		case now < c.s.Until:
			return c, nil, nil
		case c.s.State == Unchecked:
			return c.end(Unverified, "the chain showed no block that decides")
		}
		return c.failed(now, Party{}, "timeout")
	}
	return c, nil, fmt.Errorf("%w: %T", ErrEvent, e)
}

func (c Check) drawn(now market.Slot, b Beacon) (Check, []Effect, error) {
	if c.s.State != Unchecked {
		return c, nil, nil
	}
	if b.Slot < c.block() {
		return c, nil, fmt.Errorf("%w: the block of slot %d may have been known; from %d on",
			ErrEvent, b.Slot, c.block())
	}
	c.s.Beacon = &b
	if !Drawn(c.s.Odds, b, c.s.Terms.Nonce, c.s.Results[0]) {
		return c.end(NotDrawn, "")
	}
	return c.again(now)
}

// again requests one more replica.
func (c Check) again(now market.Slot) (Check, []Effect, error) {
	if c.s.Attempt >= MaxAttempts {
		return c.end(Unverified, c.s.Reason)
	}
	c.s.State, c.s.Attempt, c.s.Until = Replicating, c.s.Attempt+1, now+market.Slot(c.s.Terms.Params.PatienceSlots)
	return c.with(c.replicate())
}

func (c Check) replicate() Replicate {
	not := []Party{c.s.Terms.Buyer}
	for _, r := range c.s.Results {
		not = append(not, r.Party)
	}
	return Replicate{c.s.Attempt, draw("starling/replica/seed/v1", *c.s.Beacon, c.s.Terms.Nonce, c.s.Results[0]),
		append(not, c.s.Tried...)}
}

// compared accepts a replica's result. An unsigned one, or one by a party that had a result already, proves nothing.
func (c Check) compared(now market.Slot, r Committed) (Check, []Effect, error) {
	if !r.Signed {
		return c.failed(now, r.Party, "result: not signed by its provider")
	}
	is := Candidate{Provider: r.Provider, Owner: r.Owner}
	if c.s.Terms.Buyer.same(is) || slices.ContainsFunc(c.s.Results, func(o Committed) bool { return o.same(is) }) {
		return c.failed(now, Party{}, "provider: already a party")
	}
	c.s.Results = append(slices.Clone(c.s.Results), r)
	right, wrong := majority(c.s.Results)
	switch {
	case right >= 0 && len(wrong) == 0:
		return c.end(Equal, "")
	case right >= 0:
		return c.end(Differs, "")
	case len(c.s.Results) >= MaxResults:
		return c.end(Undecided, fmt.Sprintf("%d results and no majority", len(c.s.Results)))
	}
	return c.again(now)
}

func (c Check) failed(now market.Slot, by Party, reason string) (Check, []Effect, error) {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	c.s.Reason = strings.ToValidUTF8(reason, "")
	if by != (Party{}) {
		c.s.Tried = append(slices.Clone(c.s.Tried), by)
	}
	return c.again(now)
}

func (c Check) end(s State, reason string) (Check, []Effect, error) {
	c.s.State, c.s.Reason, c.s.Until = s, reason, 0
	return c.with(Ended{c.Verdict()})
}

// with adds the journalling before an effect.
func (c Check) with(e Effect) (Check, []Effect, error) {
	b, err := c.Marshal()
	if err != nil {
		return c, nil, err
	}
	return c, []Effect{Persist{b}, e}, nil
}

// majority returns the result of more than half, of at least two, and the results that differ from it; -1 if there is
// no majority.
func majority(all []Committed) (right int, wrong []int) {
	for i, r := range all {
		wrong = nil
		for j, o := range all {
			if o.Output != r.Output {
				wrong = append(wrong, j)
			}
		}
		if n := len(all) - len(wrong); n >= 2 && 2*n > len(all) {
			return i, wrong
		}
	}
	return -1, nil
}

// Verdict is the outcome of the check so far.
func (c Check) Verdict() Verdict {
	v := Verdict{State: c.s.State, Odds: c.s.Odds, Beacon: c.s.Beacon, Results: slices.Clone(c.s.Results), Right: -1,
		Reason: c.s.Reason}
	if c.s.State == Equal || c.s.State == Differs {
		v.Right, v.Wrong = majority(c.s.Results)
	}
	return v
}
