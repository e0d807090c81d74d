package escrow

import (
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Event is what the machines are told. The set is sealed.
type Event interface{ event() }

// What a Deposit is told by its buyer, and, but for Hired, a Hire by its supervisor.
type (
	// Fund sets money aside for leases, all or none. The first opens the escrow; every later one adds to it: the replacement
	// of a rank, a successor, a larger cluster.
	Fund struct {
		Leases []market.LeaseCore // of the deal's order and voucher keys
		// Deadline of a deposit's escrow, fixed by the first that lands: at least every lease's end and the network's margin, also of
		// leases that are added later.
		Deadline market.Slot
		// Deposit is what is put in at opening, if it is more than the leases' caps: what is over stays free for later ones and
		// for standbys.
		Deposit market.Amount
	}
	// Retire gives up leases: what they can no longer earn is free again. Telling it twice changes nothing; a final receipt may
	// follow later.
	Retire struct{ Leases []Retired }
	// End winds up: every lease is retired, what is free goes back to the refund owner, and all accounts are closed.
	End struct{}
)

// Retired is a lease that is over.
type Retired struct {
	Lease market.LeaseID
	// Final is the provider's final receipt, which frees at once what is beyond it. Nil: the provider has the network's response
	// slots to claim first. Only its core and the provider's signature are looked at.
	Final *verify.Receipt
}

// Hired tells a Deposit what the voucher keys set aside for standbys, so that it can take that back before the deadline: the leases
// of one tranche, in its order. It is believed when the chain shows such a tranche, and may come at any time, also after End.
type Hired struct{ Leases []market.LeaseCore }

// What Claims are told by their provider.
type (
	// VoucherKept is a voucher that was checked and kept. The best counts, and a final one before all others. Of what vouchers say, Earned
	// is what both sides have signed for by now: what is paid ahead beyond that is claimed only at an end. It may be told again as Earned grows.
	VoucherKept struct {
		Voucher verify.SignedVoucher
		Earned  market.Amount
	}
	// LeaseOver says that no more vouchers will come, and no final one: of what the best says so much was earned.
	LeaseOver struct{ Owed market.Amount }
)

// What both are told.
type (
	// Ticked says that time passed. Due at Next; harmless at any time; the first thing after restoring.
	Ticked struct{}
	// Signed answers Sign, with one result for each of its orders.
	Signed struct{ Results []SignResult }
	// Pushed answers Push.
	Pushed struct {
		No       uint32
		Rejected string         // an endpoint judged that it would fail, and why
		Status   chain.TxStatus // when Err is empty
		Err      string         // nothing is known of its status, and why
		Gone     bool           // ... because the endpoints' memory does not reach back to it
	}
	// Looked answers Look. Both views are of the same accounts, one at each level.
	Looked struct {
		Escrow           sign.Key
		Confirmed, Final View
		Err              string // nothing is known, and why
	}
)

// SignResult is one transaction, or why there is none.
type SignResult struct {
	No      uint32
	Tx      chain.Prepared
	Err     string // nothing was signed, and why
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

// Effect is what the machines want done, in this order. The set is sealed.
type Effect interface{ effect() }

// What Drive carries out.
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

// SignOrder asks for one transaction.
type SignOrder struct {
	No           uint32
	Instructions []program.Instruction
	Tables       []program.Table
	Stake        market.Amount // lost or tied up if it does not land in time; 0: only rent, or nothing
	Retries      uint8         // how many for the same task expired just before
	Full         bool          // it has no room for a bid
}

// What a Deposit tells its buyer. What is final is told at least once: after restoring, the first tick tells it again.
type (
	// Opening: the escrow's address is decided, and in the journal. It changes only if it is certain that there will never be
	// such an escrow, and then it is told anew.
	Opening struct {
		Escrow sign.Key
		Opened uint64
	}
	// Funded: these leases are on chain, in time. Told twice: first when a supermajority voted for it, good enough to work on,
	// and with Final once it stays for ever. What was told without Final may in bad luck be forked away and end as Void.
	Funded struct {
		Escrow sign.Key
		Leases []FundedLease
		Landed market.Slot // of the tranche
		Final  bool
	}
	// Void: these leases were not on chain by their activate-before slot. That is final; what was put in for them comes back.
	Void struct {
		Leases []market.LeaseID
		Reason string // empty: it was too late, or it is told again
	}
	// Refunded: so much is back with the refund owner, over all, for ever.
	Refunded struct{ Amount market.Amount }
	// Closed: it is over, nothing is left on chain and all rent is back. Refunded is all that came back over its life, as far as
	// was seen.
	Closed struct{ Refunded market.Amount }
)

// FundedLease is a lease and what its provider needs to see its money.
type FundedLease struct {
	Lease   market.LeaseID
	Funding Funding
}

// What Claims tell their provider. What is final is told at least once: after restoring, the first tick tells it again.
type (
	// Paid: so much was paid for the lease, over all and before the fee, for ever.
	Paid struct {
		Lease      market.LeaseID
		Cumulative market.Amount
	}
	// Settled: all that there is to claim is paid for ever. It is over.
	Settled struct {
		Lease market.LeaseID
		Paid  market.Amount
	}
	// Lost: what is not paid can never be claimed any more. It is over.
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
