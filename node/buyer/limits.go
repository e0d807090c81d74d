package buyer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

var (
	// ErrLimit says that a job was refused because it could cost more than its peer or its key may spend.
	ErrLimit = errors.New("spending limit")
	// ErrKey says that an API key cannot be made or is not there.
	ErrKey = errors.New("api key")
)

// Limits bound what is spent, in base units. Days are those of UTC. A zero is no limit.
type Limits struct {
	PerJob            market.Amount `json:"perJob,omitempty"`
	PerDay            market.Amount `json:"perDay,omitempty"`
	PerProviderPerDay market.Amount `json:"perProviderPerDay,omitempty"`
}

// Key is an API key: a token that may submit jobs within limits of its own, beside those of the peer. Only the token's hash
// is kept.
type Key struct {
	Name    string    `json:"name"`
	Hash    sign.Hash `json:"hash"` // SHA-256 of the token, which has 256 random bits
	Limits  Limits    `json:"limits"`
	Created time.Time `json:"created"`
}

const (
	kindAPIKey = "apikey" // Key by name
	maxKeys    = 1000
	// tokenPrefix tells a key's token from others when it turns up where it should not.
	tokenPrefix = "starling_"
)

var keyName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (b *Buyer) loadAPIKeys(ctx context.Context) error {
	return b.cfg.Store.List(ctx, kindAPIKey, "", func(name string, value []byte) error {
		var k Key
		if err := json.Unmarshal(value, &k); err != nil {
			return fmt.Errorf("reading api key %s: %w", name, err)
		}
		b.apiKeys[name] = k
		return nil
	})
}

// AddKey makes an API key and returns its token, which is shown this once. ErrKey if there is one of that name.
func (b *Buyer) AddKey(ctx context.Context, name string, l Limits) (Key, string, error) {
	if !keyName.MatchString(name) {
		return Key{}, "", fmt.Errorf("%w: %.80q is not a name: want 1 to 63 of a-z, 0-9 and '-'", ErrKey, name)
	}
	var raw [32]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return Key{}, "", err
	}
	token := tokenPrefix + hex.EncodeToString(raw[:])
	k := Key{Name: name, Hash: sha256.Sum256([]byte(token)), Limits: l, Created: time.Now().UTC()}
	v, err := json.Marshal(k)
	if err != nil {
		return Key{}, "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch _, there := b.apiKeys[name]; {
	case there:
		return Key{}, "", fmt.Errorf("%w: there is one called %q; remove it first", ErrKey, name)
	case len(b.apiKeys) >= maxKeys:
		return Key{}, "", fmt.Errorf("%w: there are %d, at most %d", ErrKey, len(b.apiKeys), maxKeys)
	}
	if err := b.cfg.Store.Write(ctx, store.Put{Kind: kindAPIKey, Key: name, Value: v}); err != nil {
		return Key{}, "", err
	}
	b.apiKeys[name] = k
	return k, token, nil
}

// RemoveKey ends an API key. Its jobs go on. ErrKey if there is none of that name.
func (b *Buyer) RemoveKey(ctx context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.apiKeys[name]; !ok {
		return fmt.Errorf("%w: there is none called %.80q", ErrKey, name)
	}
	if err := b.cfg.Store.Write(ctx, store.Put{Kind: kindAPIKey, Key: name}); err != nil {
		return err
	}
	delete(b.apiKeys, name)
	return nil
}

// Keys lists the API keys by name.
func (b *Buyer) Keys() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.apiKeys), func(x, y Key) int { return strings.Compare(x.Name, y.Name) })
}

// KeyOf finds the key that a token belongs to. Comparing hashes tells nobody anything about a token.
func (b *Buyer) KeyOf(token string) (name string, ok bool) {
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", false
	}
	h := sign.Hash(sha256.Sum256([]byte(token)))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.apiKeys {
		if k.Hash == h {
			return k.Name, true
		}
	}
	return "", false
}

// day is the UTC day of a time.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// resets is when the next day begins.
func resets(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) }

// counts is what a job counts against the limits of the day it was submitted on: what was spent once it has ended, and until
// then what it can cost at the most.
func (b *Buyer) counts(j Job) market.Amount {
	if j.State.Ended() {
		return b.spent(j)
	}
	most, err := b.mostCost(j.Spec)
	if err != nil {
		return j.Spec.Payment.Budget
	}
	return most
}

// spent is what has left the wallet for a job that has ended, and is not back: what was claimed, and what can be claimed still.
func (b *Buyer) spent(j Job) market.Amount {
	escrows := b.pay.escrows(j.ID)
	if len(escrows) == 0 {
		return j.Owed
	}
	paid, held := claimed(escrows)
	return paid + held
}

// within reports whether the limits of the peer and of the key allow a job. b.mu is held.
func (b *Buyer) within(spec job.Job, key string, now time.Time) error {
	cost, err := b.mostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return b.allowed(cost, cost, key, nil, now)
}

// withinMore is within for a job that becomes spec. One that was submitted on an earlier day counts on this one with what it
// can cost more. b.mu is held.
func (b *Buyer) withinMore(s *supervisor, spec job.Job, now time.Time) error {
	j := s.snapshot()
	cost, err := b.mostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	today := cost
	if day(j.Created) != day(now) {
		today -= min(b.counts(j), cost)
	}
	if today == 0 && cost <= b.counts(j) {
		return nil // it costs no more than it did
	}
	return b.allowed(cost, today, j.Key, s, now)
}

// allowed reports whether a job may cost so much in all and so much today, beside today's other jobs. b.mu is held.
func (b *Buyer) allowed(cost, today market.Amount, key string, but *supervisor, now time.Time) error {
	own, known := b.apiKeys[key]
	if key != "" && !known {
		return fmt.Errorf("%w: %w: key %q is not valid any more", ErrRefused, ErrKey, key)
	}
	var all, mine market.Amount
	for _, s := range b.jobs {
		if j := s.peek(); s != but && b.owned(j) && day(j.Created) == day(now) {
			n := b.counts(s.snapshot())
			all += n
			if j.Key == key {
				mine += n
			}
		}
	}
	for _, p := range b.past {
		if day(time.Unix(0, p.Created)) == day(now) {
			all += p.Spent
			if p.Key == key {
				mine += p.Spent
			}
		}
	}
	if err := b.allows("this peer", b.cfg.Limits, cost, today, all, now); err != nil || key == "" {
		return err
	}
	return b.allows("key "+key, own.Limits, cost, today, mine, now)
}

// allows reports whether who, having used so much today, may spend cost on a job and today of it on this day.
func (b *Buyer) allows(who string, l Limits, cost, today, used market.Amount, now time.Time) error {
	money := b.cfg.Genesis.FormatAmount
	switch left := l.PerDay - min(used, l.PerDay); {
	case l.PerJob > 0 && cost > l.PerJob:
		return &limitError{fmt.Sprintf("the job can cost up to %s, %s may spend %s per job; lower payment.budget", money(cost), who, money(l.PerJob))}
	case l.PerDay > 0 && today > left:
		return &limitError{fmt.Sprintf("the job can cost up to %s, and of the %s that %s may spend per day %s are left until 00:00 UTC, in %v; lower payment.budget, or wait",
			money(today), money(l.PerDay), who, money(left), resets(now).Sub(now).Round(time.Minute))}
	}
	return nil
}

type limitError struct{ text string }

func (e *limitError) Error() string   { return e.text }
func (e *limitError) Unwrap() []error { return []error{ErrRefused, ErrLimit} }

// promise is what a lease that is being signed can cost.
type promise struct {
	to     sign.Key
	amount market.Amount
}

// paidTo is what the leases signed with a provider today have cost or can still cost. b.mu is held.
func (b *Buyer) paidTo(p sign.Key, now time.Time) market.Amount {
	var sum market.Amount
	for _, l := range b.leases {
		if l.core.Provider == p && day(l.rec.At) == day(now) {
			sum += l.most()
		}
	}
	for _, d := range b.drafted {
		if d.to == p {
			sum += d.amount
		}
	}
	return sum + b.pastToday(now)[p]
}

// overProvider reports whether one more lease of a provider is over its limit for today; "" if it is not. b.mu is held.
func (b *Buyer) overProvider(p sign.Key, amount market.Amount, now time.Time) string {
	limit := b.cfg.Limits.PerProviderPerDay
	if limit == 0 {
		return ""
	}
	if used := b.paidTo(p, now); used+amount > limit {
		money := b.cfg.Genesis.FormatAmount
		return fmt.Sprintf("over buy.limits.perProviderPerDay: the lease can cost up to %s, and of %s per day %s are left", money(amount), money(limit), money(limit-min(used, limit)))
	}
	return ""
}

// commit sets aside what a lease about to be signed can cost, or says why it may not be. The caller calls back when the lease
// counts itself or is not wanted.
func (b *Buyer) commit(hold market.HoldID, p sign.Key, amount market.Amount) (back func(), over string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if over := b.overProvider(p, amount, time.Now()); over != "" {
		return func() {}, over
	}
	b.drafted[hold] = promise{p, amount}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.drafted, hold)
	}, ""
}

// DaySpend is what the jobs of one key that were submitted on one day cost.
type DaySpend struct {
	Day   string        `json:"day"` // UTC, 2006-01-02
	Key   string        `json:"key,omitempty"`
	Jobs  int           `json:"jobs"`
	Spent market.Amount `json:"spent"`          // by jobs that have ended
	Open  market.Amount `json:"open,omitempty"` // what those that have not can still come to cost
	Fees  uint64        `json:"fees,omitempty"` // lamports that the transactions of all took, about
}

// ProviderSpend is what the leases that were signed with one provider today cost, or can cost.
type ProviderSpend struct {
	Provider  sign.Key      `json:"provider"`
	Committed market.Amount `json:"committed"`
}

// Spend is what was spent, and the limits.
type Spend struct {
	Limits    Limits          `json:"limits"` // of the peer
	Keys      []Key           `json:"keys"`
	Resets    time.Time       `json:"resets"` // when the day is over
	Days      []DaySpend      `json:"days"`   // the latest first, then by key
	Providers []ProviderSpend `json:"providers"`
}

// Spending sums up the last days, today included; of one key only unless all is set.
func (b *Buyer) Spending(days int, key string, all bool) Spend {
	now := time.Now()
	since := day(now.AddDate(0, 0, 1-days))
	out := Spend{Limits: b.cfg.Limits, Keys: []Key{}, Resets: resets(now), Days: []DaySpend{}, Providers: []ProviderSpend{}}
	for _, k := range b.Keys() {
		if all || k.Name == key {
			out.Keys = append(out.Keys, k)
		}
	}
	sums := map[[2]string]*DaySpend{}
	of := func(d, key string) *DaySpend {
		at := [2]string{d, key}
		if sums[at] == nil {
			sums[at] = &DaySpend{Day: d, Key: key}
		}
		sums[at].Jobs++
		return sums[at]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		j := s.peek()
		d := day(j.Created)
		if d < since || !b.owned(j) || !all && j.Key != key {
			continue
		}
		j = s.snapshot()
		sum := of(d, j.Key)
		j.Escrows = b.pay.escrows(j.ID)
		sum.Fees += j.took().Fees
		if j.State.Ended() {
			sum.Spent += b.spent(j)
		} else {
			sum.Open += b.counts(j)
		}
	}
	for _, p := range b.past {
		if d := day(time.Unix(0, p.Created)); d >= since && (all || p.Key == key) {
			sum := of(d, p.Key)
			sum.Spent, sum.Fees = sum.Spent+p.Spent, sum.Fees+p.Fees
		}
	}
	for _, s := range sums {
		out.Days = append(out.Days, *s)
	}
	slices.SortFunc(out.Days, func(x, y DaySpend) int {
		if x.Day != y.Day {
			return strings.Compare(y.Day, x.Day)
		}
		return strings.Compare(x.Key, y.Key)
	})
	if all {
		out.Providers = b.providersToday(now)
	}
	return out
}

// providersToday lists the providers of today's leases. b.mu is held.
func (b *Buyer) providersToday(now time.Time) []ProviderSpend {
	seen := map[sign.Key]bool{}
	for _, l := range b.leases {
		if day(l.rec.At) == day(now) && (l.state() != meter.PayerSettled || l.owed() > 0) {
			seen[l.core.Provider] = true
		}
	}
	for p, amount := range b.pastToday(now) {
		if amount > 0 {
			seen[p] = true
		}
	}
	out := []ProviderSpend{}
	for p := range seen {
		out = append(out, ProviderSpend{p, b.paidTo(p, now)})
	}
	slices.SortFunc(out, func(x, y ProviderSpend) int { return strings.Compare(x.Provider.String(), y.Provider.String()) })
	return out
}
