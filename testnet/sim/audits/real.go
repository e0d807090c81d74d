package audits

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// Case is a case of an audit in its own window, before a roster of twelve.
func Case(i int) audittest.Case {
	c := audittest.New(12)
	c.Window = audit.Window(7 + i)
	return c
}

// refused makes a record, with a change of the making or of the result, and expects its refusal by a rule: by check, or
// by Record.Check if check is nil.
func refused(
	i int, rule audit.Rule, cheat func(*audittest.Case), change func(*audit.Record),
	check func(audittest.Case, audit.Record) error,
) error {
	c := Case(i)
	if cheat != nil {
		cheat(&c)
	}
	r, err := c.Make()
	if err != nil {
		return err
	}
	if change != nil {
		change(&r)
	}
	if r, err = audit.UnmarshalRecord(r.Marshal()); err != nil {
		return err
	}
	if check == nil {
		check = func(_ audittest.Case, r audit.Record) error { return r.Check(audittest.Domain()) }
	}
	var broken *audit.RuleError
	if err := check(c, r); !errors.As(err, &broken) || broken.Rule != rule {
		return fmt.Errorf("%w: %v, want rule %s", play.ErrUnmet, err, rule)
	}
	return nil
}
