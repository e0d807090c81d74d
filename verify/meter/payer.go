package meter

import (
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
	Started   market.Slot         `json:"started"`            // by the payer's clock, with the last first voucher
	Earliest  market.Slot         `json:"earliest,omitempty"` // likewise with the first one, if there were several
	First     market.Slot         `json:"first"`              // by the first receipt, once there is one
	Last      *verify.ReceiptCore `json:"last,omitempty"`     // co-signed
	LastSig   sign.Signature      `json:"last_sig"`           // the seller's under it
	Voucher   *verify.Voucher     `json:"voucher,omitempty"`  // last one issued
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

// Settled reports whether the lease is settled for the payer.
func (m Payer) Settled() bool { return m.s.State == PayerSettled }

// Reason is why payment stopped; "" while it continues, or if the seller ended the lease.
func (m Payer) Reason() Reason { return m.s.Reason }

// Last is the last co-signed receipt; Seq is 0 if there is none.
func (m Payer) Last() verify.ReceiptCore { return m.chain.Last() }

// LastSig is the seller's signature of Last; zero if there is none.
func (m Payer) LastSig() sign.Signature { return m.s.LastSig }

// Began is the slot in which billing begins: by the first receipt, before that by the payer's clock.
func (m Payer) Began() market.Slot {
	if m.s.Last != nil {
		return m.s.First
	}
	return m.s.Started
}

// Voucher is the last issued voucher; nil if there is none. Its amount can be claimed until a final receipt lowers it.
func (m Payer) Voucher() *verify.Voucher { return m.s.Voucher }

// Owed is the amount of the co-signed receipts.
func (m Payer) Owed() market.Amount { return m.chain.Last().Cumulative }

// PaidUntil is the slot to which the last voucher pays, by the payer's estimate of the start of billing; 0 without a
// voucher.
func (m Payer) PaidUntil() market.Slot {
	v := m.s.Voucher
	if v == nil {
		return 0
	}
	return min(v.Horizon, after(m.Began(), m.terms.slotsFor(v.Cumulative)), m.terms.last(m.Began()))
}

// horizon is the end of the next receipt's interval, by the payer's estimate.
func (m Payer) horizon() market.Slot {
	if last := m.chain.Last(); last.Seq > 0 {
		return m.terms.next(m.chain.Start(), last.To)
	}
	if m.s.State == PayerStopping && after(m.s.StoppedAt, m.terms.SkewSlots) < m.s.Started {
		return m.s.StoppedAt // it never began
	}
	return min(after(m.s.Started, m.terms.IntervalSlots+m.terms.SkewSlots), m.terms.Core.End)
}

// firstHorizon is the horizon of a first voucher.
func (m Payer) firstHorizon() market.Slot {
	return min(after(m.s.Started, m.terms.SkewSlots+m.terms.IntervalSlots), m.terms.Core.End)
}

// Wake is the latest slot for the next Ticked; 0 means none.
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

// overdue is the slot from which a receipt is overdue, or the end of the lease. Waiting for a slow seller costs
// nothing, since the next interval is paid after the receipt.
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
		m.resumed = now // the seller works on, and had no payer to send receipts to
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
