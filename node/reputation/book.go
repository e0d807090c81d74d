package reputation

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

const (
	// Most leases and records of each source that are remembered. Together they name fewer peers than a View may have:
	// a lease of others two, one's own one more, a record one.
	maxOwn, maxOthers, maxRecords = 8000, 26_000, 2000
	// pass is the interval at which new facts are written.
	pass = 2 * time.Second
	// restFactor is the lifetime of a View while others' facts arrive, as a multiple of the time of its computation.
	restFactor = 20
	// decaySteps is the number of computations of a View in a half-life without new facts.
	decaySteps = 256
	// stakeEvery is the interval of requests for stakes, stakeFor the time for which an answer counts, maxStakes bounds
	// the remembered ones, stakeTimeout the wait for an answer.
	stakeEvery, stakeFor = 5 * time.Second, 10 * time.Minute
	maxStakes            = 1024
	stakeTimeout         = 5 * time.Second
	// maxOfBuyer is how many leases of others are remembered that one buyer shows; its oldest go first.
	maxOfBuyer = 256
	// maxLeads bounds the buyers that are remembered from notices alone.
	maxLeads = 1024
)

// source is the origin of facts. Facts of one source make room for each other.
type source byte

const (
	own     source = 'o'
	others  source = 'p'
	records source = 'r'
)

var rooms = map[source]int{own: maxOwn, others: maxOthers, records: maxRecords}

// Config is the configuration of a Book; all of it is required, except Stakes.
type Config struct {
	Genesis market.Genesis
	Self    sign.Key
	Store   journal.Store
	// Slot is the chain's current slot; an error while it is not known.
	Slot func() (market.Slot, error)
	// Stakes reads the stakes of peers; it may answer for the first of them alone. Stakes is optional.
	Stakes func(ctx context.Context, of []sign.Key) (map[sign.Key]market.Amount, error)
	Log    *slog.Logger
}

// name is the lease or record of a fact. Facts of one name, subject, role and kind replace each other.
type name struct {
	source source
	id     sign.Hash
}

// Book is the knowledge that a peer has of others. Open starts nothing; Run writes.
type Book struct {
	cfg    Config
	params reputation.Params

	writing chan struct{} // holds one while the journal is written

	mu      sync.Mutex
	facts   map[name][]reputation.Fact // few each: the conduct of both sides
	sources map[name]Source            // of others' leases and of records
	fresh   map[name][]byte            // testimony of others' leases that the journal does not have yet
	read    map[sign.Hash]bool         // records of sources
	shown   map[sign.Key]int           // how many leases of others a buyer showed
	leads   map[sign.Key]bool          // buyers that notices name
	counts  map[source]int
	dirty   map[name]bool // the journal does not have it so
	stakes  map[sign.Key]staked
	view    *reputation.View
	at      market.Slot // that it was computed for
	seen    market.Slot // the last one known
	stale   bool        // there is more than view has
	own     bool        // some of it is of this peer's own leases
	built   time.Time
	took    time.Duration
}

type staked struct {
	amount market.Amount
	asked  time.Time
}

// learn adds a fact under a name, if it outweighs the known one. b.mu is held, or b is not shared yet.
func (b *Book) learn(n name, f reputation.Fact) (more bool) {
	if _, mine := b.facts[name{own, f.ID}]; mine && n.source == others {
		return false // this peer has better evidence
	}
	known := b.facts[n]
	i := slices.IndexFunc(known, func(o reputation.Fact) bool {
		return o.Subject == f.Subject && o.Role == f.Role && o.Kind == f.Kind
	})
	switch {
	case i < 0 && len(known) >= maxOfOne:
		return false
	case i >= 0 && cmp.Or(cmp.Compare(f.Value, known[i].Value), cmp.Compare(f.At, known[i].At)) <= 0:
		return false
	}
	known = slices.Clone(known)
	if i < 0 {
		known = append(known, f)
	} else {
		known[i] = f
	}
	if b.facts[n] == nil {
		b.counts[n.source]++
		if n.source == others {
			b.shown[buyerOf(known)]++
		}
	}
	b.facts[n] = known
	b.dirty[n], b.stale, b.own = true, true, b.own || n.source != others
	if s := n.source; b.counts[s] > rooms[s]+rooms[s]/8 {
		b.makeRoom(s)
	}
	return true
}

// forget drops the facts of a name; b.mu is held.
func (b *Book) forget(n name) {
	if fs := b.facts[n]; n.source == others && len(fs) > 0 {
		if by := buyerOf(fs); b.shown[by] > 1 {
			b.shown[by]--
		} else {
			delete(b.shown, by)
		}
	}
	delete(b.read, b.sources[n].Record)
	delete(b.facts, n)
	delete(b.sources, n)
	delete(b.fresh, n)
	b.dirty[n] = true
	b.counts[n.source]--
}

// buyerOf is the buyer of the lease that facts are of.
func buyerOf(fs []reputation.Fact) sign.Key {
	if fs[0].Role == reputation.Buyer {
		return fs[0].Subject
	}
	return fs[0].Rater
}

// maxOfOne bounds the facts of one lease: both kept it, both failed it.
const maxOfOne = 4

// makeRoom forgets the facts of a source that count least: of others' leases first those with neither side reached, of
// records those of peers with nothing at stake, then the oldest.
func (b *Book) makeRoom(s source) {
	reached := func(sign.Key) bool { return true }
	if s == records && len(b.stakes) > 0 { // keys are free, and each can prove that it lied
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
		b.forget(r.name)
	}
}

// File records a receipt, signed by both parties, of one of this peer's own leases. It does not block, and may be
// called again for a receipt.
func (b *Book) File(l market.Lease, r verify.Receipt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept(b.parties(l.Core), r)
}

// parties returns provider and buyer of one of this peer's own leases. If a job's key bought it, the buyer is this
// peer.
func (b *Book) parties(c market.LeaseCore) [2]sign.Key {
	if c.Provider != b.cfg.Self {
		return [2]sign.Key{c.Provider, b.cfg.Self}
	}
	return [2]sign.Key{c.Provider, c.Buyer}
}

// kept records a fact for each party of one of this peer's own receipts.
func (b *Book) kept(of [2]sign.Key, r verify.Receipt) {
	if of[0] == of[1] || r.Cumulative == 0 {
		return
	}
	for _, f := range keptBy(of, r) {
		b.learn(name{own, f.ID}, f)
	}
}

// Failed records that the other party broke one of this peer's own leases, as observed by this peer, and this peer's
// loss.
func (b *Book) Failed(c market.LeaseCore, lost market.Amount) {
	of := b.parties(c)
	f := reputation.Fact{
		ID: sign.Hash(c.ID()), Kind: reputation.Failed, Role: reputation.Provider, Subject: of[0], Rater: of[1],
		Value: lost, At: c.Start,
	}
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
	b.learn(name{own, f.ID}, f)
}

// SoldTwice records a checked proof. All proofs about the same two leases count once.
func (b *Book) SoldTwice(c proof.DoubleSale) {
	b.Record(reputation.Fact{
		ID:   sign.Sum([]byte("starling/reputation/conflict"), c.A.Lease[:], c.B.Lease[:]),
		Kind: reputation.SoldTwice, Subject: c.A.Provider, At: max(c.A.From, c.B.From),
	})
}

// Defrauded notes a fraud in an audit. The hash is that of its proof.
func (b *Book) Defrauded(fraud sign.Hash, offender sign.Key, at market.Slot) {
	b.Record(reputation.Fact{
		ID: sign.Sum([]byte("starling/reputation/lie"), fraud[:]), Kind: reputation.Lied, Role: reputation.Provider,
		Subject: offender, At: at,
	})
}

// Record adds the fact that a checked record shows of a provider. Facts of the kinds Kept and Failed are ignored.
func (b *Book) Record(f reputation.Fact) { b.recordOf(f, Source{}) }

// recordOf is Record of an audit that this peer did not judge itself: the source is its record.
func (b *Book) recordOf(f reputation.Fact, src Source) {
	if f.Kind < reputation.AuditPassed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.learn(name{records, f.ID}, f)
	if n := (name{records, f.ID}); src != (Source{}) && len(b.facts[n]) > 0 && b.sources[n] != src {
		b.sources[n], b.read[src.Record], b.dirty[n] = src, true, true
	}
}

// look computes the View of a slot, or returns the last one; b.mu is held.
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

// View returns the present view.
func (b *Book) View() (*reputation.View, error) {
	now, err := b.cfg.Slot()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.seen = max(b.seen, now)
	}
	return b.look(b.seen)
}

// Scores returns the scores of peers in a role. If they cannot be computed, it logs the error and returns those of
// strangers.
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

// Run writes new facts, and reads stakes, until ctx ends.
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
