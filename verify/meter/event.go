package meter

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Event is an input of a machine. Sealed.
type Event interface{ event() }

type (
	// VoucherReceived: the payer sent a voucher. To the Seller.
	VoucherReceived struct{ Voucher verify.SignedVoucher }
	// UsageSampled: the CPU time that the execution has used since it began. To the Seller; the last one precedes
	// WorkEnded.
	UsageSampled struct{ CPUMillis uint64 }
	// TakenOver: the execution began under the preceding lease, which has ended. CPUMillis is the CPU time that it had
	// used by then, which does not count for this lease. To the Seller, before its first UsageSampled.
	TakenOver struct{ CPUMillis uint64 }
	// CosignatureReceived: the payer signed the receipt of that number. To the Seller, after a voucher that came with
	// it. After the grace, only that voucher prevents a stop of the work.
	CosignatureReceived struct {
		Seq uint64
		Sig sign.Signature
	}
	// WorkEnded: the execution has ended, by itself or by a stop, since slot At (0 or a future slot: now). To the
	// Seller, once, also after StopWork.
	WorkEnded struct {
		Output sign.Hash
		At     market.Slot
	}

	// Started: the lease is active from now on and the seller may start. To the Payer; again, to get the voucher again.
	Started struct{}
	// ReceiptProposed: the seller sent a receipt signed by it. To the Payer.
	ReceiptProposed struct {
		Core verify.ReceiptCore
		Sig  sign.Signature
	}
	// Signed: a receipt that both have signed already, the buyer's side by an earlier supervisor. To the Payer, in
	// order, before anything else after it was handed over. Known receipts are ignored.
	Signed struct{ Receipt verify.Receipt }
	// Stopped: the buyer ends the lease. To the Payer. The reason is for display; at most 200 bytes are kept.
	Stopped struct{ Reason string }

	// Ticked: time passed. To both, at least once in each interval and at Wake. Each tick repeats unanswered effects; a
	// shell that still waits for an answer leaves the repeated effect out.
	Ticked struct{}
)

func (VoucherReceived) event()     {}
func (UsageSampled) event()        {}
func (TakenOver) event()           {}
func (CosignatureReceived) event() {}
func (WorkEnded) event()           {}
func (Started) event()             {}
func (ReceiptProposed) event()     {}
func (Signed) event()              {}
func (Stopped) event()             {}
func (Ticked) event()              {}

// Effect is an action for the shell, to be carried out in order. Sealed.
type Effect interface{ effect() }

type (
	// Persist: make State durable before any later effect of the same Step, in one write with the receipts among them.
	Persist struct{ State []byte }

	// StartWork: the first interval is paid; start the execution, or keep it running. Of the Seller.
	StartWork struct {
		Start     market.Slot // billing begins here
		PaidUntil market.Slot
	}
	// ProposeReceipt: sign the core as provider and send it to the payer. Of the Seller.
	ProposeReceipt struct{ Core verify.ReceiptCore }
	// CompleteReceipt: the receipt is co-signed; keep it (journal: with the Persist before it). The provider's own
	// signature is made again from the core, it is always the same. Of the Seller.
	CompleteReceipt struct {
		Core     verify.ReceiptCore
		BuyerSig sign.Signature
	}
	// StopWork: end the execution, then report WorkEnded. Of the Seller.
	StopWork struct{ Reason Reason }

	// Cosign: sign the core as buyer, keep the receipt (journal: with the Persist before it), send the signature. Of
	// the Payer.
	Cosign struct {
		Core        verify.ReceiptCore
		ProviderSig sign.Signature
	}
	// IssueVoucher: sign the voucher with the lease's voucher keys and send it. Of the Payer.
	IssueVoucher struct{ Voucher verify.Voucher }
	// StopPaying: no further interval is paid; the seller must be notified to stop. Of the Payer.
	StopPaying struct {
		Reason Reason
		Detail string // the reason in Stopped
	}
	// Refuse: answer the proposal with this rule. Rule early means that the proposal may be repeated. Of the Payer.
	Refuse struct {
		Seq    uint64
		Reason *verify.RuleError
	}

	// Settled: the lease has ended and costs Amount. Agreed: by a final receipt that both signed. Otherwise the other
	// side did not answer in time. Then Amount is the co-signed amount for the payer and the claimable one for the
	// seller, and they may differ by one interval. Of both, the last effect.
	Settled struct {
		Amount market.Amount
		Agreed bool
	}
)

func (Persist) effect()         {}
func (StartWork) effect()       {}
func (ProposeReceipt) effect()  {}
func (CompleteReceipt) effect() {}
func (StopWork) effect()        {}
func (Cosign) effect()          {}
func (IssueVoucher) effect()    {}
func (StopPaying) effect()      {}
func (Refuse) effect()          {}
func (Settled) effect()         {}

// Reason is the cause of a stop of work or payment. The values are stable.
type Reason string

// The reasons, one sentence each.
const (
	ReasonNoVoucher    Reason = "no voucher"    // The next interval was not paid within the grace.
	ReasonNoReceipt    Reason = "no receipt"    // The receipt of a paid interval did not come in time.
	ReasonLeaseEnded   Reason = "lease ended"   // The lease's last slot has passed.
	ReasonCapReached   Reason = "cap reached"   // The lease's cap is used up.
	ReasonNotActivated Reason = "not activated" // The activate-before slot passed before the start.
	ReasonConflict     Reason = "conflict"      // The seller signed two receipts under one number.
	ReasonStopped      Reason = "stopped"       // The buyer requested it.
)
