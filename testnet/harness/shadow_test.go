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

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/job"
)

// shadow drives the state machine of a job (package jobs) by the events that the job's supervisor sees, and compares the
// machine's effects and state with the supervisor's. The order of effects of different ranks is free. Differences that
// are meant:
//
//   - Stopped ranks: the record of a stopped job has them as running, the machine as stopped.
//   - Orders that failed: both pause before the next one, for different times, so later orders may be shorter.
type shadow struct {
	t    testing.TB
	slot func() market.Slot

	mu   sync.Mutex
	jobs map[string]*shadowed
}

// shadowed is one job.
type shadowed struct {
	jobs.State
	orders    []jobs.OrderGang // the machine's that the supervisor has not placed yet
	gangs     map[market.OrderID]jobs.GangID
	core, did map[int][]string // effects by rank; -1: of the job
	log       []string
	rejected  []error
}

func newShadow(t testing.TB, slot func() market.Slot) *shadow {
	return &shadow{t: t, slot: slot, jobs: map[string]*shadowed{}}
}

func (x *shadow) now() jobs.Now { return jobs.Now{Time: time.Now(), Slot: x.slot()} }

// Began makes the machine of a job.
func (x *shadow) Began(id string, p jobs.Params) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, fx := jobs.New(p, true, x.now())
	j := &shadowed{State: s, gangs: map[market.OrderID]jobs.GangID{}, core: map[int][]string{}, did: map[int][]string{}}
	x.jobs[id] = j
	j.emitted(fx)
}

// with calls f for a job that was seen to begin, after all deadlines that are due.
func (x *shadow) with(id string, f func(j *shadowed)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[id]
	if j == nil {
		return
	}
	now := x.now()
	for at := j.Next(); !at.IsZero() && !at.After(now.Time); at = j.Next() {
		j.step(jobs.Now{Time: at, Slot: now.Slot}, jobs.Ticked{})
	}
	f(j)
}

// Ordered reports an order and its id.
func (x *shadow) Ordered(id string, o market.OrderID, g jobs.OrderGang) {
	x.with(id, func(j *shadowed) {
		j.note(g, j.did)
		at := slices.IndexFunc(j.orders, func(c jobs.OrderGang) bool { return slices.Equal(c.Seats, g.Seats) })
		if at < 0 {
			j.rejected = append(j.rejected, fmt.Errorf("the machine does not order %v", g.Seats))
			return
		}
		j.gangs[o] = j.orders[at].Gang
		j.orders = slices.Delete(j.orders, at, at+1)
		j.step(x.now(), jobs.OrderPlaced{Gang: j.gangs[o], Order: o})
	})
}

// Answered reports the result of an order.
func (x *shadow) Answered(id string, o market.OrderID, ev jobs.Event) {
	x.with(id, func(j *shadowed) {
		switch e := ev.(type) {
		case jobs.GangFormed:
			e.Gang = j.gangs[o]
			ev = e
		case jobs.GangFailed:
			e.Gang = j.gangs[o]
			ev = e
		}
		j.step(x.now(), ev)
	})
}

// Saw reports an event.
func (x *shadow) Saw(id string, ev jobs.Event) {
	x.with(id, func(j *shadowed) { j.step(x.now(), ev) })
}

// Did reports an effect.
func (x *shadow) Did(id string, fx jobs.Effect) {
	x.with(id, func(j *shadowed) { j.note(fx, j.did) })
}

func (j *shadowed) step(now jobs.Now, ev jobs.Event) {
	if _, tick := ev.(jobs.Ticked); !tick {
		j.log = append(j.log, fmt.Sprintf("%s  %T%v", now.Time.Format("05.000"), ev, ev))
	}
	next, fx, err := j.Step(now, ev)
	if err != nil {
		j.rejected = append(j.rejected, fmt.Errorf("%T: %w", ev, err))
		return
	}
	j.State = next
	j.emitted(fx)
}

// emitted notes the machine's effects.
func (j *shadowed) emitted(fx []jobs.Effect) {
	for _, f := range fx {
		if g, ok := f.(jobs.OrderGang); ok {
			j.orders = append(j.orders, g)
		}
		j.note(f, j.core)
	}
}

// note adds an effect to the sequences of its ranks, in the words that both sides have in common.
func (j *shadowed) note(fx jobs.Effect, to map[int][]string) {
	add := func(rank int, format string, args ...any) { to[rank] = append(to[rank], fmt.Sprintf(format, args...)) }
	chain := func(what string, chain market.LeaseID) {
		rank := -1
		for _, l := range j.Leases {
			if l.Chain == chain {
				rank = int(l.Rank)
			}
		}
		add(rank, "%s %s", what, chain.Short())
	}
	switch f := fx.(type) {
	case jobs.OrderGang:
		for _, s := range f.Seats {
			add(int(s.Rank), "order epoch %d, %d slots, %d for %d", s.Epoch, f.Slots, f.Cap, len(f.Seats))
		}
	case jobs.StartExecution:
		add(int(f.Rank), "start %s/%d round %d", f.Lease.Short(), f.Seq, f.Round)
	case jobs.StopExecution:
		add(int(f.Rank), "stop %s/%d in %v", f.Lease.Short(), f.Seq, f.Grace)
	case jobs.GatherOutputs:
		add(int(f.Rank), "gather %s/%d", f.Lease.Short(), f.Seq)
	case jobs.ReclaimExecution:
		add(int(f.Rank), "reclaim %s/%d", f.Lease.Short(), f.Seq)
	case jobs.EndLease:
		chain("end", f.Chain)
	case jobs.ReportFault:
		chain("fault", f.Chain)
	case jobs.Reduce:
		add(-1, "reduce %d", f.Round)
	case jobs.CloseAccount:
		add(-1, "close account")
	case jobs.AnchorReceipts:
		add(-1, "anchor")
	}
}

// compare fails the test where the machine and the supervisor differ in the course and the end of a job.
func (x *shadow) compare(j buyer.Job) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.jobs[j.ID]
	if c == nil {
		x.t.Fatalf("job %s was not recorded", j.ID)
	}
	for _, err := range c.rejected {
		x.t.Errorf("the machine refuses: %v", err)
	}
	ranks := maps.Clone(c.core)
	maps.Copy(ranks, c.did)
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		if core, did := c.core[rank], c.did[rank]; !slices.Equal(core, did) {
			x.t.Errorf("rank %d: the machine wants\n  %s\nthe supervisor did\n  %s", rank, strings.Join(core, "\n  "), strings.Join(did, "\n  "))
		}
	}
	type rank struct {
		state            string
		epoch            uint32
		lease            market.LeaseID
		seq              uint64
		losses, restarts uint32
		exit, outputs    int
	}
	for i, r := range j.Ranks {
		k := c.Ranks[i]
		want := rank{string(r.State), r.Epoch, r.Lease, r.Seq, uint32(r.Restarts), uint32(r.Retries), r.Exit, len(r.Outputs)}
		got := rank{k.State.String(), k.Epoch, k.Lease, k.Seq, k.Losses, k.Restarts, k.Exit.Code, len(k.Outputs)}
		if k.State == jobs.RankStopped && r.State == buyer.RankRunning {
			got.state = string(r.State)
		}
		if got != want {
			x.t.Errorf("rank %d: the machine has %+v, the supervisor %+v", i, got, want)
		}
	}
	end := func(state, code string, round int, owed, paid market.Amount, receipts int) string {
		return fmt.Sprint(state, " ", code, " round ", round, " owed ", owed, " paid ", paid, " receipts ", receipts)
	}
	code := ""
	if c.Outcome.Code != 0 {
		code = c.Outcome.Code.String()
	}
	got := end(c.Outcome.Result.String(), code, int(c.Round), c.Account.Owed, c.Account.Paid, int(c.Account.Receipts))
	if want := end(string(j.State), string(j.Code), j.Round, j.Owed, j.Paid, j.Receipts); got != want || c.Phase != jobs.Ended {
		x.t.Errorf("the machine is %s with %s, the supervisor's job %s", c.Phase, got, want)
	}
	if x.t.Failed() {
		x.t.Logf("events:\n%s", strings.Join(c.log, "\n"))
	}
}

// The state machine of a job, driven by the events of today's supervisor, does what the supervisor does.
func TestShadow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		providers int
		spec      func(b *Peer) job.Job
		meanwhile func(n *Net, b *Peer, id string)
	}{
		"one rank":  {2, func(b *Peer) job.Job { return b.Job("hello", 1) }, nil},
		"ranks":     {3, func(b *Peer) job.Job { return b.Job("work", 3, "6") }, nil},
		"no output": {2, func(b *Peer) job.Job { return b.Job("fail", 2) }, nil},
		"rounds":    {3, func(b *Peer) job.Job { return b.rounds(3, 2) }, nil},
		"restarts": {2, func(b *Peer) job.Job {
			spec := b.Job("fail", 1)
			spec.Restart = job.Restart{Max: 2, Policy: job.RestartOnFailure, Backoff: job.Span(time.Second)}
			return spec
		}, nil},
		"stopped": {3, func(b *Peer) job.Job { return b.Job("work", 2, "60") }, func(n *Net, b *Peer, id string) {
			time.Sleep(10 * time.Second)
			if err := b.Node.Buyer().Stop(n.t.Context(), id); err != nil {
				n.t.Error(err)
			}
		}},
		"too long": {3, func(b *Peer) job.Job {
			spec := b.Job("work", 2, "60")
			spec.Timeouts.Run = 10 * time.Second
			return spec
		}, nil},
		"killed": {4, func(b *Peer) job.Job { return b.Job("work", 2, "20") }, func(n *Net, b *Peer, id string) {
			time.Sleep(6 * time.Second)
			j, err := b.Node.Buyer().Job(id)
			if err != nil {
				n.t.Fatal(err)
			}
			n.owner(t, j.Ranks[1].Provider).Kill()
		}},
		"nobody": {2, func(b *Peer) job.Job {
			spec := b.Job("hello", 1)
			spec.Resources.PerUnit.MemoryMiB = 1 << 20
			return spec
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: c.providers, Units: 1, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				x := newShadow(t, func() market.Slot { return 0 })
				b.Node.Buyer().Record(x)
				id := b.Submit(c.spec(b)).ID
				if c.meanwhile != nil {
					c.meanwhile(n, b, id)
				}
				x.compare(b.Wait(id, 5*time.Minute))
			})
		})
	}
}
