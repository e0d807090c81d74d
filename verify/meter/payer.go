package meter

import (
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// PayerState is where the buyer's side of a lease stands.
//
//	Idle ──started──▶ Paying ──stopped, no receipt, the end──▶ Stopping
//	  │                  │                                        │
//	  │                  └────────── final receipt ───────┐       │ final receipt, or waited
//	  └── too late, stopped ──▶ Settled ◀─────────────────┴───────┘
type PayerState string

// The states of a Payer, one sentence each.
const (
	PayerIdle     PayerState = "idle"     // Nothing is paid yet.
	PayerPaying   PayerState = "paying"   // One interval or more is paid ahead.
	PayerStopping PayerState = "stopping" // Nothing more is paid ahead; receipts of paid intervals are still co-signed.
	PayerSettled  PayerState = "settled"  // Over.
)

// maxDetail bounds the kept part of the reason in Stopped.
const maxDetail = 200

// Payer is the buyer's machine for one lease. Values are immutable; the zero value is not usable.
type Payer struct {
	terms Terms
	chain verify.Chain // up to the last co-signed receipt
	s     payerState
	// resumed is the slot in which the machine was taken up again from the journal while the seller still worked:
	// receipts are waited for from there. It is not journalled.
	resumed market.Slot
}

// payerState is the journalled state. Values behind pointers are never changed.
type payerState struct {
	Lease     market.LeaseID      `json:"lease"`
	State     PayerState          `json:"state"`
	Started   market.Slot         `json:"started"`           // by the payer's clock
	First     market.Slot         `json:"first"`             // by the first receipt, once there is one
	Last      *verify.ReceiptCore `json:"last,omitempty"`    // co-signed
	LastSig   sign.Signature      `json:"last_sig"`          // the seller's under it
	Voucher   *verify.Voucher     `json:"voucher,omitempty"` // last one issued
	StoppedAt market.Slot         `json:"stopped_at,omitempty"`
	Reason    Reason              `json:"reason,omitempty"`
	Detail    string              `json:"detail,omitempty"`
	Settled   market.Amount       `json:"settled"`
	Agreed    bool                `json:"agreed"`
}

// NewPayer is the machine of a lease that is not active yet. ErrTerms if the terms are bad.
func NewPayer(t Terms) (Payer, error) {
	if err := t.Validate(); err != nil {
		return Payer{}, err
	}
	return Payer{terms: t, chain: verify.NewChain(t.Core), s: payerState{Lease: t.Core.ID(), State: PayerIdle}}, nil
}

// State is where the machine stands.
func (m Payer) State() PayerState { return m.s.State }

// Settled reports whether the lease is over for the payer.
func (m Payer) Settled() bool { return m.s.State == PayerSettled }

// Reason is why nothing more is paid; "" while it is, or when the seller ended the lease.
func (m Payer) Reason() Reason { return m.s.Reason }

// Last is the last co-signed receipt; Seq 0 when there is none.
func (m Payer) Last() verify.ReceiptCore { return m.chain.Last() }

// LastSig is the seller's signature under Last; zero when there is none.
func (m Payer) LastSig() sign.Signature { return m.s.LastSig }

// Began is the slot in which billing begins: by the first receipt, before that by the payer's clock.
func (m Payer) Began() market.Slot {
	if m.s.Last != nil {
		return m.s.First
	}
	return m.s.Started
}

// Voucher is the last voucher issued; nil when there is none. Until a final receipt lowers it, its amount can still be
// claimed from the payer.
func (m Payer) Voucher() *verify.Voucher { return m.s.Voucher }

// Owed is the amount of the co-signed receipts.
func (m Payer) Owed() market.Amount { return m.chain.Last().Cumulative }

// PaidUntil is the slot to which the last voucher pays, as far as the payer knows when billing began; 0 when there is
// none.
func (m Payer) PaidUntil() market.Slot {
	v := m.s.Voucher
	if v == nil {
		return 0
	}
	return min(v.Horizon, after(m.Began(), m.terms.slotsFor(v.Cumulative)), m.terms.last(m.Began()))
}

// horizon is the end of the interval for which the next receipt is, as far as the payer can know it.
func (m Payer) horizon() market.Slot {
	if last := m.chain.Last(); last.Seq > 0 {
		return m.terms.next(m.chain.Start(), last.To)
	}
	if m.s.State == PayerStopping && after(m.s.StoppedAt, m.terms.SkewSlots) < m.s.Started {
		return m.s.StoppedAt // it never began
	}
	return min(after(m.s.Started, m.terms.IntervalSlots+m.terms.SkewSlots), m.terms.Core.End)
}

// Wake is the slot at which the machine wants its next Ticked at the latest. Zero: none.
func (m Payer) Wake() market.Slot {
	switch m.s.State {
	case PayerPaying:
		return m.overdue()
	case PayerStopping:
		return m.giveUp()
	case PayerIdle, PayerSettled:
	}
	return 0
}

// overdue is the slot in which a receipt is missing, or the lease is over. A seller that is only slow is waited for: it
// costs nothing, as the next interval is paid after the receipt.
func (m Payer) overdue() market.Slot {
	return after(max(m.horizon(), m.resumed), max(m.terms.GraceSlots+m.terms.SkewSlots, m.terms.ReceiptSlots))
}

// giveUp is the slot in which the seller's final receipt is no longer waited for.
func (m Payer) giveUp() market.Slot {
	return after(max(m.s.StoppedAt, m.horizon()), m.terms.settle())
}

// Resume is Step for a restart from the journal. It does the work that is due since then, and everything that may not
// have been done before the crash; repeating it is harmless.
func (m Payer) Resume(now market.Slot) (Payer, []Effect, error) {
	if m.s.State == PayerPaying && now < after(m.PaidUntil(), m.terms.GraceSlots) {
		m.resumed = now // the seller works on, and has had nobody to show receipts to
	}
	m, fx, err := m.Step(now, Ticked{})
	if err != nil {
		return m, nil, err
	}
	if m.s.Last != nil {
		fx = append(fx, Cosign{Core: *m.s.Last, ProviderSig: m.s.LastSig})
	}
	if m.s.Voucher != nil {
		fx = append(fx, IssueVoucher{Voucher: *m.s.Voucher})
	}
	switch m.s.State {
	case PayerStopping:
		fx = append(fx, StopPaying{Reason: m.s.Reason, Detail: m.s.Detail})
	case PayerSettled:
		fx = append(fx, Settled{Amount: m.s.Settled, Agreed: m.s.Agreed})
	case PayerIdle, PayerPaying:
	}
	return m, fx, nil
}

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

// payerStep is one step under way. dirty: the journal must know before anybody else does.
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
		case PayerStopping, PayerSettled: // said before
		}
	case Ticked:
		if p.m.s.State == PayerPaying && p.m.s.Last == nil && p.now < p.m.overdue() {
			p.fx = append(p.fx, IssueVoucher{Voucher: *p.m.s.Voucher}) // nothing shows yet that the seller has it
		}
	default:
		return &UnexpectedEvent{State: string(p.m.s.State), Event: ev}
	}
	return nil
}

// started pays the first interval, wherever within the skew the seller's clock makes it begin.
func (p *payerStep) started() error {
	t, s := p.m.terms, &p.m.s
	if s.State == PayerPaying {
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
	p.issue(1, amount, min(after(s.Started, t.SkewSlots+t.IntervalSlots), t.Core.End), 0)
	return nil
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

// cosigned goes on from a receipt that both have signed: it is paid, and the next interval with it.
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

// again answers a receipt whose number was co-signed before: the same receipt with the same answer, another one never.
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
	if r.Seq == 1 && (r.From < before(s.Started, t.SkewSlots) || r.From > after(s.Started, t.SkewSlots)) {
		return chain, refuse(RuleStart,
			"billing begins in slot %d, the lease was started in %d, %d slots are allowed between",
			r.From, s.Started, t.SkewSlots)
	}
	end := t.next(chain.Start(), r.From)
	most, bounded := t.usable(uint64(r.To-r.From) + t.SkewSlots)
	switch {
	case r.To > end || r.To < end && !r.Final():
		return chain, refuse(RuleInterval, "ends in slot %d, the interval in %d", r.To, end)
	case r.To > after(p.now, t.SkewSlots) && r.To > r.From: // an empty one says that the lease ended before it began
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
