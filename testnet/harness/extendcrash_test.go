package harness

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
)

// extendCase is one job that is made longer twice, with a crash of the victim on its way.
type extendCase struct {
	victim int
	outage
}

func (c extendCase) run(t *testing.T) (kind string, writes []string) {
	synctest.Test(t, func(t *testing.T) {
		all, runs := counted()
		n := New(t, Options{Providers: 2, Units: 1, Programs: all, Price: map[int]string{0: "0.5"}, Crash: map[int]Crash{c.victim: c.at}, Log: Logger()})
		p, b := n.Peers[c.victim], n.Buyer(0)
		m := p.mayCrash(c.down)
		wait := m.wait
		wait(3 * time.Second)
		spec := b.Job("count", 1, "24")
		spec.Timeouts.Run = 16 * time.Second
		var id string
		for id == "" {
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
		wait(3 * time.Second)
		early := m.kind != ""
		for i, by := range []time.Duration{5 * time.Second, time.Minute} {
			for end := time.Now().Add(20 * time.Second); job().Extended <= i && !job().State.Ended(); wait(100 * time.Millisecond) {
				// One that is refused because the last is still being asked for is tried again.
				if _, err := b.Node.Buyer().Extend(t.Context(), id, by, 0); err != nil && time.Now().After(end) {
					t.Fatalf("not extended: %v\n%s", err, b.Why(id))
				}
			}
			wait(2 * time.Second)
		}
		for end := time.Now().Add(3 * time.Minute); !job().State.Ended(); wait(500 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the job hangs: %s\n%s", job().Summary(), b.Why(id))
			}
		}
		m.rest()
		j := job()
		accounts := n.check(t, b, j, buyer.Succeeded)
		n.checkPayer(t, b)
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), b)
		}
		if c.at.Write == 0 || m.kind != "" && !early && c.down < 2*time.Second && j.Ranks[0].Restarts == 0 {
			// Nothing was begun anew for whoever was away for a moment only.
			inARow(t, accounts, 3, c.at.Write == 0)
			if runs.Load() != 1 {
				t.Errorf("the program was begun %d times", runs.Load())
			}
		}
		if kind, writes = m.kind, p.Writes(); t.Failed() {
			t.Logf("crashed at a write of %s\n%s", kind, b.Why(id))
		}
	})
	return kind, writes
}

// Every crash that a provider or a buyer can have while a job is made longer twice and goes over from lease to lease.
func TestExtendCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	covered := map[string]int{}
	t.Cleanup(func() {
		total := 0
		for _, n := range covered {
			total += n
		}
		t.Logf("%d crashes: %v", total, covered)
	})
	for _, role := range []struct {
		name   string
		victim int
	}{{"provider", 1}, {"buyer", 2}} {
		_, writes := extendCase{victim: role.victim}.run(t)
		t.Logf("without a crash the %s writes %d times: %v", role.name, len(writes), writes)
		for _, o := range outages(writes, *every) {
			t.Run(role.name+"/"+o.String(), func(t *testing.T) {
				t.Parallel()
				if kind, _ := (extendCase{role.victim, o}).run(t); kind != "" {
					mu.Lock()
					covered[role.name+": "+kind]++
					mu.Unlock()
				}
			})
		}
	}
}
