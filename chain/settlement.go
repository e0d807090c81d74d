package chain

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of one settlement. A larger job uses several.
const (
	MaxAccounts = 1024 // leases
	MaxBatches  = 1024 // batches in flight and remembered
	MaxReason   = 512  // bytes of a reason that is kept
	// maxAsk bounds how many payouts a ledger is offered at once; it takes as many as fit.
	maxAsk = 64
	// maxBackoff is how often RetryAfter may double.
	maxBackoff = 5
)

// BatchState is how far one transaction of a settlement has come.
type BatchState uint8

// The states of a batch.
const (
	// Preparing: offered to the ledger, nothing signed. Lives in memory only; a crash forgets it.
	Preparing BatchState = iota + 1
	// BatchPrepared: signed and in the journal. It may have been sent.
	BatchPrepared
	// BatchSent: handed to the chain at least once.
	BatchSent
	// BatchConfirmed: the chain shows it in a block that could still be forked away.
	BatchConfirmed
	// BatchSettled: final, paid for ever.
	BatchSettled
)

var batchStateNames = [...]string{"none", "preparing", "prepared", "sent", "confirmed", "settled"}

func (s BatchState) String() string {
	if int(s) < len(batchStateNames) {
		return batchStateNames[s]
	}
	return "invalid"
}

// Account is one lease's line in the settlement.
type Account struct {
	Lease market.LeaseID
	To    sign.Key
	Owed  market.Amount // cumulative
	Paid  market.Amount // cumulative, final on chain
	// Fails counts the transactions that failed with this lease in them since it was last paid. After one it is paid
	// alone, so that a payout which cannot work holds up no other.
	Fails uint8
}

// Batch is one transaction of the settlement.
type Batch struct {
	No      uint32
	State   BatchState
	Payouts []Payout
	Anchor  Anchor
	Tx      Prepared
	Slot    market.Slot // of its block, once seen
	Err     string      // the last thing that went wrong with it

	next     time.Time // when to send and poll again; not kept over a restart
	rejected bool      // an endpoint judged that it would fail; not kept either
}

// Params are the settlement's intervals. They are not part of its state.
type Params struct {
	PollEvery  time.Duration // between polls of a transaction in flight; each poll of an unseen one sends it again
	RetryAfter time.Duration // after a failure, doubling up to 32 times this
}

// DefaultParams suit slots of 100 to 400 ms.
func DefaultParams() Params {
	return Params{PollEvery: time.Second, RetryAfter: 2 * time.Second}
}

// Settlement is the money of one job on its way to the providers: a value; Step returns the next one.
type Settlement struct {
	id       sign.Hash
	params   Params
	accounts []Account // in the order in which they came
	batches  []Batch   // in flight, by number
	history  []Batch   // settled, oldest first, the last MaxBatches
	root     sign.Hash
	receipts uint64
	number   uint32 // of the next batch

	retryAt time.Time // no Prepare before
	backoff uint8     // failures to prepare in a row
	reason  string    // of the last failure; empty when all goes well
	told    bool      // Done was said for what is owed now
}

// New starts a settlement with nothing owed. The id must be unique for ever: two settlements of one id make payments
// that the chain may take for the same.
func New(id sign.Hash, p Params) Settlement {
	return Settlement{id: id, params: p, number: 1, told: true}
}

// ID is the id it was made with.
func (s Settlement) ID() sign.Hash { return s.id }

// Accounts are the leases, in the order in which they came.
func (s Settlement) Accounts() []Account { return slices.Clone(s.accounts) }

// InFlight are the batches that are not settled.
func (s Settlement) InFlight() []Batch { return slices.Clone(s.batches) }

// History are the settled batches, oldest first, the last MaxBatches of them.
func (s Settlement) History() []Batch { return slices.Clone(s.history) }

// Reason says why the last attempt failed; empty when none has since things went well.
func (s Settlement) Reason() string { return s.reason }

// Done reports whether everything owed is paid for ever.
func (s Settlement) Done() bool {
	for _, a := range s.accounts {
		if a.Paid < a.Owed {
			return false
		}
	}
	return true
}

// Totals sums up: owed, of that final on chain, of that signed and not final. They cannot overflow.
func (s Settlement) Totals() (owed, paid, flying market.Amount) {
	for _, a := range s.accounts {
		owed += a.Owed
		paid += a.Paid
	}
	for _, b := range s.batches {
		for _, p := range b.Payouts {
			flying += p.Amount
		}
	}
	return owed, paid, flying
}

// Next is when Ticked should come. Zero: nothing to wait for. After Restore, Ticked should come at once.
func (s Settlement) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, b := range s.batches {
		if b.State != Preparing {
			sooner(b.next)
		}
	}
	if len(s.offer()) > 0 {
		sooner(s.retryAt)
	}
	return next
}

// Step takes one event and returns the next state and what is to be done, in order. On an error the state is unchanged.
// Errors: ErrPayout, ErrTooMany, ErrOverflow, ErrMalformed, *InvalidTransition. Answers about batches that are gone are ignored.
func (s Settlement) Step(now time.Time, ev Event) (Settlement, []Effect, error) {
	next := s
	next.accounts = slices.Clone(s.accounts)
	next.batches = slices.Clone(s.batches)
	effects, err := next.apply(now, ev)
	if err != nil {
		return s, nil, err
	}
	return next, effects, nil
}

func (s *Settlement) apply(now time.Time, ev Event) ([]Effect, error) {
	switch ev := ev.(type) {
	case AmountsOwed:
		return s.owe(now, ev)
	case PaymentPrepared:
		return s.prepared(now, ev)
	case PrepareFailed:
		return s.prepareFailed(now, ev)
	case PaymentSent:
		return s.sent(now, ev.Batch)
	case SendFailed:
		return s.sendFailed(now, ev)
	case StatusSeen:
		return s.seen(now, ev)
	case PollFailed:
		if b := s.find(ev.Batch); b != nil {
			b.next = now.Add(s.params.PollEvery)
			s.reason = clip(ev.Reason)
			return []Effect{Waiting{Reason: s.reason, Until: b.next}}, nil
		}
		return nil, nil
	case Ticked:
		return s.tick(now), nil
	}
	return nil, fmt.Errorf("event %T: %w", ev, ErrMalformed)
}

func (s *Settlement) owe(now time.Time, ev AmountsOwed) ([]Effect, error) {
	changed := false
	for _, o := range ev.Owed {
		if o.To.IsZero() {
			return nil, fmt.Errorf("lease %x: %w", o.Lease[:4], ErrPayout)
		}
		i := slices.IndexFunc(s.accounts, func(a Account) bool { return a.Lease == o.Lease })
		switch {
		case i >= 0 && s.accounts[i].To != o.To:
			return nil, fmt.Errorf("lease %x: owed to %s and now to %s: %w", o.Lease[:4], s.accounts[i].To, o.To, ErrPayout)
		case i >= 0 && s.accounts[i].Owed >= o.Cumulative:
			continue
		case i >= 0:
			s.accounts[i].Owed = o.Cumulative
		case len(s.accounts) == MaxAccounts:
			return nil, fmt.Errorf("%w: at most %d", ErrTooMany, MaxAccounts)
		default:
			s.accounts = append(s.accounts, Account{Lease: o.Lease, To: o.To, Owed: o.Cumulative})
		}
		changed = true
	}
	if !sumFits(s.accounts) {
		return nil, ErrOverflow
	}
	if ev.Receipts >= s.receipts && ev.Root != s.root {
		s.root, s.receipts = ev.Root, ev.Receipts
		changed = true
	}
	if !changed {
		return s.plan(now), nil
	}
	s.told = s.told && s.Done()
	return append([]Effect{s.persist()}, s.plan(now)...), nil
}

func sumFits(accounts []Account) bool {
	var sum market.Amount
	for _, a := range accounts {
		if sum+a.Owed < sum {
			return false
		}
		sum += a.Owed
	}
	return true
}

// due is what may go into a new transaction: owed, not paid, in no transaction that could still land.
func (s *Settlement) due() []Account {
	flying := map[market.LeaseID]market.Amount{}
	for _, b := range s.batches {
		for _, p := range b.Payouts {
			flying[p.Lease] += p.Amount
		}
	}
	var out []Account
	for _, a := range s.accounts {
		if rest := a.Owed - a.Paid - flying[a.Lease]; rest > 0 {
			a.Owed = rest
			out = append(out, a)
		}
	}
	return out
}

// offer picks what the next transaction should hold: all that never failed, else the one that failed least, alone.
// Nothing while another offer is open, since it is not known yet how much of that one fits.
func (s *Settlement) offer() []Payout {
	if slices.ContainsFunc(s.batches, func(b Batch) bool { return b.State == Preparing }) {
		return nil
	}
	due := s.due()
	clean := slices.DeleteFunc(slices.Clone(due), func(a Account) bool { return a.Fails > 0 })
	if len(clean) == 0 && len(due) > 0 {
		clean = []Account{slices.MinFunc(due, func(a, b Account) int { return int(a.Fails) - int(b.Fails) })}
	}
	var out []Payout
	for _, a := range clean[:min(len(clean), maxAsk)] {
		out = append(out, Payout{To: a.To, Amount: a.Owed, Lease: a.Lease})
	}
	return out
}

// plan offers the ledger what is due, or says that nothing is left.
func (s *Settlement) plan(now time.Time) []Effect {
	if s.Done() {
		if s.told || len(s.batches) > 0 {
			return nil
		}
		s.told = true
		return []Effect{Done{}}
	}
	payouts := s.offer()
	if len(payouts) == 0 || now.Before(s.retryAt) || len(s.batches) == MaxBatches || s.number == 0 {
		return nil
	}
	b := Batch{No: s.number, State: Preparing, Payouts: payouts,
		Anchor: Anchor{Root: s.root, Count: s.receipts, Ref: RefOf(s.id, s.number)}}
	s.number++
	s.batches = append(s.batches, b)
	return []Effect{Prepare{Batch: b.No, Payment: Payment{Payouts: slices.Clone(payouts), Memo: b.Anchor.Memo()}}}
}

// RefOf names a batch of a settlement: it makes the memos, and so the transactions, of one payer differ.
func RefOf(id sign.Hash, number uint32) Ref {
	var no [4]byte
	binary.LittleEndian.PutUint32(no[:], number)
	sum := sign.Sum([]byte("starling/settlement/v1"), id[:], no[:])
	return Ref(sum[:8])
}

func (s *Settlement) persist() Effect { return Persist{State: s.Marshal()} }

func (s *Settlement) find(no uint32) *Batch {
	for i := range s.batches {
		if s.batches[i].No == no {
			return &s.batches[i]
		}
	}
	return nil
}

func (s *Settlement) drop(no uint32) {
	s.batches = slices.DeleteFunc(s.batches, func(b Batch) bool { return b.No == no })
}

// delay puts off the next Prepare, twice as long after each failure in a row.
func (s *Settlement) delay(now time.Time, reason string) Effect {
	s.reason = clip(reason)
	s.retryAt = now.Add(s.params.RetryAfter << s.backoff)
	s.backoff = min(s.backoff+1, maxBackoff)
	return Waiting{Reason: s.reason, Until: s.retryAt}
}

// clip makes a reason fit a journal record: short, and text.
func clip(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), MaxReason)], "")
}
