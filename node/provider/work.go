package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/service"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

// room is the provider as its executing room and the measurement of paths see it.
type room struct{ p *Provider }

var (
	_ service.Leases = room{}
	_ link.Holds     = room{}
)

// Commanded returns the line of leases with this first lease, if a peer commands it.
func (v room) Commanded(by peer.ID, first []byte) (executor.Lease, error) {
	r, err := leases(v).record(by, first)
	return leaseOf(r), err
}

// Change also refuses leases that are not metered now.
func (v room) Change(by peer.ID, first []byte) (executor.Lease, error) {
	r, err := leases(v).record(by, first)
	if err == nil {
		err = v.p.meters.Taken(r)
	}
	return leaseOf(r), err
}

// Begin also refuses leases that are not active, or not paid for.
func (v room) Begin(ctx context.Context, by peer.ID, first []byte) (executor.Lease, error) {
	r, err := leases(v).record(by, first)
	if err == nil && r.State == lease.Active {
		if err = v.p.pay.May(ctx, r); err == nil {
			r, err = leases(v).record(by, first) // it may have ended meanwhile
		}
	}
	switch {
	case err != nil:
	case r.State != lease.Active:
		err = stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
	default:
		err = v.p.meters.Taken(r)
	}
	return leaseOf(r), err
}

// leaseOf returns the executor's view of a lease.
func leaseOf(r lease.Record) executor.Lease {
	if r.Core == nil {
		return executor.Lease{}
	}
	n := uint32(len(r.Units))
	return executor.Lease{
		First: r.First(), Buyer: r.Core.Buyer, Units: r.Units, Storage: r.Class == market.Disk,
		Limits: runtime.Limits{
			MemoryMiB: n * r.PerUnit.MemoryMiB, MilliCPU: n * r.PerUnit.MilliCPU, DiskMiB: n * r.PerUnit.DiskMiB,
		},
		Job: r.JobTerms, Guardians: r.Core.VoucherKeys, Epoch: r.Supervision,
	}
}

// Simulated reports whether any of a lease's units is simulated.
func (v room) Simulated(units []market.UnitID) bool {
	return slices.ContainsFunc(v.p.cfg.Lots, func(l Lot) bool {
		leased := func(u market.Unit) bool { return slices.Contains(units, u.ID) }
		return l.Simulated && slices.ContainsFunc(l.Units, leased)
	})
}

// Over returns the ended and settled leases.
func (v room) Over(executed []market.LeaseID) []market.LeaseID { return v.p.meters.Over(executed) }

// Forgotten drops the meter of a lease whose files are all removed.
func (v room) Forgotten(l market.LeaseID) { v.p.meters.Forgotten(l) }

// Measures returns nil while a hold is not active yet, named an overlay key, and is commanded by a peer.
func (v room) Measures(id market.HoldID, by sign.Key) error {
	r, ok := v.p.ledger.Book().Hold(id)
	switch {
	case !ok || r.Peer() != by:
		return errors.New("no such hold of the caller")
	case !r.Overlay:
		return errors.New("this hold is no member's of a cluster")
	case r.State != lease.Held && r.State != lease.Signed:
		return errors.New("this hold is " + r.State.String() + ": paths are measured before a lease is active")
	}
	return nil
}

// Serves reports whether by commands a live hold or lease of a cluster.
func (v room) Serves(by sign.Key) bool {
	for r := range v.p.ledger.Book().Records() {
		if r.Overlay && r.State.Live() && r.Peer() == by {
			return true
		}
	}
	return false
}
