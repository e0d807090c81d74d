package audits

import (
	"fmt"
	"testing"

	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// Whole records that are wrong by construction are refused by the rule that is there for it. They are no kinds of the simulation: a rate of what
// cannot pass says nothing.
func TestAttackRecordsAreRefused(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(i int) error{
		"the answer of another window": func(i int) error {
			return refused(i, audit.RuleSeed, nil, func(r *audit.Record) {
				c := Case(i)
				c.Window++
				r.Answer.Window = c.Window
				r.Beacon = c.Beacon()
				for k := range r.Verdicts {
					r.Verdicts[k].Slot += 100 // of the next window
				}
				restate(r)
			}, nil)
		},
		"rounded to eight bits": func(i int) error {
			return refused(i, audit.RuleOpenings, func(c *audittest.Case) {
				c.Tile = func(_ int, t *challenge.Tile) {
					for k, v := range t {
						t[k] = v &^ 0xff
					}
				}
			}, nil, nil)
		},
		"computed from the first row and column": func(i int) error {
			return refused(i, audit.RuleOpenings, func(c *audittest.Case) {
				c.Tile = func(_ int, t *challenge.Tile) {
					const n = challenge.TileSide
					for row := 1; row < n; row++ {
						for col := 1; col < n; col++ {
							t[row*n+col] = t[(row-1)*n+col-1]
						}
					}
				}
			}, nil, nil)
		},
		"another root": func(i int) error {
			return refused(i, audit.RuleSeed, nil, func(r *audit.Record) {
				r.Answer.ProductRoot[i%32]++
				restate(r)
			}, nil)
		},
		"a committee of one friend": func(i int) error {
			return refused(i, audit.RuleCommittee, func(c *audittest.Case) {
				only := c.Roster.Draw(c.Beacon(), c.Window, c.Provider.Key(), 1)
				c.Roster = only
			}, nil, func(_ audittest.Case, r audit.Record) error { return r.CheckMembers(Case(i).Roster) })
		},
		"members of its own making": func(i int) error {
			return refused(i, audit.RuleCommittee, func(c *audittest.Case) {
				for k := range c.Roster {
					own := audittest.Key(fmt.Sprintf("own %d", k))
					c.Roster[k].Key = own.Key()
					c.Members[own.Key()] = own
				}
			}, nil, func(_ audittest.Case, r audit.Record) error { return r.CheckMembers(Case(i).Roster) })
		},
		"the dataset of another unit": oneDataset,
		"a canary that seven passed":  lazyRecord,
	} {
		for i := range 3 {
			if err := made(i); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// oneDataset is a record that is right in all it computes, over the dataset of another unit.
func oneDataset(i int) error {
	return refused(i, audit.RuleSeed, nil, func(r *audit.Record) { r.Answer.Unit[0]++ }, func(c audittest.Case, r audit.Record) error {
		return r.CheckDataset(c.Era())
	})
}

// lazyRecord is a canary that was passed: each of the seven is proven a liar.
func lazyRecord(i int) error {
	c := Case(i)
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
		return fmt.Errorf("%w: %d of %d lazy members are proven", play.ErrUnmet, len(proven), audit.Committee)
	}
	return nil
}

// restate signs a changed record again, by everybody: liars may sign what they like.
func restate(r *audit.Record) {
	c := Case(0)
	d := audittest.Domain()
	r.AnswerSig, _ = r.Answer.Sign(d, c.Provider)
	r.Shown = audit.Show(r.Answer, r.Opened.Openings)
	r.ShownSig, _ = r.Shown.Sign(d, c.Provider)
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		v.Answer, v.Openings = r.Shown.Answer, r.Shown.Openings
		v.Signature, _ = v.Sign(d, c.Members[v.Member])
	}
}
