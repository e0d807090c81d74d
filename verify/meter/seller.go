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
	SellerWaiting  SellerState = "waiting"  // The first interval is not paid; the work has not started.
	SellerWorking  SellerState = "working"  // The execution runs and is paid, or within the grace.
	SellerStopping SellerState = "stopping" // StopWork was emitted; waiting for the execution's end.
	SellerClosing  SellerState = "closing"  // The work has ended; the last receipts wait for the cosignature.
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
	Free     market.Slot           `json:"free,omitempty"`     // first slot that may be billed
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

// NewSeller returns the machine of a lease that is activated in slot now, the provider's, with units that are free from
// slot free on. Billing starts in one of the two, or in between: see begin. It returns ErrTerms if the terms are bad or
// the lease cannot start then.
func NewSeller(t Terms, now, free market.Slot) (Seller, error) {
	if err := t.Validate(); err != nil {
		return Seller{}, err
	}
	free = max(free, t.Core.Start)
	start := max(now, free)
	if start > t.Core.ActivateBefore {
		return Seller{}, fmt.Errorf("%w: slot %d is after activate-before %d", ErrTerms, start, t.Core.ActivateBefore)
	}
	return Seller{
		terms: t, chain: verify.NewChain(t.Core),
		s: sellerState{Lease: t.Core.ID(), State: SellerWaiting, Start: start, Free: free, Watching: t.Supervision},
	}, nil
}

// State is where the machine stands.
func (m Seller) State() SellerState { return m.s.State }

// Settled reports whether the lease is settled for the seller.
func (m Seller) Settled() bool { return m.s.State == SellerSettled }

// begin returns the slot in which billing begins under a first voucher. The payer began one interval and the skew
// before the voucher's horizon. If the voucher took longer than the skew, or the payer's clock is behind by more,
// billing begins in the last slot that the payer accepts. This requires that the units were free then, and that the
// interval has not ended.
func (m Seller) begin(v verify.Voucher) market.Slot {
	start, latest := m.s.Start, before(v.Horizon, m.terms.IntervalSlots)
	if v.Horizon >= m.terms.Core.End || latest >= start || v.Horizon < start {
		return start
	}
	return max(m.s.Free, latest)
}

// Start is the slot in which billing begins.
func (m Seller) Start() market.Slot { return m.s.Start }

// Until is the slot after the last payable one of the lease. It is 0 before the work ends, and if no slot is payable.
// An extension that was returned before its start never began, and its units are free.
func (m Seller) Until() market.Slot {
	if m.s.EndedAt <= m.s.Start {
		return 0
	}
	return min(m.s.EndedAt, m.terms.Core.End)
}

// Last is the last co-signed receipt; Seq is 0 if there is none.
func (m Seller) Last() verify.ReceiptCore { return m.chain.Last() }

// TakenAt is the execution's CPU time when it was taken over from the lease before. taken is false before TakenOver.
func (m Seller) TakenAt() (cpuMillis uint64, taken bool) {
	if m.s.TakenAt == nil {
		return 0, false
	}
	return *m.s.TakenAt, true
}

// Voucher is the best voucher, which the provider submits to claim. It is nil if there is none.
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

// Wake is the latest slot for the next Ticked; earlier ticks are harmless. Zero means when a proposal is due for
// repetition, or never once settled.
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
