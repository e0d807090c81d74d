package pay

import "github.com/starling-network/starling/node/buyer/leases"

// LeaseOf returns a lease as its payment needs it.
func LeaseOf(l *leases.Lease) Lease {
	rec := l.Record()
	return Lease{
		ID: l.ID, Job: l.Job, Core: l.Core, Keys: l.Keys, Escrow: rec.Escrow, Hired: rec.Hired,
		Settled: l.Done(), Retired: l.Retired(),
	}
}

// LeasesOf returns leases as their payment needs them.
func LeasesOf(of []*leases.Lease) []Lease {
	out := make([]Lease, len(of))
	for i, l := range of {
		out[i] = LeaseOf(l)
	}
	return out
}
