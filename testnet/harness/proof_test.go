package harness

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
)

// small makes units that show in milliseconds what they are.
func small(c *config.Config) { c.Provide.Unit.MilliCPU, c.Provide.Unit.MemoryMiB = 100, 64 }

// mute makes units that are too small to show anything: their peers are never proven.
func mute(c *config.Config) { c.Provide.Unit.MilliCPU, c.Provide.Unit.MemoryMiB = 50, 64 }

// On a network that audits nobody sells before its units have shown what they are, and whoever never does sells to those only
// who take units as they are; `why` says so. Leases are of units that were shown.
func TestProvenSales(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shy = 3
		n := New(t, Options{
			Providers: 4, Units: 2, Programs: programs, AuditSlots: 10 * auditSlots, Log: Logger(), // most of it is over within one window
			Configure: func(i int, c *config.Config) {
				if small(c); i == shy {
					mute(c)
				}
			},
		})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		try := func(ranks uint32, unproven bool, want buyer.State) buyer.Job {
			t.Helper()
			spec := b.Job("work", ranks, "2")
			spec.Resources.Unproven = unproven
			j := b.Wait(b.Submit(spec).ID, time.Minute)
			if j.State != want {
				t.Fatalf("%d ranks, unproven %v: %s\n%s", ranks, unproven, j.Summary(), b.Why(j.ID))
			}
			return j
		}
		early := try(1, false, buyer.Failed)
		if !strings.Contains(early.Reason, "unproven") || !strings.Contains(early.Reason, "the next audit is expected in") || !strings.Contains(early.Reason, "--unproven") {
			t.Errorf("nobody has shown anything yet: %s", early.Reason)
		}
		if none := b.steps(t, early.ID, record.StepInfeasible); len(none) != 4 || !strings.Contains(none[0].Detail, "the offer names no fresh audit record") {
			t.Errorf("not all four offers are refused for it:\n%s", b.Why(early.ID))
		}
		try(4, true, buyer.Succeeded)

		shown := map[market.UnitID]bool{}
		for i := range shy {
			for _, a := range audited(t, n.Provider(i), 1) {
				shown[a.Unit] = true
				if a.Failed != "" {
					t.Fatalf("%s: %s", name(i), a.Failed)
				}
			}
		}
		time.Sleep(2 * time.Second) // offers are renewed
		j := try(3, false, buyer.Succeeded)
		for _, l := range n.settled(t, b, j) {
			if l.Provider == n.Provider(shy).Key.Key() {
				t.Error("a peer that has shown nothing sold to an order that wants proof")
			}
		}
		b.list(t, "lease", func(value []byte) {
			units, job := leased(t, value)
			if job == j.ID && slices.ContainsFunc(units, func(u market.UnitID) bool { return !shown[u] }) {
				t.Errorf("units %v were leased, shown are %v", units, shown)
			}
		})
		for _, k := range b.Node.Buyer().Exchange().Offers(t.Context(), "cpu") {
			switch s, is := k.Shown, k.Offer.Provider == n.Provider(shy).Key.Key(); {
			case is && (s.Units != 0 || k.Offer.Proven != 0):
				t.Errorf("%s shows %+v", name(shy), s)
			case !is && (s.Units != 2 || k.Offer.Proven != 2 || s.Operations == 0 || s.Reads == 0 || s.Doubt != ""):
				t.Errorf("%s shows %+v, its offer says %d are proven", k.Offer.Provider.Short(), s, k.Offer.Proven)
			}
		}
		// Records are checked before they are needed: an order waits for no more messages than one that wants none.
		took := func(j buyer.Job) time.Duration { return b.steps(t, j.ID, record.StepLeased)[0].Took }
		if proven, any := took(try(3, false, buyer.Succeeded)), took(try(3, true, buyer.Succeeded)); proven > any+any/2 {
			t.Errorf("leases of proven units took %v, of any %v", proven, any)
		}
		many := try(4, false, buyer.Failed)
		who := n.Provider(shy).Key.Key().Short()
		if why := b.Why(many.ID); !strings.Contains(why, who) || !strings.Contains(many.Reason, "3 of 4 leases can be placed") || !strings.Contains(many.Reason, "1 unproven") {
			t.Errorf("%s\n%s", many.Reason, why)
		}
		for _, s := range b.steps(t, many.ID, record.StepInfeasible) {
			if s.Provider != n.Provider(shy).Key.Key().String() || !strings.Contains(s.Detail, "the offer names no fresh audit record") {
				t.Errorf("refused: %+v", s)
			}
		}
		try(4, true, buyer.Succeeded)
		// What is packed is counted by units that were shown.
		packed := b.Job("work", 6, "2")
		packed.Placement.Pack = true
		n.settled(t, b, b.Wait(b.Submit(packed).ID, time.Minute))
	})
}

// A light client buys proven units too: it fetches and checks their records itself, by way of its entries.
func TestProvenSalesToLightClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 3, Units: 1, Buyers: 2, Entries: 2, Strangers: 1, Programs: programs, AuditSlots: 10 * auditSlots, Log: Logger(),
			Configure: func(_ int, c *config.Config) { small(c) },
		})
		for i := range 3 {
			audited(t, n.Provider(i), 1)
		}
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second)
		j := l.Peer.Wait(l.Peer.Submit(l.Peer.Job("work", 3, "2")).ID, time.Minute)
		n.settled(t, l.Peer, j)
	})
}

// settled are the leases of a job that succeeded and was paid by the program.
func (n *Net) settled(t *testing.T, b *Peer, j buyer.Job) []buyer.LeaseAccount {
	t.Helper()
	if j.State != buyer.Succeeded || j.Paid != j.Owed || j.Owed == 0 {
		t.Fatalf("it owes %d and paid %d: %s\n%s", j.Owed, j.Paid, j.Summary(), b.Why(j.ID))
	}
	if err := n.Programs.Check(); err != nil {
		t.Error(err)
	}
	accounts, err := b.Node.Buyer().Receipts(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	return accounts
}

// leased are the units of a bought lease and its job, as the journal has them.
func leased(t *testing.T, value []byte) ([]market.UnitID, string) {
	var rec struct {
		Job   string          `json:"job"`
		Units []market.UnitID `json:"units"`
	}
	if err := json.Unmarshal(value, &rec); err != nil {
		t.Fatal(err)
	}
	return rec.Units, rec.Job
}
