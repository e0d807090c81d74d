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
// then the money spent. b.mu is held.
func (b spending) counts(j Job) market.Amount {
	if j.State.Ended() {
		return b.spent(j)
	}
	spec := j.Spec
	spec.Count = max(spec.Count, uint32(len(j.Ranks))) // a cluster that grows has ranks for its new members
	most, err := record.MostCost(spec)
	if err != nil {
		most = spec.Payment.Budget
	}
	return max(most, b.raises[j.ID])
}

// spent is the money of a job that has ended, see pay.Spent.
func (b spending) spent(j Job) market.Amount { return pay.Spent(b.pay.Escrows(j.ID), j.Owed) }

// counted lists the costs of the peer's own jobs that count on a day or later. b.mu is held.
func (b spending) counted(since string) []spend.Job {
	var out []spend.Job
	for _, j := range b.taking {
		out = append(out, spend.Job{ID: j.ID, Key: j.Key, Created: j.Created, Cost: b.counts(j)})
	}
	for _, s := range b.jobs {
		j := s.Peek()
		if !b.owned(j) || spend.DayOf(countsLast(j)) < since {
			continue
		}
		j = s.Snapshot()
		j.Escrows = b.pay.Escrows(j.ID)
		of := spend.Job{
			ID: j.ID, Key: j.Key, Created: j.Created, Ended: j.State.Ended(), Cost: b.counts(j), Fees: took(j).Fees,
		}
		if r := j.Raised; r != nil {
			var raised spend.Job
			of, raised = of.Split(r.At, r.Before)
			out = append(out, raised)
		}
		if spend.DayOf(of.Created) >= since {
			out = append(out, of)
		}
	}
	for e := range b.archive.Entries() {
		if at := time.Unix(0, e.Created); spend.DayOf(at) >= since {
			out = append(out, spend.Job{ID: e.ID, Key: e.Key, Created: at, Ended: true, Cost: e.Spent, Fees: e.Fees})
		}
	}
	return out
}

// countsLast is when the last part of a job's cost counts.
func countsLast(j Job) time.Time {
	if j.Raised != nil {
		return j.Raised.At
	}
	return j.Created
}

// Counted returns the costs of the peer's own jobs that count on a day or later.
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

// withinMore is within for a job that can cost more after a change. A job of an earlier day counts today with what
// today's changes add. b.mu is held.
func (b spending) withinMore(j Job, cost market.Amount, now time.Time) error {
	if cost <= b.counts(j) {
		return nil
	}
	today := cost - min(b.before(j, now), cost)
	return b.allowed(spend.Request{ID: j.ID, Key: j.Key, Cost: cost, Today: today}, now)
}

// before is the part of a job's cost that counts on days before now. b.mu is held.
func (b spending) before(j Job, now time.Time) market.Amount {
	switch today := spend.DayOf(now); {
	case spend.DayOf(j.Created) == today:
		return 0
	case j.Raised != nil && spend.DayOf(j.Raised.At) == today:
		return j.Raised.Before
	}
	return b.counts(j)
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
	cost, err := record.MostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	now, was := time.Now(), j.Snapshot()
	b.mu.Lock()
	before := spending(b).before(was, now)
	more := cost > spending(b).counts(was)
	if err = (spending(b)).withinMore(was, cost, now); err == nil {
		b.raises[j.ID] = cost
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.raises, j.ID)
	}()
	if more && spend.DayOf(countsLast(was)) != spend.DayOf(now) {
		at := record.Raised{At: now, Before: before}
		if err := j.Save(j.Context(), func(j *Job) { j.Raised = &at }); err != nil {
			return err
		}
	}
	return change()
}
