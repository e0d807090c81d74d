package meter

import (
	"crypto/sha256"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

func private(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

var (
	provider = private("provider")
	buyer    = private("buyer")
	domain   = sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}
)

func termsFor(tb interface{ Fatal(...any) }, change func(*Terms)) Terms {
	keys, err := market.NewKeySet(1, buyer.Key())
	if err != nil {
		tb.Fatal(err)
	}
	t := Terms{
		Domain: domain, Keys: keys, IntervalSlots: 10, GraceSlots: 4, SkewSlots: 2, SlotMillis: 400, MilliCPU: 1000,
		Core: market.LeaseCore{
			Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(),
			Payout: sign.Key{7}, UnitsRoot: market.UnitsRoot([]market.UnitID{{9}}), Terms: sign.Hash{3}, VoucherKeys: keys.Hash(),
			Rate: 2_500_000, Cap: 1000, Start: 100, ActivateBefore: 120, End: 500, Nonce: market.Nonce{5},
		},
	}
	if change != nil {
		change(&t)
	}
	if err := t.Validate(); err != nil {
		tb.Fatal(err)
	}
	return t
}

// message is what one side sends the other; nil fields are absent.
type message struct {
	receipt *ReceiptProposed
	cosig   *CosignatureReceived
	voucher *verify.SignedVoucher
}

func (m message) String() string {
	switch {
	case m.receipt != nil:
		return fmt.Sprintf("receipt %d", m.receipt.Core.Seq)
	case m.cosig != nil:
		return fmt.Sprintf("cosignature %d", m.cosig.Seq)
	}
	return fmt.Sprintf("voucher %d", m.voucher.Seq)
}

// world is both machines, their journals, the messages between them, and the rules that must hold whatever happens.
type world struct {
	tb    interface{ Fatalf(string, ...any) }
	terms Terms

	seller        Seller
	sellerJournal []byte // nil: nothing written yet
	sellerStart   market.Slot
	sellerFree    market.Slot
	payer         Payer
	payerJournal  []byte

	toPayer, toSeller []message

	working       bool // an execution runs
	workEndedSaid bool
	stopWanted    bool
	output        sign.Hash

	cosigned     map[uint64]verify.ReceiptCore // everything either side ever signed
	proposed     map[uint64]verify.ReceiptCore
	vouchers     map[uint64]verify.Voucher
	firstHorizon market.Slot     // of the vouchers before the first receipt
	delivered    *verify.Voucher // best voucher that reached the seller, as it was at delivery
	complete     []verify.Receipt

	sellerSettled, payerSettled *Settled
	refused                     []Refuse
	log                         []string
}

func newWorld(tb interface {
	Fatalf(string, ...any)
	Fatal(...any)
}, terms Terms, sellerStart, sellerFree market.Slot) *world {
	w := &world{
		tb: tb, terms: terms, sellerStart: sellerStart, sellerFree: sellerFree, output: sign.Sum([]byte("result")),
		cosigned: map[uint64]verify.ReceiptCore{}, proposed: map[uint64]verify.ReceiptCore{}, vouchers: map[uint64]verify.Voucher{},
	}
	var err error
	if w.seller, err = NewSeller(terms, sellerStart, sellerFree); err != nil {
		tb.Fatal(err)
	}
	if w.payer, err = NewPayer(terms); err != nil {
		tb.Fatal(err)
	}
	return w
}

func must[T any](w *world, v T, err error) T {
	if err != nil {
		w.tb.Fatalf("%v", err)
	}
	return v
}

// carry does the first n effects of a step and drops the others, as a crash would; n < 0 does them all.
func (w *world) carry(now market.Slot, fx []Effect, seller bool, n int) {
	for i, f := range fx {
		if i == n {
			return
		}
		if _, ok := f.(Persist); ok && i != 0 { // the journal first
			w.tb.Fatalf("Persist is effect %d", i)
		}
		if seller {
			w.carrySeller(now, f)
		} else {
			w.carryPayer(f)
		}
	}
}

func (w *world) carrySeller(now market.Slot, f Effect) {
	switch f := f.(type) {
	case Persist:
		w.sellerJournal = f.State
	case StartWork:
		if w.delivered == nil {
			w.tb.Fatalf("work starts without a voucher")
		}
		if !w.workEndedSaid {
			w.working = true
		}
	case ProposeReceipt:
		if old, ok := w.proposed[f.Core.Seq]; ok && old != f.Core {
			w.tb.Fatalf("the seller signs two receipts %d:\n%+v\n%+v", f.Core.Seq, old, f.Core)
		}
		// A final one takes in the slot in which the work stopped; an empty one may stand at a start still to come.
		last := now
		if f.Core.Final() {
			last++
		}
		if f.Core.To > max(last, f.Core.From) {
			w.tb.Fatalf("receipt until slot %d in slot %d", f.Core.To, now)
		}
		w.proposed[f.Core.Seq] = f.Core
		w.toPayer = append(w.toPayer, message{receipt: &ReceiptProposed{Core: f.Core, Sig: sig(f.Core, provider)}})
	case CompleteReceipt:
		r := verify.Receipt{ReceiptCore: f.Core, ProviderSig: sig(f.Core, provider), BuyerSig: f.BuyerSig}
		if n := len(w.complete); n > 0 && w.complete[n-1] == r {
			return // done again after a crash
		}
		w.complete = append(w.complete, r)
	case StopWork:
		w.stopWanted = true
	case Settled:
		if w.sellerSettled != nil && *w.sellerSettled != f {
			w.tb.Fatalf("the seller settles twice: %v, %v", *w.sellerSettled, f)
		}
		w.sellerSettled = &f
	default:
		w.tb.Fatalf("the seller has effect %T", f)
	}
}

func (w *world) carryPayer(f Effect) {
	switch f := f.(type) {
	case Persist:
		w.payerJournal = f.State
	case Cosign:
		if old, ok := w.cosigned[f.Core.Seq]; ok && old != f.Core {
			w.tb.Fatalf("the payer co-signs two receipts %d", f.Core.Seq)
		}
		w.cosigned[f.Core.Seq] = f.Core
		w.toSeller = append(w.toSeller, message{cosig: &CosignatureReceived{Seq: f.Core.Seq, Sig: sig(f.Core, buyer)}})
	case IssueVoucher:
		w.checkVoucher(f.Voucher)
		v, err := verify.SignVoucher(domain, f.Voucher, w.terms.Keys, buyer)
		v = must(w, v, err)
		w.toSeller = append(w.toSeller, message{voucher: &v})
	case StopPaying:
		w.stopWanted = true // the shell tells the provider
	case Refuse:
		w.refused = append(w.refused, f)
	case Settled:
		if w.payerSettled != nil && *w.payerSettled != f {
			w.tb.Fatalf("the payer settles twice: %v, %v", *w.payerSettled, f)
		}
		w.payerSettled = &f
	default:
		w.tb.Fatalf("the payer has effect %T", f)
	}
}

// checkVoucher holds what the payer signs against the promises of the package.
func (w *world) checkVoucher(v verify.Voucher) {
	if old, ok := w.vouchers[v.Seq]; ok && old != v {
		w.tb.Fatalf("two vouchers %d:\n%+v\n%+v", v.Seq, old, v)
	}
	w.vouchers[v.Seq] = v
	if v.Cumulative > w.terms.Core.Cap || v.Horizon > w.terms.Core.End {
		w.tb.Fatalf("voucher over cap or end: %+v", v)
	}
	var first, signed verify.ReceiptCore
	for _, c := range w.cosigned {
		if c.Seq > signed.Seq {
			signed = c
		}
		if c.Seq == 1 {
			first = c
		}
	}
	ahead := max(w.terms.IntervalSlots, min(uint64(signed.To-first.From), w.terms.AheadSlots)) // no more than was served before
	risk, err := w.terms.Core.Rate.Owed(ahead)
	if err != nil {
		w.tb.Fatalf("%v", err)
	}
	if v.Cumulative > signed.Cumulative+risk+1 { // one base unit of rounding
		w.tb.Fatalf("voucher for %d, co-signed are %d, what may be paid ahead costs %d", v.Cumulative, signed.Cumulative, risk)
	}
	if signed.Seq == 0 { // several first vouchers are for one amount
		w.firstHorizon = max(w.firstHorizon, v.Horizon)
		if v.Cumulative != w.vouchers[1].Cumulative {
			w.tb.Fatalf("first vouchers for %d and %d", w.vouchers[1].Cumulative, v.Cumulative)
		}
	}
	if signed.Seq > 0 && v.Horizon > max(signed.To+market.Slot(ahead), w.firstHorizon) {
		w.tb.Fatalf("voucher until %d, co-signed until %d", v.Horizon, signed.To)
	}
	if v.Final() && (!signed.Final() || v.Cumulative != signed.Cumulative) {
		w.tb.Fatalf("final voucher %+v after receipt %+v", v, signed)
	}
}

func sig(c verify.ReceiptCore, by sign.Private) sign.Signature {
	s, err := c.Sign(domain, by)
	if err != nil {
		panic(err)
	}
	return s
}

// stepSeller gives the seller an event and does n of the effects (all if n < 0); a refusal by rule is normal.
func (w *world) stepSeller(now market.Slot, ev Event, n int) {
	if v, ok := ev.(VoucherReceived); ok && !v.Voucher.Final() && (w.delivered == nil || v.Voucher.Seq > w.delivered.Seq) {
		w.delivered = &v.Voucher.Voucher
	}
	next, fx, err := w.seller.Step(now, ev)
	w.log = append(w.log, fmt.Sprintf("%d seller %T: %d effects, %v", now, ev, len(fx), err))
	if err != nil {
		if _, ok := err.(*verify.RuleError); !ok {
			w.tb.Fatalf("%T: %v", ev, err)
		}
		return
	}
	w.seller = next
	w.carry(now, fx, true, n)
	if n >= 0 && n < len(fx) {
		w.restartSeller(now)
	}
	w.checkSeller(now)
}

func (w *world) stepPayer(now market.Slot, ev Event, n int) {
	next, fx, err := w.payer.Step(now, ev)
	w.log = append(w.log, fmt.Sprintf("%d payer %T: %d effects, %v", now, ev, len(fx), err))
	if err != nil {
		w.tb.Fatalf("%T: %v", ev, err)
	}
	w.payer = next
	w.carry(now, fx, false, n)
	if n >= 0 && n < len(fx) {
		w.restartPayer(now)
	}
}

// restartSeller starts the seller again from its journal and gives what it then did.
func (w *world) restartSeller(now market.Slot) []Effect {
	if w.sellerJournal == nil {
		seller, err := NewSeller(w.terms, w.sellerStart, w.sellerFree)
		w.seller = must(w, seller, err)
	} else {
		seller, err := RestoreSeller(w.terms, w.sellerJournal)
		w.seller = must(w, seller, err)
	}
	next, fx, err := w.seller.Resume(now)
	w.seller = must(w, next, err)
	w.carry(now, fx, true, -1)
	w.checkSeller(now)
	return fx
}

// restartPayer starts the payer again from its journal and gives what it then did.
func (w *world) restartPayer(now market.Slot) []Effect {
	if w.payerJournal == nil {
		payer, err := NewPayer(w.terms)
		w.payer = must(w, payer, err)
	} else {
		payer, err := RestorePayer(w.terms, w.payerJournal)
		w.payer = must(w, payer, err)
	}
	next, fx, err := w.payer.Resume(now)
	w.payer = must(w, next, err)
	w.carry(now, fx, false, -1)
	return fx
}

// checkSeller holds the seller's promises: no work past a missing voucher and the grace, no claim over the last voucher.
func (w *world) checkSeller(now market.Slot) {
	state := w.seller.State()
	if state == SellerWorking {
		if w.delivered == nil || now >= after(w.delivered.Horizon, w.terms.GraceSlots) || now >= w.terms.Core.End {
			w.tb.Fatalf("works in slot %d, paid by %+v", now, w.delivered)
		}
		interval := uint64(w.terms.Core.Rate) * w.terms.IntervalSlots
		if used := uint64(now-w.seller.Start()) * uint64(w.terms.Core.Rate); now > w.seller.Start() && interval > 0 &&
			used > uint64(w.delivered.Cumulative)*market.RateScale+market.RateScale+uint64(w.terms.Core.Rate)*w.terms.GraceSlots {
			w.tb.Fatalf("works in slot %d, paid is %d", now, w.delivered.Cumulative)
		}
	}
	claim := w.seller.Claim(now)
	if w.delivered == nil && claim != 0 || w.delivered != nil && claim > w.delivered.Cumulative {
		w.tb.Fatalf("claims %d, delivered %+v", claim, w.delivered)
	}
}

// deliver hands message i of a queue over, keeping it there if keep.
func (w *world) deliver(now market.Slot, toPayer bool, i int, keep bool, n int) {
	q := &w.toSeller
	if toPayer {
		q = &w.toPayer
	}
	m := (*q)[i]
	if !keep {
		*q = append((*q)[:i:i], (*q)[i+1:]...)
	}
	switch {
	case m.receipt != nil:
		w.stepPayer(now, *m.receipt, n)
	case m.cosig != nil:
		w.stepSeller(now, *m.cosig, n)
	default:
		w.stepSeller(now, VoucherReceived{Voucher: *m.voucher}, n)
	}
}

func (w *world) endWork(now market.Slot, n int) {
	w.workEndedSaid, w.working = true, false
	w.stepSeller(now, UsageSampled{CPUMillis: uint64(now) * 400}, -1)
	w.stepSeller(now, WorkEnded{Output: w.output}, n)
}

// finish checks what must hold of the end: the receipts are a chain, and what both agreed on is one amount.
func (w *world) finish() {
	if len(w.complete) > 0 {
		if err := verify.CheckChain(domain, w.terms.Core, w.complete); err != nil {
			w.tb.Fatalf("the seller's receipts: %v", err)
		}
	}
	if s, p := w.sellerSettled, w.payerSettled; s != nil && p != nil && s.Agreed && p.Agreed && s.Amount != p.Amount {
		w.tb.Fatalf("seller settles for %d, payer for %d", s.Amount, p.Amount)
	}
	if p := w.payerSettled; p != nil {
		var last verify.ReceiptCore
		for _, c := range w.cosigned {
			if c.Seq > last.Seq {
				last = c
			}
		}
		if p.Amount != last.Cumulative {
			w.tb.Fatalf("payer settles for %d, co-signed are %d", p.Amount, last.Cumulative)
		}
	}
}
