package escrow

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
)

// Limits of a Queue.
const (
	MaxTxs     = 16  // pending transactions
	MaxReason  = 512 // bytes of a reason
	MaxRejects = 3   // rejections before a repeatable transaction is replaced by another

	maxBackoff = 5  // how often RetryAfter may double
	maxDeaf    = 2  // and where only the answer is missing
	maxTxID    = 88 // 64 bytes in base58
	maxCount   = 200
)

// bidWindow is how long a task's lost transactions count: if the last one is longer ago, the next bids as the first
// did.
const bidWindow = 10 * time.Minute

// Queue is the pending transactions of one machine: signed, then journalled, then sent until their outcome is certain.
//
//	May ─▶ Ask ─▶ (ledger signs) ─▶ Signed ─▶ journal ─▶ Push ─▶ Pushed ─▶ over: finalized, failed, expired
//	 ▲                                 │                  ▲         │
//	 └──────── later, after an error ──┴──────────────────┴── Tick ─┘
//
// It is a value in its machine's state. It decides when to send again and how much to bid, without regard to the
// escrow.
type Queue struct {
	Reason string // of the last failure; empty when all goes well

	number uint32 // of the next transaction
	txs    []QueuedTx
	tries  []try
	losses []loss
}

// NewQueue returns an empty queue.
func NewQueue() Queue { return Queue{number: 1} }

// Clone returns a deep copy.
func (q Queue) Clone() Queue {
	q.txs, q.tries, q.losses = slices.Clone(q.txs), slices.Clone(q.tries), slices.Clone(q.losses)
	return q
}

// Len is the number of pending transactions.
func (q *Queue) Len() int { return len(q.txs) }

// Clear drops all transactions, and the reason.
func (q *Queue) Clear() { q.txs, q.Reason = nil, "" }

// Note makes text the reason of the last failure.
func (q *Queue) Note(text string) { q.Reason = Clip(text) }

// Under reports whether a transaction for such a task is pending.
func (q *Queue) Under(is func(Task) bool) bool {
	return slices.ContainsFunc(q.txs, func(x QueuedTx) bool { return is(x.Task) })
}

// UnderKind reports whether a transaction of the kind is pending.
func (q *Queue) UnderKind(k TaskKind) bool { return q.Under(func(t Task) bool { return t.Kind == k }) }

// UnderSigned reports whether a signed transaction of the kind is pending.
func (q *Queue) UnderSigned(k TaskKind) bool {
	return slices.ContainsFunc(q.txs, func(x QueuedTx) bool { return x.Task.Kind == k && x.signed() })
}

// UnderState reports whether a transaction of the kind is pending and has reached the state.
func (q *Queue) UnderState(k TaskKind, s chain.TxState) bool {
	return slices.ContainsFunc(q.txs, func(x QueuedTx) bool { return x.Task.Kind == k && x.State == s })
}

// Unseen reports whether a pending transaction for such a task is not confirmed yet.
func (q *Queue) Unseen(is func(Task) bool) bool {
	return slices.ContainsFunc(q.txs, func(x QueuedTx) bool { return is(x.Task) && x.State < chain.Confirmed })
}

// May reports whether a transaction for the task may be signed now, and how often it failed before.
func (q *Queue) May(now time.Time, t Task) (fails uint8, ok bool) {
	if len(q.txs) >= MaxTxs || q.Under(func(x Task) bool { return x == t }) {
		return 0, false
	}
	for _, x := range q.tries {
		if x.task == t {
			return x.fails, !now.Before(x.at)
		}
	}
	return 0, true
}

// Ask begins a transaction. The stake is the amount at risk, which bounds the bid.
func (q *Queue) Ask(now time.Time, t Task, stake market.Amount, in ...svm.Instruction) SignOrder {
	q.txs = append(q.txs, QueuedTx{No: q.number, Task: t})
	q.number++
	return SignOrder{No: q.number - 1, Instructions: in, Stake: stake, Retries: q.retries(now, t)}
}

// retries is how many transactions for a task were lost within the window.
func (q *Queue) retries(now time.Time, t Task) uint8 {
	q.losses = slices.DeleteFunc(q.losses, func(x loss) bool { return now.Sub(x.at) > bidWindow })
	t.Amount = 0
	for _, x := range q.losses {
		if x.task == t {
			return x.times
		}
	}
	return 0
}

// lose counts a transaction that expired unseen.
func (q *Queue) lose(now time.Time, t Task) {
	times := q.retries(now, t)
	q.found(t)
	t.Amount = 0
	q.losses = append(q.losses, loss{task: t, times: min(times+1, maxCount), at: now})
}

// found clears the count of lost transactions.
func (q *Queue) found(t Task) {
	t.Amount = 0
	q.losses = slices.DeleteFunc(q.losses, func(x loss) bool { return x.task == t })
}

// Drop forgets the transactions of such tasks, of which none matters now.
func (q *Queue) Drop(is func(Task) bool) {
	q.txs = slices.DeleteFunc(q.txs, func(x QueuedTx) bool { return is(x.Task) })
}

// drop forgets one transaction.
func (q *Queue) drop(no uint32) {
	q.txs = slices.DeleteFunc(q.txs, func(x QueuedTx) bool { return x.No == no })
}

// failed puts a task off, twice as long after each failure in a row.
func (q *Queue) failed(now time.Time, p Params, t Task, reason string) Effect {
	q.Note(reason)
	i := slices.IndexFunc(q.tries, func(x try) bool { return x.task == t })
	if i < 0 {
		i, q.tries = len(q.tries), append(q.tries, try{task: t})
	}
	x := &q.tries[i]
	x.at = now.Add(p.RetryAfter << min(x.fails, maxBackoff))
	x.fails = min(x.fails+1, maxCount)
	return Waiting{Reason: q.Reason, Until: x.at}
}

// Succeeded forgets the failures of a task.
func (q *Queue) Succeeded(t Task) {
	q.tries = slices.DeleteFunc(q.tries, func(x try) bool { return x.task == t })
	q.Reason = ""
}

// Signed processes answers to Sign. The signed transactions must be journalled before the effects run. Send reports
// whether a task is still needed. TooLong lists the tasks with a transaction that does not fit.
func (q *Queue) Signed(
	now time.Time, p Params, ev Signed, send func(Task) bool,
) (effects []Effect, change bool, tooLong []Task) {
	for _, r := range ev.Results {
		i := slices.IndexFunc(q.txs, func(x QueuedTx) bool { return x.No == r.No && !x.signed() })
		if i < 0 {
			continue
		}
		x := &q.txs[i]
		if r.Err == "" &&
			(r.Tx.ID == "" || len(r.Tx.ID) > maxTxID || len(r.Tx.Raw) == 0 || len(r.Tx.Raw) > chain.MaxRaw) {
			r.Err = fmt.Sprintf("signed transaction of %d bytes", len(r.Tx.Raw))
		}
		if r.Err != "" {
			if r.TooLong {
				tooLong = append(tooLong, x.Task)
			}
			effects = append(effects, q.failed(now, p, x.Task, r.Err))
			q.drop(r.No)
			continue
		}
		x.Prepared = r.Tx
		x.next = now.Add(p.PollEvery)
		change = true
		effects = append(effects, Push{No: x.No, Tx: x.Prepared, Send: send(x.Task)})
	}
	return effects, change, tooLong
}

// Tick sends and polls the transactions that are due.
func (q *Queue) Tick(now time.Time, p Params, send func(Task) bool) (effects []Effect) {
	for i := range q.txs {
		x := &q.txs[i]
		if !x.signed() || now.Before(x.next) {
			continue
		}
		x.next = now.Add(p.PollEvery)
		effects = append(effects,
			Push{No: x.No, Tx: x.Prepared, Send: x.State < chain.Confirmed && send(x.Task)})
	}
	return effects
}

// Soonest is the time of the next poll, or next if that is earlier.
func (q *Queue) Soonest(next time.Time) time.Time {
	for _, x := range q.txs {
		if x.signed() && (next.IsZero() || x.next.Before(next)) {
			next = x.next
		}
	}
	return next
}

// Clip makes a reason fit a journal and a line: short, and text.
func Clip(reason string) string { return market.Clean(reason, MaxReason) }
