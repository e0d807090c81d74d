package meter

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// TestScripts runs the conversations in testdata/script. Commands, each with now=SLOT:
//
//	init [interval= grace= skew= ahead= receipt= rate= cap= end= free=] seller=SLOT    two new machines
//	start | tick who= | stop reason= | usage cpu= | ended [at=]   events
//	deliver to=payer|seller [n=] [keep]                           the n-th message under way, 0 if not said
//	drop to=payer|seller [n=]
//	restart who=payer|seller                                      from the journal
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "init" {
				w = scriptWorld(t, d)
				return ""
			}
			return script(t, w, d)
		})
		w.finish()
	})
}

func scriptWorld(t *testing.T, d *datadriven.TestData) *world {
	var seller, free uint64
	d.ScanArgs(t, "seller", &seller)
	d.MaybeScanArgs(t, "free", &free)
	return newWorld(t, termsFor(t, func(x *Terms) {
		d.MaybeScanArgs(t, "interval", &x.IntervalSlots)
		d.MaybeScanArgs(t, "grace", &x.GraceSlots)
		d.MaybeScanArgs(t, "skew", &x.SkewSlots)
		d.MaybeScanArgs(t, "ahead", &x.AheadSlots)
		d.MaybeScanArgs(t, "receipt", &x.ReceiptSlots)
		number(t, d, "rate", func(v uint64) { x.Core.Rate = market.Rate(v) })
		number(t, d, "cap", func(v uint64) { x.Core.Cap = market.Amount(v) })
		number(t, d, "end", func(v uint64) { x.Core.End = market.Slot(v) })
	}), market.Slot(seller), market.Slot(free))
}

func number(t *testing.T, d *datadriven.TestData, name string, set func(uint64)) {
	var v uint64
	if d.MaybeScanArgs(t, name, &v) {
		set(v)
	}
}

func script(t *testing.T, w *world, d *datadriven.TestData) string {
	var at uint64
	var who, to, reason string
	var n int
	d.ScanArgs(t, "now", &at)
	d.MaybeScanArgs(t, "who", &who)
	d.MaybeScanArgs(t, "to", &to)
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "reason", &reason)
	now := market.Slot(at)
	var ev Event
	switch d.Cmd {
	case "start":
		who, ev = "payer", Started{}
	case "tick":
		ev = Ticked{}
	case "stop":
		who, ev = "payer", Stopped{Reason: reason}
	case "usage":
		var cpu uint64
		d.ScanArgs(t, "cpu", &cpu)
		who, ev = "seller", UsageSampled{CPUMillis: cpu}
	case "ended":
		e := WorkEnded{Output: w.output}
		number(t, d, "at", func(v uint64) { e.At = market.Slot(v) })
		who, ev = "seller", e
	case "deliver", "drop":
		q := &w.toSeller
		if to == "payer" {
			q = &w.toPayer
		}
		if n >= len(*q) {
			return fmt.Sprintf("no message %d of %v\n", n, *q)
		}
		m := (*q)[n]
		if !d.HasArg("keep") {
			*q = append((*q)[:n:n], (*q)[n+1:]...)
		}
		if d.Cmd == "drop" {
			return m.String() + " lost\n"
		}
		if who = to; m.receipt != nil {
			ev = *m.receipt
		} else if m.cosig != nil {
			ev = *m.cosig
		} else {
			ev = VoucherReceived{Voucher: *m.voucher}
			if w.delivered == nil || m.voucher.Seq > w.delivered.Seq {
				w.delivered = &m.voucher.Voucher
			}
		}
	case "restart":
		return restartScript(w, who, now)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	var fx []Effect
	var err error
	if who == "seller" {
		w.seller, fx, err = w.seller.Step(now, ev)
	} else {
		w.payer, fx, err = w.payer.Step(now, ev)
	}
	w.carry(now, fx, who == "seller", -1)
	return describe(w, who, fx, err)
}

func restartScript(w *world, who string, now market.Slot) string {
	if who == "seller" {
		return describe(w, who, w.restartSeller(now), nil)
	}
	return describe(w, who, w.restartPayer(now), nil)
}

func describe(w *world, who string, fx []Effect, err error) string {
	var b strings.Builder
	var rule *verify.RuleError
	if errors.As(err, &rule) {
		fmt.Fprintf(&b, "refused: %v\n", rule)
	} else if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	for _, f := range fx {
		switch f := f.(type) {
		case Persist:
			fmt.Fprintf(&b, "persist\n")
		case StartWork:
			fmt.Fprintf(&b, "start work, billing from %d, paid until %d\n", f.Start, f.PaidUntil)
		case ProposeReceipt:
			fmt.Fprintf(&b, "propose %s\n", receipt(f.Core))
		case CompleteReceipt:
			fmt.Fprintf(&b, "complete receipt %d\n", f.Core.Seq)
		case StopWork:
			fmt.Fprintf(&b, "stop work: %s\n", f.Reason)
		case Cosign:
			fmt.Fprintf(&b, "cosign receipt %d\n", f.Core.Seq)
		case IssueVoucher:
			v := f.Voucher
			fmt.Fprintf(&b, "voucher %d: %d until %d%s\n", v.Seq, v.Cumulative, v.Horizon, map[bool]string{true: ", final"}[v.Final()])
		case StopPaying:
			fmt.Fprintf(&b, "stop paying: %s%s\n", f.Reason, map[bool]string{true: " (" + f.Detail + ")"}[f.Detail != ""])
		case Refuse:
			fmt.Fprintf(&b, "refuse receipt %d: %v\n", f.Seq, f.Reason)
		case Settled:
			fmt.Fprintf(&b, "settled: %d, agreed %v\n", f.Amount, f.Agreed)
		}
	}
	if who == "seller" {
		fmt.Fprintf(&b, "seller %s, paid until %d\n", w.seller.State(), w.seller.PaidUntil())
	} else {
		fmt.Fprintf(&b, "payer %s, owes %d\n", w.payer.State(), w.payer.Owed())
	}
	fmt.Fprintf(&b, "under way: to payer %v, to seller %v\n", w.toPayer, w.toSeller)
	return b.String()
}

func receipt(c verify.ReceiptCore) string {
	return fmt.Sprintf("receipt %d: slots %d to %d, %d CPU ms, amount %d, cumulative %d%s",
		c.Seq, c.From, c.To, c.CPUMillis, c.Amount, c.Cumulative, map[bool]string{true: ", final"}[c.Final()])
}

// fuzzState: a state that is restored is journalled again the same, and whatever is restored takes any event without a panic.
func fuzzState(t *testing.T, b []byte, restore func(Terms, []byte) (journalled, error)) {
	terms := termsFor(t, nil)
	m, err := restore(terms, b)
	if err != nil {
		if !errors.Is(err, ErrState) {
			t.Fatalf("untyped error %v", err)
		}
		return
	}
	once, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := restore(terms, once)
	if err != nil {
		t.Fatalf("%v\n%s", err, once)
	}
	twice, err := again.Marshal()
	if err != nil || !bytes.Equal(once, twice) {
		t.Fatalf("%s\n%s\n%v", once, twice, err)
	}
	m.poke()
}

type journalled interface {
	Marshal() ([]byte, error)
	poke()
}

func (m Seller) poke() {
	for _, now := range []market.Slot{0, 101, 130, 499, 1 << 62} {
		_, _, _ = m.Step(now, Ticked{})
		_, _, _ = m.Step(now, WorkEnded{})
		_, _, _ = m.Resume(now)
		_ = m.Claim(now)
	}
	_ = m.Wake()
}

func (m Payer) poke() {
	for _, now := range []market.Slot{0, 101, 130, 499, 1 << 62} {
		_, _, _ = m.Step(now, Ticked{})
		_, _, _ = m.Step(now, Started{})
		_, _, _ = m.Step(now, ReceiptProposed{Core: verify.ReceiptCore{Seq: 1}})
		_, _, _ = m.Resume(now)
	}
	_ = m.Wake()
}

// journals gives every state that a whole lease journals, for the fuzz corpora.
func journals(tb interface {
	Fatal(...any)
	Fatalf(string, ...any)
}) (seller, payer [][]byte) {
	w := newWorld(tb, termsFor(tb, nil), 101, 0)
	keep := func() {
		if w.sellerJournal != nil {
			seller = append(seller, w.sellerJournal)
		}
		if w.payerJournal != nil {
			payer = append(payer, w.payerJournal)
		}
	}
	w.stepPayer(100, Started{}, -1)
	for now := market.Slot(101); now < 130; now++ {
		for len(w.toPayer)+len(w.toSeller) > 0 {
			w.deliver(now, len(w.toPayer) > 0, 0, false, -1)
			keep()
		}
		w.stepSeller(now, Ticked{}, -1)
		if now == 125 {
			w.endWork(now, -1)
		}
	}
	keep()
	return seller, payer
}

func FuzzSellerState(f *testing.F) {
	states, _ := journals(f)
	for _, s := range states {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzState(t, b, func(x Terms, b []byte) (journalled, error) { m, err := RestoreSeller(x, b); return m, err })
	})
}

func FuzzPayerState(f *testing.F) {
	_, states := journals(f)
	for _, s := range states {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzState(t, b, func(x Terms, b []byte) (journalled, error) { m, err := RestorePayer(x, b); return m, err })
	})
}

func BenchmarkInterval(b *testing.B) {
	// One interval of both machines, everything but the shell's four signatures: two checks of signatures and the journal
	// states.
	w := newWorld(b, termsFor(b, func(x *Terms) { x.Core.End, x.Core.Cap = 1<<31, 1<<40 }), 101, 0)
	w.stepPayer(100, Started{}, -1)
	now := market.Slot(101)
	for len(w.toPayer)+len(w.toSeller) > 0 {
		w.deliver(now, len(w.toPayer) > 0, 0, false, -1)
	}
	seller, payer := w.seller, w.payer
	b.ReportAllocs()
	for b.Loop() {
		now += 10
		var fx []Effect
		var err error
		step := func(ev Event, toSeller bool) {
			if toSeller {
				seller, fx, err = seller.Step(now, ev)
			} else {
				payer, fx, err = payer.Step(now, ev)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		step(Ticked{}, true)
		core := fx[1].(ProposeReceipt).Core
		step(ReceiptProposed{Core: core, Sig: sig(core, provider)}, false)
		voucher := fx[2].(IssueVoucher).Voucher
		step(CosignatureReceived{Seq: core.Seq, Sig: sig(core, buyer)}, true)
		v, err := verify.SignVoucher(domain, voucher, w.terms.Keys, buyer)
		if err != nil {
			b.Fatal(err)
		}
		step(VoucherReceived{Voucher: v}, true)
	}
}
