package run

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
)

// Holdings are the leases of a job.
type Holdings struct {
	mu    *sync.Mutex     // the job's
	seats []*leases.Lease // of each rank, or nil
	all   []*leases.Lease // every lease that the job ever activated
}

// Leases returns every lease that the job ever activated, in no order.
func (h *Holdings) Leases() []*leases.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// Bought returns the leases of the job in the order in which its receipts are anchored: by rank, by epoch, by id, the
// same in every process.
func (h *Holdings) Bought() []*leases.Lease {
	all := h.Leases()
	slices.SortFunc(all, func(x, y *leases.Lease) int {
		return cmp.Or(cmp.Compare(x.Core.Rank, y.Core.Rank), cmp.Compare(x.Core.RankEpoch, y.Core.RankEpoch),
			bytes.Compare(x.ID[:], y.ID[:]))
	})
	return all
}

// Together returns the leases of an order by rank, as a hire lays them into one tranche.
func (h *Holdings) Together(o market.OrderID) []market.LeaseCore {
	var out []market.LeaseCore
	for _, l := range h.Bought() {
		if l.Core.Order == o && !l.Core.Successor() {
			out = append(out, l.Core)
		}
	}
	return out
}

// Settled reports whether all leases of the job are.
func (h *Holdings) Settled() bool {
	return !slices.ContainsFunc(h.Leases(), func(l *leases.Lease) bool { return !l.Done() })
}

// Seats returns the leases that the job's ranks have now, by rank.
func (h *Holdings) Seats() []*leases.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.seats), func(l *leases.Lease) bool { return l == nil })
}

// Seat returns the lease of a rank, or nil.
func (h *Holdings) Seat(rank int) *leases.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rank < 0 || rank >= len(h.seats) {
		return nil
	}
	return h.seats[rank]
}

// Hold adds a lease to those of the job.
func (h *Holdings) Hold(l *leases.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, l)
}

// Replace replaces all leases of the job. No rank has one before the next state of the job's machine.
func (h *Holdings) Replace(all []*leases.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.Clone(all)
	clear(h.seats)
}

// Chain returns the lease of the job that begins a line, or nil if the job has no such lease.
func (h *Holdings) Chain(id market.LeaseID) *leases.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chainLocked(id)
}

// chainLocked is Chain for a caller that holds the job's mu.
func (h *Holdings) chainLocked(id market.LeaseID) *leases.Lease {
	for _, l := range h.all {
		if l.ID == id {
			return l
		}
	}
	return nil
}

// seatLocked gives each rank the lease that it has in a state of the job's machine. The job's mu is held.
func (h *Holdings) seatLocked(st jobs.State) {
	n := len(st.Ranks)
	h.growLocked(n)
	h.seats = h.seats[:n:n]
	for i := range h.seats {
		if h.seats[i] = nil; !st.Ranks[i].Lease.IsZero() && st.Phase < jobs.Settling {
			h.seats[i] = h.chainLocked(st.Ranks[i].Lease)
		}
	}
}

// growLocked makes room for the leases of n ranks. The job's mu is held.
func (h *Holdings) growLocked(n int) {
	for len(h.seats) < n {
		h.seats = append(h.seats, nil)
	}
}

// FactOf converts a lease to the form of the job's machine.
func FactOf(l *leases.Lease) jobs.Lease {
	core := l.Core
	return jobs.Lease{
		ID: l.ID, Chain: l.First, Rank: core.Rank, Epoch: core.RankEpoch, Provider: core.Provider,
		End: core.End, Rate: core.Rate,
		Most: l.Most(), Open: !l.Done(), Usable: l.Usable(),
	}
}

// On names an execution under a lease for its provider.
func On(l *leases.Lease, seq uint64) executions.Execution {
	return executions.Execution{Peer: l.Peer, Lease: l.First, Seq: seq}
}

// CauseOf returns the reason for the end of the lease's line.
func CauseOf(l *leases.Lease) (jobs.Cause, string) {
	why := l.LostReason()
	away, ahead, unpaid := l.Outage()
	switch {
	case unpaid:
		why = fmt.Sprintf("this peer was away for %v, longer than the %v that it had paid ahead: %s", away, ahead, why)
		return jobs.CauseAbsent, why
	case l.Condemned():
		return jobs.CauseCondemned, why
	case l.Absent():
		return jobs.CauseAbsent, why
	case l.Record().Void:
		return jobs.CauseVoid, why
	case l.Spent():
		return jobs.CauseExpired, why
	}
	return jobs.CauseDefaulted, why
}

// Watch reports to the job's machine when the line of a lease can be used no longer, unless another peer commands it.
func (j *Job) Watch(l *leases.Lease) {
	context.AfterFunc(l.Context(), func() {
		select {
		case <-l.Left:
			return
		default:
		}
		cause, why := CauseOf(l)
		j.Post(jobs.LeaseLost{Chain: l.First, Cause: cause, Reason: why})
	})
}
