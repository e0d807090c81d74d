package chain

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Event is what a Settlement is told. The set is sealed.
type Event interface{ event() }

// Owed is what a lease has earned so far: the cumulative amount of its best voucher.
type Owed struct {
	Lease      market.LeaseID
	To         sign.Key // payout wallet of the lease
	Cumulative market.Amount
}

type (
	// AmountsOwed says what is to be paid now, and what the payments shall anchor. Amounts are cumulative, so telling
	// the same twice changes nothing, and a lower amount than before is ignored.
	AmountsOwed struct {
		Owed     []Owed
		Root     sign.Hash // over the hashes of the job's receipts so far
		Receipts uint64    // how many those are
	}
	// PaymentPrepared answers Prepare.
	PaymentPrepared struct {
		Batch uint32
		Tx    Prepared
	}
	// PrepareFailed answers Prepare: nothing was signed.
	PrepareFailed struct {
		Batch  uint32
		Reason string // for people
	}
	// PaymentSent answers Send.
	PaymentSent struct{ Batch uint32 }
	// SendFailed answers Send. The transaction may have landed all the same.
	SendFailed struct {
		Batch    uint32
		Reason   string
		Rejected bool // an endpoint judged that it would fail, as opposed to: no endpoint was reached
	}
	// StatusSeen answers Poll.
	StatusSeen struct {
		Batch  uint32
		Status TxStatus
	}
	// PollFailed answers Poll: nothing is known.
	PollFailed struct {
		Batch  uint32
		Reason string
	}
	// Ticked says that time passed. Due at Settlement.Next; harmless at any time.
	Ticked struct{}
)

func (AmountsOwed) event()     {}
func (PaymentPrepared) event() {}
func (PrepareFailed) event()   {}
func (PaymentSent) event()     {}
func (SendFailed) event()      {}
func (StatusSeen) event()      {}
func (PollFailed) event()      {}
func (Ticked) event()          {}

// Effect is what a Settlement wants done, in this order. The set is sealed.
type Effect interface{ effect() }

type (
	// Persist: State must be durable before the next effect runs. When that fails, drop the machine and Restore.
	Persist struct{ State []byte }
	// Prepare: call Ledger.Prepare, answer PaymentPrepared or PrepareFailed.
	Prepare struct {
		Batch   uint32
		Payment Payment
	}
	// Send: call Ledger.Send, answer PaymentSent or SendFailed.
	Send struct {
		Batch uint32
		Tx    Prepared
	}
	// Poll: call Ledger.Status, answer StatusSeen or PollFailed.
	Poll struct {
		Batch uint32
		Tx    Prepared
	}
	// Settled: these payouts are final. After a crash it is not repeated; History has it.
	Settled struct{ Batch Batch }
	// Waiting: no progress now, for this reason; the machine tries again at Until.
	Waiting struct {
		Reason string
		Until  time.Time
	}
	// Done: everything owed so far is paid for ever. More may come to be owed.
	Done struct{}
)

func (Persist) effect() {}
func (Prepare) effect() {}
func (Send) effect()    {}
func (Poll) effect()    {}
func (Settled) effect() {}
func (Waiting) effect() {}
func (Done) effect()    {}
