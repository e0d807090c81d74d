package node

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/proof/room"
	"github.com/starling-network/starling/node/status"
	"github.com/starling-network/starling/p2p/discovery"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/reputation"
)

// openProofs opens the peer's proofs. Those of a light peer are disputes of results.
func (n *Node) openProofs(ctx context.Context) (err error) {
	cfg := room.Config{
		Genesis: n.p.Genesis, Self: n.p.Key.Key(), Host: n.p.Host, Store: n.p.Store,
		Log:  n.p.Log.With("role", "proofs"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) },
		Book: n.reputation, KeyOf: status.KeyOf, Program: n.p.Program,
		Light: n.p.Light != nil,
	}
	if n.chain != nil {
		cfg.Registered = n.chain.Registry()
	}
	if n.proofs, err = room.Open(ctx, cfg); err != nil {
		return fmt.Errorf("opening the proofs: %w", err)
	}
	return nil
}

// prove composes the proofs of a full peer. It publishes leases in the DHT and finds offences there.
func (n *Node) prove() {
	n.proofs.Table = n.discovery
	n.receipts.add(n.proofs.File)
	n.services.Add(n.proofs)
}

// hear composes the topic of proofs, for peers that audit.
func (n *Node) hear(ctx context.Context) (err error) {
	if n.refused, err = audit.OpenFailed(ctx, n.p.Store, n.p.Genesis, n.sight); err != nil {
		return err
	}
	n.proofs.Add(n.refused)
	return n.proofs.Join(n.gossip, n.refused.Handler(), func(ctx context.Context, most int) ([]peer.AddrInfo, error) {
		return n.discovery.Hints(ctx, discovery.Topic{Class: verifiers}, most)
	})
}

// results are the rooms that learn of results of audits.
type results struct{ *Node }

// Judged implements audit.Results: the verdict counts in the provider's reputation.
func (r results) Judged(provider sign.Key, v rules.Verdict) {
	kinds := map[rules.Outcome]reputation.Kind{
		rules.Pass: reputation.AuditPassed, rules.Late: reputation.AuditLate, rules.Wrong: reputation.AuditFailed,
	}
	r.reputation.Record(reputation.Fact{
		ID: v.Answer, Kind: kinds[v.Outcome], Role: reputation.Provider, Subject: provider, At: v.Slot,
	})
}

// KeepFraud implements audit.Results: the proof is kept and published.
func (r results) KeepFraud(ctx context.Context, l rules.Lie) error { return r.proofs.KeepFraud(ctx, l) }

// Refuse implements audit.Results: the refusal is kept and published.
func (r results) Refuse(x rules.Refusal) {
	if err := r.refused.Keep(context.Background(), x, true); err != nil {
		r.p.Log.Error("a refusal is not kept", "refused", x.String(), "err", err)
		return
	}
	r.proofs.Found()
}
