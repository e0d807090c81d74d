package harness

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p/stream"
)

// extend asks a provider to make the lease of h longer until end, by a core that change bends and a signature of its own.
func (a *adversary) extend(to *Peer, h held, end market.Slot, change func(*market.LeaseCore)) (market.LeaseCore, error) {
	a.t.Helper()
	core, err := h.core.Follow(end)
	if err != nil {
		a.t.Fatal(err)
	}
	if change != nil {
		change(&core)
	}
	raw, id := core.Marshal(), h.core.ID()
	_, err = a.lease(to, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Extend{Extend: &marketpb.Extend{
		Lease: id[:], Core: raw[:], Signature: a.signature(core),
	}}})
	return core, err
}

// Nobody gets more of a provider by extending than its own lease for longer: not others' leases, not other terms, not after the
// end, not twice, not over the operator's limits; and nothing of it lets a unit be billed twice.
func TestExtendAdversaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Strangers: 2, Programs: programs, Log: Logger(),
			Configure: func(i int, c *config.Config) { c.Provide.MaxTime = 10 * time.Minute }})
		time.Sleep(3 * time.Second)
		p, a, thief := n.Provider(0), n.adversary(t, 0), n.adversary(t, 1)
		h := a.active(p)
		end := h.core.End
		refused := func(what, code string, err error) {
			t.Helper()
			var no *stream.Refused
			var bad *stream.Malformed
			if code == "malformed" && errors.As(err, &bad) || errors.As(err, &no) && no.Code == code {
				return
			}
			t.Errorf("%s: %v, want %s", what, err, code)
		}
		_, err := thief.extend(p, h, end+100, nil)
		refused("someone else's lease", "hold", err)
		for what, change := range map[string]func(*market.LeaseCore){
			"a higher rate": func(c *market.LeaseCore) { c.Rate *= 2 },
			"a lower rate":  func(c *market.LeaseCore) { c.Rate-- },
			"other units":   func(c *market.LeaseCore) { c.UnitsRoot[0]++ },
			"a wrong start": func(c *market.LeaseCore) { c.Start -= 10; c.ActivateBefore -= 10 },
			"a later start": func(c *market.LeaseCore) { c.Start += 10; c.ActivateBefore += 10 },
			"its own purse": func(c *market.LeaseCore) { c.Payout = a.key.Key() },
		} {
			_, err = a.extend(p, h, end+100, change)
			refused(what, "terms", err)
		}
		_, err = a.extend(p, h, end+100, func(c *market.LeaseCore) { c.ActivateBefore++ })
		refused("paid later", "malformed", err)
		_, err = a.extend(p, h, end+6000, nil)
		refused("longer than is sold", "duration", err)

		core, err := a.extend(p, h, end+100, nil)
		if err != nil {
			t.Fatalf("an honest extension: %v", err)
		}
		if _, err = a.extend(p, h, end+100, nil); err != nil {
			t.Errorf("the same once more: %v", err)
		}
		_, err = a.extend(p, h, end+200, nil)
		refused("another one", "conflict", err)
		next := held{order: h.order, core: core}
		_, err = a.extend(p, next, core.End+10, nil)
		refused("of what is not paid for", "hold", err)
		if _, err = a.activate(p, core.ID(), a.pays(next, 1, 10, nil)); err != nil {
			t.Errorf("paying for it: %v", err)
		}
		// It pays for nothing more: both end, and neither can be had again.
		time.Sleep(30 * time.Second)
		_, err = a.extend(p, h, end+100, nil)
		refused("a replay", "hold", err)
		_, err = a.extend(p, next, core.End+10, nil)
		refused("after the end", "hold", err)
		_, err = a.activate(p, core.ID(), a.pays(next, 1, 10, nil))
		refused("paying again", "lease", err)
		time.Sleep(30 * time.Second)
		n.checkQuiet(t, p)
	})
}

// A provider that is asked to make a lease longer past its hours refuses; money and limits are asked before anybody is.
func TestExtendLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, _ := counted()
		n := New(t, Options{Providers: 1, Units: 1, Programs: all, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("count", 1, "20")
		spec.Timeouts.Run, spec.Payment.Budget, spec.Payment.MaxPrice = 10*time.Second, 100_000, 20_000_000
		id := b.Submit(spec).ID
		time.Sleep(3 * time.Second)
		if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Hour, 0); !errors.Is(err, buyer.ErrRefused) {
			t.Errorf("over the budget: %v", err)
		}
		if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Millisecond, 0); !errors.Is(err, buyer.ErrRefused) {
			t.Errorf("by nothing: %v", err)
		}
		if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 10); !errors.Is(err, buyer.ErrRefused) {
			t.Errorf("with less money: %v", err)
		}
		if _, err := b.Node.Buyer().Extend(t.Context(), id, 60*time.Hour, 2*funds); !errors.Is(err, buyer.ErrFunds) {
			t.Errorf("with money that is not there: %v", err)
		}
		if j, err := b.Node.Buyer().Job(id); err != nil || j.Extended != 0 || j.Spec.Timeouts.Run != 10*time.Second {
			t.Errorf("what was refused is in the job: %+v", j.Spec.Timeouts)
		}
		x, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 20_000_000)
		if err != nil || states(x) != "extended" || x.Budget != 20_000_000 {
			t.Errorf("with more money: %+v, %v", x, err)
		}
		j := b.Wait(id, time.Minute)
		n.Settle()
		inARow(t, n.check(t, b, j, buyer.Succeeded), 2, true)
		if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 0); !errors.Is(err, buyer.ErrNotRunning) {
			t.Errorf("after the end: %v", err)
		}
	})
}
