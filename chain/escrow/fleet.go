package escrow

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
)

// Params are the machines' intervals. They are not part of their state.
type Params struct {
	// between polls of transactions under way; each poll of an unseen transaction sends it again
	PollEvery time.Duration
	// between looks at the escrow while something is waited for; well below the network's response slots
	LookEvery time.Duration
	// after a failed look; after those of one transaction doubling up to 32 times this
	RetryAfter time.Duration
}

// DefaultParams suit slots of 100 to 400 ms and response slots of minutes.
func DefaultParams() Params {
	return Params{PollEvery: time.Second, LookEvery: 10 * time.Second, RetryAfter: 2 * time.Second}
}

const (
	maxFlights = 16 // transactions under way at once
	maxBackoff = 5  // how often RetryAfter may double
	maxDeaf    = 2  // and where only the answer is missing
	maxTxID    = 88 // 64 bytes in base58
	maxReason  = 512
	maxRejects = 3 // after so many a transaction that may be sent any number of times is given up for another
)

// kind is the purpose of a transaction.
type kind uint8

const (
	kindOpen  kind = iota + 1 // OpenEscrow and the first tranches; tranche is the batch
	kindAdd                   // TopUp and more tranches; tranche is the batch
	kindBegin                 // RetireBegin of a leaf
	kindFinish
	kindFinal
	kindRefund
	kindSweep
	kindCloseTranche
	kindCloseEscrow
	kindClaim     // amount is the voucher's cumulative
	kindOpenToken // of the lease's payout
	kindMakeTable // by which claims name accounts
	kindDisableTable
	kindCloseTable
	kinds
)

// again reports whether another transaction for the same may be signed while one could still land. It may not for
// claims, since payments are known by their results, nor for funding, which takes one transaction at a time.
func (k kind) again() bool { return k >= kindBegin && k <= kindCloseEscrow }

// task is the purpose of a transaction. Two of one task are never under way at once. Transactions of one escrow may be
// sent any number of times: the program refuses to do anything twice.
type task struct {
	kind    kind
	tranche uint16
	leaf    uint16
	amount  market.Amount
}

// flight is one transaction under way. Without an id it is being signed, and lives in memory only.
type flight struct {
	no    uint32
	task  task
	tx    chain.Prepared
	state chain.TxState

	next    time.Time // when to send and poll again; not kept over a restart
	rejects uint8     // how often an endpoint judged that it would fail; not kept either
	deaf    uint8     // fruitless polls in a row, as of endpoints that are down or busy; not kept either
}

// bidWindow is how long a task's lost transactions count: if the last one is longer ago, the next bids as the first
// did.
const bidWindow = 10 * time.Minute

// lost counts the transactions for a task that expired without a trace, in memory only. After a restart bids begin
// anew, and journalled transactions are sent unchanged.
type lost struct {
	task  task // its amount is 0
	times uint8
	at    time.Time // of the last one
}

// try remembers that a task failed, in memory only.
type try struct {
	task  task
	fails uint8
	at    time.Time // not before
}

// fleet carries a machine's transactions: signed, then journalled, then sent until their outcome is certain.
type fleet struct {
	number  uint32 // of the next transaction
	flights []flight
	tries   []try
	losses  []lost
	reason  string // of the last failure; empty when all goes well
}

func (f fleet) clone() fleet {
	f.flights, f.tries, f.losses = slices.Clone(f.flights), slices.Clone(f.tries), slices.Clone(f.losses)
	return f
}

// under reports whether a transaction for a task of the kind is under way.
func (f *fleet) under(is func(task) bool) bool {
	return slices.ContainsFunc(f.flights, func(x flight) bool { return is(x.task) })
}

func (f *fleet) underKind(k kind) bool { return f.under(func(t task) bool { return t.kind == k }) }

// unseen reports whether a transaction for a task is under way that no supermajority voted for yet.
func (f *fleet) unseen(is func(task) bool) bool {
	return slices.ContainsFunc(f.flights, func(x flight) bool { return is(x.task) && x.state < chain.Confirmed })
}

// underState reports whether one of the kind is under way and has come so far.
func (f *fleet) underState(k kind, s chain.TxState) bool {
	return slices.ContainsFunc(f.flights, func(x flight) bool { return x.task.kind == k && x.state == s })
}

// may reports whether a transaction for the task may be signed now, and how often it failed before.
func (f *fleet) may(now time.Time, t task) (fails uint8, ok bool) {
	if len(f.flights) >= maxFlights || f.under(func(x task) bool { return x == t }) {
		return 0, false
	}
	for _, x := range f.tries {
		if x.task == t {
			return x.fails, !now.Before(x.at)
		}
	}
	return 0, true
}

// ask begins a transaction, with so much at stake.
func (f *fleet) ask(now time.Time, t task, stake market.Amount, in ...program.Instruction) SignOrder {
	f.flights = append(f.flights, flight{no: f.number, task: t})
	f.number++
	return SignOrder{No: f.number - 1, Instructions: in, Stake: stake, Retries: f.retries(now, t)}
}

// retries is how many transactions for a task were lost within the window.
func (f *fleet) retries(now time.Time, t task) uint8 {
	f.losses = slices.DeleteFunc(f.losses, func(x lost) bool { return now.Sub(x.at) > bidWindow })
	t.amount = 0
	for _, x := range f.losses {
		if x.task == t {
			return x.times
		}
	}
	return 0
}

// lose counts one that expired without a trace.
func (f *fleet) lose(now time.Time, t task) {
	times := f.retries(now, t)
	f.found(t)
	t.amount = 0
	f.losses = append(f.losses, lost{task: t, times: min(times+1, 200), at: now})
}

// found clears the count of lost transactions.
func (f *fleet) found(t task) {
	t.amount = 0
	f.losses = slices.DeleteFunc(f.losses, func(x lost) bool { return x.task == t })
}

func (f *fleet) drop(is func(flight) bool) { f.flights = slices.DeleteFunc(f.flights, is) }

// failed puts a task off, twice as long after each failure in a row.
func (f *fleet) failed(now time.Time, p Params, t task, reason string) Effect {
	f.reason = clip(reason)
	i := slices.IndexFunc(f.tries, func(x try) bool { return x.task == t })
	if i < 0 {
		i, f.tries = len(f.tries), append(f.tries, try{task: t})
	}
	x := &f.tries[i]
	x.at = now.Add(p.RetryAfter << min(x.fails, maxBackoff))
	x.fails = min(x.fails+1, 200)
	return Waiting{Reason: f.reason, Until: x.at}
}

// succeeded forgets failures.
func (f *fleet) succeeded(t task) {
	f.tries = slices.DeleteFunc(f.tries, func(x try) bool { return x.task == t })
	f.reason = ""
}

// signed takes answers to Sign. The signed transactions must be journalled before the effects run. send reports whether
// a task is still wanted.
func (f *fleet) signed(
	now time.Time, p Params, ev Signed, send func(task) bool,
) (effects []Effect, change bool, tooLong []task) {
	for _, r := range ev.Results {
		i := slices.IndexFunc(f.flights, func(x flight) bool { return x.no == r.No && x.tx.ID == "" })
		if i < 0 {
			continue
		}
		x := &f.flights[i]
		if r.Err == "" &&
			(r.Tx.ID == "" || len(r.Tx.ID) > maxTxID || len(r.Tx.Raw) == 0 || len(r.Tx.Raw) > chain.MaxRaw) {
			r.Err = fmt.Sprintf("signed transaction of %d bytes", len(r.Tx.Raw))
		}
		if r.Err != "" {
			if r.TooLong {
				tooLong = append(tooLong, x.task)
			}
			effects = append(effects, f.failed(now, p, x.task, r.Err))
			f.drop(func(y flight) bool { return y.no == r.No })
			continue
		}
		x.tx = r.Tx
		x.next = now.Add(p.PollEvery)
		change = true
		effects = append(effects, Push{No: x.no, Tx: x.tx, Send: send(x.task)})
	}
	return effects, change, tooLong
}

// tick sends and polls the transactions that are due.
func (f *fleet) tick(now time.Time, p Params, send func(task) bool) (effects []Effect) {
	for i := range f.flights {
		x := &f.flights[i]
		if x.tx.ID == "" || now.Before(x.next) {
			continue
		}
		x.next = now.Add(p.PollEvery)
		effects = append(effects, Push{No: x.no, Tx: x.tx, Send: x.state < chain.Confirmed && send(x.task)})
	}
	return effects
}

// pushed takes an answer to Push. known means that the chain has shown something new; over, that the outcome is certain
// or that nobody remembers it: then it is under way no more.
func (f *fleet) pushed(
	now time.Time, p Params, ev Pushed,
) (x flight, status chain.TxStatus, known, over bool, effects []Effect) {
	i := slices.IndexFunc(f.flights, func(x flight) bool { return x.no == ev.No && x.tx.ID != "" })
	if i < 0 {
		return flight{}, chain.TxStatus{}, false, false, nil
	}
	at := &f.flights[i]
	at.next = now.Add(p.PollEvery)
	if ev.Err == "" {
		at.deaf = 0
	}
	if ev.Rejected != "" {
		f.reason = clip(ev.Rejected)
		at.next = now.Add(max(p.PollEvery, p.RetryAfter<<min(at.rejects, maxBackoff)))
		at.rejects = min(at.rejects+1, 200)
		effects = append(effects, Waiting{Reason: f.reason, Until: at.next})
	}
	switch {
	case ev.Err != "" && ev.Gone && at.task.kind != kindOpen:
		x = *at // the escrow's state shows its outcome
		f.drop(func(y flight) bool { return y.no == x.no })
		return x, chain.TxStatus{}, false, true, append(effects, f.failed(now, p, x.task, ev.Err))
	case ev.Err != "":
		f.reason = clip(ev.Err)
		at.next = now.Add(max(p.PollEvery, p.RetryAfter<<min(at.deaf, maxDeaf)))
		at.deaf = min(at.deaf+1, maxDeaf)
		return *at, chain.TxStatus{}, false, false, append(effects, Waiting{Reason: f.reason, Until: at.next})
	}
	if ev.Status.State < chain.Pending && at.rejects >= maxRejects && at.task.kind.again() {
		x = *at
		f.drop(func(y flight) bool { return y.no == x.no })
		return x, ev.Status, false, true, append(effects, f.failed(now, p, x.task, ev.Rejected))
	}
	known = ev.Status.State != at.state && ev.Status.State >= chain.Confirmed
	at.state = ev.Status.State
	x = *at
	if !x.state.Final() {
		return x, ev.Status, known, false, effects
	}
	f.drop(func(y flight) bool { return y.no == x.no })
	switch {
	case x.state == chain.Finalized:
		f.succeeded(x.task)
		f.found(x.task)
	case x.state == chain.Expired && x.rejects == 0:
		f.lose(now, x.task)
	case x.state == chain.Failed || x.rejects > 0: // it was not just lost on the way
		reason := ev.Status.Err
		if reason == "" {
			reason = "transaction " + x.state.String()
		}
		effects = append(effects, f.failed(now, p, x.task, reason))
	}
	return x, ev.Status, true, true, effects
}

// soonest is when something is due: a poll, or one more try.
func (f *fleet) soonest(next time.Time) time.Time {
	for _, x := range f.flights {
		if x.tx.ID != "" && (next.IsZero() || x.next.Before(next)) {
			next = x.next
		}
	}
	return next
}

// clip makes a reason fit a journal and a line: short, and text.
func clip(reason string) string { return market.Clean(reason, maxReason) }
