package harness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// A unit that works through the beginning of a window is excused in it, by a lease whose money everybody finds on chain.
func TestBusyUnitsAreExcused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 4, Units: 1, Programs: programs, AuditSlots: 3 * auditSlots, Escrow: true, Log: Logger(),
			Configure: func(_ int, c *node.Config) { small(c) },
		})
		time.Sleep(5 * time.Second)
		for i := range 4 {
			audited(t, n.Provider(i), 1)
		}
		b := n.Buyer(0)
		id := b.Submit(b.Job("work", 1, "100")).ID // longer than a window, of a minute
		time.Sleep(90 * time.Second)
		ledger := n.Programs.Ledger(b.Key.Key())
		network := settle.NewNetwork(n.Genesis, ledger, store.NewMemory())
		chain := audit.OnChain{Network: network, Payments: settle.NewPayments(ledger, network, time.Now)}
		found := 0
		for i := range 4 {
			p := n.Provider(i)
			seen := map[market.UnitID]bool{}
			for _, a := range p.Node.Auditing().Shelf().All() {
				if seen[a.Unit] {
					continue
				}
				seen[a.Unit] = true
				for _, e := range p.Node.Auditing().Shelf().Excuses(a.Unit) {
					found++
					if err := e.Check(n.Genesis.Domain()); err != nil || e.Provider != p.Key.Key() {
						t.Errorf("window %d: %v", e.Window, err)
					}
					paid, err := chain.Paid(t.Context(), e.Leases[len(e.Leases)-1])
					if t.Logf("window %d: %d leases, %d received, %d paid, %v", e.Window, len(e.Leases), e.Leases[0].Receipt.Cumulative, paid, err); err != nil {
						t.Error(err)
					}
				}
			}
		}
		if found == 0 {
			t.Error("nobody is excused")
		}
		b.Wait(id, 3*time.Minute)
	})
}
