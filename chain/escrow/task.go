package escrow

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// TaskKind is the purpose of a transaction. Journals have its name.
type TaskKind uint8

// Kinds of a deposit's transactions, and after them of claims'.
const (
	TaskOpen   TaskKind = iota + 1 // OpenEscrow and the first tranches; Tranche is the batch
	TaskAdd                        // TopUp and more tranches; Tranche is the batch
	TaskBegin                      // RetireBegin of a leaf
	TaskFinish                     // RetireFinish of a leaf
	TaskFinal                      // RetireFinal of a leaf
	TaskRefund
	TaskSweep
	TaskCloseTranche
	TaskCloseEscrow
	TaskClaim     // Amount is the voucher's cumulative
	TaskOpenToken // of the lease's payout
	TaskMakeTable // by which claims name accounts
	TaskDisableTable
	TaskCloseTable
)

var taskNames = [...]string{
	TaskOpen: "open", TaskAdd: "add", TaskBegin: "retire begin", TaskFinish: "retire finish", TaskFinal: "retire final",
	TaskRefund: "refund", TaskSweep: "sweep", TaskCloseTranche: "close tranche", TaskCloseEscrow: "close escrow",
	TaskClaim: "claim", TaskOpenToken: "open token", TaskMakeTable: "make table", TaskDisableTable: "disable table",
	TaskCloseTable: "close table",
}

// String returns the kind's name.
func (k TaskKind) String() string {
	if k > 0 && int(k) < len(taskNames) {
		return taskNames[k]
	}
	return "invalid"
}

// MarshalText implements encoding.TextMarshaler.
func (k TaskKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *TaskKind) UnmarshalText(text []byte) error {
	i := slices.Index(taskNames[1:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: task %.32q", market.ErrMalformed, text)
	}
	*k = TaskKind(i + 1)
	return nil
}

// again reports whether another transaction for the same may be signed while one could still land. It may not for
// claims, since payments are known by their results, nor for funding, which takes one transaction at a time.
func (k TaskKind) again() bool { return k >= TaskBegin && k <= TaskCloseEscrow }

// Task is the purpose of a transaction. At most one transaction of a task is pending. Transactions of one escrow may be
// sent any number of times: the program refuses repetitions.
type Task struct {
	Kind    TaskKind
	Tranche uint16
	Leaf    uint16
	Amount  market.Amount
}

// QueuedTx is one pending transaction. Without an id it is being signed, and exists in memory only.
type QueuedTx struct {
	No       uint32
	Task     Task
	Prepared chain.Prepared
	State    chain.TxState

	next    time.Time // when to send and poll again; not kept over a restart
	rejects uint8     // how often an endpoint judged that it would fail; not kept either
	deaf    uint8     // fruitless polls in a row, as of endpoints that are down or busy; not kept either
}

// signed reports whether the transaction exists.
func (x QueuedTx) signed() bool { return x.Prepared.ID != "" }

// loss counts the transactions for a task that expired unseen, in memory only. After a restart bids start from the
// beginning, and journalled transactions are sent unchanged.
type loss struct {
	task  Task // its amount is 0
	times uint8
	at    time.Time // of the last one
}

// try remembers that a task failed, in memory only.
type try struct {
	task  Task
	fails uint8
	at    time.Time // not before
}
