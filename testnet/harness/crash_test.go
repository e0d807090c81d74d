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
	outage
	lose bool
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
		m.rest()
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

// outage is a power cut at a write, and how long it lasts.
type outage struct {
	at   Crash
	down time.Duration
}

func (o outage) String() string { return fmt.Sprintf("%d/%d/%v", o.at.Write, o.at.When, o.down) }

// outages returns those to try on a peer that makes these writes, given by their kinds. There is one at every write, before and after the first
// four of each kind, and before or after each later one of that kind by turns. By turns, too, the peer is back before anybody missed it, or after
// its leases were given up. With all, both sides and both times are tried everywhere. A run with an outage may have a few writes more: the last
// two writes are beyond the end.
func outages(writes []string, all bool) (out []outage) {
	seen := map[string]int{}
	downs := []time.Duration{1500 * time.Millisecond, 8 * time.Second}
	for i, kind := range append(slices.Clone(writes), "beyond", "beyond") {
		n := seen[kind]
		seen[kind]++
		for _, when := range []store.When{store.Before, store.After} {
			turn := n + int(when)
			if n >= 4 {
				turn = n / 2
			}
			for d, down := range downs {
				if all || d == turn%2 && (n < 4 || int(when) == n%2) {
					out = append(out, outage{Crash{Write: i + 1, When: when}, down})
				}
			}
		}
	}
	return out
}

func TestOutages(t *testing.T) {
	t.Parallel()
	if store.Before != 0 || store.After != 1 {
		t.Fatalf("sides are %d and %d", store.Before, store.After)
	}
	const few = 8
	if n := len(outages(make([]string, few), true)); n != 4*(few+2) {
		t.Errorf("all are %d", n)
	}
	tried := map[outage]bool{}
	for _, o := range outages(slices.Repeat([]string{"lease"}, few), false) {
		if tried[o] {
			t.Errorf("%v twice", o)
		}
		tried[o] = true
	}
	for write := range few + 2 {
		sides := 0
		for o := range tried {
			if o.at.Write == write+1 {
				sides++
			}
		}
		if want := 2 - min(1, write/4%2); sides != want {
			t.Errorf("write %d: %d sides, want %d", write+1, sides, want)
		}
	}
	kinds := map[outage]bool{}
	for o := range tried {
		if o.at.Write > 4 && o.at.Write <= few {
			o.at.Write = 0
			kinds[o] = true
		}
	}
	if len(kinds) != 4 {
		t.Errorf("later writes have outages %v", kinds)
	}
}

// Every write at which a provider or a buyer can lose power while a job runs: some seconds later the peer is started again. The job ends well and
// the money is right every time.
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
		for _, o := range outages(writes, *every) {
			t.Run(role.name+"/"+o.String(), func(t *testing.T) {
				t.Parallel()
				c := role.base
				c.outage = o
				if kind, _ := c.run(t); kind != "" {
					mu.Lock()
					covered[role.name+": "+kind]++
					mu.Unlock()
				}
			})
		}
	}
}
