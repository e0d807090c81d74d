// Package hooks has the hooks of an executor that every provider has. One type is one concern of an execution:
//
//	Admission    the workload's form, and whether this machine can run it
//	Retention    how long files are kept after the end, and their removal
//	Replication  a stopped deterministic program has no result
//	Secrets      opened in memory for a start
//	Fellows      the providers of other ranks that may read its files here
//	Program      the image or module
//	Equipment    the GPUs that a container gets
//	Files        inputs before the start, outputs after the end
//	Volumes      volumes of the same buyer in a program
//	Snapshots    signed reports on the health of devices at both ends
//	Eviction     device memory that others hold is released
//	Health       the buyer's checks of the running program
//	Probes       the buyer's measurements of the leased hardware, one after the other
//	Pauses       a paused program of an earlier process is paused again
//
// [All] returns them in their order. node/executor/member has the hook of networks, and node/executor/checkpoints that
// of the packs of checkpoints.
package hooks

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/storage"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify/exclusive"
)

// Devices is the hardware of units.
type Devices interface {
	// Names returns the devices of units, for the container engine and for people.
	Names(units []market.UnitID) (ids, names []string, err error)
	// Evict releases the memory of units that others hold. It may wait for an audit. It returns the error of ctx.
	Evict(ctx context.Context, units []market.UnitID) error
	// Health returns the state of the hardware of units: everything of a snapshot but its subject.
	Health(ctx context.Context, units []market.UnitID) (exclusive.Snapshot, error)
}

// Opener opens sealed boxes.
type Opener interface {
	// Open opens a box that was sealed to this peer for a lease.
	Open(box []byte, l market.LeaseID) ([]byte, error)
}

// Config is the configuration of the hooks. All of it is required.
type Config struct {
	Host    workload.Host // Overlay is set by the hook of networks
	Opener  Opener
	Devices Devices
	Blobs   workload.Blobs
	Files   executor.Files
	Store   journal.Store
	Domain  sign.Domain
	Key     sign.Signer
	Retain  time.Duration
	Log     *slog.Logger
}

// All returns the hooks in their order. network and checkpoints are hooks as well.
func All(c Config, network Network, checkpoints executor.Hook) []executor.Hook {
	from := patient{c.Files}
	storer, _ := c.Host.Runtimes[storage.Name].(runtime.Storer)
	return []executor.Hook{
		Admission{c.Host, network},
		Retention{c.Retain, c.Files},
		Replication{},
		Secrets{c.Opener},
		Fellows{c.Files},
		Program{c.Blobs, from},
		Equipment{c.Devices},
		Files{c.Blobs, from},
		checkpoints,
		&Volumes{Storer: storer, Log: c.Log},
		c.Snapshots(),
		network,
		Eviction{c.Devices},
		Health{},
		c.Probes(),
		Pauses{c.Log},
	}
}

// Snapshots returns the hook of snapshots, which buyers sign as well.
func (c Config) Snapshots() Snapshots { return Snapshots{c.Devices, c.Store, c.Domain, c.Key, c.Log} }

// Probes returns the hook of probes, which serves their streams as well.
func (c Config) Probes() Probes { return Probes{c.Domain, c.Key, c.Log} }
