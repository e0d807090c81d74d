package cluster

import (
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Own is a provider's data about itself as a member.
type Own struct {
	Lease market.LeaseID // first of the line that the plan comes under
	Buyer sign.Key
	Key   market.OverlayKey // of the hold that the plan names for it
}

// Check verifies that the buyer of the provider's own lease leased every member for the same job, and that each named
// its key. The plan must come from Decode. The error wraps ErrPlan and names the member.
func (p Plan) Check(d sign.Domain, own Own) error {
	self, ok := p.Own()
	switch {
	case !ok:
		return bad("rank %d, which it is for, is not among its members", p.Rank)
	case self.Lease.Core.ID() != own.Lease:
		return badMember(p.Rank, "this is not the lease that the plan comes under")
	case self.Lease.Core.Buyer != own.Buyer:
		return badMember(p.Rank, "the lease is of another buyer")
	case self.Key != own.Key:
		return badMember(p.Rank, "the key is not this provider's")
	}
	terms := self.Lease.Core.Terms
	for _, m := range p.Members {
		if err := m.check(d, own.Buyer, terms); err != nil {
			return err
		}
	}
	return nil
}

func (m Member) check(d sign.Domain, buyer sign.Key, terms sign.Hash) error {
	switch core := m.Lease.Core; {
	case core.Buyer != buyer:
		return badMember(m.Rank, "the lease is of another buyer")
	case core.Terms != terms:
		return badMember(m.Rank, "the lease is for another job")
	}
	if err := market.CheckMember(d, m.Lease, m.Hold, m.Key); err != nil {
		return badMember(m.Rank, "%v", err)
	}
	return nil
}

// Seen is a provider's last known data of each rank, by rank. It never goes back to earlier data.
type Seen map[uint32]SeenRank

// SeenRank is one rank under its highest known epoch.
type SeenRank struct {
	Epoch uint32         `json:"epoch"`
	Lease market.LeaseID `json:"lease"`
}

// Add is the union of s and t: of each rank the higher epoch.
func (s Seen) Add(t Seen) Seen {
	next := maps.Clone(t)
	if next == nil {
		next = Seen{}
	}
	for r, sr := range s {
		if last, ok := next[r]; !ok || sr.Epoch > last.Epoch {
			next[r] = sr
		}
	}
	return next
}

// See adds the members of a plan. It returns ErrPlan if one has an epoch lower than the known one, or a second lease
// under the same epoch. It does not change s.
func (s Seen) See(p Plan) (Seen, error) {
	next := s.Add(nil)
	for _, m := range p.Members {
		id, last := m.Lease.Core.ID(), s[m.Rank]
		switch {
		case last.Lease.IsZero() || m.Epoch > last.Epoch:
			next[m.Rank] = SeenRank{Epoch: m.Epoch, Lease: id}
		case m.Epoch < last.Epoch:
			return nil, badMember(m.Rank, "epoch %d: already superseded by %d", m.Epoch, last.Epoch)
		case id != last.Lease:
			return nil, badMember(m.Rank, "lease %s, but epoch %d was seen with lease %s",
				id.Short(), m.Epoch, last.Lease.Short())
		}
	}
	return next, nil
}

// After checks a plan against the one in force: the same cluster, rank and engine, and newer. It returns ErrOld if the
// plan is older. The plan in force is accepted again.
func (p Plan) After(before Plan) error {
	switch {
	case p.ID != before.ID:
		return bad("cluster: got %s, want %s", p.ID, before.ID)
	case p.Rank != before.Rank:
		return bad("rank: got %d, want %d", p.Rank, before.Rank)
	case p.Engine != before.Engine:
		return bad("engine: got %s, want the running %s", p.Engine, before.Engine)
	case p.MTU != before.MTU:
		return bad("MTU: got %d, want %d as before", p.MTU, before.MTU)
	case p.Version < before.Version:
		return fmt.Errorf("%w: got version %d, want %d or later", ErrOld, p.Version, before.Version)
	case p.Version == before.Version && !p.equal(before):
		return fmt.Errorf("%w: version %d: differs from the plan in force", ErrOld, p.Version)
	}
	return nil
}

// equal reports whether two plans have the same members. Measurements between them are advice, of which the first
// counts.
func (p Plan) equal(q Plan) bool {
	p.Paths, q.Paths = nil, nil
	a, errA := marshal(p)
	b, errB := marshal(q)
	return errA == nil && errB == nil && string(a) == string(b)
}

func marshal(p Plan) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(p.Proto())
}
