// Package gangs takes the leases of an order: for all of its ranks, or none. It runs the state machine market/gang on
// package machine, and carries out its effects at the providers:
//
//	chosen ──Reserve──▸ held ──Measure──▸ near ──Sign──▸ signed ──Fund, Activate──▸ active
//	   ▲                 │  clusters only
//	   └─Recruit─────────┘  further quotes while holds are kept, until a time
//	                     └─▸ else every hold is released, and every signed lease ends
//
// The providers were chosen before. A provider's answers are not trusted: the number of units, their proofs, the
// overlay key and each signature are checked before anything that depends on them is sent.
package gangs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/p2p"
)

const (
	// StepTimeout is how long one provider may take to reserve, sign or activate.
	StepTimeout = leases.StepTimeout
	// Timeout bounds forming one gang. Quotes and setting money aside are not counted.
	Timeout = 10 * time.Second
)

// Market is the market as a gang sees it. exchange.Exchange implements it.
type Market interface {
	// Collect collects quotes for an order.
	Collect(ctx context.Context, t exchange.Trace, o market.Order, envelope []byte, a exchange.Ask) exchange.Collected
	// Explain returns one sentence about why an order could not be placed.
	Explain(ctx context.Context, o market.Order, none *match.Unschedulable, quoted map[sign.Key]exchange.Quoted,
		declined []match.Refusal) string
	// CheckUnits returns an error if held units do not have the properties that the order requires.
	CheckUnits(ctx context.Context, o market.Order, q exchange.Quoted, units []market.UnitID) error
	// ProvenRate returns the operations a second that audits proved of each unit. 0 means unknown.
	ProvenRate(provider sign.Key, units []market.UnitID) uint64
}

// Money pays for leases. Its methods may be called by several goroutines.
type Money interface {
	// Using notes that leases of an order are being taken, until the caller calls back.
	Using(job string, o market.OrderID) (back func())
	// Commit reserves the cost of a lease under the peer's limits for its provider, or returns the reason why it
	// exceeds them. The caller calls back when the lease itself counts or is dropped.
	Commit(hold market.HoldID, provider sign.Key, most market.Amount) (back func(), over string)
	// Fund sets aside the money of leases that both parties have signed, and prepares their payment.
	Fund(ctx context.Context, job string, of ...*leases.Lease) error
	// Prepay has the payer of a lease begin, once, and returns the request to its provider. From then on the lease is
	// one of the job's and can cost its first interval.
	Prepay(ctx context.Context, l *leases.Lease) (*marketpb.Activate, error)
	// Forgo ends a lease that its gang does not use.
	Forgo(ctx context.Context, l *leases.Lease, reason string)
}

// Clock returns the chain's slot at a time.
type Clock interface {
	Now(t time.Time) (market.Slot, error)
}

// Config is the configuration of a Former. All of it is required.
type Config struct {
	Host     *p2p.Host
	Genesis  market.Genesis
	Secret   [32]byte // the ids of holds derive from it
	FundTime time.Duration
	Clock    Clock
	Market   Market
	Leases   *leases.Book
	Money    Money
	Tasks    leases.Tasks
	Log      *slog.Logger
}

// Former forms gangs. It may be used by many goroutines.
type Former struct{ cfg Config }

// New returns a Former. It starts nothing.
func New(cfg Config) *Former { return &Former{cfg} }

// Request is a published order, and the job that it is for.
type Request struct {
	Job      string
	Image    string // the container image of its program; empty for another program
	Order    market.Order
	Envelope []byte
	Quotes   map[sign.Key]exchange.Quoted // of the chosen providers and of the spares
	Epochs   map[uint32]uint32            // of the leases, by rank
	As       leases.Principal
	Keys     market.KeySet // sign the vouchers
	// Limited is set if the peer's limits on the cost of a provider's leases hold for the job.
	Limited bool
	Trace   exchange.Trace
	Recruit *Recruiting // optional; if nil, no further quotes are collected
	Cluster *Cluster    // optional; if nil, the ranks are no cluster's
}

// Recruiting has a gang keep its holds and collect further quotes while ranks have no provider.
type Recruiting struct {
	Until time.Time
	Ask   exchange.Ask
	Among Candidates
}

// Candidates ranks the providers that quoted.
type Candidates interface {
	// Rank ranks quotes for an order. It returns the quotes by provider, and the providers that do not suit the job.
	Rank(o market.Order, quotes []exchange.Quoted) (map[sign.Key]exchange.Quoted, match.Result, []match.Refusal)
}

// Cluster has each provider name an overlay key, to which its lease commits.
type Cluster struct {
	Survey  Survey        // optional; if nil, the paths between the members are not measured
	Timeout time.Duration // bounds one measurement
	Members Members
}

// Survey measures the paths between members of a cluster. mesh.Seating implements it.
type Survey interface {
	// MeasureSeats measures the paths between seats, and to the members that the cluster has. addrs has the addresses
	// of the seats' providers. It returns the seats that are too far away.
	MeasureSeats(ctx context.Context, seats []gang.Seat, addrs map[sign.Key][]string) []gang.Unfit
	// Paths returns the paths between the seats and the other members. old are those from before the seats had leases.
	Paths(old []cluster.Path, seats []gang.Seat, addrs map[sign.Key][]string) []cluster.Path
	// Unsettled reports whether some members reach each other over relays only, or not, yet.
	Unsettled() bool
	// Longest returns the longest round trip that was measured.
	Longest() time.Duration
}

// Members are the members that a cluster has.
type Members interface {
	// Leases returns the leases of the ranks that have one.
	Leases() []*leases.Lease
	// Unlivable returns the reason why a cluster cannot be where its members are so far apart, or "".
	Unlivable(apart time.Duration) string
}

// Gang is the leases of one order while they are taken, and after that.
type Gang struct {
	Request
	cfg    Config
	domain sign.Domain
	runner *machine.Runner[market.OrderID, forming, event, stepped]
	ended  chan ending    // has room for one
	wg     sync.WaitGroup // calls

	mu     sync.Mutex // of the fields below, and of Quotes
	drafts map[market.HoldID]*draft
	taken  map[sign.Key]bool // providers with a seat
	spares int               // providers that could take one
	// Of the last round of further quotes: why they were too few, or nil, and the providers that declined.
	short    *match.Unschedulable
	declined []match.Refusal
	// Once formed:
	leases map[uint32]*leases.Lease // by rank
	seats  []gang.Seat
	back   []func() // gives back the drafts' shares of limits
	over   bool     // no further lease is drafted
}

// Form takes the leases of an order from the chosen providers, and from spares where one of them fails. It returns
// after every hold was released if it cannot have all, with an *exchange.Unplaced if that is the market's doing, or the
// error of ctx. The gang is not nil.
func (f *Former) Form(ctx context.Context, r Request, chosen []gang.Member, spares []sign.Key) (*Gang, error) {
	g := &Gang{Request: r, cfg: f.cfg, domain: f.cfg.Genesis.Domain(), drafts: map[market.HoldID]*draft{},
		ended: make(chan ending, 1)}
	defer g.uncommit()
	return g, g.run(ctx, chosen, spares)
}

// Lease returns the active lease of a rank, or nil if the gang was not formed.
func (g *Gang) Lease(rank uint32) *leases.Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leases[rank]
}

// Quote returns the quote of a provider.
func (g *Gang) Quote(p sign.Key) exchange.Quoted {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Quotes[p]
}

// Stray returns the leases of a gang that was not formed for which a first voucher was signed. It waits for steps that
// are under way.
func (g *Gang) Stray() (out []*leases.Lease) {
	g.mu.Lock()
	funded := false
	for _, d := range g.drafts {
		funded = funded || d.funded != nil
	}
	g.mu.Unlock()
	if !funded {
		return nil
	}
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.drafts {
		if d.prepaid {
			out = append(out, d.lease)
		}
	}
	return out
}

// uncommit gives back the drafts' shares of the providers' limits: leases count themselves.
func (g *Gang) uncommit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, back := range g.back {
		back()
	}
	g.back, g.over = nil, true
}
