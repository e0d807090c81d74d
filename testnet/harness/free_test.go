package harness

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

// On a free network a job runs, a lost rank goes elsewhere, a restarted peer goes on, and both sides sign receipts that anyone can check,
// while nothing is owed or paid.
func TestFree(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(n *Net, id string){
		"quiet": func(*Net, string) {},
		"a provider is killed": func(n *Net, id string) {
			j := n.job(n.t.(*testing.T), n.Buyer(0), id)
			n.peer(j.Ranks[0].Provider).Kill()
		},
		"the buyer restarts": func(n *Net, _ string) {
			n.Buyer(0).Kill()
			time.Sleep(time.Second)
			n.Buyer(0).Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Units: 1, Free: true, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				id := b.Submit(b.Job("work", 2, "8")).ID
				time.Sleep(4 * time.Second)
				disturb(n, id)
				j := b.Wait(id, 5*time.Minute)
				accounts := n.check(t, b, j, buyer.Succeeded)
				var receipts, slots int
				for _, a := range accounts {
					for _, r := range a.Receipts {
						receipts, slots = receipts+1, slots+int(r.To-r.From)
					}
				}
				if receipts < 10 || slots < 2*8*int(time.Second/time.Millisecond)/slotMillis || len(j.Transactions)+len(j.Escrows) > 0 {
					t.Errorf("%d receipts of %d slots, %d transactions, %d escrows", receipts, slots, len(j.Transactions), len(j.Escrows))
				}
			})
		})
	}
}

// Members of a cluster find each other on a free network, too.
func TestFreeCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Units: 1, Free: true, Programs: members(), Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		spec := b.Cluster(2, quiet)
		spec.Payment = job.Payment{Decimals: 6, Free: true}
		id := b.Submit(spec).ID
		b.joined(id, 2)
		n.takeDown(t, b, id)
	})
}

// A price on a free network is refused wherever it is said, with what is wrong.
func TestFreePrices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Strangers: 1, Free: true, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b, p, a := n.Buyer(0), n.Provider(0), n.adversary(t, 0)
		spec := b.Job("work", 1, "1")
		spec.Payment = job.Payment{MaxPrice: 1, Budget: 1, Decimals: 6}
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrRefused) || !strings.Contains(err.Error(), "is free, nothing is paid on it") {
			t.Errorf("a job that pays: %v", err)
		}
		spec = b.Job("work", 1, "1")
		spec.Guardians = 1
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrRefused) {
			t.Errorf("a job with guardians: %v", err)
		}
		spec = b.Job("work", 1, "1")
		spec.Verify, spec.Outputs = job.VerifyReplicate, []job.Output{{Path: "/out"}}
		spec.Resources.PerUnit.MemoryMiB, spec.Resources.PerUnit.DiskMiB = 64, 64
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrRefused) || !strings.Contains(err.Error(), "is free; leave it out") {
			t.Errorf("a job whose results are checked: %v", err)
		}
		_, env := a.order(a.terms())
		_, err := a.reserve(p, &marketpb.Reserve{Hold: hold(), Order: env, Units: 1, Price: 1})
		told(t, "an order that pays, reserved", err, "price", "free")
		if err := p.Node.Provider().SetPrice(t.Context(), "cpu", 1); err == nil || !strings.Contains(err.Error(), "want 0") {
			t.Errorf("an offer at a price: %v", err)
		}
		h := a.signed(p)
		id := h.core.ID()
		_, err = a.lease(p, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: &marketpb.Activate{
			Lease: id[:], Voucher: a.pays(h, 1, intervalSlots, nil), Funding: make([]byte, 13)}}})
		told(t, "a funding", err, string(market.ReasonUnfunded), "free")
	})
}
