// Package node is a peer: it composes the host, discovery, gossip, the selling
// and the buying loop, the chain and the local API. It is the only place where
// p2p and the cores meet.
//
//	           ┌─ provider ── Book, Seller ─┐
//	host ──────┤                            ├── store (journal), slots, ledger
//	discovery  └─ buyer ── Gang, Payer, ────┘
//	gossip          Deposit
//
// New puts a peer together and starts nothing; Run runs it until its context
// ends and returns after everything it started has ended.
//
// A light peer (see [Light]) has the buying loop and its journal only: what
// discovery, gossip and the chain do for a full peer, entry peers do for it.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/server"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/coords"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/gossip"
	auditrules "github.com/starling-network/starling/verify/audit"
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
	Program  settle.Chain // the same chain with Starling's program; nil on a free network, and only there
	Escrow   escrow.Params
	Runtimes map[string]runtime.Runtime
	GPUs     gpu.Source // nil when none are sold
	// Hardware opens what answers audits for a unit; nil: what this machine has.
	Hardware func(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error)
	// Mask is a host with a new key, by which others do not know this peer, and that key; nil: no canaries are planted.
	Mask func() (*p2p.Host, sign.Private, error)
	// Networks joins executions to the overlays of their clusters; nil: the host's, if it has any.
	Networks provider.Networks
	// SlotEvery is how often the chain is asked for its slot.
	SlotEvery time.Duration
	// RPC passes one JSON-RPC call of a light client to the chain; nil: they are not passed on.
	RPC func(ctx context.Context, call []byte) ([]byte, error)
	// Light makes this a light peer: it sells nothing, serves nobody and takes no part in DHT and gossip.
	Light Light
	// MaxAsked is how many known providers are asked directly for an order; zero takes the buyer's default.
	MaxAsked int
	// Metrics is where the host's own metrics are; nil: it keeps none.
	Metrics *prometheus.Registry
	// NoAPI leaves the local HTTP API out, for peers inside one process.
	NoAPI   bool
	Version string
	Log     *slog.Logger
}

// Light is what a light peer has instead of discovery and gossip; see node/client.
type Light interface {
	// Find looks for offers of a class, at most so many, and checks them.
	Find(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error)
	// Roster is the set that committees of a window are drawn from.
	Roster(ctx context.Context, w auditrules.Window) (auditrules.Roster, error)
	// Recent are the last two windows with an audit up to one.
	Recent(ctx context.Context, w auditrules.Window) (auditrules.Recent, error)
	// Publish has an order gossiped and says how many neighbours hear it.
	Publish(ctx context.Context, o market.Order, envelope []byte) (int, error)
	// Size is about how many peers the network has; 0: that is not known.
	Size() int
	// Entries are the entry peers that are connected, the one in use first.
	Entries() []peer.ID
	// Peers are full peers that it knows of, beside the entries in use.
	Peers() []peer.AddrInfo
	// Warning is what the user has to know about them; "" when nothing is wrong.
	Warning() string
	// Carries is how many bytes a connection to any peer carries before its relay cuts it; 0: no limit is known.
	Carries() int64
	// Dials reports whether peers are dialled by their own addresses too.
	Dials() bool
	// Run keeps it connected until ctx ends.
	Run(ctx context.Context) error
}

// Node is one peer.
type Node struct {
	p          Parts
	tag        string
	discovery  *discovery.Discovery // nil for a light peer
	coords     *coords.Service      // nil for a light peer
	evidence   *evidence.Keeper     // of a light peer only proofs that results differ
	sight      *audit.Public        // nil where nothing is audited
	shown      *audit.Proofs        // nil where nothing is audited
	audits     *audit.Service       // nil for a light peer, and where nothing is audited
	rewards    *rewards.Service     // nil where there are none
	registered *registry.Registry   // nil where nobody registers, or nothing lists who did
	lies       *lies                // nil for a light peer, and where nothing is audited
	failed     *failed              // nil for a light peer, and where nothing is audited
	refused    *audit.Failed        // likewise
	reputation *reputation.Book
	reader     *reputation.Reader // nil for a light peer
	shower     *reputation.Shower // likewise
	orders     *orders            // nil for a light peer
	slots      *slots.Clock
	code       atomic.Pointer[program.Deployed] // of the network's program, as the chain last showed it; nil: not yet
	kept       *kept                            // devices of idle units
	provider   *provider.Provider               // nil when nothing is sold
	buyer      *buyer.Buyer
	replies    *replies.Router
	guardian   *guardian.Service // nil when it guards nothing
	blocks     *block.List
	network    *settle.Network // nil on a free network
	gpus       *gpus
	grants     *grants
	started    time.Time
	metrics    func() http.Handler
	funds      fundsSeen
	outsides   outsides
	gossip     context.CancelFunc
	api        atomic.Pointer[server.Server] // while it runs
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
	switch g := p.Genesis; {
	case g.Draft():
		return nil, fmt.Errorf("%w: network %s has a token and no program, so nobody can be paid: complete it with starling network init-escrow", ErrConfig, g.Network)
	case g.Free != (p.Program == nil):
		return nil, fmt.Errorf("%w: the genesis names program %s, and the chain is opened with a program: %t", ErrConfig, g.Program, p.Program != nil)
	case auditrules.Interpreted() && !g.Simulated:
		return nil, fmt.Errorf("%w: this program was built for tests: it takes the PTX interpreter for a GPU, and the genesis does not say that "+
			"%s is a simulated network", ErrConfig, g.Network)
	}
	p.Version = p.Version[:min(len(p.Version), maxVersion)]
	n := &Node{p: p, tag: p.Genesis.Tag(), grants: newGrants(), started: time.Now()}
	n.metrics = sync.OnceValue(n.newMetrics)
	n.gpus = newGPUs(p.GPUs)
	n.kept = newKept(p.Log.With("role", "audit"))
	n.slots = slots.New(p.Ledger, p.Genesis.SlotMillis, p.SlotEvery, p.Log)
	if p.Program != nil {
		n.network = settle.NewNetwork(p.Genesis, p.Program, p.Store)
	}
	n.registered = n.newRegistry()
	var err error
	if n.blocks, err = block.Open(ctx, p.Store); err != nil {
		return nil, err
	}
	if n.reputation, err = n.newReputation(ctx); err != nil {
		return nil, fmt.Errorf("setting up what is known of others: %w", err)
	}
	if n.sight, err = n.newSight(); err != nil {
		return nil, fmt.Errorf("setting up audits: %w", err)
	}
	if n.evidence, err = n.newEvidence(ctx); err != nil {
		return nil, fmt.Errorf("setting up what is published of leases: %w", err)
	}
	n.replies = replies.New(replies.Config{Host: p.Host, Network: n.tag, Way: n.way, Take: n.takeQuote, Log: p.Log})
	if p.Light != nil {
		if n.buyer, err = n.newBuyer(ctx, p.Light.Find, p.Light.Publish); err != nil {
			return nil, fmt.Errorf("setting up what is bought: %w", err)
		}
		return n, nil
	}
	values := []discovery.Values{n.evidence.Values()}
	if n.discovery, err = discovery.New(p.Host, discovery.Config{Network: n.tag, Values: values, Registered: n.staked(), Logger: p.Log}); err != nil {
		return nil, err
	}
	p.Host.FindWith(n.discovery.Where)
	gctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.gossip = cancel
	g, err := gossip.New(gctx, p.Host, gossip.Config{Network: n.tag, Logger: p.Log})
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	if n.coords, err = coords.New(ctx, coords.Config{Host: p.Host, Network: n.tag, Store: p.Store, Log: p.Log.With("role", "coords")}); err != nil {
		return nil, errors.Join(err, n.close())
	}
	if n.lies, err = n.newLies(g); err != nil {
		return nil, errors.Join(err, n.close())
	}
	if n.sight != nil {
		if n.refused, err = audit.OpenFailed(ctx, p.Store, p.Genesis, n.sight); err != nil {
			return nil, errors.Join(err, n.close())
		}
		if n.failed, err = n.newFailed(g); err != nil {
			return nil, errors.Join(err, n.close())
		}
	}
	lots, err := n.lots(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("finding what can be sold: %w", err), n.close())
	}
	var sells []market.Class
	for _, l := range lots {
		sells = append(sells, l.Class)
	}
	n.orders = newOrders(g, p.Genesis.Domain(), match.ShardOf(p.Key.Key()), sells, n.hints)
	if p.Config.Provide.Enabled {
		if n.provider, err = n.newProvider(ctx, lots); err != nil {
			return nil, errors.Join(fmt.Errorf("setting up what is sold: %w", err), n.close())
		}
	}
	if n.audits, err = n.newAudits(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up audits: %w", err), n.close())
	}
	if n.guardian, err = n.newGuardian(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up what is guarded: %w", err), n.close())
	}
	n.rewards = n.newRewards()
	if n.buyer, err = n.newBuyer(ctx, n.find, n.orders.publish); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up what is bought: %w", err), n.close())
	}
	if err := n.openAnchored(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up what others anchored: %w", err), n.close())
	}
	return n, nil
}

// close undoes New.
func (n *Node) close() error {
	if n.p.Light != nil {
		return nil
	}
	n.gossip()
	return n.discovery.Close()
}

// Run runs the peer until ctx ends. It leaves the host open.
func (n *Node) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.close()) }()
	blobs := blob.Serve(n.p.Host, n.tag, n.p.Blobs, n.grants.allowed)
	defer blobs.Close()
	if n.p.Light == nil {
		n.orders.ctx = ctx
		defer n.orders.close()
		if _, err := n.orders.join(classCPU); err != nil {
			return err
		}
		if err := n.orders.joinSold(); err != nil {
			return err
		}
	}
	if n.p.Light == nil && n.p.Config.Entry.Serve {
		clients, err := n.serveClients()
		if err != nil {
			return fmt.Errorf("serving light clients: %w", err)
		}
		defer clients.Close()
	}
	var srv *server.Server
	if !n.p.NoAPI {
		if srv, err = server.Listen(n.p.Config.API, filepath.Join(n.p.Home, FileAPI), n.buyer, n.routes(), n.p.Log); err != nil {
			return err
		}
		n.api.Store(srv)
	}
	var measured *server.MetricsServer
	if at := n.p.Config.Metrics.Listen; at != "" {
		if measured, err = server.ListenMetrics(at, n, n.p.Log); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	if measured != nil {
		g.Go(func() error { return measured.Run(gctx) })
	}
	g.Go(func() error { return n.p.Host.Run(gctx) })
	if n.p.Light != nil {
		g.Go(func() error { return n.p.Light.Run(gctx) })
	} else {
		g.Go(func() error { return n.discovery.Run(gctx) })
		g.Go(func() error { return n.coords.Run(gctx) })
		g.Go(func() error { return n.evidence.Run(gctx, n.discovery) })
		g.Go(func() error { return n.accuse(gctx) })
	}
	g.Go(func() error { return n.replies.Run(gctx) })
	g.Go(func() error { return n.slots.Run(gctx) })
	if n.sight != nil {
		g.Go(func() error { return n.sight.Follow(gctx) })
	}
	g.Go(func() error { return n.reputation.Run(gctx) })
	if n.reader != nil {
		answers := n.shower.Handle(n.p.Host, n.tag, n.p.Log.With("role", "reputation"))
		defer answers.Close()
		g.Go(func() error { return n.shower.Run(gctx) })
		g.Go(func() error { return n.reader.Run(gctx) })
	}
	if n.provider != nil {
		g.Go(func() error { return n.provider.Run(gctx) })
		if len(n.gpus.sold) > 0 {
			g.Go(func() error { return n.gpus.watch(gctx, n.provider.Withdraw) })
		}
	}
	g.Go(func() error { return n.buyer.Run(gctx) })
	g.Go(func() error { return n.collect(gctx) })
	if n.audits != nil {
		g.Go(func() error { defer n.kept.close(); return n.audits.Run(gctx) })
	}
	if n.rewards != nil {
		answers := n.rewards.Handle(n.p.Host, n.tag)
		defer answers.Close()
		g.Go(func() error { return n.rewards.Run(gctx) })
	}
	if n.lies != nil {
		g.Go(func() error { return n.lies.run(gctx) })
	}
	if n.failed != nil {
		g.Go(func() error { return n.failed.run(gctx) })
	}
	if n.guardian != nil {
		g.Go(func() error { return n.guardian.Run(gctx) })
	}
	if n.p.Program != nil {
		g.Go(func() error { return n.followCode(gctx) })
	}
	if n.network != nil && n.p.Light == nil {
		g.Go(func() error { return n.followRules(gctx) })
	}
	if srv != nil {
		n.p.Log.Info("peer is up", "peer", n.p.Host.ID(), "api", srv.Where(), "network", n.tag)
		g.Go(func() error { return srv.Run(gctx) })
	}
	return g.Wait()
}

// Idle is for how long nobody has asked the local API for anything; 0 while somebody does, or none runs.
func (n *Node) Idle() time.Duration {
	if s := n.api.Load(); s != nil {
		return s.Idle()
	}
	return 0
}

// Slot is the chain's slot as this peer sees it; 0 while it is not known.
func (n *Node) Slot() market.Slot {
	s, err := n.slots.Now(time.Now())
	if err != nil {
		return 0
	}
	return s
}

// Sync asks the chain for its slot at once. A light peer does it when it is connected.
func (n *Node) Sync(ctx context.Context) { _ = n.slots.Sync(ctx) } // what fails is logged there

// Buyer is the buying loop, for callers in the same process.
func (n *Node) Buyer() *buyer.Buyer { return n.buyer }

// Blocks is the user's block list.
func (n *Node) Blocks() *block.List { return n.blocks }

// Provider is the selling loop, or nil.
func (n *Node) Provider() *provider.Provider { return n.provider }

// Auditing is the part that audits, or nil.
func (n *Node) Auditing() *audit.Service { return n.audits }

// Refused is what this peer heard of units that failed, or nil.
func (n *Node) Refused() *audit.Failed { return n.refused }

// Guardian is what this peer guards, or nil.
func (n *Node) Guardian() *guardian.Service { return n.guardian }

// Discovery is the peer's part in the DHT; nil for a light peer.
func (n *Node) Discovery() *discovery.Discovery { return n.discovery }

// PutBlob stores what r has, for an API key unless that is "".
func (n *Node) PutBlob(ctx context.Context, key string, r io.Reader) (string, int64, error) {
	c, size, err := n.p.Blobs.Put(ctx, r)
	if err == nil && key != "" {
		err = n.p.Blobs.Bring(c, keyHolder(key))
	}
	if err != nil {
		return "", 0, err
	}
	return c.String(), size, nil
}

// OpenBlob reads a stored blob. An API key has those that it uploaded and those of its jobs; "" has all.
func (n *Node) OpenBlob(key, text string) (io.ReadCloser, int64, error) {
	c, err := cid.Parse(text)
	if err != nil {
		return nil, 0, &api.Error{Status: 400, Code: "bad_cid", Message: fmt.Sprintf("%q is not a CID: %v", text, err)}
	}
	if key != "" && !n.buyer.Holds(key, c) {
		return nil, 0, fmt.Errorf("%w: %s", blob.ErrNotFound, c)
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
