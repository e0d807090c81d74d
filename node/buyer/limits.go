package buyer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/job"
)

// spending is the buyer as its limits see it.
type spending struct{ *Buyer }

// counts returns the cost of a job against the limits of the day of its submission: its maximum cost until it ends, and
// then the money spent.
func (b spending) counts(j Job) market.Amount {
	if j.State.Ended() {
		return b.spent(j)
	}
	most, err := record.MostCost(j.Spec)
	if err != nil {
		return j.Spec.Payment.Budget
	}
	return most
}

// spent returns the money that has left the wallet for a job that has ended, and is not back: claimed, or still to be
// claimed.
func (b spending) spent(j Job) market.Amount {
	escrows := b.pay.Escrows(j.ID)
	if len(escrows) == 0 {
		return j.Owed
	}
	paid, held := pay.Claimed(escrows)
	return paid + held
}

// counted lists the peer's own jobs that were created on a day or later. b.mu is held.
func (b spending) counted(since string) []spend.Job {
	var out []spend.Job
	for _, s := range b.jobs {
		j := s.Peek()
		if !b.owned(j) || spend.DayOf(j.Created) < since {
			continue
		}
		j = s.Snapshot()
		j.Escrows = b.pay.Escrows(j.ID)
		out = append(out, spend.Job{
			ID: j.ID, Key: j.Key, Created: j.Created, Ended: j.State.Ended(), Cost: b.counts(j), Fees: took(j).Fees,
		})
	}
	for e := range b.archive.Entries() {
		if at := time.Unix(0, e.Created); spend.DayOf(at) >= since {
			out = append(out, spend.Job{ID: e.ID, Key: e.Key, Created: at, Ended: true, Cost: e.Spent, Fees: e.Fees})
		}
	}
	return out
}

// Counted returns the peer's own jobs that were created on a day or later.
func (b spending) Counted(since string) []spend.Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counted(since)
}

// ProvidersToday returns the providers of the leases that were signed today.
func (b spending) ProvidersToday() []spend.Provider {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[sign.Key]bool{}
	for _, l := range b.leases.All() {
		if spend.DayOf(l.Record().At) == spend.DayOf(now) && (!l.Done() || l.Owed() > 0) {
			seen[l.Core.Provider] = true
		}
	}
	for p, amount := range b.archive.PaidToday(now) {
		if amount > 0 {
			seen[p] = true
		}
	}
	out := []spend.Provider{}
	for p := range seen {
		out = append(out, spend.Provider{Provider: p, Committed: b.paidTo(p, now)})
	}
	slices.SortFunc(out, func(x, y spend.Provider) int {
		return strings.Compare(x.Provider.String(), y.Provider.String())
	})
	return out
}

// within returns an error if the limits of the peer or of the key do not allow a job. b.mu is held.
func (b spending) within(spec job.Job, key string, now time.Time) error {
	cost, err := record.MostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return b.allowed(spend.Request{Key: key, Cost: cost, Today: cost}, now)
}

// withinMore is within for a job that becomes spec. A job of an earlier day counts today with the additional cost. b.mu
// is held.
func (b spending) withinMore(s *run.Job, spec job.Job, now time.Time) error {
	j := s.Snapshot()
	cost, err := record.MostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	today := cost
	if spend.DayOf(j.Created) != spend.DayOf(now) {
		today -= min(b.counts(j), cost)
	}
	if today == 0 && cost <= b.counts(j) {
		return nil // its cost does not rise
	}
	return b.allowed(spend.Request{ID: j.ID, Key: j.Key, Cost: cost, Today: today}, now)
}

// allowed returns an error if limits do not allow a request. b.mu is held.
func (b spending) allowed(r spend.Request, now time.Time) error {
	err := b.Ledger.Check(r, b.counted(spend.DayOf(now)), now)
	switch {
	case errors.Is(err, ErrKey):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		return refusal{err}
	}
	return nil
}

// refusal is an error that refuses a job in its own words.
type refusal struct{ error }

func (r refusal) Unwrap() []error { return []error{ErrRefused, r.error} }

// promise is the most that a lease can cost that is being signed.
type promise struct {
	to     sign.Key
	amount market.Amount
}

// paidTo returns the cost of the leases signed with a provider today, at most. b.mu is held.
func (b spending) paidTo(p sign.Key, now time.Time) market.Amount {
	var sum market.Amount
	for _, l := range b.leases.All() {
		if l.Core.Provider == p && spend.DayOf(l.Record().At) == spend.DayOf(now) {
			sum += l.Most()
		}
	}
	for _, d := range b.drafted {
		if d.to == p {
			sum += d.amount
		}
	}
	return sum + b.archive.PaidToday(now)[p]
}

// overProvider returns the reason if one more lease of a provider exceeds its limit for today, or "". b.mu is held.
func (b spending) overProvider(p sign.Key, amount market.Amount, now time.Time) string {
	if b.cfg.Limits.PerProviderPerDay == 0 {
		return ""
	}
	return b.Ledger.OverProvider(b.paidTo(p, now), amount)
}

// bounding is the buyer as changes of its jobs see its limits. It implements changes.Limits.
type bounding struct{ *Buyer }

// Within implements changes.Limits.
func (b bounding) Within(j *run.Job, spec job.Job, change func() error) error {
	b.mu.Lock() // no other job is taken in between on the same limits
	defer b.mu.Unlock()
	if err := (spending(b)).withinMore(j, spec, time.Now()); err != nil {
		return err
	}
	return change()
}

// Alone implements changes.Limits.
func (b bounding) Alone(change func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return change()
}
