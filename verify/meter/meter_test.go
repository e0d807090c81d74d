package meter

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
	"pgregory.net/rapid"
)

func genTerms(t *rapid.T) Terms {
	return termsFor(t, func(x *Terms) {
		x.IntervalSlots = rapid.Uint64Range(1, 12).Draw(t, "interval")
		x.GraceSlots = rapid.Uint64Range(1, 8).Draw(t, "grace")
		x.SkewSlots = rapid.Uint64Range(0, 4).Draw(t, "skew")
		x.Core.Rate = market.Rate(rapid.SampledFrom([]uint64{0, 1, 333_333, 1_000_000, 2_500_000, 77_777_777}).Draw(t, "rate"))
		x.Core.Cap = market.Amount(rapid.Uint64Range(100, 3000).Draw(t, "cap"))
		x.Core.End = market.Slot(rapid.Uint64Range(125, 220).Draw(t, "end"))
		x.AheadSlots = rapid.Uint64Range(0, 60).Draw(t, "ahead")
		x.ReceiptSlots = rapid.Uint64Range(0, 40).Draw(t, "receipt")
	})
}

// Safety: whatever order of messages, delays, doubles, replays, losses, crashes between any two effects and restarts from
// the journal, the promises checked in world hold.
func TestSafetyUnderAnyFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		terms := genTerms(t)
		now := market.Slot(rapid.Uint64Range(95, 121).Draw(t, "now"))
		start := market.Slot(rapid.Uint64Range(95, 120).Draw(t, "seller start"))
		w := newWorld(t, terms, start, market.Slot(rapid.Uint64Range(90, uint64(start)).Draw(t, "free from")))
		crash := func() int {
			if rapid.IntRange(0, 9).Draw(t, "crash?") == 0 {
				return rapid.IntRange(0, 3).Draw(t, "after effects")
			}
			return -1
		}
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 13).Draw(t, "what") {
			case 0, 1:
				now += market.Slot(rapid.Uint64Range(0, 6).Draw(t, "slots"))
				w.stepSeller(now, Ticked{}, crash())
			case 2, 3:
				now += market.Slot(rapid.Uint64Range(0, 6).Draw(t, "slots"))
				w.stepPayer(now, Ticked{}, crash())
			case 4:
				w.stepPayer(now, Started{}, crash())
			case 5, 6, 7:
				if n := len(w.toPayer); n > 0 {
					w.deliver(now, true, rapid.IntRange(0, n-1).Draw(t, "message"), rapid.Bool().Draw(t, "keep"), crash())
				}
			case 8, 9, 10:
				if n := len(w.toSeller); n > 0 {
					w.deliver(now, false, rapid.IntRange(0, n-1).Draw(t, "message"), rapid.Bool().Draw(t, "keep"), crash())
				}
			case 11:
				w.stepSeller(now, UsageSampled{CPUMillis: rapid.Uint64Range(0, 100_000).Draw(t, "cpu")}, -1)
			case 12:
				if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
					w.restartSeller(now)
				} else if rapid.IntRange(0, 2).Draw(t, "restart") == 0 {
					w.restartPayer(now)
				}
			case 13:
				if (w.working || w.stopWanted) && rapid.IntRange(0, 3).Draw(t, "end") == 0 {
					w.endWork(now, crash())
				} else if rapid.IntRange(0, 30).Draw(t, "stop") == 0 {
					w.stepPayer(now, Stopped{Reason: "enough"}, crash())
				}
			}
		}
		w.finish()
	})
}

// Liveness: when an exchange takes less than the grace and the interval, the first voucher at most an interval, and
// nobody fails, both sides end settled, agreed, for what the slots worked cost, and the chain of receipts is complete.
func TestLivenessWithoutFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		terms := genTerms(t)
		delay := market.Slot(rapid.Uint64Range(0, (min(terms.GraceSlots, terms.IntervalSlots)-1)/2).Draw(t, "delay one way"))
		ahead := market.Slot(rapid.Uint64Range(0, terms.SkewSlots).Draw(t, "clocks apart"))
		begin := market.Slot(rapid.Uint64Range(100, 110).Draw(t, "begin"))
		worksFor := market.Slot(rapid.Uint64Range(0, 130).Draw(t, "work"))
		payerAhead := rapid.Bool().Draw(t, "payer's clock ahead")
		sellerNow := func(s market.Slot) market.Slot {
			if payerAhead {
				return s
			}
			return s + ahead
		}
		payerNow := func(s market.Slot) market.Slot {
			if payerAhead {
				return s + ahead
			}
			return s
		}
		// A first voucher that comes late costs no lease while the interval that it pays is not over. Where the lease
		// ends before, its horizon does not say when the payer began.
		first, activated := delay, begin
		if payerNow(begin)+market.Slot(terms.SkewSlots+terms.IntervalSlots) < terms.Core.End {
			first += market.Slot(rapid.Uint64Range(0, terms.IntervalSlots-uint64(delay)).Draw(t, "first voucher late"))
			activated += first
		}
		w := newWorld(t, terms, min(sellerNow(activated), terms.Core.ActivateBefore), 0)
		type flight struct {
			at market.Slot
			to bool
		}
		var flying []flight
		sent := func(s market.Slot) { // what was queued during this slot arrives after delay, in order
			for range len(w.toPayer) - count(flying, func(f flight) bool { return f.to }) {
				flying = append(flying, flight{s + delay, true})
			}
			for range len(w.toSeller) - count(flying, func(f flight) bool { return !f.to }) {
				flying = append(flying, flight{s + delay, false})
			}
		}
		w.stepPayer(payerNow(begin), Started{}, -1)
		flying = append(flying, flight{begin + first, false})
		ended := false
		for s := begin; s < 1000 && (w.sellerSettled == nil || w.payerSettled == nil); s++ {
			sent(s)
			for i := 0; i < len(flying); {
				if f := flying[i]; f.at <= s {
					flying = append(flying[:i], flying[i+1:]...)
					if f.to {
						w.deliver(payerNow(s), true, 0, false, -1)
					} else {
						w.deliver(sellerNow(s), false, 0, false, -1)
					}
					sent(s)
					i = 0
					continue
				}
				i++
			}
			if !ended && w.seller.State() != SellerWaiting && (w.stopWanted || s >= begin+first+worksFor) {
				ended = true
				w.endWork(sellerNow(s), -1)
			}
			if len(w.toPayer) == 0 && len(w.toSeller) == 0 { // nothing under way: time for the shell to tick
				w.stepSeller(sellerNow(s), Ticked{}, -1)
				w.stepPayer(payerNow(s), Ticked{}, -1)
			}
			if w.seller.State() == SellerWorking && s < begin+first+worksFor {
				w.stepSeller(sellerNow(s), Ticked{}, -1)
			}
		}
		w.finish()
		if w.sellerSettled == nil || w.payerSettled == nil {
			t.Fatalf("seller %s, payer %s\n%s", w.seller.State(), w.payer.State(), strings.Join(w.log, "\n"))
		}
		if !w.sellerSettled.Agreed || !w.payerSettled.Agreed || *w.sellerSettled != *w.payerSettled {
			t.Fatalf("seller %+v, payer %+v\n%s", w.sellerSettled, w.payerSettled, strings.Join(w.log, "\n"))
		}
		last := w.complete[len(w.complete)-1]
		if !last.Final() || last.Output != w.output || last.Cumulative != w.sellerSettled.Amount {
			t.Fatalf("last receipt %+v, settled %+v", last, w.sellerSettled)
		}
		for _, r := range w.refused {
			if r.Reason.Rule != RuleOver && r.Reason.Rule != verify.RuleSeq {
				t.Fatalf("refused %d: %v", r.Seq, r.Reason)
			}
		}
		want := min(sellerNow(begin+first+worksFor), terms.last(w.seller.Start()))
		if last.To < before(want, uint64(2*delay)+1) && !w.stopWanted {
			t.Fatalf("worked until %d, billed until %d\n%s", want, last.To, strings.Join(w.log, "\n"))
		}
	})
}

func count[T any](s []T, f func(T) bool) (n int) {
	for _, v := range s {
		if f(v) {
			n++
		}
	}
	return n
}

// The whole of a lease with a crash before and after every single effect, on either side: all of them, not a sample.
func TestCrashAtEveryEffect(t *testing.T) {
	t.Parallel()
	run := func(crashAt int) (effects int, w *world) {
		w = newWorld(t, termsFor(t, nil), 101, 0)
		at := func(fx int) int { // of the effects of the step to come, how many are done
			defer func() { effects += fx }()
			if crashAt >= effects && crashAt < effects+fx {
				return crashAt - effects
			}
			return -1
		}
		payer := func(now market.Slot, ev Event) {
			_, fx, _ := w.payer.Step(now, ev)
			w.stepPayer(now, ev, at(len(fx)))
		}
		seller := func(now market.Slot, ev Event) {
			_, fx, _ := w.seller.Step(now, ev)
			w.stepSeller(now, ev, at(len(fx)))
		}
		ended := false
		payer(100, Started{})
		for now := market.Slot(100); now < 400 && (w.sellerSettled == nil || w.payerSettled == nil); now++ {
			for len(w.toPayer)+len(w.toSeller) > 0 {
				var m message
				if len(w.toPayer) > 0 {
					m, w.toPayer = w.toPayer[0], w.toPayer[1:]
				} else {
					m, w.toSeller = w.toSeller[0], w.toSeller[1:]
				}
				switch {
				case m.receipt != nil:
					payer(now, *m.receipt)
				case m.cosig != nil:
					seller(now, *m.cosig)
				default:
					seller(now, VoucherReceived{Voucher: *m.voucher})
				}
			}
			if w.payer.State() == PayerIdle {
				payer(now, Started{}) // the shell's own record says that the lease is to start
			}
			if now >= 137 && !ended || ended && (w.seller.State() == SellerWorking || w.seller.State() == SellerStopping) {
				ended, w.workEndedSaid = true, true
				seller(now, WorkEnded{Output: w.output, At: 137}) // the runtime says so again after a restart
			}
			seller(now, Ticked{})
			payer(now, Ticked{})
		}
		w.finish()
		return effects, w
	}
	n, whole := run(-1)
	if whole.payerSettled == nil || n < 20 {
		t.Fatalf("%d effects, %+v", n, whole.payerSettled)
	}
	for i := range n {
		_, w := run(i)
		if w.sellerSettled == nil || w.payerSettled == nil || *w.sellerSettled != *w.payerSettled || !w.payerSettled.Agreed ||
			w.payerSettled.Amount != whole.payerSettled.Amount {
			t.Fatalf("crash at effect %d: seller %+v, payer %+v, without %+v\n%s", i, w.sellerSettled, w.payerSettled, whole.payerSettled,
				strings.Join(w.log, "\n"))
		}
	}
}

// Every single-bit change of a right receipt is refused by the payer and changes nothing.
func TestPayerRefusesChangedReceipts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, termsFor(t, nil), 101, 0)
	w.stepPayer(100, Started{}, -1)
	w.deliver(101, false, 0, false, -1)
	w.stepSeller(111, UsageSampled{CPUMillis: 300}, -1)
	good := w.toPayer[0].receipt
	b := good.Core.Marshal()
	for bit := range len(b) * 8 {
		bad := b
		bad[bit/8] ^= 1 << (bit % 8)
		core, err := verify.UnmarshalReceiptCore(bad[:])
		if err != nil {
			continue
		}
		next, fx, err := w.payer.Step(200, ReceiptProposed{Core: core, Sig: good.Sig})
		if err != nil || len(fx) == 0 {
			t.Fatalf("bit %d: %v, %v", bit, fx, err)
		}
		for _, f := range fx {
			if _, ok := f.(Cosign); ok {
				t.Fatalf("bit %d: co-signed", bit)
			}
		}
		if next.Last().Seq != 0 {
			t.Fatalf("bit %d: accepted", bit)
		}
	}
	for bit := range 512 {
		bad := *good
		bad.Sig[bit/8] ^= 1 << (bit % 8)
		if _, fx, _ := w.payer.Step(111, bad); len(fx) != 1 || fx[0].(Refuse).Reason.Rule != verify.RuleProvider {
			t.Fatalf("signature bit %d: %v", bit, fx)
		}
	}
	w.deliver(111, true, 0, false, -1)
	if w.payer.Last().Seq != 1 {
		t.Fatal("the right one was refused")
	}
}

// What a seller may try, signed properly, and the rule that stops it.
func TestPayerRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, termsFor(t, nil), 101, 0)
	w.stepPayer(100, Started{}, -1)
	w.deliver(101, false, 0, false, -1)
	w.stepSeller(111, Ticked{}, -1)
	w.deliver(111, true, 0, false, -1)
	w.deliver(111, false, 0, false, -1)
	w.deliver(111, false, 0, false, -1)
	w.stepSeller(121, Ticked{}, -1)
	good := w.toPayer[0].receipt.Core
	for name, c := range map[string]struct {
		now    market.Slot
		change func(*verify.ReceiptCore)
		rule   verify.Rule
	}{
		"early":            {118, func(*verify.ReceiptCore) {}, RuleEarly},
		"longer":           {200, func(r *verify.ReceiptCore) { r.To++; r.Amount += 3; r.Cumulative += 3 }, verify.RuleCumulative},
		"longer, right":    {200, func(r *verify.ReceiptCore) { r.To += 2; r.Amount += 5; r.Cumulative += 5 }, RuleInterval},
		"shorter":          {200, func(r *verify.ReceiptCore) { r.To -= 2; r.Amount -= 5; r.Cumulative -= 5 }, RuleInterval},
		"dearer":           {121, func(r *verify.ReceiptCore) { r.Amount++; r.Cumulative++ }, verify.RuleCumulative},
		"dearer once":      {121, func(r *verify.ReceiptCore) { r.Amount++ }, verify.RuleAmount},
		"gap":              {121, func(r *verify.ReceiptCore) { r.From++ }, verify.RuleFrom},
		"again billed":     {121, func(r *verify.ReceiptCore) { r.From-- }, verify.RuleFrom},
		"other units":      {121, func(r *verify.ReceiptCore) { r.UnitsRoot[0]++ }, verify.RuleUnits},
		"other lease":      {121, func(r *verify.ReceiptCore) { r.Lease[0]++ }, verify.RuleLease},
		"other buyer":      {121, func(r *verify.ReceiptCore) { r.Buyer = provider.Key() }, verify.RuleParties},
		"skipped":          {121, func(r *verify.ReceiptCore) { r.Seq++ }, verify.RuleSeq},
		"other past":       {121, func(r *verify.ReceiptCore) { r.Prev[3]++ }, verify.RulePrev},
		"rank epoch":       {121, func(r *verify.ReceiptCore) { r.RankEpoch++ }, verify.RuleRankEpoch},
		"supervision":      {121, func(r *verify.ReceiptCore) { r.Supervision++ }, verify.RuleSupervision},
		"too much CPU":     {121, func(r *verify.ReceiptCore) { r.CPUMillis = 4801 }, RuleUsage},
		"another number 1": {121, func(r *verify.ReceiptCore) { r.Seq-- }, RuleConflict},
	} {
		bad := good
		c.change(&bad)
		next, fx, err := w.payer.Step(c.now, ReceiptProposed{Core: bad, Sig: sig(bad, provider)})
		var got *verify.RuleError
		for _, f := range fx {
			if r, ok := f.(Refuse); ok {
				got = r.Reason
			}
		}
		if err != nil || got == nil || got.Rule != c.rule || next.Last() != w.payer.Last() {
			t.Errorf("%s: %v, %v, want rule %s", name, fx, err, c.rule)
		}
		if c.rule == RuleConflict && next.State() != PayerStopping {
			t.Errorf("%s: still %s", name, next.State())
		}
	}
}

// What a payer may try with vouchers, signed properly.
func TestSellerRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, termsFor(t, nil), 101, 0)
	w.stepPayer(100, Started{}, -1)
	first := w.toSeller[0].voucher.Voucher
	try := func(change func(*verify.Voucher)) error {
		v := first
		change(&v)
		s, err := verify.SignVoucher(domain, v, w.terms.Keys, buyer)
		if err != nil {
			t.Fatal(err)
		}
		next, fx, err := w.seller.Step(101, VoucherReceived{Voucher: s})
		if err != nil && (len(fx) > 0 || next.State() != w.seller.State()) {
			t.Fatal("a refused voucher changed something")
		}
		return err
	}
	for name, c := range map[string]struct {
		change func(*verify.Voucher)
		rule   verify.Rule
	}{
		"too little":  {func(v *verify.Voucher) { v.Cumulative-- }, RuleUnpaid},
		"too short":   {func(v *verify.Voucher) { v.Horizon = 100 }, RuleUnpaid},
		"over cap":    {func(v *verify.Voucher) { v.Cumulative = 1001 }, verify.RuleCap},
		"past end":    {func(v *verify.Voucher) { v.Horizon = 501 }, verify.RuleHorizon},
		"other lease": {func(v *verify.Voucher) { v.Lease[0]++ }, verify.RuleLease},
		"an escrow":   {func(v *verify.Voucher) { v.Escrow[0]++ }, verify.RuleDomain},
		"number 0":    {func(v *verify.Voucher) { v.Seq = 0 }, verify.RuleSeq},
		"final":       {func(v *verify.Voucher) { v.Flags = verify.VoucherFinal }, verify.RuleFinal},
	} {
		var got *verify.RuleError
		if err := try(c.change); !errors.As(err, &got) || got.Rule != c.rule {
			t.Errorf("%s: %v, want rule %s", name, err, c.rule)
		}
	}
	w.deliver(101, false, 0, false, -1)
	for name, c := range map[string]struct {
		change func(*verify.Voucher)
		rule   verify.Rule
	}{
		"lower":     {func(v *verify.Voucher) { v.Seq++; v.Cumulative-- }, verify.RuleCumulative},
		"cut short": {func(v *verify.Voucher) { v.Seq++; v.Cumulative--; v.Flags = verify.VoucherFinal }, verify.RuleFinal},
	} {
		var got *verify.RuleError
		if err := try(c.change); !errors.As(err, &got) || got.Rule != c.rule {
			t.Errorf("%s: %v, want rule %s", name, err, c.rule)
		}
	}
	var unexpected *UnexpectedEvent
	if _, _, err := w.seller.Step(101, Started{}); !errors.As(err, &unexpected) {
		t.Errorf("Started to the seller: %v", err)
	}
	if _, _, err := w.payer.Step(101, WorkEnded{}); !errors.As(err, &unexpected) {
		t.Errorf("WorkEnded to the payer: %v", err)
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Terms){
		"interval": func(x *Terms) { x.IntervalSlots = 0 },
		"grace":    func(x *Terms) { x.GraceSlots = 0 },
		"skew":     func(x *Terms) { x.SkewSlots = 1 << 40 },
		"slot":     func(x *Terms) { x.SlotMillis = 0 },
		"network":  func(x *Terms) { x.Domain.Network = "" },
		"program":  func(x *Terms) { x.Domain.Program[0] = 1 },
		"keys":     func(x *Terms) { x.Core.VoucherKeys[0]++ },
		"cap":      func(x *Terms) { x.Core.Cap = 1 },
		"core":     func(x *Terms) { x.Core.End = 0 },
	} {
		terms := termsFor(t, nil)
		change(&terms)
		if _, err := NewPayer(terms); !errors.Is(err, ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := NewSeller(terms, 100, 0); !errors.Is(err, ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewSeller(termsFor(t, nil), 121, 0); !errors.Is(err, ErrTerms) {
		t.Errorf("late start: %v", err)
	}
	// slotsFor is the inverse of Owed.
	rapid.Check(t, func(t *rapid.T) {
		terms := Terms{Core: market.LeaseCore{Rate: market.Rate(rapid.Uint64Range(1, 1<<40).Draw(t, "rate"))}}
		a := market.Amount(rapid.Uint64Range(0, 1<<40).Draw(t, "amount"))
		n := terms.slotsFor(a)
		if n > 1<<60 {
			return
		}
		owed, err := terms.Core.Rate.Owed(n)
		more, err2 := terms.Core.Rate.Owed(n + 1)
		if err != nil || err2 != nil || owed > a || more <= a {
			t.Fatalf("%d slots cost %d, one more %d, of %d", n, owed, more, a)
		}
	})
}
