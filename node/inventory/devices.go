package inventory

import (
	"context"
	"log/slog"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/device/cache"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/verify/exclusive"
)

// Source is the GPUs of a machine.
type Source = gpu.Source

// Open opens the GPUs of a configuration: those of this machine, or simulated ones, which are the same for a seed.
func Open(c GPU, simulated bool, seed string) (Source, error) {
	return gpu.Open(gpu.Config{Simulated: simulated, Mock: c.Mock, MockSeed: seed})
}

// Devices is the hardware of units, as executions and audits use it.
type Devices struct {
	Cache *cache.Cache // devices of idle units, opened for audits
	gpus  *GPUs
	clock Clock
}

// NewDevices returns the devices of units. Their health is dated by the chain's clock.
func NewDevices(g *GPUs, c Clock, log *slog.Logger) *Devices { return &Devices{cache.New(log), g, c} }

// Names returns the devices of units, for the container engine and for people.
func (d *Devices) Names(units []market.UnitID) (ids, names []string, err error) {
	return d.gpus.Devices(units)
}

// Evict closes the devices of units that are leased, so that their memory is free, once no audit uses them.
func (d *Devices) Evict(ctx context.Context, units []market.UnitID) error {
	return d.Cache.Evict(ctx, units)
}

// Health returns the state of the hardware of units.
func (d *Devices) Health(ctx context.Context, units []market.UnitID) (exclusive.Snapshot, error) {
	return d.gpus.Health(ctx, d.clock, units)
}
