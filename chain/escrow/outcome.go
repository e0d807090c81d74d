package escrow

import (
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
)

// Outcome is the progress of a transaction by an answer to Push. Its zero value is that of an unknown transaction.
type Outcome struct {
	Tx      QueuedTx
	Status  chain.TxStatus
	Known   bool // there is new information from the chain
	Over    bool // no longer pending: the outcome is certain, or no endpoint remembers the transaction
	Effects []Effect
}

// Pushed takes an answer to Push.
func (q *Queue) Pushed(now time.Time, p Params, ev Pushed) (o Outcome) {
	i := slices.IndexFunc(q.txs, func(x QueuedTx) bool { return x.No == ev.No && x.signed() })
	if i < 0 {
		return o
	}
	at := &q.txs[i]
	at.next = now.Add(p.PollEvery)
	if ev.Err == "" {
		at.deaf = 0
	}
	if ev.Rejected != "" {
		q.Note(ev.Rejected)
		at.next = now.Add(max(p.PollEvery, p.RetryAfter<<min(at.rejects, maxBackoff)))
		at.rejects = min(at.rejects+1, maxCount)
		o.Effects = append(o.Effects, Waiting{Reason: q.Reason, Until: at.next})
	}
	switch {
	case ev.Err != "" && ev.Gone && at.Task.Kind != TaskOpen:
		o.Tx, o.Over = *at, true // the escrow's state shows its outcome
		q.drop(at.No)
		o.Effects = append(o.Effects, q.failed(now, p, o.Tx.Task, ev.Err))
		return o
	case ev.Err != "":
		q.Note(ev.Err)
		at.next = now.Add(max(p.PollEvery, p.RetryAfter<<min(at.deaf, maxDeaf)))
		at.deaf = min(at.deaf+1, maxDeaf)
		o.Tx, o.Effects = *at, append(o.Effects, Waiting{Reason: q.Reason, Until: at.next})
		return o
	}
	o.Status = ev.Status
	if ev.Status.State < chain.Pending && at.rejects >= MaxRejects && at.Task.Kind.again() {
		o.Tx, o.Over = *at, true
		q.drop(at.No)
		o.Effects = append(o.Effects, q.failed(now, p, o.Tx.Task, ev.Rejected))
		return o
	}
	o.Known = ev.Status.State != at.State && ev.Status.State >= chain.Confirmed
	at.State = ev.Status.State
	o.Tx = *at
	if o.Tx.State.Final() {
		o.Known, o.Over = true, true
		q.drop(at.No)
		o.Effects = append(o.Effects, q.ended(now, p, o)...)
	}
	return o
}

// ended draws the conclusions for the next transaction of the task.
func (q *Queue) ended(now time.Time, p Params, o Outcome) []Effect {
	switch x := o.Tx; {
	case x.State == chain.Finalized:
		q.Succeeded(x.Task)
		q.found(x.Task)
	case x.State == chain.Expired && x.rejects == 0:
		q.lose(now, x.Task)
	case x.State == chain.Failed || x.rejects > 0: // refused, not lost
		reason := o.Status.Err
		if reason == "" {
			reason = "transaction " + x.State.String()
		}
		return []Effect{q.failed(now, p, x.Task, reason)}
	}
	return nil
}
