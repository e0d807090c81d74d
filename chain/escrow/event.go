package escrow

import (
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Event is an input of the machines. The set is sealed.
type Event interface{ event() }

// Events of a Deposit from its buyer, and, except Hired, of a Hire from its supervisor.
type (
	// Fund sets money aside for leases, all or none. The first opens the escrow; every later one adds to it: the
	// replacement of a rank, a successor, a larger cluster.
	Fund struct {
		Leases []market.LeaseCore // of the deal's order and voucher keys
		// Deadline of a deposit's escrow, fixed by the first that lands: at least every lease's end and the network's
		// margin, also of leases that are added later.
		Deadline market.Slot
		// Deposit is the amount to deposit at opening, if it exceeds the leases' caps. The excess stays free for later
		// leases and for standbys.
		Deposit market.Amount
	}
	// Retire gives up leases: the part that they can no longer earn becomes free. Repeating it changes nothing; a final
	// receipt may follow later.
	Retire struct{ Leases []Retired }
	// End winds up: every lease is retired, free money goes back to the refund owner, and all accounts are closed.
	End struct{}
)

// Retired is an ended lease.
type Retired struct {
	Lease market.LeaseID
	// Final is the provider's final receipt, which frees the rest at once. If nil, the provider has the network's
	// response slots to claim first. Only its core and the provider's signature are read.
	Final *verify.Receipt
}

// Hired notifies a Deposit of leases that the voucher keys set aside for standbys, so that it can recover their money
// before the deadline. They are the leases of one tranche, in its order. It takes effect when the chain shows such a
// tranche, and may come at any time, also after End.
type Hired struct{ Leases []market.LeaseCore }

// Events of Claims from their provider.
type (
	// VoucherKept is a voucher that was checked and kept. The best counts, and a final one before all others. Earned is
	// the part of the vouchers' amount that both sides have signed for. Prepayment beyond it is claimed only at an end.
	// The event may be repeated as Earned grows.
	VoucherKept struct {
		Voucher verify.SignedVoucher
		Earned  market.Amount
	}
	// LeaseOver reports that no more vouchers will come, and no final one: Owed is the earned part of the best.
	LeaseOver struct{ Owed market.Amount }
)

// Events of both.
type (
	// Ticked reports that time has passed. It is due at Next and first after restoring, and harmless at any other time.
	Ticked struct{}
	// Signed answers Sign, with one result for each of its orders.
	Signed struct{ Results []SignResult }
	// Pushed answers Push.
	Pushed struct {
		No       uint32
		Rejected string         // an endpoint judged that it would fail, and why
		Status   chain.TxStatus // when Err is empty
		Err      string         // the reason why its status is unknown
		Gone     bool           // ... because the endpoints' memory does not reach back to it
	}
	// Looked answers Look. Both views are of the same accounts, one at each level.
	Looked struct {
		Escrow           sign.Key
		Confirmed, Final View
		Err              string // the reason why the state is unknown
	}
)

// SignResult is a signed transaction, or the error of signing it.
type SignResult struct {
	No      uint32
	Tx      chain.Prepared
	Err     string // the reason why it was not signed
	TooLong bool   // ... because it does not fit into one transaction
}

func (Fund) event()        {}
func (Retire) event()      {}
func (Hired) event()       {}
func (End) event()         {}
func (VoucherKept) event() {}
func (LeaseOver) event()   {}
func (Ticked) event()      {}
func (Signed) event()      {}
func (Pushed) event()      {}
func (Looked) event()      {}

// Effect is an action for the caller, in this order. The set is sealed.
type Effect interface{ effect() }

// Effects that Drive carries out.
type (
	// Persist: State must be durable before the next effect runs. When that fails, drop the machine and restore.
	Persist struct{ State []byte }
	// Sign: call Ledger.Sign for each, answer Signed.
	Sign struct{ Orders []SignOrder }
	// Push: call Ledger.Send if it should be sent (again), then Ledger.Status, answer Pushed.
	Push struct {
		No   uint32
		Tx   chain.Prepared
		Send bool
	}
	// Look: call Ledger.Look at both levels, answer Looked.
	Look struct {
		Escrow   sign.Key
		Tranches []uint16
	}
)

// SignOrder requests one signed transaction.
type SignOrder struct {
	No           uint32
	Instructions []svm.Instruction
	Tables       []svm.Table
	Stake        market.Amount // lost or tied up if it does not land in time; 0: only rent, or nothing
	Retries      uint8         // how many for the same task expired just before
	Full         bool          // it has no room for a bid
}

// Effects of a Deposit for its buyer. Final ones come at least once: after restoring, the first tick repeats them.
type (
	// Opening: the escrow's address is decided and journalled. It changes only if the escrow can certainly never be
	// opened; then the effect is repeated.
	Opening struct {
		Escrow sign.Key
		Opened uint64
	}
	// Funded: these leases are on chain, in time. It comes twice: first when a supermajority voted for it, good enough
	// to work on, and with Final once it is permanent. Without Final it may in rare cases be forked away and end as
	// Void.
	Funded struct {
		Escrow sign.Key
		Leases []FundedLease
		Landed market.Slot // of the tranche
		Final  bool
	}
	// Void: these leases were not on chain by their activate-before slot. That is final; their money comes back.
	Void struct {
		Leases []market.LeaseID
		Reason string // empty: it was too late, or the effect is repeated
	}
	// Refunded: the refund owner has this amount in all, finalized.
	Refunded struct{ Amount market.Amount }
	// Closed: the deposit has ended, no account is left on chain, and all rent is recovered. Refunded is the sum of all
	// seen refunds.
	Closed struct{ Refunded market.Amount }
)

// FundedLease is a lease with the data by which its provider finds its money.
type FundedLease struct {
	Lease   market.LeaseID
	Funding Funding
}

// Effects of Claims for their provider. Final ones come at least once: after restoring, the first tick repeats them.
type (
	// Paid: this amount was paid for the lease in all, before the fee, finalized.
	Paid struct {
		Lease      market.LeaseID
		Cumulative market.Amount
	}
	// Settled: the whole amount is paid, finalized. The machine has ended.
	Settled struct {
		Lease market.LeaseID
		Paid  market.Amount
	}
	// Lost: the unpaid rest can never be claimed. The machine has ended.
	Lost struct {
		Lease      market.LeaseID
		Paid, Owed market.Amount
		Reason     string
		Unfunded   bool // its leaf was never on chain
	}
)

// Waiting: no progress now, for this reason; the machine looks again at Until.
type Waiting struct {
	Reason string
	Until  time.Time
}

func (Persist) effect()  {}
func (Sign) effect()     {}
func (Push) effect()     {}
func (Look) effect()     {}
func (Opening) effect()  {}
func (Funded) effect()   {}
func (Void) effect()     {}
func (Refunded) effect() {}
func (Closed) effect()   {}
func (Paid) effect()     {}
func (Settled) effect()  {}
func (Lost) effect()     {}
func (Waiting) effect()  {}
