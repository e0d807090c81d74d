package meter

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// A buyer's clock that is told a slot at the lease's end pays a provider that proposes receipts for all of it at once no more than
// the intervals that its own vouchers were for: it takes it that it was not served, and pays no further.
func TestAttackClockJumpsForPayer(t *testing.T) {
	t.Parallel()
	terms := termsFor(t, nil)
	p, err := NewPayer(terms)
	if err != nil {
		t.Fatal(err)
	}
	var paid market.Amount
	refused := false
	step := func(now market.Slot, ev Event) {
		t.Helper()
		next, effects, err := p.Step(now, ev)
		if err != nil {
			t.Fatal(err)
		}
		p = next
		for _, e := range effects {
			switch e := e.(type) {
			case IssueVoucher:
				paid = max(paid, e.Voucher.Cumulative)
			case Refuse:
				refused = true
			}
		}
	}
	step(100, Started{})
	ahead := paid
	chain, from, lied := verify.NewChain(terms.Core), market.Slot(100), terms.last(100)
	for from < lied && !refused {
		to := terms.next(100, from)
		core, err := chain.Next(from, to, func(*verify.ReceiptCore) {})
		if err != nil {
			t.Fatal(err)
		}
		sig, err := core.Sign(terms.Domain, provider)
		if err != nil {
			t.Fatal(err)
		}
		step(lied, ReceiptProposed{Core: core, Sig: sig})
		if chain, err = chain.Follow(core); err != nil {
			t.Fatal(err)
		}
		from = to
	}
	if !refused || paid > 3*ahead || paid >= terms.Core.Cap {
		t.Errorf("refused: %t; the first voucher paid %d, now it is %d of %d", refused, ahead, paid, terms.Core.Cap)
	}
}
