package harness

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/notice"
)

// twice is a network in which one provider runs as two processes, peers 0 and 1, that sell the same units and do not know
// of each other. Buyer 0 knows only one of them and buyer 1 only the other; buyer 2 knows only the buyers.
func twice(t *testing.T) *Net {
	return New(t, Options{
		Providers: 2, Buyers: 3, Units: 1, Programs: programs, Log: Logger(),
		Twin: map[int]int{1: 0}, Links: map[int][]int{1: {}, 2: {0}, 3: {1}, 4: {2, 3}},
	})
}

// kept waits until a peer keeps a proof.
func kept(t *testing.T, p *Peer, most time.Duration) proof.Entry {
	t.Helper()
	for end := time.Now().Add(most); ; {
		if all := p.Proofs().Proofs(proof.KindDoubleSale); len(all) > 0 {
			return all[0]
		}
		if time.Now().After(end) {
			t.Fatalf("%s keeps no proof after %v", name(p.i), most)
		}
		time.Sleep(time.Second)
	}
}

// A provider that sells one unit to two buyers at a time is found by a peer that has nothing to do with it and only takes
// part in the DHT. The proof stands for itself and survives a power cut.
func TestSoldTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := twice(t)
		var jobs []buyer.Job
		for i := range 2 {
			jobs = append(jobs, n.Buyer(i).Submit(n.Buyer(i).Job("work", 1, "60")))
		}
		third := n.Buyer(2)
		k := kept(t, third, 5*time.Minute)
		p, err := third.Proofs().Proof(context.Background(), sign.Key{}, k.Hash)
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.Open()
		if err == nil {
			_, err = proof.Check(x, n.Genesis)
		}
		if err != nil {
			t.Fatalf("the proof does not hold: %v", err)
		}
		sold := x.(proof.DoubleSale)
		buyers := fmt.Sprint(sold.Buyers())
		a, b := n.Buyer(0).Key.Key(), n.Buyer(1).Key.Key()
		if k.Subjects[0] != n.Provider(0).Key.Key() || buyers != fmt.Sprint([]any{a, b}) && buyers != fmt.Sprint([]any{b, a}) || k.Own {
			t.Errorf("the proof is against %s by %s, own %v", k.Subjects, buyers, k.Own)
		}
		if served, err := n.Buyer(0).Proofs().Proof(context.Background(), third.Key.Key(), k.Hash); err != nil || string(served.Body) != string(p.Body) {
			t.Errorf("another peer fetches another proof: %v", err)
		}
		for i := range 2 {
			if mine := kept(t, n.Buyer(i), time.Minute); !mine.Own {
				t.Errorf("victim %d does not know that it is one", i)
			}
			if j := n.Buyer(i).Wait(jobs[i].ID, 5*time.Minute); j.State != buyer.Succeeded {
				t.Errorf("job %d is %s: %s", i, j.State, j.Reason)
			}
		}
		third.Kill()
		third.Restart()
		if again := third.Proofs().Proofs(proof.KindDoubleSale); len(again) != 1 || again[0].Hash != k.Hash {
			t.Errorf("after a power cut %d proofs are kept", len(again))
		}
	})
}

// Leases of one unit that follow each other within a slot, so that the second begins in the one that the first has paid for,
// prove nothing.
func TestSoldOnceInASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Buyers: 2, Units: 1, Programs: programs, Log: Logger()})
		ids := map[string]*Peer{}
		for i := range 12 { // each as soon as the work of the one before is done, while that is being paid
			b := n.Buyer(i % 2)
			id := b.Submit(b.Job("hello", 1)).ID
			ids[id] = b
			for over := false; !over; time.Sleep(5 * time.Millisecond) {
				j, err := b.Node.Buyer().Job(id)
				if err != nil {
					t.Fatal(err)
				}
				over = j.State == buyer.Settling || j.State.Ended()
			}
		}
		paid := 0
		for i, b := range ids {
			j := b.Wait(i, time.Minute)
			if j.State != buyer.Succeeded || j.Paid != j.Owed {
				t.Errorf("job %s is %s, owes %d and paid %d: %s", i, j.State, j.Owed, j.Paid, j.Reason)
			}
			if j.Paid > 0 {
				paid++
			}
		}
		if paid == 0 {
			t.Error("nothing was sold")
		}
		time.Sleep(5 * time.Minute)
		for _, p := range n.Peers {
			if all := p.Proofs().Proofs(proof.KindDoubleSale); len(all) != 0 {
				t.Errorf("%s keeps %d proofs", name(p.i), len(all))
			}
		}
	})
}

// Leases one after another, and units of an honest provider next to each other, prove nothing.
func TestSoldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Buyers: 2, Units: 2, Programs: programs, Log: Logger()})
		for range 3 {
			a, b := n.Buyer(0).Submit(n.Buyer(0).Job("work", 1, "5")), n.Buyer(1).Submit(n.Buyer(1).Job("work", 1, "5"))
			n.Buyer(0).Wait(a.ID, time.Minute)
			n.Buyer(1).Wait(b.ID, time.Minute)
		}
		all := n.Provider(0).Provider().Sold()
		time.Sleep(2 * time.Minute)
		published := 0
		for _, sold := range all {
			c, u := notice.CalendarOf(n.Genesis), sold.Record.Units[0]
			at, err := c.At(n.Provider(0).Key.Key(), u, sold.Record.Core.Start)
			if err != nil {
				t.Fatal(err)
			}
			b, err := n.Buyer(1).Network().DHT.GetValue(context.Background(), "starling-notice", at.Marshal())
			if err != nil {
				t.Fatalf("nothing is published of unit %s: %v", u.Short(), err)
			}
			said, err := notice.Read(n.Genesis.Domain(), c, at, b, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range said.Leases {
				if l.Lease.Core.ID() == sold.Record.Lease {
					published++
				}
			}
		}
		if published < 2 || published != len(all) { // the provider may have forgotten the first ones
			t.Errorf("%d of %d leases are published", published, len(all))
		}
		for _, p := range n.Peers {
			if all := p.Proofs().Proofs(proof.KindDoubleSale); len(all) != 0 {
				t.Errorf("%s keeps %d proofs", name(p.i), len(all))
			}
		}
	})
}
