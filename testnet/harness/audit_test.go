package harness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/proof"
	rules "github.com/starling-network/starling/verify/audit"
)

const auditSlots = 200 // 20 s

// audited waits until a peer has audits of so many windows.
func audited(t *testing.T, p *Peer, windows int) []proof.PastAudit {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		past, err := p.Audits().Audits()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[rules.Window]bool{}
		for _, a := range past {
			seen[a.Window] = true
		}
		if len(seen) >= windows {
			return past
		}
		if time.Now().After(end) {
			t.Fatalf("%s was audited in %d windows", name(p.i), len(seen))
		}
	}
}

// A record goes on chain soon after it was made; who fetches it then can check offline that
// it is under the root, and on chain since when.
func TestRecordsAreAnchored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 2, Units: 1, Programs: programs, AuditSlots: 10 * auditSlots, Log: Logger(),
			Configure: func(_ int, c *config.Config) { small(c) },
		})
		p := n.Provider(0)
		passed := audited(t, p, 1)[0]
		for end := time.Now().Add(time.Minute); passed.Anchored == ""; time.Sleep(time.Second) {
			if time.Now().After(end) {
				t.Fatalf("its record is not anchored: %+v", passed)
			}
			passed = audited(t, p, 1)[0]
		}
		kept := fetched(t, n.Buyer(0), p.Key.Key(), passed.Record)
		if _, err := proof.Check(kept, n.Genesis); err != nil {
			t.Fatal(err)
		}
		in, ok := kept.Inclusion()
		if err := in.CheckOn(t.Context(), n.Chain.Ledger(sign.Key{1}), passed.Record); !ok || err != nil || in.Tx != passed.Anchored {
			t.Errorf("%+v: %v", in, err)
		}
	})
}

// fetched is an audit record that a peer fetches from another.
func fetched(t *testing.T, by *Peer, of sign.Key, record sign.Hash) proof.Audit {
	t.Helper()
	p, err := by.Proofs().Proof(t.Context(), of, record)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	return c.(proof.Audit)
}

// Every idle unit of the network is audited in every window, by peers that the window's beacon draws; anyone can fetch the record
// and check it. A restarted peer leaves out the window that it started in.
func TestAudits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 4, Units: 1, Programs: programs, AuditSlots: auditSlots, Log: Logger(),
			Configure: func(_ int, c *config.Config) { c.Provide.Unit.MilliCPU, c.Provide.Unit.MemoryMiB = 100, 64 },
		})
		ctx := context.Background()
		roster := n.judges()
		for i := range 4 {
			p := n.Provider(i)
			passed := audited(t, p, 2)[0]
			if passed.Failed != "" || passed.Rates.Operations == 0 {
				t.Fatalf("%s: %+v", name(i), passed)
			}
			kept := fetched(t, n.Buyer(0), p.Key.Key(), passed.Record)
			r := kept.Record
			_, err := proof.Check(kept, n.Genesis)
			if err == nil {
				err = r.CheckMembers(roster)
			}
			if err != nil || r.Hash() != passed.Record {
				t.Errorf("the record of %s: %v", name(i), err)
			}
			if len(r.Verdicts) != 3 {
				t.Errorf("%d of three others judged %s", len(r.Verdicts), name(i))
			}
		}
		if _, err := n.Buyer(0).Proofs().Proof(ctx, n.Provider(0).Key.Key(), sign.Hash{1}); err == nil {
			t.Error("a record that nobody has")
		}
		if _, err := n.Buyer(0).Audits().Audit(ctx); !errors.Is(err, audit.ErrUnits) {
			t.Errorf("a peer that sells nothing: %v", err)
		}
		p := n.Provider(0)
		before := audited(t, p, 1)
		p.Kill()
		p.Restart()
		if again := audited(t, p, 1); len(again) < len(before) {
			t.Errorf("%d audits of %d are left after a power cut", len(again), len(before))
		}
		p.Sync(ctx)
		if _, err := p.Audits().Audit(ctx); !errors.Is(err, audit.ErrTooEarly) {
			t.Errorf("the window that it started in: %v", err)
		}
	})
}

// Where one window in three has an audit, units are audited in those windows and in no others, offers name what is fresh by the last two
// audits, and who buys knows which these were: a peer by the chain's blocks, a light client by what its entries say of them.
func TestAuditsAreDrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 3, Units: 1, Buyers: 2, Entries: 2, Strangers: 1, Programs: programs, AuditSlots: auditSlots, AuditOneIn: 3, Log: Logger(),
			Configure: func(_ int, c *config.Config) { small(c) },
		})
		in := rules.NewInstants(n.Genesis)
		ledger := n.Chain.Ledger(sign.Key{1})
		for i := range 3 {
			for _, a := range audited(t, n.Provider(i), 3) {
				b, err := ledger.Block(t.Context(), a.Window.First(auditSlots))
				if err != nil {
					t.Fatal(err)
				}
				if !in.Fires(rules.Beacon{Slot: b.Slot, Value: b.Hash}) {
					t.Errorf("%s was audited in window %d, which has no audit: %+v", name(i), a.Window, a)
				}
			}
		}
		l := n.Light(0, n.Buyer(0))
		time.Sleep(5 * time.Second) // it asks its entries
		for _, b := range []*Peer{n.Buyer(1), l.Peer} {
			n.settled(t, b, b.Wait(b.Submit(b.Job("work", 2, "2")).ID, 5*time.Minute))
		}
	})
}
