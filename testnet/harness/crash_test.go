package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// The network of the crash tests: two cheap providers that are chosen, a dear one
// that takes over, and a buyer.
const (
	crashSpare, crashProvider, crashBuyer = 0, 1, 3
)

// rounds is a job of two ranks and rounds, with carry and reduce.
func (p *Peer) rounds(count uint32, seconds int) job.Job {
	spec := p.Job("train", 2, fmt.Sprint(seconds))
	spec.Outputs = []job.Output{{Path: "/out"}}
	spec.Rounds = &job.Rounds{Count: count, Carry: "/carry", Reduce: &job.Reduce{Module: "sum.wasm"}}
	spec.Blobs["sum.wasm"] = p.Put("starling fake program sum\n")
	return spec
}

// crashCase is one run: who loses power at which write, and for how long it is
// away. With lose, a provider is killed in the first round whatever the victim does.
type crashCase struct {
	victim int
	at     Crash
	down   time.Duration
	lose   bool
}

// run runs the job, and the crash on its way. It says at which kind of write that
// was, or "" if there was none.
func (c crashCase) run(t *testing.T) (kind string, writes []string) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 3, Units: 1, Programs: programs, Price: map[int]string{crashSpare: "0.5"}, Crash: map[int]Crash{c.victim: c.at}, Log: Logger(),
		})
		p, b := n.Peers[c.victim], n.Buyer(0)
		m := p.mayCrash(c.down)
		wait := m.wait
		wait(3 * time.Second)
		spec := b.rounds(2, 2)
		var id string
		for id == "" {
			// Whoever does not know whether a job was taken hands it in again under the same key.
			if j, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec, Once: "the job"}); err == nil {
				id = j.ID
			} else if !p.power.down() {
				t.Fatal(err)
			}
			wait(100 * time.Millisecond)
		}
		job := func() buyer.Job {
			j, err := b.Node.Buyer().Job(id)
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		if c.lose {
			wait(time.Second)
			n.Provider(crashProvider).Kill()
		}
		for end := time.Now().Add(3 * time.Minute); !job().State.Ended(); wait(500 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the job hangs: %s\n%s", job().Summary(), b.Why(id))
			}
		}
		if c.lose {
			n.Provider(crashProvider).Restart()
		}
		for range 60 {
			wait(500 * time.Millisecond)
		}
		j := job()
		n.check(t, b, j, buyer.Succeeded)
		n.checkPayer(t, b)
		if got, want := b.file(t, *j.Carry, "model"), "0.0;0.1;1.0;0.0;0.1;1.1;"; got != want {
			t.Errorf("the job's result is %q, want %q", got, want)
		}
		for i := range 3 {
			n.checkQuiet(t, n.Provider(i), b)
		}
		if kind, writes = m.kind, p.Writes(); t.Failed() {
			t.Logf("crashed at a write of %s\n%s", kind, b.Why(id))
		}
	})
	return kind, writes
}

// Every crash that a provider or a buyer can have: power is cut before and after
// every write of its journal that a job causes, and some seconds later the peer is
// started again. The job ends well and the money is right every time.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var mu sync.Mutex
	covered := map[string]int{}
	t.Cleanup(func() {
		total := 0
		for _, k := range slices.Sorted(maps.Keys(covered)) {
			t.Logf("%4d crashes at %s", covered[k], k)
			total += covered[k]
		}
		t.Logf("%d crashes in %v", total, time.Since(began).Round(time.Millisecond))
	})
	for _, role := range []struct {
		name string
		base crashCase
	}{
		{"provider", crashCase{victim: crashProvider}},
		{"buyer", crashCase{victim: crashBuyer}},
		{"buyer that replaces a provider", crashCase{victim: crashBuyer, lose: true}},
	} {
		_, writes := role.base.run(t)
		t.Logf("without a crash the %s writes %d times: %s", role.name, len(writes), strings.Join(writes, " "))
		// The schedule of a run with a crash may have a few writes more; those beyond its end crash nobody.
		for write := 1; write <= len(writes)+2; write++ {
			for _, when := range []store.When{store.Before, store.After} {
				// Back before anybody missed it, or after its leases were given up, by turns.
				down := []time.Duration{1500 * time.Millisecond, 8 * time.Second}[(write+int(when))%2]
				t.Run(fmt.Sprintf("%s/%d/%d/%v", role.name, write, when, down), func(t *testing.T) {
					t.Parallel()
					c := role.base
					c.at, c.down = Crash{Write: write, When: when}, down
					if kind, _ := c.run(t); kind != "" {
						mu.Lock()
						covered[role.name+": "+kind]++
						mu.Unlock()
					}
				})
			}
		}
	}
}
