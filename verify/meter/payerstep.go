package meter

import (
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Step applies event ev in slot now. A peer's mistake is answered with Refuse. An error leaves the machine unchanged:
// it is an *UnexpectedEvent, or an overflow that Terms.Validate excludes.
func (m Payer) Step(now market.Slot, ev Event) (Payer, []Effect, error) {
	step := payerStep{m: m, now: now}
	if err := step.take(ev); err != nil {
		return m, nil, err
	}
	step.advance()
	if !step.dirty {
		return step.m, step.fx, nil
	}
	state, err := step.m.Marshal()
	if err != nil {
		return m, nil, err
	}
	return step.m, append([]Effect{Persist{State: state}}, step.fx...), nil
}

// payerStep is one step in progress. Dirty: the state must be journalled before any effect.
type payerStep struct {
	m     Payer
	now   market.Slot
	fx    []Effect
	dirty bool
}

func (p *payerStep) take(ev Event) error {
	switch ev := ev.(type) {
	case Started:
		return p.started()
	case ReceiptProposed:
		return p.proposed(ev)
	case Signed:
		return p.signed(ev.Receipt)
	case Stopped:
		switch p.m.s.State {
		case PayerIdle:
			p.stop(ReasonStopped, ev.Reason)
			p.settle(0, true)
		case PayerPaying:
			p.stop(ReasonStopped, ev.Reason)
		case PayerStopping, PayerSettled: // reported before
		}
	case Ticked:
		if p.m.s.State == PayerPaying && p.m.s.Last == nil && p.now < p.m.overdue() {
			p.fx = append(p.fx, IssueVoucher{Voucher: *p.m.s.Voucher}) // the seller has not acknowledged it yet
		}
	default:
		return &UnexpectedEvent{State: string(p.m.s.State), Event: ev}
	}
	return nil
}

// started pays the first interval, for any begin within the skew of the seller's clock.
func (p *payerStep) started() error {
	t, s := p.m.terms, &p.m.s
	if s.State == PayerPaying {
		if s.Last == nil && p.now > after(s.Started, t.SkewSlots) && p.now <= t.Core.ActivateBefore {
			p.restarted()
			return nil
		}
		p.fx = append(p.fx, IssueVoucher{Voucher: *s.Voucher})
		return nil
	}
	if s.State != PayerIdle {
		return nil
	}
	if p.now > t.Core.ActivateBefore {
		p.stop(ReasonNotActivated, "")
		p.settle(0, true)
		return nil
	}
	s.Started = max(p.now, t.Core.Start)
	slots := min(t.IntervalSlots, t.slotsFor(t.Core.Cap), t.Core.Slots())
	amount, err := t.Core.Rate.Owed(slots)
	if err != nil {
		return err
	}
	s.State = PayerPaying
	p.issue(1, amount, p.m.firstHorizon(), 0)
	return nil
}

// restarted issues another first voucher to a seller that may have missed the first interval, because the seller or the
// voucher was slow. It is for the same amount, so the risk does not grow, and the seller may begin under either.
func (p *payerStep) restarted() {
	s := &p.m.s
	if s.Earliest == 0 {
		s.Earliest = s.Started
	}
	s.Started = p.now
	p.issue(s.Voucher.Seq+1, s.Voucher.Cumulative, p.m.firstHorizon(), 0)
}

func (p *payerStep) issue(seq uint64, amount market.Amount, horizon market.Slot, flags uint8) {
	v := verify.Voucher{
		Version: verify.VoucherVersion, Flags: flags, Lease: p.m.s.Lease, Escrow: p.m.terms.Escrow, Seq: seq,
		Cumulative: amount, Horizon: horizon, Supervision: p.m.terms.Supervision,
	}
	p.m.s.Voucher, p.dirty = &v, true
	p.fx = append(p.fx, IssueVoucher{Voucher: v})
}

func (p *payerStep) proposed(ev ReceiptProposed) error {
	last := p.m.chain.Last()
	if ev.Core.Seq > 0 && ev.Core.Seq == last.Seq {
		p.again(ev)
		return nil
	}
	chain, broke := p.check(ev)
	if broke != nil {
		p.fx = append(p.fx, Refuse{Seq: ev.Core.Seq, Reason: broke})
		return nil
	}
	return p.cosigned(chain, ev.Core, ev.Sig)
}

// cosigned continues after a receipt that both sides have signed: it pays the receipt and the next interval.
func (p *payerStep) cosigned(chain verify.Chain, core verify.ReceiptCore, sig sign.Signature) error {
	s := &p.m.s
	p.m.chain, s.Last, s.LastSig, s.First, p.dirty = chain, &core, sig, chain.Start(), true
	p.fx = append(p.fx, Cosign{Core: core, ProviderSig: sig})
	if core.Final() {
		p.issue(s.Voucher.Seq+1, core.Cumulative, core.To, verify.VoucherFinal)
		p.settle(core.Cumulative, true)
		return nil
	}
	next, amount := p.m.terms.ahead(chain.Start(), core.To), core.Cumulative
	if s.State == PayerPaying && next != core.To {
		var err error
		if amount, err = p.m.terms.owed(chain.Start(), next); err != nil {
			return err
		}
	} else if next = core.To; amount <= s.Voucher.Cumulative {
		return nil // it is paid
	}
	p.issue(s.Voucher.Seq+1, max(amount, s.Voucher.Cumulative), max(next, s.Voucher.Horizon), 0)
	return nil
}

// signed imports a receipt that an earlier supervisor co-signed. A signed receipt is owed, even if its voucher is
// unknown.
func (p *payerStep) signed(r verify.Receipt) error {
	t, s := p.m.terms, p.m.s
	if r.Seq <= p.m.chain.Last().Seq {
		return nil
	}
	if s.State == PayerIdle || s.State == PayerSettled {
		return refuse(RuleNotBegun, "the lease is %s", s.State)
	}
	chain, err := p.m.chain.Follow(r.ReceiptCore)
	if err != nil {
		return asRule(verify.RuleLease, err)
	}
	// the other supervisor's clock may be one skew ahead of the provider's
	if r.To > after(p.now, 2*t.SkewSlots) && r.To > r.From {
		return refuse(RuleEarly, "ends in slot %d, it is %d", r.To, p.now)
	}
	if err := r.VerifyBy(t.Domain, t.Core.Provider, r.ProviderSig); err != nil {
		return asRule(verify.RuleProvider, err)
	}
	if err := r.VerifyBy(t.Domain, t.Core.Buyer, r.BuyerSig); err != nil {
		return asRule(verify.RuleBuyer, err)
	}
	return p.cosigned(chain, r.ReceiptCore, r.ProviderSig)
}

// again answers a receipt with a number that was co-signed before: the same receipt gets the same answer, any other is
// refused.
func (p *payerStep) again(ev ReceiptProposed) {
	s := &p.m.s
	if ev.Core == *s.Last {
		p.fx = append(p.fx, Cosign{Core: *s.Last, ProviderSig: s.LastSig}, IssueVoucher{Voucher: *s.Voucher})
		return
	}
	p.fx = append(p.fx, Refuse{Seq: ev.Core.Seq, Reason: refuse(RuleConflict, "receipt %d was another one",
		ev.Core.Seq)})
	if s.State == PayerPaying && ev.Core.VerifyBy(p.m.terms.Domain, p.m.terms.Core.Provider, ev.Sig) == nil {
		p.stop(ReasonConflict, "")
	}
}

// check is nil when the receipt is right in every rule; the signature, which costs most, comes last.
func (p *payerStep) check(ev ReceiptProposed) (verify.Chain, *verify.RuleError) {
	t, s, r := p.m.terms, &p.m.s, ev.Core
	switch s.State {
	case PayerIdle:
		return verify.Chain{}, refuse(RuleNotBegun, "the lease is not active")
	case PayerSettled:
		return verify.Chain{}, refuse(RuleOver, "settled at %d", s.Settled)
	case PayerPaying, PayerStopping:
	}
	chain, err := p.m.chain.Follow(r)
	if err != nil {
		return chain, asRule(verify.RuleLease, err)
	}
	earliest := s.Started
	if s.Earliest > 0 {
		earliest = s.Earliest
	}
	if r.Seq == 1 && (r.From < before(earliest, t.SkewSlots) || r.From > after(s.Started, t.SkewSlots)) {
		return chain, refuse(RuleStart,
			"billing begins in slot %d, the lease was started in %d to %d, %d slots are allowed between",
			r.From, earliest, s.Started, t.SkewSlots)
	}
	end := t.next(chain.Start(), r.From)
	most, bounded := t.usable(uint64(r.To-r.From) + t.SkewSlots)
	switch {
	case r.To > end || r.To < end && !r.Final():
		return chain, refuse(RuleInterval, "ends in slot %d, the interval in %d", r.To, end)
	case r.To > after(p.now, t.SkewSlots) && r.To > r.From: // an empty one: the lease ended before it began
		return chain, refuse(RuleEarly, "ends in slot %d, it is %d", r.To, p.now)
	case r.Cumulative > s.Voucher.Cumulative || r.To > s.Voucher.Horizon:
		return chain, refuse(RuleUnpaid, "%d until slot %d, paid is %d until %d",
			r.Cumulative, r.To, s.Voucher.Cumulative, s.Voucher.Horizon)
	case r.Supervision > t.Supervision:
		return chain, refuse(verify.RuleSupervision, "epoch %d, known is %d", r.Supervision, t.Supervision)
	case bounded && r.CPUMillis > most:
		return chain, refuse(RuleUsage, "%d ms of CPU time, the units have %d", r.CPUMillis, most)
	}
	if err := r.VerifyBy(t.Domain, t.Core.Provider, ev.Sig); err != nil {
		return chain, asRule(verify.RuleProvider, err)
	}
	return chain, nil
}

func (p *payerStep) stop(reason Reason, detail string) {
	detail = strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], "")
	s := &p.m.s
	s.State, s.Reason, s.Detail, s.StoppedAt, p.dirty = PayerStopping, reason, detail, p.now, true
	p.fx = append(p.fx, StopPaying{Reason: reason, Detail: detail})
}

func (p *payerStep) settle(amount market.Amount, agreed bool) {
	p.m.s.State, p.m.s.Settled, p.m.s.Agreed, p.dirty = PayerSettled, amount, agreed, true
	p.fx = append(p.fx, Settled{Amount: amount, Agreed: agreed})
}

// advance applies due deadlines.
func (p *payerStep) advance() {
	if p.m.s.State == PayerPaying && p.now >= p.m.overdue() {
		reason := ReasonNoReceipt
		switch h := p.m.horizon(); {
		case h == p.m.terms.Core.End:
			reason = ReasonLeaseEnded
		case p.m.chain.Last().Seq > 0 && h == p.m.terms.last(p.m.chain.Start()):
			reason = ReasonCapReached
		}
		p.stop(reason, "")
	}
	if p.m.s.State == PayerStopping && p.now >= p.m.giveUp() {
		p.settle(p.m.Owed(), false)
	}
}
