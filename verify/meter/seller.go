package meter

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// SellerState is where the provider's side of a lease stands.
//
//	Waiting ──first voucher──▶ Working ──unpaid, or the last slot──▶ Stopping
//	   │                          │                                     │
//	   │                          └───────────work ended────────────────┤
//	   │                                                                ▼
//	   └──────── no voucher in the grace ────────▶ Settled ◀── cosigned ── Closing
//	                                                            or waited
type SellerState string

// The states of a Seller, one sentence each.
const (
	SellerWaiting  SellerState = "waiting"  // The first interval is not paid; nothing runs.
	SellerWorking  SellerState = "working"  // The execution runs and is paid, or within the grace.
	SellerStopping SellerState = "stopping" // StopWork was said; the execution's end is awaited.
	SellerClosing  SellerState = "closing"  // Work is over; receipts up to the final one wait for the cosignature.
	SellerSettled  SellerState = "settled"  // Over.
)

// Seller is the provider's machine for one lease. Values are immutable; the zero value is not usable.
type Seller struct {
	terms Terms
	chain verify.Chain // up to the last co-signed receipt
	s     sellerState
}

// sellerState is the journalled state. Values behind pointers are never changed.
type sellerState struct {
	Lease    market.LeaseID        `json:"lease"`
	State    SellerState           `json:"state"`
	Start    market.Slot           `json:"start"`
	Last     *verify.ReceiptCore   `json:"last,omitempty"`     // co-signed
	LastSig  sign.Signature        `json:"last_sig"`           // the buyer's under it
	Pending  *verify.ReceiptCore   `json:"pending,omitempty"`  // proposed
	Voucher  *verify.SignedVoucher `json:"voucher,omitempty"`  // best one
	Closing  *verify.SignedVoucher `json:"closing,omitempty"`  // the final one
	CPU      uint64                `json:"cpu"`                // last sample
	Billed   uint64                `json:"billed"`             // sample at the last receipt
	EndedAt  market.Slot           `json:"ended_at,omitempty"` // the slot after the last one worked in
	Quit     market.Slot           `json:"quit,omitempty"`     // when the work ended, if that was before billing began
	Output   sign.Hash             `json:"output"`
	Reason   Reason                `json:"reason,omitempty"`
	Settled  market.Amount         `json:"settled"`
	Agreed   bool                  `json:"agreed"`
	Watching uint64                `json:"supervision"`        // highest supervision epoch seen in a voucher
	TakenAt  *uint64               `json:"taken_at,omitempty"` // CPU time of the execution when it was taken over
}

// NewSeller returns the machine of a lease whose billing starts in slot start: the provider's current slot at
// activation, in which its units are free. It returns ErrTerms if the terms are bad or the lease cannot start then.
func NewSeller(t Terms, start market.Slot) (Seller, error) {
	if err := t.Validate(); err != nil {
		return Seller{}, err
	}
	start = max(start, t.Core.Start)
	if start > t.Core.ActivateBefore {
		return Seller{}, fmt.Errorf("%w: slot %d is after activate-before %d", ErrTerms, start, t.Core.ActivateBefore)
	}
	return Seller{
		terms: t, chain: verify.NewChain(t.Core),
		s: sellerState{Lease: t.Core.ID(), State: SellerWaiting, Start: start, Watching: t.Supervision},
	}, nil
}

// State is where the machine stands.
func (m Seller) State() SellerState { return m.s.State }

// Settled reports whether the lease is over for the seller.
func (m Seller) Settled() bool { return m.s.State == SellerSettled }

// Start is the slot in which billing begins.
func (m Seller) Start() market.Slot { return m.s.Start }

// Until is the slot after the last one that the lease may be paid for; 0 until its work is over, and if none is. An
// extension that was given back before its time has not begun: its start is still to come, and its units are free.
func (m Seller) Until() market.Slot {
	if m.s.EndedAt <= m.s.Start {
		return 0
	}
	return min(m.s.EndedAt, m.terms.Core.End)
}

// Last is the last co-signed receipt; Seq 0 when there is none.
func (m Seller) Last() verify.ReceiptCore { return m.chain.Last() }

// TakenAt is the execution's CPU time when it was taken over from the lease before. taken is false before TakenOver.
func (m Seller) TakenAt() (cpuMillis uint64, taken bool) {
	if m.s.TakenAt == nil {
		return 0, false
	}
	return *m.s.TakenAt, true
}

// Voucher is the best voucher, which the provider submits to claim. It is nil when there is none.
func (m Seller) Voucher() *verify.SignedVoucher { return m.s.Voucher }

// Closing is the final voucher, for exactly the settled amount; nil before it came.
func (m Seller) Closing() *verify.SignedVoucher { return m.s.Closing }

// PaidUntil is the end of the last interval that the best voucher pays in full.
func (m Seller) PaidUntil() market.Slot {
	paid, last := m.paid(), m.terms.last(m.s.Start)
	if paid >= last {
		return last
	}
	return m.s.Start + market.Slot(uint64(paid-m.s.Start)/m.terms.IntervalSlots*m.terms.IntervalSlots)
}

// paid is the slot to which the best voucher pays, in money and in horizon, at least the start.
func (m Seller) paid() market.Slot {
	if m.s.Voucher == nil {
		return m.s.Start
	}
	v := m.s.Voucher.Voucher
	return max(m.s.Start, min(v.Horizon, after(m.s.Start, m.terms.slotsFor(v.Cumulative)), m.terms.last(m.s.Start)))
}

// from is the first slot that no co-signed receipt covers.
func (m Seller) from() market.Slot {
	if last := m.chain.Last(); last.Seq > 0 {
		return last.To
	}
	return m.s.Start
}

// due is the end of the interval for which the next receipt is.
func (m Seller) due() market.Slot { return m.terms.next(m.s.Start, m.from()) }

// Claim is the amount that the provider may claim now. It covers the slots worked until now, or until the work ended,
// up to the amount of its best voucher. Once the final receipt is co-signed, it is exactly that receipt's amount.
func (m Seller) Claim(now market.Slot) market.Amount {
	if m.s.State == SellerSettled {
		return m.s.Settled
	}
	if m.s.Voucher == nil {
		return 0
	}
	if m.s.State == SellerClosing {
		now = m.s.EndedAt
	}
	owed, err := m.terms.owed(m.s.Start, max(m.s.Start, min(now, m.paid())))
	if err != nil {
		return 0 // cannot be: the whole lease's cost fits
	}
	return min(owed, m.s.Voucher.Cumulative)
}

// Wake is the slot at which the machine wants its next Ticked at the latest; ticks in between do no harm. Zero: as soon
// as a proposal should be repeated, or never again once settled.
func (m Seller) Wake() market.Slot {
	grace := after(m.PaidUntil(), m.terms.GraceSlots)
	switch {
	case m.s.State == SellerWaiting:
		return grace
	case m.s.State != SellerWorking || m.s.Pending != nil || m.paid() < m.due():
		return 0
	}
	return min(m.due(), grace)
}

// Resume is Step for a restart from the journal. It does the work that is due since then, and everything that may not
// have been done before the crash; repeating it is harmless.
func (m Seller) Resume(now market.Slot) (Seller, []Effect, error) {
	m, fx, err := m.Step(now, Ticked{})
	if err != nil {
		return m, nil, err
	}
	if m.s.Last != nil {
		fx = append(fx, CompleteReceipt{Core: *m.s.Last, BuyerSig: m.s.LastSig})
	}
	switch m.s.State {
	case SellerWorking:
		fx = append(fx, StartWork{Start: m.s.Start, PaidUntil: m.PaidUntil()})
	case SellerStopping:
		fx = append(fx, StopWork{Reason: m.s.Reason})
	case SellerSettled:
		fx = append(fx, Settled{Amount: m.s.Settled, Agreed: m.s.Agreed})
	case SellerWaiting, SellerClosing:
	}
	return m, fx, nil
}

// Step applies event ev in slot now. On error the machine is unchanged: a *verify.RuleError names the rule that a
// peer's message breaks, an *UnexpectedEvent is the shell's mistake.
func (m Seller) Step(now market.Slot, ev Event) (Seller, []Effect, error) {
	step := sellerStep{m: m, now: now}
	if err := step.take(ev); err != nil {
		return m, nil, err
	}
	if err := step.advance(); err != nil {
		return m, nil, err
	}
	if _, tick := ev.(Ticked); tick && !step.dirty {
		step.repeat()
	}
	if !step.dirty {
		return step.m, step.fx, nil
	}
	state, err := step.m.Marshal()
	if err != nil {
		return m, nil, err
	}
	return step.m, append([]Effect{Persist{State: state}}, step.fx...), nil
}

// sellerStep is one step under way. dirty: the journal must know before anybody else does.
type sellerStep struct {
	m     Seller
	now   market.Slot
	fx    []Effect
	dirty bool
}

func (p *sellerStep) take(ev Event) error {
	switch ev := ev.(type) {
	case VoucherReceived:
		return p.voucher(ev.Voucher)
	case CosignatureReceived:
		return p.cosignature(ev)
	case UsageSampled:
		if ev.CPUMillis < p.m.s.CPU { // another execution: counts from zero again
			p.m.s.Billed = 0
		}
		p.m.s.CPU = ev.CPUMillis
	case TakenOver:
		if p.m.s.TakenAt == nil {
			p.m.s.CPU, p.m.s.Billed, p.m.s.TakenAt, p.dirty = ev.CPUMillis, ev.CPUMillis, &ev.CPUMillis, true
		}
	case WorkEnded:
		p.ended(ev)
	case Ticked:
	default:
		return &UnexpectedEvent{State: string(p.m.s.State), Event: ev}
	}
	return nil
}

// repeat requests missing answers again: the cosignature of the pending receipt, or with the last one the voucher that
// belongs to its cosignature.
func (p *sellerStep) repeat() {
	s := p.m.s
	switch {
	case s.State == SellerSettled:
	case s.Pending != nil:
		p.fx = append(p.fx, ProposeReceipt{Core: *s.Pending})
	case s.State == SellerWorking && s.Last != nil && p.m.paid() < p.m.due():
		p.fx = append(p.fx, ProposeReceipt{Core: *s.Last})
	}
}

func (p *sellerStep) voucher(v verify.SignedVoucher) error {
	t, s := p.m.terms, &p.m.s
	if err := v.Check(t.Domain, t.Core); err != nil {
		return asRule(verify.RuleLease, err)
	}
	switch {
	case v.Escrow != t.Escrow:
		return refuse(verify.RuleDomain, "voucher of escrow %s, the lease is in %s", v.Escrow.Short(), t.Escrow.Short())
	case v.Final():
		return p.closing(v)
	case s.Voucher != nil && v.Seq <= s.Voucher.Seq:
		return nil // known, or older than a known one
	case v.Supervision < s.Watching:
		return refuse(verify.RuleSupervision, "voucher under epoch %d, %d is known", v.Supervision, s.Watching)
	case s.Voucher != nil && v.Cumulative < s.Voucher.Cumulative:
		return refuse(verify.RuleCumulative, "voucher %d pays %d, voucher %d paid %d", v.Seq, v.Cumulative, s.Voucher.Seq, s.Voucher.Cumulative)
	case s.State == SellerSettled:
		return nil
	}
	if s.State == SellerWaiting {
		try := p.m
		try.s.Voucher = &v
		if due := p.m.due(); try.paid() < due {
			return refuse(RuleUnpaid, "the first interval ends in slot %d, the voucher pays until %d", due, try.paid())
		}
		s.State = SellerWorking
		s.Voucher = &v
		p.fx = append(p.fx, StartWork{Start: s.Start, PaidUntil: p.m.PaidUntil()})
	}
	s.Voucher, s.Watching, p.dirty = &v, v.Supervision, true
	return nil
}

// closing accepts the final voucher, which must have the final receipt's amount.
func (p *sellerStep) closing(v verify.SignedVoucher) error {
	final := p.m.s.Pending
	if last := p.m.chain.Last(); last.Final() {
		final = &last
	}
	switch {
	case final == nil || !final.Final():
		return refuse(verify.RuleFinal, "a final voucher before the final receipt")
	case v.Cumulative != final.Cumulative:
		return refuse(verify.RuleCumulative, "the final voucher pays %d, the final receipt says %d", v.Cumulative, final.Cumulative)
	case p.m.s.Closing == nil:
		p.m.s.Closing, p.dirty = &v, true
	}
	return nil
}

func (p *sellerStep) cosignature(ev CosignatureReceived) error {
	s := &p.m.s
	switch {
	case s.State == SellerSettled || ev.Seq > 0 && ev.Seq <= p.m.chain.Last().Seq:
		return nil // known
	case s.Pending == nil || ev.Seq != s.Pending.Seq:
		return refuse(verify.RuleSeq, "cosignature of receipt %d, which was not proposed", ev.Seq)
	}
	if err := s.Pending.VerifyBy(p.m.terms.Domain, p.m.terms.Core.Buyer, ev.Sig); err != nil {
		return asRule(verify.RuleBuyer, err)
	}
	chain, err := p.m.chain.Follow(*s.Pending)
	if err != nil {
		return err // cannot be: Next made it
	}
	p.fx = append(p.fx, CompleteReceipt{Core: *s.Pending, BuyerSig: ev.Sig})
	p.m.chain, s.Last, s.LastSig, s.Pending, p.dirty = chain, s.Pending, ev.Sig, nil, true
	if s.Last.Final() {
		p.settle(s.Last.Cumulative, true)
	}
	return nil
}

func (p *sellerStep) ended(ev WorkEnded) {
	s := &p.m.s
	switch s.State {
	case SellerWaiting:
		p.settle(0, true)
	case SellerWorking, SellerStopping:
		at := ev.At
		if at == 0 || at > p.now {
			at = p.now
		}
		end := s.Start // work that ended before billing began costs nothing
		if at >= s.Start {
			end = after(at, 1) // a slot begun is a slot paid
		} else {
			s.Quit = at
		}
		s.State, s.EndedAt, s.Output, p.dirty = SellerClosing, end, ev.Output, true
	case SellerClosing, SellerSettled: // said before
	}
}

func (p *sellerStep) settle(amount market.Amount, agreed bool) {
	p.m.s.State, p.m.s.Settled, p.m.s.Agreed, p.dirty = SellerSettled, amount, agreed, true
	p.fx = append(p.fx, Settled{Amount: amount, Agreed: agreed})
}

func (p *sellerStep) stop(reason Reason) {
	p.m.s.State, p.m.s.Reason, p.dirty = SellerStopping, reason, true
	p.fx = append(p.fx, StopWork{Reason: reason})
}

// advance applies due deadlines and new facts.
func (p *sellerStep) advance() error {
	m, s := &p.m, &p.m.s
	unpaid := p.now >= after(m.PaidUntil(), m.terms.GraceSlots)
	switch s.State {
	case SellerWaiting:
		if unpaid {
			p.stop(ReasonNoVoucher)
			p.settle(0, false)
		}
	case SellerWorking:
		if last := m.terms.last(s.Start); p.now >= last && last < m.terms.Core.End {
			p.stop(ReasonCapReached)
		} else if p.now >= last {
			p.stop(ReasonLeaseEnded)
		} else if s.Pending == nil && p.now >= m.due() && m.paid() >= m.due() {
			if err := p.propose(m.due(), false); err != nil {
				return err
			}
		}
		if s.State == SellerWorking && unpaid {
			p.stop(ReasonNoVoucher)
		}
	case SellerClosing:
		// whole intervals first: several are paid ahead, of which some had no receipt when the work ended
		if s.Pending == nil {
			end := max(m.from(), min(s.EndedAt, m.paid()))
			if err := p.propose(min(end, m.due()), end <= m.due()); err != nil {
				return err
			}
		}
		wait := max(s.EndedAt, m.PaidUntil())
		if s.Quit > 0 {
			wait = s.Quit
		}
		if p.now >= after(wait, m.terms.settle()) {
			p.settle(m.Claim(p.now), false)
		}
	case SellerStopping, SellerSettled:
	}
	return nil
}

// propose makes the receipt of the slots up to to. It becomes the only one that will ever bear its number.
func (p *sellerStep) propose(to market.Slot, final bool) error {
	s := &p.m.s
	from := p.m.from()
	used := s.CPU - min(s.CPU, s.Billed)
	if most, bounded := p.m.terms.usable(uint64(to - from)); bounded {
		used = min(used, most) // a late sample may reach into the next interval
	}
	core, err := p.m.chain.Next(from, to, func(r *verify.ReceiptCore) {
		r.CPUMillis, r.Supervision = used, s.Watching
		if final {
			r.Flags, r.Output = verify.ReceiptFinal, s.Output
		}
	})
	if err != nil {
		return err
	}
	s.Pending, s.Billed, p.dirty = &core, s.CPU, true
	p.fx = append(p.fx, ProposeReceipt{Core: core})
	return nil
}
