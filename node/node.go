// Package node is a peer: it composes the host, discovery, gossip, the selling
// and the buying loop, the chain and the local API. It is the only place where
// p2p and the cores meet.
//
//	           ┌─ provider ── Book, Seller ─┐
//	host ──────┤                            ├── store (journal), slots, ledger
//	discovery  └─ buyer ── Gang, Payer, ────┘
//	gossip          Settlement
//
// New puts a peer together and starts nothing; Run runs it until its context
// ends and returns after everything it started has ended.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/gossip"
)

// Parts are what a peer is made of. Whoever makes the parts closes them after Run.
type Parts struct {
	Config  Config
	Home    string // directory of logs, executions and the API's endpoint file
	Genesis market.Genesis
	Key     sign.Private
	Owner   sign.Key

	Host     *p2p.Host
	Store    store.Store
	Blobs    *blob.Store
	Ledger   chain.Ledger
	Runtimes map[string]runtime.Runtime
	Settle   chain.Params
	// SlotEvery is how often the chain is asked for its slot.
	SlotEvery time.Duration
	// NoAPI leaves the local HTTP API out, for peers inside one process.
	NoAPI   bool
	Version string
	Log     *slog.Logger
}

// Node is one peer.
type Node struct {
	p         Parts
	tag       string
	discovery *discovery.Discovery
	orders    *orders
	slots     *slots.Clock
	provider  *provider.Provider // nil when nothing is sold
	buyer     *buyer.Buyer
	grants    *grants
	started   time.Time
	gossip    context.CancelFunc
}

// classCPU is the class of a machine's own processor and memory.
const classCPU market.Class = "cpu"

// maxVersion is as much of the version as offers carry.
const maxVersion = 32

// New puts a peer together. It opens protocols on the host, so do it before the
// host connects to anyone; it starts no loop.
func New(ctx context.Context, p Parts) (*Node, error) {
	if err := p.Config.Validate(); err != nil {
		return nil, err
	}
	if err := p.Genesis.Validate(); err != nil {
		return nil, err
	}
	p.Version = p.Version[:min(len(p.Version), maxVersion)]
	n := &Node{p: p, tag: p.Genesis.Tag(), grants: newGrants(), started: time.Now()}
	n.slots = slots.New(p.Ledger, p.Genesis.SlotMillis, p.SlotEvery, p.Log)
	var err error
	if n.discovery, err = discovery.New(p.Host, discovery.Config{Network: n.tag, Logger: p.Log}); err != nil {
		return nil, err
	}
	gctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.gossip = cancel
	g, err := gossip.New(gctx, p.Host, gossip.Config{Network: n.tag, Logger: p.Log})
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	var sells market.Class
	if p.Config.Provide.Enabled {
		sells = classCPU
	}
	n.orders = newOrders(g, p.Genesis.Domain(), sells)
	if p.Config.Provide.Enabled {
		if n.provider, err = n.newProvider(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("setting up what is sold: %w", err), n.close())
		}
	}
	if n.buyer, err = n.newBuyer(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up what is bought: %w", err), n.close())
	}
	return n, nil
}

// close undoes New.
func (n *Node) close() error {
	n.gossip()
	return n.discovery.Close()
}

func (n *Node) newProvider(ctx context.Context) (*provider.Provider, error) {
	c := n.p.Config.Provide
	price, err := market.ParseDecimal(c.Price, n.p.Genesis.Decimals)
	if err != nil {
		return nil, fmt.Errorf("%w: provide.price: %w", ErrConfig, err)
	}
	units, err := cpuUnits(n.p.Key.Key(), c)
	if err != nil {
		return nil, err
	}
	return provider.New(ctx, provider.Config{
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Owner: n.p.Owner,
		Units: units, PerUnit: units[0].Resources, Price: market.Price(price), Region: market.Region(n.p.Config.Region),
		MinSlots: n.p.Genesis.SlotsIn(c.MinTime), MaxSlots: n.p.Genesis.SlotsIn(c.MaxTime),
		Store: n.p.Store, Blobs: n.p.Blobs, Fetch: n.fetch, Grant: n.grants.add, Runtimes: n.p.Runtimes, Slots: n.slots,
		Dir: n.p.Home, Version: n.p.Version, Log: n.p.Log.With("role", "provider"),
		Offered: n.offered, Orders: n.orders.next, Funds: n.p.Ledger.Balance,
		HoldTTL: holdTTL, Retain: retain,
	})
}

const (
	// holdTTL is how long units are set aside for a buyer that does not come back.
	holdTTL = 10 * time.Second
	// retain is how long outputs and logs of an ended lease are kept.
	retain = 10 * time.Minute
	// lostIntervals is how many metering intervals a silent provider is waited for, but not less than lostAtLeast.
	lostIntervals = 3
	lostAtLeast   = 3 * time.Second
	// maxOutput bounds one output that a buyer takes, bytes.
	maxOutput = 64 << 30
)

func (n *Node) newBuyer(ctx context.Context) (*buyer.Buyer, error) {
	interval := time.Duration(n.p.Genesis.IntervalSlots*n.p.Genesis.SlotMillis) * time.Millisecond
	return buyer.New(ctx, buyer.Config{
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Owner: n.p.Owner, Ledger: n.p.Ledger, Store: n.p.Store,
		Blobs: n.p.Blobs, Fetch: n.fetch, Grant: n.grants.add, Runtimes: n.p.Runtimes, Slots: n.slots, Dir: n.p.Home,
		Publish: n.orders.publish, Find: n.find, Settle: n.p.Settle,
		QuoteWindow: n.p.Config.Buy.QuoteWindow, MaxJobs: n.p.Config.Buy.MaxJobs,
		LostAfter: max(lostIntervals*interval, lostAtLeast), MaxOutput: maxOutput, Log: n.p.Log.With("role", "buyer"),
	})
}

// offered puts an offer into the DHT.
func (n *Node) offered(ctx context.Context, o market.Offer, envelope []byte) error {
	return n.discovery.Publish(ctx, discovery.Record{
		Topics:  []discovery.Topic{{Class: string(o.Class), Region: string(o.Region)}},
		Payload: envelope,
	})
}

// find looks offers of a class up in the DHT. The record only brings the offer:
// its own signature, network and times are checked here, on every read.
func (n *Node) find(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error) {
	if len(regions) == 0 {
		regions = []market.Region{""}
	}
	var out []market.Offer
	var errs []error
	for _, r := range regions {
		found, err := n.discovery.Find(ctx, discovery.Topic{Class: string(c), Region: string(r)}, most-len(out))
		if err != nil {
			errs = append(errs, err)
		}
		for _, f := range found {
			o, err := market.DecodeOffer(n.p.Genesis.Domain(), f.Record.Payload, time.Now())
			key, kerr := p2p.KeyFromPeerID(f.Peer.ID)
			if err != nil || kerr != nil || o.Provider != sign.Key(key) || o.CheckGenesis(n.p.Genesis.Hash()) != nil {
				n.p.Log.Debug("an offer in the DHT is not good", "peer", f.Peer.ID, "err", errors.Join(err, kerr))
				continue
			}
			out = append(out, o)
		}
		if len(out) >= most {
			break
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, errors.Join(errs...)
}

// fetch brings a blob from a peer into the store, unless it is there.
func (n *Node) fetch(ctx context.Context, from peer.ID, c cid.Cid, max int64) error {
	if n.p.Blobs.Has(c) {
		return nil
	}
	return blob.Fetch(ctx, n.p.Host, n.tag, from, c, max, n.p.Blobs, nil)
}

// Run runs the peer until ctx ends. It leaves the host open.
func (n *Node) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.close()) }()
	blobs := blob.Serve(n.p.Host, n.tag, n.p.Blobs, n.grants.allowed)
	defer blobs.Close()
	n.orders.ctx = ctx
	defer n.orders.close()
	if _, err := n.orders.join(classCPU); err != nil {
		return err
	}
	var srv *api.Server
	if !n.p.NoAPI {
		if srv, err = api.Listen(n.p.Config.API, filepath.Join(n.p.Home, FileAPI), n.buyer, n, n.p.Log); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.p.Host.Run(gctx) })
	g.Go(func() error { return n.discovery.Run(gctx) })
	g.Go(func() error { return n.slots.Run(gctx) })
	if n.provider != nil {
		g.Go(func() error { return n.provider.Run(gctx) })
	}
	g.Go(func() error { return n.buyer.Run(gctx) })
	if srv != nil {
		n.p.Log.Info("peer is up", "peer", n.p.Host.ID(), "api", srv.URL(), "network", n.tag)
		g.Go(func() error { return srv.Run(gctx) })
	}
	return g.Wait()
}

// Buyer is the buying loop, for callers in the same process.
func (n *Node) Buyer() *buyer.Buyer { return n.buyer }

// Provider is the selling loop, or nil.
func (n *Node) Provider() *provider.Provider { return n.provider }

// Discovery is the peer's part in the DHT.
func (n *Node) Discovery() *discovery.Discovery { return n.discovery }

// PutBlob stores what r has.
func (n *Node) PutBlob(ctx context.Context, r io.Reader) (string, int64, error) {
	c, size, err := n.p.Blobs.Put(ctx, r)
	if err != nil {
		return "", 0, err
	}
	return c.String(), size, nil
}

// OpenBlob reads a stored blob.
func (n *Node) OpenBlob(text string) (io.ReadCloser, int64, error) {
	c, err := cid.Parse(text)
	if err != nil {
		return nil, 0, &api.Error{Status: 400, Code: "bad_cid", Message: fmt.Sprintf("%q is not a CID: %v", text, err)}
	}
	f, err := n.p.Blobs.Open(c)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// maxGrants bounds what is remembered of who may read what. Work that is still
// under way asks within minutes of its grant; the oldest are forgotten first.
const maxGrants = 1 << 16

// grants says which peer may read which blob: whoever was given work that needs
// it, and whoever the work was done for.
type grants struct {
	mu sync.Mutex
	m  map[grant]time.Time // when it was given last
}

type grant struct {
	to  peer.ID
	cid string
}

func newGrants() *grants { return &grants{m: map[grant]time.Time{}} }

func (g *grants) add(to peer.ID, c cid.Cid) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.m[grant{to, c.KeyString()}] = time.Now()
	if len(g.m) <= maxGrants {
		return
	}
	times := slices.SortedFunc(maps.Values(g.m), time.Time.Compare)
	median := times[len(times)/2]
	maps.DeleteFunc(g.m, func(_ grant, at time.Time) bool { return at.Before(median) })
}

func (g *grants) allowed(to peer.ID, c cid.Cid) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.m[grant{to, c.KeyString()}]
	return ok
}
