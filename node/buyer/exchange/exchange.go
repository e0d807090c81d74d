// Package exchange is the buyer's side of the market: it sends an order to known providers directly, publishes it for
// all others, and collects the quotes from both routes.
//
//	            ┌─ topic of the class ─▸ providers ─┐
//	Collect ────┤                                   ├─▸ auction ─▸ quotes
//	            └─ book, DHT ─▸ Ask each directly ──┘
//
// Nothing here reserves or signs anything. A quote is a promise of its provider alone.
package exchange

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/book"
	"github.com/starling-network/starling/node/buyer/turnout"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify/reputation"
)

// Network is the market as this peer reaches it.
type Network interface {
	// Publish gossips an order and returns the number of neighbours in its topic.
	Publish(ctx context.Context, o market.Order, envelope []byte) (int, error)
	// Find searches for at most most offers of a class.
	Find(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error)
	// Size estimates the number of peers in a class. 0 means unknown.
	Size(c market.Class) int
	// Shard chooses the shard of an order of a class. 0 means that none can be reached.
	Shard(c market.Class) uint32
}

// Ratings has the reputation of providers.
type Ratings interface {
	// Scores returns the scores of peers in a role, in their order.
	Scores(role reputation.Role, peers ...sign.Key) []reputation.Score
}

// Known is the information about one provider.
type Known = book.Known

// Config has the needs of an Exchange. All fields are required unless marked optional.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Self    sign.Key
	Secret  [32]byte // the keys that quotes are sealed to derive from it
	Network Network
	Ratings Ratings
	Proofs  Proofs // optional; nil on a network without audits, and if this peer cannot check them
	// Blocked reports whether a provider is on the user's block list, and why.
	Blocked func(p sign.Key) (reason string, blocked bool)
	Weights match.Weights
	Window  time.Duration // maximum time to collect quotes for an order
	// MaxAsked bounds the known providers asked for an order, beside 3 for each lease. 0 means 48.
	MaxAsked int
	Log      *slog.Logger
}

const (
	// askTimeout bounds a provider's answer to a direct request. A slower one is dropped from the order.
	askTimeout = 1500 * time.Millisecond
	// maxAsked is the default of Config.MaxAsked, and the number of offers that are looked up.
	maxAsked = 48
	// SettleQuotes is the additional time to collect quotes once there are enough: a better quote may be a moment late.
	SettleQuotes = 20 * time.Millisecond
	// SettleCluster is that for a cluster: its members are chosen among all for being near to one another.
	SettleCluster = 150 * time.Millisecond
	// searchAfter is the time for answers of known providers before the search for others in the DHT, and over gossip
	// if no others are known.
	searchAfter = 100 * time.Millisecond
	// FindTimeout bounds the look-up of offers in the DHT for one order.
	FindTimeout = time.Second
	// freshFactor is the number of known providers with a recent answer that is enough, for each lease.
	freshFactor = 3
	// maxPublished is the number of gossiped orders that are remembered.
	maxPublished = 4096
)

// Exchange is one buyer's door to the market. It may be used by many goroutines.
type Exchange struct {
	cfg     Config
	domain  sign.Domain
	tag     string
	Book    *book.Book
	turnout *turnout.Turnout
	proving chan struct{} // holds one token for each offer with records that are being checked

	published *lru.Cache[market.OrderID, struct{}] // orders that were gossiped

	mu       sync.Mutex
	run      context.Context // of Start; nil before
	closed   bool
	auctions map[market.OrderID]*auction
	wg       sync.WaitGroup
}

// New returns an Exchange with no known providers. It starts nothing.
func New(cfg Config) *Exchange {
	if cfg.MaxAsked == 0 {
		cfg.MaxAsked = maxAsked
	}
	published, err := lru.New[market.OrderID, struct{}](maxPublished)
	if err != nil {
		panic(err) // the size is negative
	}
	x := &Exchange{
		cfg: cfg, published: published, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), Book: book.New(),
		proving: make(chan struct{}, maxProving), auctions: map[market.OrderID]*auction{},
	}
	x.turnout = turnout.New(x.guess)
	return x
}

// Start enables checks of records in the background until ctx ends. The caller calls wait after that.
func (x *Exchange) Start(ctx context.Context) (wait func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.run = ctx
	return func() {
		x.mu.Lock()
		x.closed = true
		x.mu.Unlock()
		x.wg.Wait()
	}
}

// guess returns an estimate of a class's providers: its peers, or the providers in the book if they are more.
func (x *Exchange) guess(c market.Class) int {
	return max(len(x.Book.Class(c, time.Now())), x.cfg.Network.Size(c))
}

// Draw returns the draw and the shard of an order for a number of leases. asked counts its earlier attempts. Shard 0
// means all providers.
func (x *Exchange) Draw(c market.Class, leases uint32, asked int) (draw, shard uint32) {
	draw, sharded := x.turnout.Draw(c, leases, asked)
	if sharded {
		shard = x.cfg.Network.Shard(c)
	}
	return draw, shard
}

// Blocked reports whether a provider is on the user's block list, in the words of `starling why`.
func (x *Exchange) Blocked(p sign.Key) (why string, blocked bool) {
	reason, no := x.cfg.Blocked(p)
	return strings.TrimSuffix("blocked by you: "+reason, ": "), no
}

// Rate gives candidates the reputation of their providers.
func (x *Exchange) Rate(candidates []match.Candidate) {
	keys := make([]sign.Key, len(candidates))
	for i := range candidates {
		keys[i] = candidates[i].Offer.Provider
	}
	for i, s := range x.cfg.Ratings.Scores(reputation.Provider, keys...) {
		c := &candidates[i]
		c.Reputation, c.Newcomer, c.Shunned = s.Millionths, s.Newcomer(), s.Shunned()
	}
}

// Weights are the weights by which a buyer ranks quotes.
type Weights = match.Weights

// WeightsFor returns weights for a network. Zero means its default ones.
func WeightsFor(g market.Genesis, w Weights) Weights {
	if w == (Weights{}) {
		w = match.DefaultWeights(g)
	}
	w.Audited = g.AuditSlots > 0
	return w
}
