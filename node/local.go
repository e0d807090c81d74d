package node

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/server"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/metrics"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/node/selling"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/status"
)

// user is the rooms that a peer's user reaches by the local API, beside the buyer.
type user struct {
	server.Rooms // Operator, Shelf, Audits and Rewards
	Leases       interface{ Leases() []api.SoldLease }
	Guards       interface{ Guarded() []api.GuardedJob }
}

// absent returns the answers of rooms that a peer does not have. Rooms that it has replace them.
func absent(p Parts) user {
	u := user{Leases: selling.None{}, Guards: unguarded{}}
	u.Operator, u.Shelf, u.Audits = selling.None{}, selling.None{}, auditing.None{Why: auditing.Unaudited()}
	why := "this is a free network: it has neither stake nor rewards"
	switch {
	case p.Light != nil:
		u.Audits = auditing.None{Why: &api.Error{
			Status: 409, Code: "light", Message: "a light client audits nothing: it takes no part in the network",
		}}
		why = "a light client earns no rewards: it takes no part in the network"
	case p.Program != nil:
		why = "nothing is audited on this network, so there is nothing to pay rewards for: " +
			"its genesis has no audit_slots"
	}
	u.Rewards = unrewarded{&api.Error{Status: 409, Code: "no_rewards", Message: why}}
	return u
}

// unguarded is the jobs of a peer that guards none.
type unguarded struct{}

// Guarded returns none.
func (unguarded) Guarded() []api.GuardedJob { return []api.GuardedJob{} }

// unrewarded is the rewards of a peer without any, with the reason.
type unrewarded struct{ why error }

// Rewards returns the reason.
func (u unrewarded) Rewards() (rewards.Status, error) { return rewards.Status{}, u.why }

// ClaimRewards returns the reason.
func (u unrewarded) ClaimRewards(context.Context) (rewards.Status, error) {
	return rewards.Status{}, u.why
}

// described is the peer and its guarded jobs, for the local API.
type described struct {
	*status.Status
	guards interface{ Guarded() []api.GuardedJob }
}

// Guarded implements server.Peer.
func (d described) Guarded() []api.GuardedJob { return d.guards.Guarded() }

// traded is the offers that are known and the leases that were sold, for the local API.
type traded struct {
	*status.Status
	leases interface{ Leases() []api.SoldLease }
}

// Leases implements server.Market.
func (t traded) Leases() []api.SoldLease { return t.leases.Leases() }

// open composes the services that the peer's user reaches. They are last, so that the rooms behind them start before
// and stop after.
func (n *Node) open(context.Context) error {
	p := n.p
	n.status = status.New(status.Config{
		Host: p.Host, Key: p.Key.Key(), Owner: p.Owner, Genesis: p.Genesis, Version: p.Version, Region: p.Config.Region,
		Private: p.Config.PrivateNetwork != "", Started: n.started, Ledger: p.Ledger, Slots: n.slots, Buyer: n.buyer,
		Book: n.reputation, Rooms: service.With[status.Informer](&n.services), Health: n.Health,
	})
	n.metrics = sync.OnceValue(func() http.Handler {
		return metrics.Handler(metrics.Config{
			Host: p.Host, Version: p.Version, Network: p.Genesis.Network, Started: n.started, Slots: n.slots,
			Buyer: n.buyer, Replies: n.replies, Registry: p.Metrics, Services: &n.services,
			Rooms: service.With[prometheus.Collector](&n.services),
		})
	})
	if p.Config.Metrics.Listen != "" {
		n.services.Add(&metricsPort{n: n})
	}
	if !p.NoAPI {
		n.local.n = n
		n.services.Add(&n.local)
	}
	return nil
}

// reached are the rooms that the local API is about.
func (n *Node) reached() server.Rooms {
	r := n.user.Rooms
	r.Buyer, r.Files, r.Copies, r.Blocks, r.Proofs = n.buyer, n.files, n.copies, n.blocks, n.proofs
	r.Peer, r.Healthy = described{n.status, n.user.Guards}, n.status
	r.Market, r.Metered, r.Log = traded{n.status, n.user.Leases}, n, n.p.Log
	r.Shelf = files.Pushed{Files: n.files, Others: n.user.Shelf}
	return r
}

// localAPI is the local HTTP API as a service.
type localAPI struct {
	n      *Node
	server atomic.Pointer[server.Server] // nil before Start
}

// Name implements service.Service.
func (*localAPI) Name() string { return "api" }

// Start begins to listen.
func (a *localAPI) Start(context.Context) error {
	p := a.n.p
	at := filepath.Join(p.Home, config.FileAPI)
	s, err := server.Listen(p.Config.API, at, a.n.buyer, a.n.reached().Routes(), p.Log)
	if err == nil {
		a.server.Store(s)
	}
	return err
}

// Run answers requests.
func (a *localAPI) Run(ctx context.Context) error {
	s := a.server.Load()
	a.n.p.Log.Info("peer is up", "peer", a.n.p.Host.ID(), "api", s.Where(), "network", a.n.tag)
	return s.Run(ctx)
}

// idle returns the time since the last request, or 0 before Start.
func (a *localAPI) idle() time.Duration {
	if s := a.server.Load(); s != nil {
		return s.Idle()
	}
	return 0
}

// metricsPort is the port at which every user of the machine reads metrics, as a service.
type metricsPort struct {
	n      *Node
	server *server.MetricsServer
}

// Name implements service.Service.
func (*metricsPort) Name() string { return "metrics" }

// Start begins to listen.
func (m *metricsPort) Start(context.Context) (err error) {
	m.server, err = server.ListenMetrics(m.n.p.Config.Metrics.Listen, m.n, m.n.p.Log)
	return err
}

// Run answers requests.
func (m *metricsPort) Run(ctx context.Context) error { return m.server.Run(ctx) }
