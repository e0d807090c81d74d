package meter

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// both is a seller and a payer of a successor whose time begins in slot 500, activated in slot 200.
func both(t *testing.T) (Seller, Payer, Terms) {
	before := termsFor(t, nil)
	core, err := before.Core.Follow(700)
	if err != nil {
		t.Fatal(err)
	}
	terms := termsFor(t, func(x *Terms) { x.Core = core })
	p, err := NewPayer(terms)
	if err != nil {
		t.Fatal(err)
	}
	p, fx, err := p.Step(200, Started{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSeller(terms, 200, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fx {
		if v, ok := e.(IssueVoucher); ok {
			signed, err := verify.SignVoucher(terms.Domain, v.Voucher, terms.Keys, buyer)
			if err != nil {
				t.Fatal(err)
			}
			if s, _, err = s.Step(200, VoucherReceived{Voucher: signed}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.State() != SellerWorking || s.Start() != core.Start {
		t.Fatalf("%s from %d", s.State(), s.Start())
	}
	return s, p, terms
}

func proposed(t *testing.T, fx []Effect) verify.ReceiptCore {
	t.Helper()
	for _, e := range fx {
		if p, ok := e.(ProposeReceipt); ok {
			return p.Core
		}
	}
	t.Fatalf("no receipt is proposed: %v", fx)
	return verify.ReceiptCore{}
}

func answer(t *testing.T, p Payer, core verify.ReceiptCore, now market.Slot) (Payer, []Effect) {
	t.Helper()
	sig, err := core.Sign(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	p, fx, err := p.Step(now, ReceiptProposed{Core: core, Sig: sig})
	if err != nil {
		t.Fatal(err)
	}
	return p, fx
}

// A successor that is given back before its start costs nothing, and both know it at once.
func TestSuccessorGivenBack(t *testing.T) {
	t.Parallel()
	s, p, _ := both(t)
	p, _, err := p.Step(210, Stopped{Reason: "not needed"})
	if err != nil {
		t.Fatal(err)
	}
	s, fx, err := s.Step(211, WorkEnded{})
	if err != nil {
		t.Fatal(err)
	}
	if until := s.Until(); until != 0 {
		t.Errorf("its units are paid for until slot %d", until)
	}
	core := proposed(t, fx)
	if core.From != 500 || core.To != 500 || !core.Final() || core.Cumulative != 0 {
		t.Fatalf("%+v", core)
	}
	p, _ = answer(t, p, core, 211)
	if p.State() != PayerSettled || p.Owed() != 0 || p.Voucher().Cumulative != 0 {
		t.Errorf("%s, owed %d, voucher %d", p.State(), p.Owed(), p.Voucher().Cumulative)
	}
}

// When the other side is gone, neither waits until the successor's time.
func TestSuccessorGivenBackToNobody(t *testing.T) {
	t.Parallel()
	s, p, terms := both(t)
	p, _, err := p.Step(210, Stopped{Reason: "not needed"})
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err = s.Step(210, WorkEnded{}); err != nil {
		t.Fatal(err)
	}
	late := after(210, terms.settle())
	if p, _, err = p.Step(late, Ticked{}); err != nil || p.State() != PayerSettled {
		t.Errorf("payer %s, %v", p.State(), err)
	}
	if s, _, err = s.Step(late, Ticked{}); err != nil || s.State() != SellerSettled || s.Claim(late) != 0 {
		t.Errorf("seller %s, claims %d, %v", s.State(), s.Claim(late), err)
	}
}

// What was used before the successor took over is in none of its receipts, also when that is said twice.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s, _, terms := both(t)
	step := func(now market.Slot, ev Event) []Effect {
		t.Helper()
		next, fx, err := s.Step(now, ev)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		return fx
	}
	step(501, TakenOver{CPUMillis: 90_000})
	state, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if s, err = RestoreSeller(terms, state); err != nil {
		t.Fatal(err)
	}
	step(505, UsageSampled{CPUMillis: 90_400})
	step(506, TakenOver{CPUMillis: 90_500})
	if at, ok := s.TakenAt(); !ok || at != 90_000 {
		t.Errorf("taken at %d, %v", at, ok)
	}
	fx := step(510, UsageSampled{CPUMillis: 91_000})
	if core := proposed(t, fx); core.CPUMillis != 1000 || core.From != 500 || core.To != 510 {
		t.Errorf("%+v", core)
	}
}
