package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/server"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/reputation"
)

// newEvidence makes the part that publishes leases and keeps proofs of double sale.
func (n *Node) newEvidence(ctx context.Context) (*evidence.Keeper, error) {
	return evidence.Open(ctx, evidence.Config{
		Genesis: n.p.Genesis, Self: n.p.Key.Key(), Store: n.p.Store, Log: n.p.Log.With("role", "evidence"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) }, Heard: n.reputation.Heard, Proved: n.reputation.SoldTwice, Lied: n.lied,
	})
}

// proofs is Evidence for the local API.
func (n *Node) proofs() server.Evidence {
	if n.p.Light != nil {
		return lightProofs{n.evidence}
	}
	return n.evidence
}

// lightProofs are those of a light peer, which looks after no units.
type lightProofs struct{ *evidence.Keeper }

// Watch implements server.Evidence.
func (lightProofs) Watch(context.Context, evidence.Watched) error {
	return &api.Error{Status: 409, Code: "light", Message: "a light client looks after no units: it takes no part in the network"}
}

// lied has a lie count among what this peer knows of who told it.
func (n *Node) lied(l audit.Lie) {
	n.reputation.Record(reputation.Fact{
		ID: evidence.LieFact(l), Kind: reputation.Lied, Role: reputation.Provider, Subject: l.Liar(), At: l.Answer.Window.First(n.p.Genesis.AuditSlots),
	})
}

// keepLie keeps the proof of a lie that this peer found.
func (n *Node) keepLie(ctx context.Context, l audit.Lie) error {
	fresh, err := n.evidence.KeepLie(ctx, l, true)
	if fresh && n.lies != nil {
		n.lies.found()
	}
	return err
}

// accuse has the stake of liars taken; nothing where the network has no program.
func (n *Node) accuse(ctx context.Context) error {
	c, ok := n.p.Program.(evidence.Chain)
	if !ok {
		return nil
	}
	if n.registered != nil {
		c = accusing{c, n.registered}
	}
	return n.evidence.Accuse(ctx, c, n.p.Key.Key())
}

// accusing is the chain with the list of registrations that this peer has.
type accusing struct {
	evidence.Chain
	*registry.Registry
}

var _ evidence.Registrations = accusing{}
