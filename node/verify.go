package node

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/verify"
)

// observe composes the public facts of audits.
func (n *Node) observe(context.Context) error {
	if err := n.follow(auditing.FactsConfig{Roster: n.chain.Roster}); err != nil {
		return err
	}
	n.given.facts = auditing.Public{Public: n.facts.Public}
	return nil
}

// observeLight composes the same for a light peer, which asks its entry peers for what the chain does not have.
func (n *Node) observeLight(context.Context) error {
	return n.follow(auditing.FactsConfig{Roster: n.p.Light.Roster, Recent: n.p.Light.Recent})
}

// follow opens the public facts of audits, and follows the blocks that draw them.
func (n *Node) follow(cfg auditing.FactsConfig) (err error) {
	cfg.Genesis, cfg.Blocks, cfg.Slots, cfg.Log = n.p.Genesis, n.p.Blocks(), n.slots, n.p.Log
	if n.facts, err = auditing.NewFacts(cfg); err != nil {
		return fmt.Errorf("setting up audits: %w", err)
	}
	if n.facts.Instants().OneIn > 1 {
		n.services.Add(service.Loop("beacons", n.facts.Follow))
	}
	return nil
}

// prove composes the proofs of a full peer. It publishes leases in the DHT and finds offences there.
func (n *Node) prove() {
	n.proofs.Table = n.net.DHT
	n.receipts.add(n.proofs.File)
	n.services.Add(n.proofs)
}

// hear composes the topic of proofs, for auditing peers.
func (n *Node) hear(ctx context.Context) error {
	if err := n.facts.Keep(ctx, n.p.Store); err != nil {
		return err
	}
	n.proofs.Add(n.facts.Refused)
	return n.proofs.Join(n.net.Gossip, n.facts.Refused.Handler(), n.net.Verifiers)
}

// verify composes the audits of this peer's and of others' units.
func (n *Node) verify(ctx context.Context) (err error) {
	p := n.p
	if n.audits, err = auditing.New(ctx, auditing.Config{
		Host: p.Host, Genesis: p.Genesis, Key: p.Key, Store: p.Store, Ledger: p.Ledger, AnchorPoll: p.Escrow.PollEvery,
		Sight: n.facts.Public, Slots: n.slots, Results: results{n}, Fetch: n.proofs.Fetch,
		Where: n.net.DHT, Seller: n.given.units,
		Cache: n.devices.Cache, Hardware: p.Hardware, Mask: p.Mask, Log: p.Log.With("role", "audit"),
	}); err != nil {
		return fmt.Errorf("setting up audits: %w", err)
	}
	n.user.Audits, n.given.audits = n.audits, n.audits
	n.proofs.Add(n.audits.Service().Shelf())
	n.proofs.Card = n.audits.Service().Card
	n.services.Add(n.audits)
	return nil
}

// check composes the check of the proofs of others' units, for the buyer.
func (n *Node) check(context.Context) error {
	proofs := n.facts.Proofs(n.proofs.Ask)
	n.given.proofs = proofs
	n.receipts.add(func(l market.Lease, units []market.UnitID, r verify.Receipt) {
		if l.Core.Buyer == n.p.Key.Key() {
			proofs.Worked(l.Core.Provider, units, l.Core.Start, r.To)
		}
	})
	return nil
}

// results notifies the rooms of results of audits.
type results struct{ n *Node }

// Judged implements audit.Results: the verdict counts in the provider's reputation.
func (r results) Judged(provider sign.Key, v auditing.Verdict) {
	r.n.reputation.Record(reputation.OfVerdict(provider, v))
}

// KeepFraud implements audit.Results: the proof is kept and published.
func (r results) KeepFraud(ctx context.Context, l auditing.Lie) error {
	return r.n.proofs.KeepFraud(ctx, l)
}

// Refuse implements audit.Results: the refusal is kept and published.
func (r results) Refuse(x auditing.Refusal) {
	if err := r.n.facts.Refused.Keep(context.Background(), x, true); err != nil {
		r.n.p.Log.Error("a refusal is not kept", "refused", x.String(), "err", err)
		return
	}
	r.n.proofs.Found()
}
