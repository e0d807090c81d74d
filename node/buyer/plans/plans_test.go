package plans

import (
	"testing"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run/runtest"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// A provider is behind if it goes by an older plan for the rank's present execution. Everybody who waits is woken by its
// report.
func TestPlansBehind(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	job := w.Open(runtest.Spec(1), runtest.NewParts(), nil, func(j *record.Job) { j.Cluster = &record.Cluster{Version: 3} })
	w.Working(job, func(st *jobs.State) { st.Plan.Version = 3 })
	w.Restore(job)
	w.Run()
	w.Settle(job)
	l := job.Seat(0)
	p := New(&Config{Store: w.Store, Log: p2ptest.Quiet()}, job, nil)
	for name, c := range map[string]struct {
		seq, plan uint64
		want      bool
	}{
		"it said nothing": {1, 0, false}, "an older plan": {1, 2, true}, "the plan in force": {1, 3, false},
		"another execution": {2, 2, false},
	} {
		changed := p.rung()
		p.Heard(0, &nodepb.Execution{Seq: c.seq, PlanVersion: c.plan})
		select {
		case <-changed:
		default:
			t.Errorf("%s: nobody was woken", name)
		}
		got, seq, due := p.behind(0)
		if due != c.want || due && (got != l || seq != 1) {
			t.Errorf("%s: behind %v, execution %d", name, due, seq)
		}
	}
	p.Heard(1, &nodepb.Execution{}) // a rank that was scaled away
	p.resize(3)
	if _, _, due := p.behind(2); due || len(p.observed) != 3 {
		t.Errorf("a rank that joins is behind: %v, room for %d", due, len(p.observed))
	}
	p.resize(1)
	if _, _, due := p.behind(1); due || len(p.observed) != 1 {
		t.Errorf("a rank that is gone is behind: %v, room for %d", due, len(p.observed))
	}
}

// The paths between members are read once, and again after they were to be written.
func TestPlansPaths(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	job := w.Open(runtest.Spec(1), runtest.NewParts(), nil, nil)
	p := New(&Config{Store: w.Store, Log: p2ptest.Quiet()}, job, nil)
	write := func(micros uint32) {
		if err := mesh.Records.Write(t.Context(), w.Store, job.ID, []cluster.Path{{B: 1, RTTMicros: micros}}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want uint32) {
		t.Helper()
		got, err := p.pathsNow(t.Context())
		if err != nil || len(got) != 1 || got[0].RTTMicros != want {
			t.Errorf("got %v, %v, want %d µs", got, err, want)
		}
	}
	write(5)
	is(5)
	write(6)
	is(5)
	p.setPaths(nil)
	is(6)
	p.setPaths(&[]cluster.Path{{B: 1, RTTMicros: 7}})
	is(7)
}
