package reputation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/notice"
	"github.com/starling-network/starling/verify/reputation"
)

// kindFact is the kind of the journal's records: a reputation.Fact's layout, by source and what makes it one.
const kindFact = "fact"

const (
	// Most leases and records of each source that are remembered. Together they name fewer peers than a View may have:
	// a lease of others two, one's own one more, a record one.
	maxOwn, maxOthers, maxRecords = 8000, 26_000, 2000
	// pass is how often what is new is written.
	pass = 2 * time.Second
	// restFactor is how many times as long as it took to compute a View it is used while others' facts come in.
	restFactor = 20
	// decaySteps is how many times in a half-life a View is computed anew though nothing is new.
	decaySteps = 256
	// stakeEvery is how often stakes are asked for, stakeFor how long an answer counts, maxStakes how many are remembered,
	// stakeTimeout how long an answer is waited for.
	stakeEvery, stakeFor = 5 * time.Second, 10 * time.Minute
	maxStakes            = 1024
	stakeTimeout         = 5 * time.Second
	// ahead is how far in the future, in metering intervals, a receipt may lie: clocks differ.
	ahead = 10
)

// source says where facts come from, and which of them make room for each other.
type source byte

const (
	own     source = 'o'
	others  source = 'p'
	records source = 'r'
)

var rooms = map[source]int{own: maxOwn, others: maxOthers, records: maxRecords}

// Config is what a Book needs; all of it but Stakes.
type Config struct {
	Genesis market.Genesis
	Self    sign.Key
	Store   store.Store
	// Slot is the chain's current slot; an error while it is not known.
	Slot func() (market.Slot, error)
	// Stakes is what peers have at stake; it may answer for the first of them alone. Nil where there are no stakes.
	Stakes func(ctx context.Context, of []sign.Key) (map[sign.Key]market.Amount, error)
	Log    *slog.Logger
}

// name is what makes facts of a subject one: a lease or a record.
type name struct {
	source source
	id     sign.Hash
}

// Book is what one peer knows of others. Open starts nothing; Run writes.
type Book struct {
	cfg    Config
	params reputation.Params

	mu     sync.Mutex
	facts  map[name][]reputation.Fact // few each: what both did, and what failed
	counts map[source]int
	dirty  map[name]bool // the journal does not have it so
	stakes map[sign.Key]staked
	view   *reputation.View
	at     market.Slot // that it was computed for
	seen   market.Slot // the last one known
	stale  bool        // there is more than view has
	own    bool        // some of it is of this peer's own leases
	built  time.Time
	took   time.Duration
}

type staked struct {
	amount market.Amount
	asked  time.Time
}

// Open reads what an earlier process left.
func Open(ctx context.Context, cfg Config) (*Book, error) {
	b := &Book{cfg: cfg, params: reputation.ParamsOf(cfg.Genesis), facts: map[name][]reputation.Fact{}, counts: map[source]int{},
		dirty: map[name]bool{}, stakes: map[sign.Key]staked{}, stale: true}
	err := cfg.Store.List(ctx, kindFact, "", func(key string, value []byte) error {
		n, err := parseName(key)
		if err != nil {
			return err
		}
		for len(value) >= reputation.FactSize {
			f, err := reputation.UnmarshalFact(value[:reputation.FactSize])
			if err != nil {
				return fmt.Errorf("reading fact %s: %w", key, err)
			}
			b.learn(n.source, f)
			value = value[reputation.FactSize:]
		}
		return nil
	})
	clear(b.dirty)
	return b, err
}

func (n name) String() string { return string(n.source) + "/" + n.id.String() }

func parseName(key string) (name, error) {
	if len(key) < 3 || key[1] != '/' || rooms[source(key[0])] == 0 {
		return name{}, fmt.Errorf("reading fact %.80q: no such name", key)
	}
	id, err := sign.ParseHash(key[2:])
	if err != nil {
		return name{}, fmt.Errorf("reading fact %.80q: %w", key, err)
	}
	return name{source(key[0]), id}, nil
}

// learn takes in a fact, if it says more than what is known; b.mu is held, or nobody else has b.
func (b *Book) learn(s source, f reputation.Fact) {
	n := name{s, f.ID}
	if _, mine := b.facts[name{own, f.ID}]; mine && s == others {
		return // that is known better
	}
	known := b.facts[n]
	i := slices.IndexFunc(known, func(o reputation.Fact) bool { return o.Subject == f.Subject && o.Role == f.Role && o.Kind == f.Kind })
	switch {
	case i < 0 && len(known) >= maxOfOne:
		return
	case i >= 0 && cmp.Or(cmp.Compare(f.Value, known[i].Value), cmp.Compare(f.At, known[i].At)) <= 0:
		return
	}
	known = slices.Clone(known)
	if i < 0 {
		known = append(known, f)
	} else {
		known[i] = f
	}
	if b.facts[n] == nil {
		b.counts[s]++
	}
	b.facts[n] = known
	b.dirty[n], b.stale, b.own = true, true, b.own || s != others
	if b.counts[s] > rooms[s]+rooms[s]/8 {
		b.makeRoom(s)
	}
}

// maxOfOne bounds the facts of one lease: both kept it, both failed it.
const maxOfOne = 4

// makeRoom forgets what of a source counts least: of others' leases first those of which neither side is reached, of records those of
// peers with nothing at stake, then the oldest.
func (b *Book) makeRoom(s source) {
	reached := func(sign.Key) bool { return true }
	if s == records && len(b.stakes) > 0 { // keys are free, and whoever has one can prove to have lied
		reached = func(k sign.Key) bool { return b.stakes[k].amount > 0 }
	}
	if s == others {
		if v, err := b.look(b.seen); err == nil {
			reached = v.Reached()
		}
	}
	type ranked struct {
		name
		heard bool
		at    market.Slot
	}
	var all []ranked
	for n, fs := range b.facts {
		if n.source == s {
			all = append(all, ranked{n, reached(fs[0].Subject) || reached(fs[0].Rater), fs[0].At})
		}
	}
	slices.SortFunc(all, func(x, y ranked) int {
		if x.heard != y.heard {
			if x.heard {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(x.at, y.at), bytes.Compare(x.id[:], y.id[:]))
	})
	for _, r := range all[:max(0, len(all)-rooms[s])] {
		delete(b.facts, r.name)
		b.dirty[r.name] = true
		b.counts[s]--
	}
}

// File takes in a receipt of a lease of this peer's own that both have signed. It waits for nothing; it may come again.
func (b *Book) File(l market.Lease, r verify.Receipt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept(own, b.parties(l.Core), r)
}

// parties are provider and buyer of a lease of this peer's own: where a key of its job bought it, that is this peer.
func (b *Book) parties(c market.LeaseCore) [2]sign.Key {
	if c.Provider != b.cfg.Self {
		return [2]sign.Key{c.Provider, b.cfg.Self}
	}
	return [2]sign.Key{c.Provider, c.Buyer}
}

// kept takes in both sides of a receipt.
func (b *Book) kept(s source, of [2]sign.Key, r verify.Receipt) {
	if of[0] == of[1] || r.Cumulative == 0 {
		return
	}
	for role, subject := range of {
		b.learn(s, reputation.Fact{ID: sign.Hash(r.Lease), Kind: reputation.Kept, Role: reputation.Role(role), Subject: subject, Rater: of[1-role],
			Value: r.Cumulative, At: r.To})
	}
}

// Heard takes in what is public of a unit in an hour. The notice must have been checked.
func (b *Book) Heard(n notice.Notice) {
	now, err := b.cfg.Slot()
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = max(b.seen, now)
	for _, r := range n.Receipts {
		if r.Provider != b.cfg.Self && r.Buyer != b.cfg.Self && r.To <= now+market.Slot(ahead*b.cfg.Genesis.IntervalSlots) {
			b.kept(others, [2]sign.Key{r.Provider, r.Buyer}, r)
		}
	}
}

// Failed notes that the other side broke a lease of this peer's own, as this peer saw it.
func (b *Book) Failed(c market.LeaseCore) {
	of := b.parties(c)
	f := reputation.Fact{ID: sign.Hash(c.ID()), Kind: reputation.Failed, Role: reputation.Provider, Subject: of[0], Rater: of[1], Value: c.Cap, At: c.Start}
	if of[0] == b.cfg.Self {
		f.Role, f.Subject, f.Rater = reputation.Buyer, of[1], of[0]
	}
	if now, err := b.cfg.Slot(); err == nil {
		f.At = now
	}
	if f.Subject == f.Rater {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.learn(own, f)
}

// SoldTwice takes in a proof, which must have been checked. All proofs about two leases are one.
func (b *Book) SoldTwice(c verify.Conflict) {
	b.Record(reputation.Fact{ID: sign.Sum([]byte("starling/reputation/conflict"), c.A.Lease[:], c.B.Lease[:]), Kind: reputation.SoldTwice,
		Subject: c.A.Provider, At: max(c.A.From, c.B.From)})
}

// Record takes in what a record shows of a provider that anybody can check, and that was checked: its kind is not Kept or
// Failed.
func (b *Book) Record(f reputation.Fact) {
	if f.Kind < reputation.AuditPassed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.learn(records, f)
}

// look computes the View of a slot, or gives the last one; b.mu is held.
func (b *Book) look(now market.Slot) (*reputation.View, error) {
	began := time.Now()
	fresh := !b.stale || !b.own && began.Sub(b.built) < restFactor*b.took
	if b.view != nil && fresh && now-min(now, b.at) <= market.Slot(b.params.HalfLife/decaySteps) {
		return b.view, nil
	}
	var facts []reputation.Fact
	for _, fs := range b.facts {
		facts = append(facts, fs...)
	}
	var stakes []reputation.Stake
	for k, s := range b.stakes {
		if s.amount > 0 {
			stakes = append(stakes, reputation.Stake{Peer: k, Amount: s.amount})
		}
	}
	v, err := reputation.NewView(b.params, b.cfg.Self, now, facts, stakes)
	if err != nil {
		return nil, err
	}
	b.view, b.at, b.stale, b.own, b.built, b.took = v, now, false, false, began, time.Since(began)
	return v, nil
}

// View is what is known now.
func (b *Book) View() (*reputation.View, error) {
	now, err := b.cfg.Slot()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.seen = max(b.seen, now)
	}
	return b.look(b.seen)
}

// Scores are those of peers in a role. Where they cannot be computed, all are strangers, and the log says why.
func (b *Book) Scores(role reputation.Role, peers ...sign.Key) []reputation.Score {
	v, err := b.View()
	if err != nil {
		b.cfg.Log.Error("no reputation can be computed", "err", err)
		out := make([]reputation.Score, len(peers))
		for i, k := range peers {
			out[i] = reputation.Score{Peer: k, Role: role, Millionths: reputation.Stranger}
		}
		return out
	}
	return v.Scores(role, peers...)
}

// Run writes what is new, and asks for stakes, until ctx ends.
func (b *Book) Run(ctx context.Context) error {
	write, ask := time.NewTicker(pass), time.NewTicker(stakeEvery)
	defer write.Stop()
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			b.write(context.WithoutCancel(ctx))
			return nil
		case <-write.C:
			b.write(ctx)
		case <-ask.C:
			b.askStakes(ctx)
		}
	}
}

// write brings the journal up to date. What fails is tried again.
func (b *Book) write(ctx context.Context) {
	b.mu.Lock()
	dirty := b.dirty
	b.dirty = map[name]bool{}
	var puts []store.Put
	for n := range dirty {
		p := store.Put{Kind: kindFact, Key: n.String()}
		for _, f := range b.facts[n] {
			p.Value = append(p.Value, f.Marshal()...)
		}
		puts = append(puts, p) // without a value it is deleted
	}
	b.mu.Unlock()
	if len(puts) == 0 {
		return
	}
	if err := b.cfg.Store.Write(ctx, puts...); err != nil {
		if ctx.Err() == nil {
			b.cfg.Log.Error("what is known of peers is not journalled; trying again", "err", err)
		}
		b.mu.Lock()
		for n := range dirty {
			b.dirty[n] = true
		}
		b.mu.Unlock()
	}
}

// askStakes asks for the stakes of the providers that are known, of which the answer is old.
func (b *Book) askStakes(ctx context.Context) {
	if b.cfg.Stakes == nil {
		return
	}
	due := b.dueStakes(time.Now())
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stakeTimeout)
	defer cancel()
	got, err := b.cfg.Stakes(ctx, due)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil { // the others first, before this one is asked for again
		b.stakes[due[0]] = staked{b.stakes[due[0]].amount, now}
		return
	}
	for _, k := range due {
		if amount, answered := got[k]; answered {
			b.stale = b.stale || amount != b.stakes[k].amount
			b.stakes[k] = staked{amount, now}
		}
	}
}

// dueStakes are the providers whose stakes are to be asked for, that of longest ago first.
func (b *Book) dueStakes(now time.Time) (due []sign.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[sign.Key]bool{}
	for _, fs := range b.facts {
		for _, f := range fs {
			if f.Role != reputation.Provider || seen[f.Subject] {
				continue
			}
			seen[f.Subject] = true
			if s, known := b.stakes[f.Subject]; known && now.Sub(s.asked) >= stakeFor || !known && len(b.stakes)+len(due) < maxStakes {
				due = append(due, f.Subject)
			}
		}
	}
	slices.SortFunc(due, func(x, y sign.Key) int {
		return cmp.Or(b.stakes[x].asked.Compare(b.stakes[y].asked), bytes.Compare(x[:], y[:]))
	})
	return due
}
