package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/runtimes"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

// Parts are the parts of a peer. The caller closes them after Run.
type Parts struct {
	Config  config.Config
	Home    string // directory of logs, executions and the API's endpoint file
	Genesis market.Genesis
	Key     sign.Private
	Owner   sign.Key

	Host  *p2p.Host
	Store store.Store
	Blobs *blob.Store
	onchain.Access
	Runtimes runtimes.Set
	GPUs     inventory.Source // nil when none are sold
	// Hardware is optional; if nil, the hardware of this machine answers audits for its units.
	Hardware auditing.Hardware
	// Mask returns a host with a new key, unknown to others, and that key. It is optional; if nil, no canaries are
	// planted.
	Mask func() (*p2p.Host, sign.Private, error)
	// Networks joins executions to the overlays of their clusters. It is optional; if nil, the host's are used, if any.
	Networks provider.Networks
	// SlotEvery is the interval of reads of the chain's slot.
	SlotEvery time.Duration
	// RPC forwards one JSON-RPC call of a light client to the chain. It is optional; if nil, calls are refused.
	RPC func(ctx context.Context, call []byte) ([]byte, error)
	// Light makes this a light peer: it sells nothing, serves no peer, and does not join DHT and gossip.
	Light Light
	// MaxAsked is the number of known providers that receive an order directly; zero means the buyer's default.
	MaxAsked int
	// Metrics is where the host's own metrics are; nil: it keeps none.
	Metrics *prometheus.Registry
	// NoAPI leaves the local HTTP API out, for peers inside one process.
	NoAPI   bool
	Version string
	Log     *slog.Logger
}

// maxVersion is as much of the version as offers carry.
const maxVersion = 32

// check refuses parts that cannot be a peer.
func (p Parts) check() error {
	if err := p.Config.Validate(); err != nil {
		return err
	}
	if err := p.Genesis.Validate(); err != nil {
		return err
	}
	switch g := p.Genesis; {
	case g.Draft():
		return fmt.Errorf("%w: network %s has a token and no program, so it has no payments: "+
			"complete it with starling network init-escrow", config.ErrConfig, g.Network)
	case g.Free != (p.Program == nil):
		return fmt.Errorf("%w: the genesis names program %s, and the chain is opened with a program: %t",
			config.ErrConfig, g.Program, p.Program != nil)
	case auditing.Interpreted() && !g.Simulated:
		return fmt.Errorf("%w: this program was built for tests: it treats the PTX interpreter as a GPU, and the "+
			"genesis does not say that %s is a simulated network", config.ErrConfig, g.Network)
	}
	return nil
}

// Node is one peer: a list of services, and the rooms among them that others use.
type Node struct {
	p        Parts
	tag      string
	services service.List
	started  time.Time
	local    localAPI
	user     user // the rooms that the peer's user reaches
	given    given
	receipts receipts
	Rooms
}

// New puts a peer together. It opens protocols on the host, so do it before the host connects to anyone. It starts no
// loop.
func New(ctx context.Context, p Parts) (*Node, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	p.Version = p.Version[:min(len(p.Version), maxVersion)]
	n := &Node{p: p, tag: p.Genesis.Tag(), started: time.Now()}
	n.user = absent(p)
	for _, compose := range roomsOf(n) {
		if err := compose(ctx); err != nil {
			return nil, errors.Join(err, n.services.Close())
		}
	}
	return n, nil
}

// Run runs the peer until ctx ends. It leaves the host open.
func (n *Node) Run(ctx context.Context) error { return n.services.Run(ctx) }

// Health returns the problems of services that run and are out of order.
func (n *Node) Health() []service.Problem { return n.services.Health() }

// Idle returns the time since the last request to the local API; 0 while one is under way, or if the peer has no API.
func (n *Node) Idle() time.Duration { return n.local.idle() }
