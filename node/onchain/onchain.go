// Package onchain watches the network's program on the chain: its code, which must match the genesis, its voted rules,
// and the peers registered with a stake. A free network has no program: nobody is registered in its Watch, and it does
// not run.
package onchain

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/settle"
)

// Config is the configuration of a Watch.
type Config struct {
	Genesis market.Genesis
	Program settle.Chain // nil on a free network: nobody is registered there
	Network *settle.Network
	Log     *slog.Logger
}

// Watch is the service that watches one network's program.
type Watch struct {
	cfg      Config
	code     atomic.Pointer[svm.Deployed] // nil before the chain showed it
	registry *registry.Registry           // nil if the chain does not list registrations
}

// New makes a watch that has read nothing.
func New(cfg Config) *Watch { return &Watch{cfg: cfg, registry: newRegistry(cfg)} }

// Name implements service.Service.
func (*Watch) Name() string { return "code" }

// Run watches the program's code until ctx ends. It returns ErrCode if that is not the code of the genesis.
func (w *Watch) Run(ctx context.Context) error { return w.followCode(ctx) }

// Inform adds the program to the description of the peer, once the chain showed it.
func (w *Watch) Inform(_ context.Context, info *api.NodeInfo) { info.Program = w.code.Load() }

// Describe implements prometheus.Collector: of a chain that measures its calls.
func (w *Watch) Describe(ch chan<- *prometheus.Desc) {
	if c, ok := w.cfg.Program.(prometheus.Collector); ok {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	if c, ok := w.cfg.Program.(prometheus.Collector); ok {
		c.Collect(ch)
	}
}

// Rules returns the service that watches the network's rules.
func (w *Watch) Rules() service.Service { return service.Loop("rules", w.followRules) }

// Registry returns the list of registrations that all rooms share, or nil if the chain does not list them.
func (w *Watch) Registry() *registry.Registry { return w.registry }
