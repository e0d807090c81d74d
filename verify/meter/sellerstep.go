package meter

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// sellerStep is one step in progress. Dirty: the state must be journalled before any effect.
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
		return refuse(verify.RuleCumulative, "voucher %d pays %d, voucher %d paid %d",
			v.Seq, v.Cumulative, s.Voucher.Seq, s.Voucher.Cumulative)
	case s.State == SellerSettled:
		return nil
	}
	if s.State == SellerWaiting {
		try := p.m
		try.s.Start, try.s.Voucher = p.m.begin(v.Voucher), &v
		if due := try.due(); try.paid() < due {
			return refuse(RuleUnpaid, "the first interval ends in slot %d, the voucher pays until %d", due, try.paid())
		}
		s.State, s.Start, s.Voucher = SellerWorking, try.s.Start, &v
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
		return refuse(verify.RuleCumulative, "final voucher: pays %d, the final receipt has %d",
			v.Cumulative, final.Cumulative)
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
	case SellerClosing, SellerSettled: // reported before
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

// propose makes the receipt of the slots up to to. No other receipt will ever have its number.
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
