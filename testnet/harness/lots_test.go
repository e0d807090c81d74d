package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// cards is a machine with GPUs that a test can change.
type cards struct {
	gpu.None
	mu      sync.Mutex
	devices []gpu.Device
}

func (c *cards) Inventory(context.Context) (gpu.Inventory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return gpu.Inventory{Devices: slices.Clone(c.devices)}, nil
}

func (c *cards) refuse(i int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices[i].Refused = reason
}

func machine(simulated bool, models ...string) *cards {
	c := &cards{}
	for i, m := range models {
		capability := map[string]string{"NVIDIA L4": "8.9"}[m]
		if capability == "" {
			capability = "9.0"
		}
		if simulated {
			m += " (simulated)"
		}
		c.devices = append(c.devices, gpu.Device{Vendor: gpu.NVIDIA, Index: i, UUID: fmt.Sprintf("GPU-%d", i), Model: m, VRAMMiB: 24000, Capability: capability, Simulated: simulated})
	}
	return c
}

func sellsGPUs(c *config.Config, price string) {
	c.Provide.GPU = config.GPU{Price: price, MilliCPU: 1000, MemoryMiB: 64, DiskMiB: 16}
}

// buyerKey is the key of peer i.
func buyerKey(t *testing.T, i int) string {
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate(seed).Key().String()
}

// One provider sells CPUs and two models of GPU, another one model for less: orders for a class get that class, orders
// for the family whatever is cheapest, and everything is metered and paid.
func TestFamilyOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Programs: programs, Log: Logger(),
			GPUs: map[int]gpu.Source{1: machine(true, "NVIDIA L4", "NVIDIA H100 80GB HBM3", "NVIDIA L4"), 2: machine(true, "NVIDIA H100 80GB HBM3")},
			Configure: func(i int, c *config.Config) {
				switch i {
				case 1:
					sellsGPUs(c, "1.00")
					c.Provide.GPU.Prices = map[string]string{"gpu/h100": "3.00"}
				case 2:
					sellsGPUs(c, "2.00")
				}
			}})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		run := func(class string, count uint32, pack bool) (buyer.Job, map[int]int) {
			t.Helper()
			spec := b.Container("work", class, count, "3")
			spec.Placement.Pack = pack
			j := b.Wait(b.Submit(spec).ID, 2*time.Minute)
			n.check(t, b, j, buyer.Succeeded)
			on := map[int]int{}
			for _, r := range j.Ranks {
				on[slices.IndexFunc(n.Peers, func(p *Peer) bool { return p.Key.Key() == r.Provider })]++
			}
			return j, on
		}
		j, on := run("gpu", 1, false)
		if on[1] != 1 {
			t.Errorf("the cheapest GPU is provider 1's at 1.00; it ran on %v\n%s", on, b.Why(j.ID))
		}
		if why := b.Why(j.ID); !strings.Contains(why, "of gpu/l4, NVIDIA L4 (simulated)") || !strings.Contains(why, "of gpu/h100, NVIDIA H100 80GB HBM3 (simulated)") {
			t.Errorf("the quotes do not say of what units they are:\n%s", why)
		}
		if _, on = run("gpu/h100", 1, false); on[2] != 1 {
			t.Errorf("the cheapest H100 is provider 2's at 2.00; it ran on %v", on)
		}
		if _, on = run("gpu", 2, true); on[1] != 2 {
			t.Errorf("two of the cheapest are provider 1's; it ran on %v", on)
		}
		if j, on = run("cpu", 3, false); len(on) != 3 {
			t.Errorf("three CPUs of three providers; it ran on %v", on)
		}
		for _, s := range n.Provider(1).Node.Provider().Sold() {
			if s.Record.Class == "gpu/l4" && (s.Lot.Hardware() != "NVIDIA L4 (simulated)" || s.Record.PerUnit.VRAMMiB != 24000) {
				t.Errorf("a lease of %+v", s)
			}
		}
		offers, err := b.Node.Status().Offers(t.Context(), "")
		if err != nil || len(offers) != 6 {
			t.Errorf("%d offers of all classes, %v; want 3 of CPUs, 3 of GPUs", len(offers), err)
		}
		if offers, _ = b.Node.Status().Offers(t.Context(), "gpu"); len(offers) != 3 || !offers[0].Simulated {
			t.Errorf("of the family %+v", offers)
		}
		j = b.Wait(b.Submit(b.Container("work", "gpu/a100", 1, "3")).ID, 2*time.Minute)
		n.wants(t, b, j, buyer.Failed, buyer.CodeNoMatch, "gpu/a100")
		n.Settle()
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}

// A device that falls ill is taken from the offer within a minute, whoever has it keeps it, and its operator can take it back.
func TestDeviceFallsIll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(true, "NVIDIA L4")
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger(), GPUs: map[int]gpu.Source{0: m},
			Configure: func(i int, c *config.Config) {
				if i == 0 {
					sellsGPUs(c, "1.00")
				}
			}})
		time.Sleep(5 * time.Second)
		b, p := n.Buyer(0), n.Provider(0).Node
		id := b.Submit(b.Container("work", "gpu", 1, "150")).ID
		time.Sleep(10 * time.Second)
		m.refuse(0, "the driver reported Xid 79, a fault")
		time.Sleep(90 * time.Second)
		own, err := p.Seller().OwnOffers()
		if err != nil || len(own.Withdrawn) != 1 || !own.Withdrawn[0].Leased || own.Withdrawn[0].Reason != "the driver reported Xid 79, a fault" {
			t.Errorf("%+v, %v", own, err)
		}
		n.check(t, b, b.Wait(id, 5*time.Minute), buyer.Succeeded)
		j := b.Wait(b.Submit(b.Container("work", "gpu", 1, "1")).ID, 2*time.Minute)
		n.wants(t, b, j, buyer.Failed, buyer.CodeNoMatch, "gpu")
		if err := p.Seller().ResumeOffers(t.Context(), []string{"GPU-9"}); err == nil || !strings.Contains(err.Error(), "GPU-9") {
			t.Error(err)
		}
		if err := p.Seller().ResumeOffers(t.Context(), []string{"GPU-0"}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // the same illness is no reason any more
		n.check(t, b, b.Wait(b.Submit(b.Container("work", "gpu", 1, "1")).ID, 2*time.Minute), buyer.Succeeded)
		n.Settle()
		n.checkQuiet(t, n.Provider(0), b)
	})
}

// On a network whose genesis does not say that it is simulated nobody sells simulated units, and nobody takes them.
func TestSimulatedUnitsOnARealNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Strangers: 1, Programs: programs, Real: true, Log: Logger()})
		a := n.adversary(t, 0)
		time.Sleep(5 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		cfg := config.Default()
		cfg.Provide.Enabled = true
		sellsGPUs(&cfg, "1.00")
		_, err := node.New(t.Context(), node.Parts{Config: cfg, Home: t.TempDir(), Genesis: n.Genesis, Key: a.key, Owner: a.key.Key(), Host: a.host,
			Store: p.Journal, Blobs: p.Blobs, Access: n.access(a.key.Key()), SlotEvery: slotEvery, NoAPI: true, Log: Logger(),
			GPUs: machine(true, "NVIDIA L4")})
		if !errors.Is(err, market.ErrSimulated) {
			t.Errorf("a peer that sells simulated units: %v", err)
		}
		// Nobody else can take the second rank, so that quotes are waited for.
		id := b.Submit(b.Job("work", 2, "2")).ID
		m, err := a.orders.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOrder(a.domain, m.Data, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		err = a.brings(b.id(), o, a.quoteWith(o, a.key, func(q *market.Quote) { q.Simulated = true }),
			a.offerWith(a.key, func(o *market.Offer) { o.Simulated = true }))
		told(t, "a quote for simulated units", err, "malformed", "simulated units on a network that is not simulated")
		n.wants(t, b, b.Wait(id, time.Minute), buyer.Failed, buyer.CodeNoMatch, "2 × 1 units")
		n.Settle()
	})
}

// A peer that is drained sells nothing new, finishes what it has, stays so through a restart, and sells again when it is told.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		id := b.Submit(b.Job("work", 1, "30")).ID
		time.Sleep(5 * time.Second)
		if err := p.Node.Seller().PauseOffers(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		state := func(want string, leases int) {
			t.Helper()
			if s := p.Node.Provider().Status(); s.State != want || s.Leases != leases {
				t.Errorf("%s with %d leases, want %s with %d", s.State, s.Leases, want, leases)
			}
		}
		state(provider.Draining, 1)
		time.Sleep(2 * time.Second)
		j := b.Wait(b.Submit(b.Job("work", 1, "1")).ID, 2*time.Minute)
		n.check(t, b, j, buyer.Failed)
		if j.Code != buyer.CodeNoMatch || !strings.Contains(b.Why(j.ID), "sells nothing new for now") {
			t.Errorf("%s: %s\n%s", j.Code, j.Reason, b.Why(j.ID))
		}
		n.check(t, b, b.Wait(id, 2*time.Minute), buyer.Succeeded)
		n.Settle()
		state(provider.Drained, 0)
		p.Stop()
		p.Restart()
		time.Sleep(5 * time.Second)
		state(provider.Drained, 0)
		if err := p.Node.Seller().ResumeOffers(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Node.Seller().PriceOffer(t.Context(), "cpu", 720_000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		state(provider.Selling, 0)
		j = b.Wait(b.Submit(b.Job("work", 1, "1")).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		if why := b.Why(j.ID); !strings.Contains(why, "0.72 STAR") {
			t.Errorf("the new price is not asked:\n%s", why)
		}
		p.Stop()
		p.Restart()
		if own, err := p.Node.Seller().OwnOffers(); err != nil || own.Offers[0].Price != 720_000 {
			t.Errorf("after a restart: %+v, %v", own, err)
		}
		n.Settle()
		n.checkQuiet(t, p, b)
	})
}

// Outside its hours a provider sells nothing, and within them no lease that would reach out of them. The bubble's clock
// starts on a Saturday at midnight UTC.
func TestHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger(), Configure: func(i int, c *config.Config) {
			if i == 0 {
				c.Provide.Hours, c.Provide.TimeZone = []string{"Sat 00:00-00:10", "Sat 02:00-03:00"}, "UTC"
			}
		}})
		time.Sleep(5 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		submit := func(run time.Duration) buyer.Job {
			t.Helper()
			spec := b.Job("work", 1, "2")
			spec.Timeouts.Run = run
			return b.Wait(b.Submit(spec).ID, 2*time.Minute)
		}
		n.check(t, b, submit(5*time.Minute), buyer.Succeeded)
		j := submit(30 * time.Minute)
		n.check(t, b, j, buyer.Failed)
		if !strings.Contains(b.Why(j.ID), "past the end of the hours at Sat 00:10 UTC") {
			t.Errorf("a lease that would reach into closed hours:\n%s", b.Why(j.ID))
		}
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 11, 0, 0, time.UTC)))
		if s := p.Node.Provider().Status(); s.State != provider.Closed || !s.Until.Equal(time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)) {
			t.Errorf("%s until %s", s.State, s.Until)
		}
		j = submit(time.Minute)
		n.check(t, b, j, buyer.Failed)
		if !strings.Contains(j.Reason, "no offer is known") {
			t.Errorf("the offer of a provider that is closed is still there: %s", j.Reason)
		}
		time.Sleep(time.Until(time.Date(2000, 1, 1, 2, 1, 0, 0, time.UTC)))
		n.check(t, b, submit(time.Minute), buyer.Succeeded)
		n.Settle()
		n.checkQuiet(t, p, b)
	})
}

// Buyers that an operator does not want are told so, and no more; images that it does not want do not run.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Buyers: 2, Programs: programs, Log: Logger(), Configure: func(i int, c *config.Config) {
			switch i {
			case 0:
				c.Provide.Block = []config.Blocked{{Buyer: buyerKey(t, 3), Reason: "owes us"}}
			case 1:
				c.Provide.Only = []string{buyerKey(t, 4)}
			case 2:
				c.Provide.Images.Deny = []string{"hello"}
				c.Provide.MaxLeasesPerBuyer = 1
			}
		}})
		time.Sleep(5 * time.Second)
		unwanted, welcome := n.Buyer(0), n.Buyer(1)
		j := unwanted.Wait(unwanted.Submit(unwanted.Job("work", 2, "1")).ID, 2*time.Minute)
		n.check(t, unwanted, j, buyer.Failed)
		if why := unwanted.Why(j.ID); strings.Count(why, "this provider does not serve you") < 2 || strings.Contains(why, "owes us") {
			t.Errorf("two providers of three do not serve this buyer:\n%s", why)
		}
		n.check(t, unwanted, unwanted.Wait(unwanted.Submit(unwanted.Job("work", 1, "1")).ID, 2*time.Minute), buyer.Succeeded)
		n.check(t, welcome, welcome.Wait(welcome.Submit(welcome.Job("work", 3, "1")).ID, 2*time.Minute), buyer.Succeeded)
		spec := welcome.Job("work", 4, "1")
		spec.Placement.Pack = true
		spec.Placement.Exclude = append(spec.Placement.Exclude, n.Provider(0).Key.Key())
		j = welcome.Wait(welcome.Submit(spec).ID, 2*time.Minute) // two of provider 1's, one of provider 2's, where two are free
		n.check(t, welcome, j, buyer.Failed)
		spec = welcome.Container("hello", "cpu", 1)
		spec.Placement.Exclude = append(spec.Placement.Exclude, n.Provider(0).Key.Key(), n.Provider(1).Key.Key())
		j = welcome.Wait(welcome.Submit(spec).ID, 2*time.Minute)
		n.check(t, welcome, j, buyer.Failed)
		if all := j.Reason + welcome.Why(j.ID); !strings.Contains(all, "does not run image docker.io/library/hello@sha256:") {
			t.Errorf("an image that is denied: %s\n%s", j.Reason, welcome.Why(j.ID))
		}
		n.Settle()
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), unwanted, welcome)
		}
		var live []lease.Record
		for _, s := range n.Provider(2).Node.Provider().Sold() {
			if s.Record.State.Live() {
				live = append(live, s.Record)
			}
		}
		if len(live) > 0 {
			t.Errorf("leases that live on: %+v", live)
		}
	})
}
