package meter

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/verify"
)

// A payer that was handed over with less than was signed takes the rest in, pays for it and for the next interval, and believes
// nothing that the two did not sign.
func TestSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, termsFor(t, nil), 101, 0)
	w.stepPayer(100, Started{}, -1)
	w.deliver(101, false, 0, false, -1)
	old := w.payer
	w.stepSeller(111, Ticked{}, -1)
	core := w.toPayer[0].receipt.Core
	sold, buyerSig := sig(core, provider), sig(core, buyer)
	good := verify.Receipt{ReceiptCore: core, ProviderSig: sold, BuyerSig: buyerSig}
	w.deliver(111, true, 0, false, -1) // the payer co-signs

	terms := w.terms
	terms.Supervision = 3
	state, err := old.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	next, err := RestorePayer(terms, state)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*verify.Receipt){
		"not of the provider": func(r *verify.Receipt) { r.ProviderSig[0]++ },
		"not of the buyer":    func(r *verify.Receipt) { r.BuyerSig[0]++ },
		"of another lease":    func(r *verify.Receipt) { r.Lease[0]++ },
		"after a gap":         func(r *verify.Receipt) { r.Seq++ },
	} {
		bad := good
		change(&bad)
		var rule *verify.RuleError
		if got, fx, err := next.Step(112, Signed{Receipt: bad}); !errors.As(err, &rule) || len(fx) > 0 || got.Last() != next.Last() {
			t.Errorf("%s: %v, %v", name, fx, err)
		}
	}
	var early *verify.RuleError
	if got, _, err := next.Step(before(core.To, 2*terms.SkewSlots)-1, Signed{Receipt: good}); !errors.As(err, &early) || early.Rule != RuleEarly || got.Last() != next.Last() {
		t.Errorf("for time that has not passed: %v", err)
	}
	got, fx, err := next.Step(112, Signed{Receipt: good})
	if err != nil || got.Last() != core || got.Voucher().Cumulative != w.payer.Voucher().Cumulative || got.Voucher().Supervision != 3 {
		t.Fatalf("%v, %+v, %v", fx, got.Voucher(), err)
	}
	if _, fx, err := got.Step(112, Signed{Receipt: good}); err != nil || len(fx) > 0 {
		t.Errorf("told again: %v, %v", fx, err)
	}
}
