package market

import (
	"errors"
	"fmt"
	"math"
	"time"
)

var (
	// ErrMalformed means that bytes or fields break a stated limit or form; no honest peer sends them.
	ErrMalformed = errors.New("malformed")
	// ErrBadSignature means that the signer of an object did not sign these bytes for this network.
	ErrBadSignature = errors.New("bad signature")
	// ErrExpired means that an object has expired.
	ErrExpired = errors.New("expired")
	// ErrNotYet means that an object's time has not come, or lies further ahead than any honest peer would set it.
	ErrNotYet = errors.New("not valid yet")
	// ErrOtherNetwork means that an object was made under another genesis.
	ErrOtherNetwork = errors.New("made for another network")
	// ErrSimulated means that simulated units are offered on a network that allows only hardware.
	ErrSimulated = errors.New("simulated units on a network that is not simulated")
	// ErrReplayed means that a newer object of the same signer is already known.
	ErrReplayed = errors.New("replayed: a newer one is known")
	// ErrOverflow means that money or time does not fit 64 bits.
	ErrOverflow = errors.New("number too large")
	// ErrUnits means that a list of units is empty, too long, has one twice, or does not match its root.
	ErrUnits = errors.New("bad list of units")
)

// malformed builds an ErrMalformed that names the field.
func malformed(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrMalformed, field, fmt.Sprintf(format, args...))
}

// Reason is the machine-readable reason why an offer, a request or a lease was refused. The values are stable.
type Reason string

// The reasons, one sentence each.
const (
	ReasonOwn         Reason = "own"         // The provider is the buyer itself.
	ReasonExcluded    Reason = "excluded"    // The order excludes this provider.
	ReasonClass       Reason = "class"       // Another class of unit.
	ReasonRegion      Reason = "region"      // Not in a region the order allows.
	ReasonResources   Reason = "resources"   // A unit is too small.
	ReasonCapability  Reason = "capability"  // The compute capability is too low.
	ReasonImage       Reason = "image"       // The provider does not run this image.
	ReasonEgress      Reason = "egress"      // Containers lack the network access that the job needs.
	ReasonRuntime     Reason = "runtime"     // The runtime is not offered.
	ReasonDuration    Reason = "duration"    // Longer or shorter than the provider sells.
	ReasonCapacity    Reason = "capacity"    // Not enough free units.
	ReasonPrice       Reason = "price"       // Over the order's ceiling, or under the provider's price.
	ReasonExpired     Reason = "expired"     // The object has expired.
	ReasonNotYet      Reason = "not-yet"     // Its time has not come.
	ReasonStake       Reason = "stake"       // Too little stake for this order or amount.
	ReasonReputation  Reason = "reputation"  // Its record supports too little.
	ReasonUnproven    Reason = "unproven"    // Its units have no fresh audit record, or it is not checked.
	ReasonClosed      Reason = "closed"      // Outside the hours in which the provider sells.
	ReasonPaused      Reason = "paused"      // The provider sells nothing new for now.
	ReasonBlocked     Reason = "blocked"     // The provider does not serve this buyer.
	ReasonUnwanted    Reason = "unwanted"    // The buyer's own block list has this provider.
	ReasonLimit       Reason = "limit"       // A limit of the provider is reached.
	ReasonHold        Reason = "hold"        // No such hold, or not this buyer's, or expired.
	ReasonTerms       Reason = "terms"       // The lease differs from the agreed terms.
	ReasonSignature   Reason = "signature"   // A signature does not verify.
	ReasonConflict    Reason = "conflict"    // Other terms were already agreed under this name.
	ReasonSupervision Reason = "supervision" // Another peer supervises the job now.
	ReasonUnfunded    Reason = "unfunded"    // Not funded by its activate-before slot.
	ReasonUnpaid      Reason = "unpaid"      // Units were set aside for the buyer that it did not pay for.
	// The paying account's balance could not be read: the order may be repeated.
	ReasonUnseen     Reason = "unseen"
	ReasonFunds      Reason = "funds"      // The account that pays has too little.
	ReasonTimeout    Reason = "timeout"    // No answer in time.
	ReasonLost       Reason = "lost"       // The peer or the execution is lost.
	ReasonReleased   Reason = "released"   // Given back.
	ReasonDistance   Reason = "distance"   // Too far from the other members of its cluster.
	ReasonUnanswered Reason = "unanswered" // No provider left to ask.
)

// Refusal is a reason with an actionable text. It is an error, and safe to send to the other peer.
type Refusal struct {
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
}

// Refuse builds a Refusal.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Error returns the detail, or the reason when there is none.
func (r *Refusal) Error() string {
	if r.Detail == "" {
		return string(r.Reason)
	}
	return r.Detail
}

// DurationText is the detail of a refusal for ReasonDuration, in units of time instead of slots.
func DurationText(slots, least, most, slotMillis uint64) string {
	span := func(slots uint64) time.Duration {
		most := math.MaxInt64 / uint64(time.Millisecond) / max(slotMillis, 1)
		return time.Duration(min(slots, most)*slotMillis) * time.Millisecond
	}
	return fmt.Sprintf("%v requested, want %v to %v", span(slots), span(least), span(most))
}
