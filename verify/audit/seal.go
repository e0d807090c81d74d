package audit

import (
	"fmt"

	"github.com/starling-network/starling/verify/challenge"
)

// Seal returns the statement that a provider signs over its openings, after a last check: otherwise a bit flip in
// memory between computing and signing could make an honest peer sign a lie. It returns ErrFault if the check fails;
// then nothing may be signed.
//
// The statement is made, then its inputs are checked against the answer, then it is made again. The check finds a flip
// before it, the second making one in between, and the comparison one in either making. A later flip leaves a hash
// without known preimage. Other entries under the root were computed by Commitment.Open. The answer must be the signed
// one, byte for byte, and must be signed only once.
func Seal(a Answer, o challenge.Opened) (Shown, error) { return seal(&a, &o, func(int) {}) }

// seal calls between after each step: tests flip bits there.
func seal(a *Answer, o *challenge.Opened, between func(step int)) (Shown, error) {
	first := Show(*a, o.Openings)
	between(1)
	if err := CheckProducts(*a, *o); err != nil {
		return Shown{}, fmt.Errorf("%w: %w", challenge.ErrFault, err)
	}
	between(2)
	second := Show(*a, o.Openings)
	between(3)
	if first != second {
		return Shown{}, fmt.Errorf("%w: the openings hash to different roots", challenge.ErrFault)
	}
	return first, nil
}

// Examine is a member's check before it may pass a unit: the openings are the statement's, and right. Its verdict must
// then name the provider's signed hashes, not its own.
func Examine(a Answer, shown Shown, o challenge.Opened) error {
	return examine(&a, &shown, &o, func(int) {})
}

func examine(a *Answer, shown *Shown, o *challenge.Opened, between func(step int)) error {
	if err := CheckProducts(*a, *o); err != nil {
		return err
	}
	between(1)
	got := Show(*a, o.Openings)
	between(2)
	if got != *shown {
		return broken(RuleOpenings, "openings: not the signed ones")
	}
	return nil
}
