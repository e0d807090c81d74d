package node

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/proof/room"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/status"
	"github.com/starling-network/starling/verify"
	rules "github.com/starling-network/starling/verify/audit"
)

// newFacts makes the peer's view of the public facts of audits. It is nil if nothing is audited, and for light clients
// without blocks from their entry peers.
func (n *Node) newFacts() (*auditing.Facts, error) {
	cfg := auditing.FactsConfig{Genesis: n.p.Genesis, Blocks: n.p.Blocks(), Slots: n.slots, Log: n.p.Log}
	if n.p.Genesis.AuditSlots == 0 || n.p.Light != nil && cfg.Blocks == nil {
		return nil, nil
	}
	switch {
	case n.p.Light != nil:
		cfg.Roster, cfg.Recent = n.p.Light.Roster, n.p.Light.Recent
	case n.chain != nil:
		cfg.Roster = n.chain.Roster
	default:
		cfg.Roster = func(context.Context, rules.Window) (rules.Roster, error) { return nil, onchain.ErrNoBonds }
	}
	return auditing.NewFacts(cfg)
}

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
	cfg := auditing.Config{
		Host: p.Host, Genesis: p.Genesis, Key: p.Key, Store: p.Store, Ledger: p.Ledger, AnchorPoll: p.Escrow.PollEvery,
		Sight: n.facts.Public, Slots: n.slots, Results: results{n}, Fetch: n.proofs.Fetch,
		Where: n.net.DHT,
		Cache: n.devices.Cache, Hardware: p.Hardware, Mask: p.Mask, Log: p.Log.With("role", "audit"),
	}
	if n.provider != nil {
		cfg.Seller = n.provider
	}
	if n.audits, err = auditing.New(ctx, cfg); err != nil {
		return fmt.Errorf("setting up audits: %w", err)
	}
	n.user.Audits = n.audits
	n.proofs.Add(n.audits.Service().Shelf())
	n.proofs.Card = n.audits.Service().Card
	n.services.Add(n.audits)
	return nil
}

// newProofs makes the part that checks the proofs of others' units; nil if they need none.
func (n *Node) newProofs() buyer.Proofs {
	if n.facts == nil {
		return nil
	}
	proofs := n.facts.Proofs(n.proofs.Ask)
	n.receipts.add(func(l market.Lease, units []market.UnitID, r verify.Receipt) {
		if l.Core.Buyer == n.p.Key.Key() {
			proofs.Worked(l.Core.Provider, units, l.Core.Start, r.To)
		}
	})
	return proofs
}

// results notifies the rooms of results of audits.
type results struct{ n *Node }

// Judged implements audit.Results: the verdict counts in the provider's reputation.
func (r results) Judged(provider sign.Key, v rules.Verdict) {
	r.n.reputation.Record(reputation.OfVerdict(provider, v))
}

// KeepFraud implements audit.Results: the proof is kept and published.
func (r results) KeepFraud(ctx context.Context, l rules.Lie) error {
	return r.n.proofs.KeepFraud(ctx, l)
}

// Refuse implements audit.Results: the refusal is kept and published.
func (r results) Refuse(x rules.Refusal) {
	if err := r.n.facts.Refused.Keep(context.Background(), x, true); err != nil {
		r.n.p.Log.Error("a refusal is not kept", "refused", x.String(), "err", err)
		return
	}
	r.n.proofs.Found()
}
