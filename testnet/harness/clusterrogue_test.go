package harness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// rank leases a rank of a cluster from a provider, and pays its first interval.
func (a *adversary) rank(to *Peer, rank, epoch uint32) (held, cluster.Member) {
	a.t.Helper()
	o, env := a.order(a.terms())
	h := held{hold: hold(), order: o, env: env}
	reply, err := a.reserve(to, &marketpb.Reserve{Hold: h.hold, Order: env, Units: 1, Price: uint64(a.price()), Rank: rank, Overlay: true})
	if err != nil {
		a.t.Fatalf("reserving: %v", err)
	}
	slot, price := a.slot(), a.price()
	m := cluster.Member{Rank: rank, Epoch: epoch, Hold: market.HoldID(h.hold), Key: market.OverlayKey(reply.GetHeld().OverlayKey), Slots: 1}
	draft := lease.Draft{
		Order: o, Provider: to.Key.Key(), Payout: to.Key.Key(), Units: []market.UnitID{market.UnitID(reply.GetHeld().Units[0])}, Rank: rank, RankEpoch: epoch,
		Price: price, SlotMillis: slotMillis, Keys: a.keys, Start: slot, ActivateBefore: slot + 50, Nonce: market.OverlayNonce(m.Hold, m.Key),
	}
	for _, nonce := range []market.Nonce{o.Nonce, market.OverlayNonce(m.Hold, market.OverlayKey{1})} {
		wrong := draft
		wrong.Nonce = nonce
		if h.core, err = wrong.Core(); err != nil {
			a.t.Fatal(err)
		}
		_, err = a.sign(to, a.request(h))
		told(a.t, "a lease that does not name the provider's key", err, "terms")
	}
	if h.core, err = draft.Core(); err != nil {
		a.t.Fatal(err)
	}
	signed, err := a.sign(to, a.request(h))
	if err != nil {
		a.t.Fatalf("signing: %v", err)
	}
	if _, err := a.activate(to, h.core.ID(), a.pays(h, 1, intervalSlots, nil)); err != nil {
		a.t.Fatalf("activating: %v", err)
	}
	m.Lease = market.Lease{Core: h.core, ProviderSig: sign.Signature(signed.GetSigned().Signature), BuyerSig: sign.Signature(a.signature(h.core))}
	return h, m
}

func planFor(rank uint32, version uint64, members ...cluster.Member) *nodepb.ClusterPlan {
	return cluster.Plan{ID: "jrogue", Rank: rank, Size: 3, Version: version, Members: members, MTU: 1280, Engine: "none"}.Proto()
}

func (a *adversary) members(to *Peer, h held, p *nodepb.ClusterPlan) error {
	id := h.core.ID()
	_, err := a.exec(to, &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: &nodepb.ExecRequest_Members_{Members: &nodepb.ExecRequest_Members{Plan: p}}})
	return err
}

func (a *adversary) join(to *Peer, h held, p *nodepb.ClusterPlan) error {
	id, w := h.core.ID(), a.workload("work", "60")
	w.Cluster = p
	_, err := a.exec(to, &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: &nodepb.ExecRequest_Start_{Start: &nodepb.ExecRequest_Start{Workload: w}}})
	return err
}

// Into a cluster comes who its buyer has leased for it, and nobody by anybody else's word: not by a lease of another buyer, a key
// that is not in the lease, the lease of another rank, or one that was replaced.
func TestClusterAdversaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 4, Strangers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		p, q, a, thief := n.Provider(0), n.Provider(1), n.adversary(t, 0), n.adversary(t, 1)
		head, m0 := a.rank(p, 0, 1)
		second, m1 := a.rank(q, 1, 1)
		_, evil := thief.rank(p, 1, 1)

		swapped := m1
		swapped.Key = m0.Key
		unsigned := m1
		unsigned.Lease.ProviderSig[7]++
		forged := evil // of the thief, with the name of the buyer in it
		forged.Lease.Core.Buyer = a.key.Key()
		elsewhere := m1
		elsewhere.Rank = 2
		for name, c := range map[string]struct {
			plan  *nodepb.ClusterPlan
			words string
		}{
			"a member of another buyer":        {planFor(0, 1, m0, evil), "another buyer"},
			"a lease with another buyer in it": {planFor(0, 1, m0, forged), "provider"},
			"a key that is not in the lease":   {planFor(0, 1, m0, swapped), "does not name its key"},
			"a signature that is none":         {planFor(0, 1, m0, unsigned), "provider"},
			"the lease of another rank":        {planFor(0, 1, m0, elsewhere), "the lease is for rank 1"},
			"the plan of another rank":         {planFor(1, 1, m0, m1), "not the lease that the plan comes under"},
		} {
			told(t, name, a.join(p, head, c.plan), "workload", c.words)
		}
		for _, err := range []error{a.join(p, head, planFor(0, 1, m0, m1)), a.join(q, second, planFor(1, 1, m0, m1))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if !n.Overlays.Reach(m0.Key, m1.Key) {
			t.Errorf("the members do not reach each other: %v", n.Overlays.Ranks())
		}

		told(t, "the plan of somebody else", thief.members(p, head, planFor(0, 2, m0, evil)), "lease", "no such lease")
		told(t, "a member of another buyer, later", a.members(p, head, planFor(0, 2, m0, evil)), "plan", "another buyer")
		told(t, "other members under the same version", a.members(p, head, planFor(0, 1, m0)), "plan-old")
		told(t, "a plan of another cluster", a.members(p, head, cluster.Plan{ID: "jother", Rank: 0, Size: 3, Version: 9, Members: []cluster.Member{m0}, MTU: 1280, Engine: "none"}.Proto()), "plan", "jother")

		third, again := a.rank(p, 1, 2) // of rank 1, which is lost
		for _, err := range []error{a.members(p, head, planFor(0, 2, m0)), a.members(p, head, planFor(0, 3, m0, again)), a.join(p, third, planFor(1, 3, m0, again))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if !n.Overlays.Reach(m0.Key, again.Key) || n.Overlays.Reach(m0.Key, m1.Key) {
			t.Errorf("the lost one is still let in, or the new one is not: %v", n.Overlays.Ranks())
		}
		told(t, "the lost one is back", a.members(p, head, planFor(0, 4, m0, m1)), "plan", "epoch 1: already")
		told(t, "the plan before", a.members(p, head, planFor(0, 2, m0)), "plan-old", "want 3 or later")
		if n.Overlays.Reach(m0.Key, m1.Key) {
			t.Error("the lost one is let in again")
		}
		time.Sleep(40 * time.Second) // nobody pays any more
		if left := n.Overlays.Ranks(); len(left) != 0 {
			t.Errorf("members without a lease: %v", left)
		}
		n.checkQuiet(t, p)
		n.checkQuiet(t, q)
	})
}
