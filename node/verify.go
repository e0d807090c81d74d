package node

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/verify"
	rules "github.com/starling-network/starling/verify/audit"
)

// verifiers is the topic under which peers that judge are found.
const verifiers = "verifier"

// newSight makes the peer's view of the public facts of audits. It is nil if nothing is audited, and for light clients
// whose entry peers do not serve blocks.
func (n *Node) newSight() (*audit.Public, error) {
	blocks := n.p.Blocks()
	if n.p.Genesis.AuditSlots == 0 || n.p.Light != nil && blocks == nil {
		return nil, nil
	}
	cfg := audit.PublicConfig{
		Genesis: n.p.Genesis, Blocks: blocks, Log: n.p.Log.With("role", "audit"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) },
	}
	switch {
	case n.p.Light != nil:
		cfg.Roster, cfg.Recent = n.p.Light.Roster, n.p.Light.Recent
	case n.chain != nil:
		cfg.Roster = n.chain.Roster
	default:
		cfg.Roster = func(context.Context, rules.Window) (rules.Roster, error) { return nil, onchain.ErrNoBonds }
	}
	return audit.NewPublic(cfg)
}

// verify composes the audits of this peer's and of others' units.
func (n *Node) verify(ctx context.Context) (err error) {
	p := n.p
	cfg := auditing.Config{
		Host: p.Host, Genesis: p.Genesis, Key: p.Key, Store: p.Store, Ledger: p.Ledger, AnchorPoll: p.Escrow.PollEvery,
		Sight: n.sight, Slots: n.slots, Results: results{n}, Fetch: n.proofs.Fetch, Where: n.discovery,
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
	if n.sight == nil {
		return nil
	}
	cfg := audit.ProofsConfig{
		Domain: n.p.Genesis.Domain(), WindowSlots: n.p.Genesis.AuditSlots, Sight: n.sight,
		Ask:   n.proofs.Ask,
		Until: func(s market.Slot) time.Duration { return n.slots.Until(time.Now(), s) },
		Now:   time.Now, Log: n.p.Log.With("role", "buyer"),
	}
	if n.refused != nil {
		cfg.Failures = n.refused
	}
	proofs := audit.NewProofs(cfg)
	n.receipts.add(func(l market.Lease, units []market.UnitID, r verify.Receipt) {
		if l.Core.Buyer == n.p.Key.Key() {
			proofs.Worked(l.Core.Provider, units, l.Core.Start, r.To)
		}
	})
	return proofs
}
