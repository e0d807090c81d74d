package harness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/p2p"
)

// anchoredFact waits until a peer knows a fact of a kind about another one that it read of others, with the transaction that anchors it.
func anchoredFact(t *testing.T, p *Peer, of sign.Key, kind string) reputation.Told {
	t.Helper()
	id, err := p2p.PeerIDFromKey(of)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Minute); ; time.Sleep(time.Second) {
		r, err := p.Status().Reputation(id.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Facts {
			if f.Kind == kind && f.Tx != "" {
				return f
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s knows of %s nothing that others anchored: %+v", name(p.i), of.Short(), r.Facts)
		}
	}
}

// A peer that had no part in a lease or an audit reads of it what is anchored, and has it after a power cut without asking anybody again.
func TestWhatOthersAnchoredIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 2, Buyers: 2, Units: 1, Programs: programs, AuditSlots: 10 * auditSlots, Log: Logger(),
			Configure: func(_ int, c *config.Config) { small(c) },
		})
		bought, reader := n.Buyer(0), n.Buyer(1)
		reader.Kill()
		audited(t, n.Provider(0), 1)
		audited(t, n.Provider(1), 1)
		spec := bought.Job("work", 1, "3")
		spec.Resources.Unproven = true
		j := bought.Submit(spec)
		if j = bought.Wait(j.ID, 5*time.Minute); j.State != buyer.Succeeded || len(j.Transactions) == 0 {
			t.Fatalf("%s\n%s", j.Summary(), bought.Why(j.ID))
		}
		accounts, err := bought.Node.Buyer().Receipts(t.Context(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		seller := n.Provider(0)
		if seller.Key.Key() != accounts[0].Provider {
			seller = n.Provider(1)
		}
		time.Sleep(reputation.ShowAfter + time.Minute) // until it is shown
		reader.Restart()
		last := accounts[0].Receipts[len(accounts[0].Receipts)-1]
		for _, of := range []*Peer{seller, bought} {
			f := anchoredFact(t, reader, of.Key.Key(), "kept")
			if f.Receipt != last.SignedHash() || string(f.Tx) != j.Transactions[0] || f.Value != last.Cumulative || f.Own {
				t.Errorf("of %s: %+v, want receipt %s in %s", name(of.i), f, last.SignedHash(), j.Transactions[0])
			}
		}
		audit := anchoredFact(t, reader, seller.Key.Key(), "audit passed")
		kept, err := reader.Proofs().Proof(t.Context(), seller.Key.Key(), audit.Record)
		if err != nil || len(kept.Anchor) == 0 {
			t.Errorf("record %s: %d bytes of anchor, %v", audit.Record, len(kept.Anchor), err)
		}
		bought.Kill()
		reader.Kill()
		reader.Restart()
		for _, of := range []*Peer{seller, bought} {
			if f := anchoredFact(t, reader, of.Key.Key(), "kept"); f.Receipt != last.SignedHash() {
				t.Errorf("after a power cut: %+v", f)
			}
		}
	})
}
