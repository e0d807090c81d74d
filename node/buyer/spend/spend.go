// Package spend bounds the money that jobs may spend: over all keys, and for each API key.
package spend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// ErrLimit is returned for a job that could cost more than its peer or its key may spend.
var ErrLimit = errors.New("spending limit")

// Limits bound spending, in base units. Days are those of UTC. A zero is no limit.
type Limits struct {
	PerJob            market.Amount `json:"perJob,omitempty"`
	PerDay            market.Amount `json:"perDay,omitempty"`
	PerProviderPerDay market.Amount `json:"perProviderPerDay,omitempty"`
}

// Job is the cost of one of the peer's own jobs on a day.
type Job struct {
	ID      string
	Key     string    // name of the API key; empty: the peer's own token
	Created time.Time // of the job; with Raise, of the change
	Raise   bool      // the cost is that of later changes of a job, which counts on their day
	Ended   bool
	Cost    market.Amount // the amount spent, or before its end the maximum cost
	Fees    uint64        // lamports of its transactions, about
}

// Split returns the costs of a job before and after changes that let it cost more: they count on different days.
func (j Job) Split(at time.Time, before market.Amount) (first, raised Job) {
	raised = Job{ID: j.ID, Key: j.Key, Created: at, Raise: true, Ended: j.Ended, Cost: j.Cost - min(j.Cost, before)}
	j.Cost -= raised.Cost
	return j, raised
}

// Jobs has the jobs and the providers of a peer.
type Jobs interface {
	// Counted returns the costs of the peer's own jobs that count on a day or later.
	Counted(since string) []Job
	// ProvidersToday returns the providers of the leases that were signed today.
	ProvidersToday() []Provider
}

// Provider is the cost of the leases that were signed with one provider today, at most.
type Provider struct {
	Provider  sign.Key      `json:"provider"`
	Committed market.Amount `json:"committed"`
}

// Day is the cost of one key's jobs that were submitted on one day.
type Day struct {
	Day   string        `json:"day"` // UTC, 2006-01-02
	Key   string        `json:"key,omitempty"`
	Jobs  int           `json:"jobs"`
	Spent market.Amount `json:"spent"`          // by jobs that have ended
	Open  market.Amount `json:"open,omitempty"` // the maximum cost of the other jobs
	Fees  uint64        `json:"fees,omitempty"` // lamports of the transactions of all, about
}

// Report is the spending of some days, and the limits.
type Report struct {
	Limits    Limits     `json:"limits"` // of the peer
	Keys      []Key      `json:"keys"`
	Resets    time.Time  `json:"resets"` // end of the day
	Days      []Day      `json:"days"`   // the latest first, then by key
	Providers []Provider `json:"providers"`
}

// DayOf returns the UTC day of a time.
func DayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// resets returns when the next day begins.
func resets(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) }

// Request is a job that is to be accepted, or to change.
type Request struct {
	ID    string        // its id; empty for a new one
	Key   string        // name of its API key
	Cost  market.Amount // the most that it can cost
	Today market.Amount // of that on this day
}

// Check returns an error that wraps ErrLimit if the limits of the peer or of the key do not allow a request beside the
// jobs. If the key is not valid, the error wraps ErrKey.
func (k *Ledger) Check(r Request, jobs []Job, now time.Time) error {
	own, known := k.get(r.Key)
	if r.Key != "" && !known {
		return fmt.Errorf("%w: key %q is no longer valid", ErrKey, r.Key)
	}
	var all, mine market.Amount
	for _, j := range jobs {
		if j.ID == r.ID || DayOf(j.Created) != DayOf(now) {
			continue
		}
		all += j.Cost
		if j.Key == r.Key {
			mine += j.Cost
		}
	}
	if err := k.allows("this peer", k.limits, r, all, now); err != nil || r.Key == "" {
		return err
	}
	return k.allows("key "+r.Key, own.Limits, r, mine, now)
}

// allows refuses a request that exceeds the limits of a spender; used is its spending today.
func (k *Ledger) allows(spender string, l Limits, r Request, used market.Amount, now time.Time) error {
	money := k.genesis.FormatAmount
	switch left := l.PerDay - min(used, l.PerDay); {
	case l.PerJob > 0 && r.Cost > l.PerJob:
		return &limitError{fmt.Sprintf("the job can cost up to %s, %s may spend %s per job; lower payment.budget",
			money(r.Cost), spender, money(l.PerJob))}
	case l.PerDay > 0 && r.Today > left:
		return &limitError{fmt.Sprintf("the job can cost up to %s, and of the %s that %s may spend per day "+
			"%s are left until 00:00 UTC, in %v; lower payment.budget, or wait",
			money(r.Today), money(l.PerDay), spender, money(left), resets(now).Sub(now).Round(time.Minute))}
	}
	return nil
}

type limitError struct{ text string }

func (e *limitError) Error() string { return e.text }
func (e *limitError) Unwrap() error { return ErrLimit }

// OverProvider returns the reason if one more lease of a provider exceeds its limit for today, or "". The provider's
// leases of today cost used, at most.
func (k *Ledger) OverProvider(used, amount market.Amount) string {
	limit := k.limits.PerProviderPerDay
	if limit == 0 || used+amount <= limit {
		return ""
	}
	money := k.genesis.FormatAmount
	return fmt.Sprintf("over buy.limits.perProviderPerDay: the lease can cost up to %s, and of %s per day %s are left",
		money(amount), money(limit), money(limit-min(used, limit)))
}

// Spending sums up the last days, today included, of one key only unless all is set.
func (k *Ledger) Spending(days int, key string, all bool) Report {
	now := time.Now()
	since := DayOf(now.AddDate(0, 0, 1-days))
	out := Report{Limits: k.limits, Keys: []Key{}, Resets: resets(now), Days: []Day{}, Providers: []Provider{}}
	for _, own := range k.Keys() {
		if all || own.Name == key {
			out.Keys = append(out.Keys, own)
		}
	}
	sums := map[[2]string]*Day{}
	for _, j := range k.jobs.Counted(since) {
		if !all && j.Key != key {
			continue
		}
		at := [2]string{DayOf(j.Created), j.Key}
		if sums[at] == nil {
			sums[at] = &Day{Day: at[0], Key: j.Key}
		}
		sum := sums[at]
		if !j.Raise {
			sum.Jobs++
		}
		sum.Fees += j.Fees
		if j.Ended {
			sum.Spent += j.Cost
		} else {
			sum.Open += j.Cost
		}
	}
	for _, s := range sums {
		out.Days = append(out.Days, *s)
	}
	slices.SortFunc(out.Days, func(x, y Day) int {
		return cmp.Or(cmp.Compare(y.Day, x.Day), cmp.Compare(x.Key, y.Key))
	})
	if all {
		out.Providers = k.jobs.ProvidersToday()
	}
	return out
}
