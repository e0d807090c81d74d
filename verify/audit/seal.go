package audit

import (
	"fmt"

	"github.com/starling-network/starling/verify/challenge"
)

// Seal makes the statement that a provider signs over its openings, and is its last look before it does: a bit that flips in
// memory between computing and signing would otherwise make a liar of an honest peer. ErrFault when something is not as it
// should be; then nothing may be signed.
//
// The statement is made, then what it is made of is checked against the answer, then it is made again: a flip before is seen by the
// check, one in between by the second making, one in either making by the comparison, and one afterwards leaves a hash that
// nothing is known to lie under. What lies under the root beside the entries computed here is what Commitment.Open computed.
// An answer must be the one that was signed, byte for byte, and must be signed once.
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

// Examine is what a member does with what it is shown before it may pass it: the openings are the statement's, and right. Its
// verdict must then name what the provider signed, not what it hashed itself.
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
		return broken(RuleOpenings, "the openings are not those that the provider signed")
	}
	return nil
}
