package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Unit is a unit to be audited and the hardware that answers for it.
type Unit struct {
	Claim
	Device device.Device
	Appeal bool // it failed before; a larger committee audits it
}

// ProverConfig is the configuration of a Prover; all of it but Plant is required.
type ProverConfig struct {
	Domain      sign.Domain
	Key         sign.Signer
	WindowSlots uint64
	Sight       sight.Sight
	Plan        Plan
	// Call has a member answer one step.
	Call func(ctx context.Context, member sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error)
	// Wait returns when a slot has begun.
	Wait func(ctx context.Context, slot market.Slot) error
	// Late is optional. It returns the reason why a unit that every member passed cannot be sold by its record. The
	// unit is judged again, since a lost packet may have delayed it.
	Late func(c Claim, r audit.Record) error
	Log  *slog.Logger
}

// Prover answers audits with a peer's units. It keeps nothing between two calls.
type Prover struct {
	cfg ProverConfig
	// plant puts a canary's fault into the openings before they are signed. It is nil for other audits.
	plant func(a audit.Answer, o *challenge.Opened)
}

// NewProver makes a prover.
func NewProver(cfg ProverConfig) *Prover { return &Prover{cfg: cfg} }

// Result is a unit's passing record, or the reason why there is none.
type Result struct {
	Unit   Claim
	Record audit.Record
	Err    error
	// Broken counts the attempts that broke off by this peer's fault, after their products' root was known and before
	// the right openings were shown.
	Broken uint8
}

// Audit audits all units in the current window, from its instant on. If a member leaves an attempt, the attempt is
// completed with the remaining members, and they judge in another while the window has any. It returns ErrCommittee,
// ErrMember, ErrUnits, ErrInstant, or the error of a device. Results have the order of units.
func (p *Prover) Audit(ctx context.Context, units []Unit) ([]Result, error) {
	if len(units) < 1 || len(units) > MaxUnits {
		return nil, fmt.Errorf("%w: %d, 1 to %d at once", ErrUnits, len(units), MaxUnits)
	}
	window, _, err := p.cfg.Sight.Window()
	if err != nil {
		return nil, err
	}
	drawn, err := p.cfg.Sight.Beacon(ctx, window)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(units))
	todo := make([]int, len(units)) // places of the units that are to be judged
	for i := range todo {
		todo[i] = i
	}
	var stayed []sign.Key
	kept := false
	for number := uint8(1); ; number++ {
		now := make([]Unit, len(todo))
		for i, at := range todo {
			now[i] = units[at]
		}
		s, err := p.open(ctx, &session{p: p, number: number, window: window, beacon: drawn}, now, stayed)
		var out []Result
		if err == nil {
			if err = s.wait(ctx); err == nil {
				out, err = s.play(ctx)
			}
		}
		for i, r := range out {
			if was := &results[todo[i]]; !kept || r.Err == nil && len(r.Record.Verdicts) > 0 {
				*was = r
			}
		}
		var left *leftError
		if errors.As(err, &left) && out != nil && number < audit.MaxAttempts && ctx.Err() == nil {
			todo = slices.DeleteFunc(todo, func(at int) bool { return results[at].Err != nil })
			if len(todo) == 0 {
				return results, nil
			}
			p.cfg.Log.Info("an audit begins anew without a member that left", "member", left.member, "err", left.err)
			stayed = s.stayed()
			continue
		}
		if late := p.late(units, results, todo); err == nil && len(late) > 0 && number < audit.MaxAttempts {
			p.cfg.Log.Info("units are judged again", "late", len(late))
			todo, stayed, kept = late, s.stayed(), true
			continue
		}
		if err != nil && kept && ctx.Err() == nil { // an earlier result is better than none
			return results, nil
		}
		if err != nil && left == nil && s != nil && s.rooted && ctx.Err() == nil {
			err = &brokenError{err}
		}
		if err != nil {
			return nil, err
		}
		return results, nil
	}
}

// late returns the positions of units that all members passed and that cannot be sold by their records.
func (p *Prover) late(units []Unit, results []Result, of []int) []int {
	if p.cfg.Late == nil {
		return nil
	}
	var out []int
	for _, at := range of {
		r := results[at]
		if r.Err == nil && len(r.Record.Verdicts) > 0 && p.cfg.Late(units[at].Claim, r.Record) != nil {
			out = append(out, at)
		}
	}
	return out
}

// brokenError is an attempt that broke off when the products' roots were known.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// leftError is a member that gave a nonce and no more.
type leftError struct {
	member sign.Key
	err    error
}

func (e *leftError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrMember, e.member.Short(), e.err)
}
func (e *leftError) Is(target error) bool { return target == ErrMember }
func (e *leftError) Unwrap() error        { return e.err }
