package harness

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/store"
)

// clusterCase is one life of a cluster, on four providers: it comes up, is made larger, loses a member, is made smaller and goes down;
// with a power cut on its way.
type clusterCase struct {
	victim int // the number of a peer; 4 is the buyer
	at     Crash
	down   time.Duration
	after  func(t *testing.T, n *Net, j buyer.Job)
}

// run says at which kind of write the power was cut, "" if it was not, and what the victim wrote by phase.
func (c clusterCase) run(t *testing.T) (kind string, writes [][]string) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 4, Units: 1, Programs: members(), Price: map[int]string{0: "0.3"}, Crash: map[int]Crash{c.victim: c.at}, Log: Logger(),
		})
		p, b := n.Peers[c.victim], n.Buyer(0)
		m := p.mayCrash(c.down)
		var id string
		// until waits for what becomes of the cluster.
		until := func(what string, is func(buyer.Job) bool) buyer.Job {
			for end := time.Now().Add(3 * time.Minute); ; m.wait(100 * time.Millisecond) {
				j, err := b.Buyer().Job(id)
				switch {
				case err != nil:
					t.Fatal(err)
				case is(j):
					return j
				case j.State.Ended() || time.Now().After(end):
					t.Fatalf("%s: %s\n%s", what, j.Summary(), b.Why(id))
				}
			}
		}
		// scale asks for a size until it is had: who was refused because a provider was away at that time tries again.
		scale := func(size uint32) {
			for end := time.Now().Add(3 * time.Minute); ; m.wait(time.Second) {
				err := m.do(func() error {
					_, err := b.Buyer().Scale(t.Context(), id, size)
					return err
				})
				if err == nil {
					break
				}
				if !errors.Is(err, buyer.ErrRefused) && !errors.Is(err, buyer.ErrNotRunning) || time.Now().After(end) {
					t.Fatalf("to %d members: %v\n%s", size, err, b.Why(id))
				}
			}
			until(fmt.Sprintf("scaled to %d", size), func(j buyer.Job) bool { return whole(j, int(size)) })
		}
		done := 0
		phase := func() {
			if _, w := m.happened(); m.kind == "" {
				writes, done = append(writes, w[done:]), len(w)
			}
		}

		m.wait(4 * time.Second)
		phase() // before there is a cluster
		if err := m.do(func() error {
			j, err := b.Buyer().Submit(t.Context(), buyer.Submission{Spec: b.Cluster(2, quiet), Once: "the cluster"})
			id = j.ID
			return err
		}); err != nil {
			t.Fatal(err)
		}
		until("up", func(j buyer.Job) bool { return whole(j, 2) })
		phase()
		scale(3)
		phase()
		j := until("before a member is lost", func(j buyer.Job) bool { return whole(j, 3) })
		if lost := n.on(j, 1); lost != c.victim { // else the crash is its loss
			n.Provider(lost).Kill()
			until("a member is replaced", func(j buyer.Job) bool { return n.on(j, 1) != lost && whole(j, 3) })
			n.Provider(lost).Restart()
		}
		phase()
		scale(1)
		phase()
		if err := m.do(func() error { return b.Buyer().Stop(t.Context(), id) }); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(3 * time.Minute); !n.job(t, b, id).State.Ended(); m.wait(500 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the cluster does not go down\n%s", b.Why(id))
			}
		}
		for range 80 {
			m.wait(500 * time.Millisecond)
		}
		phase()
		n.checkEscrow(t, b, id, buyer.Stopped)
		for i := range 4 {
			n.checkQuiet(t, n.Provider(i), b)
			if r := n.Provider(i).Engine.Running(); r > 0 {
				t.Errorf("%s: %d containers run in the end", name(i), r)
			}
		}
		if left := n.Overlays.Ranks(); len(left) > 0 {
			t.Errorf("members are left: %v", left)
		}
		if c.after != nil {
			c.after(t, n, n.job(t, b, id))
		}
		if kind = m.kind; t.Failed() {
			t.Logf("crashed at %q\n%s", kind, b.Why(id))
		}
	})
	return kind, writes
}

// Each order of a cluster, the first, the larger size's and the one for whom was lost, is an escrow of its own: what is set aside is
// what providers claim and what comes back, and each provider has what its vouchers say but the fee.
func TestClusterEscrow(t *testing.T) {
	t.Parallel()
	clusterCase{victim: 4, after: func(t *testing.T, n *Net, j buyer.Job) {
		if len(j.Escrows) != 3 || j.Paid == 0 || j.Paid != j.Owed {
			t.Errorf("%d owed, %d paid from %d escrows", j.Owed, j.Paid, len(j.Escrows))
		}
		var deposited, paid, refunded market.Amount
		for _, e := range j.Escrows {
			deposited, paid, refunded = deposited+e.Deposited, paid+e.Paid, refunded+e.Refunded
		}
		if paid != j.Paid || deposited != paid+refunded || refunded == 0 {
			t.Errorf("%d set aside, %d paid, %d back; the job paid %d", deposited, paid, refunded, j.Paid)
		}
		for i := range 4 {
			var got sums
			var want market.Amount
			for _, a := range n.Provider(i).Node.Provider().Accounts() {
				got.add(a)
				want += a.Claimed - fee(a.Claimed)
			}
			if have := n.tokens(t, n.Provider(i)); have != want || got.claimed+got.lost != got.owed {
				t.Errorf("%s has %d, its claims came to %d of %d, %d lost", name(i), have, want, got.owed, got.lost)
			}
		}
	}}.run(t)
}

// every has power cut at all writes there are, before and after each, which takes a quarter of an hour; else once at each kind of write
// that is the cluster's own, in each of its phases.
var every = flag.Bool("every", false, "in TestClusterCrashes, cut the power before and after every single write")

// clusterPhases are those of a clusterCase. Nothing is tried before the first.
var clusterPhases = []string{"alone", "coming up", "made larger", "losing a member", "made smaller", "going down"}

// A power cut of the buyer or of a member's provider, whatever the cluster is at: it comes to the size that was asked for, all of whose
// members know each other, nobody is left running, and every lease is paid once, for what it did.
func TestClusterCrashes(t *testing.T) {
	t.Parallel()
	for _, who := range []struct {
		name  string
		base  clusterCase
		kinds []string // of writes that are tried; how intervals are paid is TestCrashAtEveryWrite's
	}{
		{"buyer", clusterCase{victim: 4}, []string{"job", "job+order", "job+trace", "lease", "lease+payer", "deposit", "job+lease+paths+trace"}},
		{"provider", clusterCase{victim: 0}, []string{"hold", "execution"}},
	} {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			tried, hit := 0, map[string]int{}
			t.Cleanup(func() {
				if t.Logf("%d crashes tried: %v", tried, hit); len(hit) == 0 {
					t.Error("none of them happened")
				}
			})
			_, writes := who.base.run(t)
			at := 0
			for p, of := range writes {
				t.Logf("%s it writes: %s", clusterPhases[p], strings.Join(of, " "))
				for i, kind := range of {
					at++
					if p == 0 || !*every && (slices.Contains(of[:i], kind) || !slices.Contains(who.kinds, kind)) {
						continue
					}
					whens := []store.When{store.Before, store.After}
					if !*every { // by turns
						whens = whens[(p+i)%2:][:1]
					}
					for _, when := range whens {
						c := who.base
						// Back before anybody missed it, or after its leases were given up.
						c.at, c.down = Crash{Write: at, When: when}, []time.Duration{1500 * time.Millisecond, 8 * time.Second}[tried%2]
						tried++
						t.Run(fmt.Sprintf("%s/%d/%d/%v", strings.ReplaceAll(clusterPhases[p], " ", "-"), c.at.Write, when, c.down), func(t *testing.T) {
							t.Parallel()
							if kind, _ := c.run(t); kind != "" {
								mu.Lock()
								hit[kind]++
								mu.Unlock()
							}
						})
					}
				}
			}
		})
	}
}
