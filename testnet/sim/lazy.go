package sim

import (
	"fmt"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// A member judges 70 audits in a window, where 10,000 units are judged by seven each of 1,000 members. One in 20 is a canary: an
// answer with a known fault.
const (
	judgedPerWindow = 70
	canaries        = 0.05
)

// A member that passes what it did not check. Passing a canary is a lie that anybody proves.
var lazyKinds = []Kind{{
	Name: "lazy", Threat: 13, What: "a member that passes everything unseen", real: lazyRecord,
	play: func(w *world) player {
		return func(_, _ int) audit.Report {
			for range judgedPerWindow {
				if w.r.Float64() < canaries {
					return audit.Report{Result: audit.Failed, Broken: audit.MaxBroken + 1} // slashed
				}
			}
			return audit.Report{Result: audit.Passed}
		}
	},
}}

// lazyRecord is a canary that was passed: each of the seven is proven a liar.
func lazyRecord(i int) error {
	c := whole(i)
	right, err := c.Make()
	if err != nil {
		return err
	}
	pick := audit.Pick(right.Answer.WalkSeed) // which does not depend on what is opened
	c.Opening = func(k int, o *challenge.Opening) {
		if k == i {
			o.Values[pick(k)] ^= 1
		}
	}
	r, err := c.Make()
	if err != nil {
		return err
	}
	proven := map[string]bool{}
	for _, l := range audit.FindLie(r.Answer, r.Shown, r.ShownSig, r.Verdicts, r.Opened.Openings, false) {
		if l, err = audit.UnmarshalLie(l.Marshal()); err != nil {
			return err
		}
		if l.Kind == audit.FalsePass && l.Check(audittest.Domain()) == nil {
			proven[l.Liar().String()] = true
		}
	}
	if len(proven) != audit.Committee {
		return fmt.Errorf("%w: %d of %d lazy members are proven", errUnmet, len(proven), audit.Committee)
	}
	return nil
}
