package run_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/run/runtest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// working is a job of so many ranks whose programs run.
func working(t *testing.T, ranks uint32) (*runtest.World, *run.Job, *runtest.Parts) {
	t.Helper()
	w, parts := runtest.New(t, store.NewMemory()), runtest.NewParts()
	j := w.Open(runtest.Spec(ranks), parts, nil, nil)
	w.Working(j, nil)
	w.Restore(j)
	w.Run()
	w.Settle(j)
	return w, j, parts
}

// A rank that runs has its lease and execution. Others are refused with the reason that their user understands.
func TestRunning(t *testing.T) {
	t.Parallel()
	_, j, _ := working(t, 2)
	for i := range 2 {
		l, seq, err := j.Running(i)
		if err != nil || l != j.Seat(i) || seq != 1 || l.Core.Rank != uint32(i) {
			t.Errorf("rank %d: lease %v, execution %d, %v", i, l, seq, err)
		}
		if on := run.On(l, seq); on.Lease != l.First || on.Peer != l.Peer || on.Seq != 1 {
			t.Errorf("rank %d runs as %+v", i, on)
		}
	}
	for _, i := range []int{-1, 2} {
		if _, _, err := j.Running(i); !errors.Is(err, record.ErrNoJob) || !strings.Contains(err.Error(), "ranks 0 to 1") {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	l := j.Seat(0)
	exec := jobs.Exec{Rank: 0, Lease: l.ID, Seq: 1}
	if _, err := j.Ask(t.Context(), run.Event{Ev: jobs.ExecutionExited{Exec: exec}}); err != nil {
		t.Fatal(err)
	}
	j.Show(func(of *record.Job) bool {
		of.Ranks = slices.Clone(of.Ranks)
		of.Ranks[0].State = record.RankDone
		return true
	})
	if _, _, err := j.Running(0); !errors.Is(err, record.ErrNotRunning) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("a rank that is done: %v", err)
	}
	j.Show(func(of *record.Job) bool {
		of.State = record.Succeeded
		return true
	})
	if _, _, err := j.Running(1); !errors.Is(err, record.ErrNotRunning) || !strings.Contains(err.Error(), "starling get") {
		t.Errorf("a job that has ended: %v", err)
	}
}

// The journal has a step before its effects are carried out. After a crash before the write nothing has happened, and
// after one that follows it the next process has the state.
func TestJournalBeforeEffects(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		disk := store.NewMemory()
		st := store.NewCrashing(disk)
		w, parts := runtest.New(t, st), runtest.NewParts()
		j := w.Open(runtest.Spec(1), parts, nil, nil)
		w.Restore()
		w.Run()
		w.Begin(j)
		states, effects, _ := parts.Seen()
		if _, ordered := runtest.Has[jobs.OrderGang](effects); len(states) != 1 || !ordered {
			t.Fatalf("a new job has the states %+v and effects %+v", states, effects)
		}
		st.CrashAt(st.Count()+1, when)
		_, err := j.Ask(t.Context(), run.Event{Ev: jobs.StopRequested{}, Puts: []store.Put{{Kind: "x", Key: "y", Value: []byte("z")}}})
		after, done, _ := parts.Seen()
		if err == nil || len(after) != len(states) || len(done) != len(effects) {
			t.Errorf("crash %v: %v, %d states and %d effects, were %d and %d", when, err, len(after), len(done), len(states),
				len(effects))
		}
		rec, err := record.Records.Get(t.Context(), disk, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		next, err := jobs.Decode(rec.Work)
		if err != nil || (next.Phase == jobs.Placing) != (when == store.Before) {
			t.Errorf("crash %v: the journal has phase %v, %v", when, next.Phase, err)
		}
		if _, err := disk.Get(t.Context(), "x", "y"); (err == nil) != (when == store.After) {
			t.Errorf("crash %v: the record beside the step: %v", when, err)
		}
	}
}

// Each state is reported once: with the write, and sent after it.
func TestNews(t *testing.T) {
	t.Parallel()
	w, parts := runtest.New(t, store.NewMemory()), runtest.NewParts()
	j := w.Open(runtest.Spec(1), parts, nil, nil)
	w.Restore()
	w.Run()
	w.Begin(j)
	w.Settle(j)
	if got := w.Reports(); !slices.Equal(got, []record.State{record.Matching}) {
		t.Errorf("reported are %v", got)
	}
	if _, err := w.Store.Get(t.Context(), "news", string(record.Matching)); err != nil {
		t.Error("the journal does not have the report:", err)
	}
	if _, err := j.Ask(t.Context(), run.Event{Ev: jobs.StopRequested{}}); err != nil {
		t.Fatal(err)
	}
	parts.Until(t, func(all []jobs.Effect) bool { _, ok := runtest.Has[jobs.CancelGang](all); return ok })
	j.Post(jobs.GangFailed{Gang: 1, Why: jobs.GangDropped, Reason: "stopped"})
	parts.Until(t, func(all []jobs.Effect) bool { _, ok := runtest.Has[jobs.CloseAccount](all); return ok })
	if got := w.Reports(); !slices.Contains(got, record.Settling) || len(got) != 2 {
		t.Errorf("reported are %v", got)
	}
	j.Post(jobs.AccountCounted{}, jobs.ReceiptsAnchored{}, jobs.EscrowReleased{})
	<-j.Done()
	if got := w.Reports(); got[len(got)-1] != record.Stopped || len(got) != 3 {
		t.Errorf("reported are %v", got)
	}
	w.Tasks.Wait()
	if st := j.Peek(); st.State != record.Stopped || j.Phase() != jobs.Ended {
		t.Errorf("the job is %s, in phase %v", st.State, j.Phase())
	}
	parts.Until(t, func([]jobs.Effect) bool { return true })
	if err := j.Save(t.Context(), func(*record.Job) {}); err != nil {
		t.Errorf("a job that has ended and stays in memory cannot be saved: %v", err)
	}
}

// A request waits for the answer of the machine, and no longer than its caller or the job.
func TestRequest(t *testing.T) {
	t.Parallel()
	w, j, _ := working(t, 1)
	pause := func(on bool) error {
		return j.Request(t.Context(), func(req jobs.Req) error {
			_, err := j.Ask(t.Context(), run.Event{Ev: jobs.PauseRequested{Req: req, Pause: on}})
			return err
		})
	}
	if err := pause(true); err != nil || !j.Peek().Paused {
		t.Errorf("paused: %v, %v", j.Peek().Paused, err)
	}
	refused := errors.New("not sent")
	if err := j.Request(t.Context(), func(jobs.Req) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a request that was not sent: %v", err)
	}
	short, cancel := context.WithCancel(t.Context())
	if err := j.Request(short, func(jobs.Req) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a request without answer: %v", err)
	}
	if err := j.Request(t.Context(), func(jobs.Req) error { j.Close(); return nil }); !errors.Is(err, record.ErrNotRunning) {
		t.Errorf("a request to a job that ends: %v", err)
	}
	j.Freeze()
	if err := pause(false); !errors.Is(err, record.ErrNotRunning) {
		t.Errorf("a frozen job: %v", err)
	}
	if err := j.Save(t.Context(), func(of *record.Job) { of.Warning = "late" }); !errors.Is(err, record.ErrNotRunning) {
		t.Errorf("a frozen job is saved: %v", err)
	}
	j.Thaw()
	if err := j.Save(t.Context(), func(of *record.Job) { of.Warning = "late" }); err != nil || j.Peek().Warning != "late" {
		t.Errorf("after Thaw: %q, %v", j.Peek().Warning, err)
	}
	rec, err := record.Records.Get(t.Context(), w.Store, j.ID)
	if err != nil || rec.Warning != "late" || !rec.Paused {
		t.Errorf("the journal has %q, paused %v, %v", rec.Warning, rec.Paused, err)
	}
}

// Leases are listed by rank, epoch and id in every process. Those of an order leave out successors.
func TestHoldings(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	j := w.Open(runtest.Spec(2), runtest.NewParts(), nil, nil)
	var all []*leases.Lease
	for _, c := range []struct{ rank, epoch int }{{1, 1}, {0, 2}, {0, 1}, {1, 2}} {
		core := runtest.Core(c.rank)
		core.RankEpoch, core.Nonce = uint32(c.epoch), market.Nonce{byte(c.rank), byte(c.epoch)}
		l := w.Lease(j, core)
		j.Hold(l)
		all = append(all, l)
	}
	want := []*leases.Lease{all[2], all[1], all[0], all[3]}
	if got := j.Bought(); !slices.Equal(got, want) {
		t.Errorf("bought are %v, want %v", got, want)
	}
	if got := j.Together(all[0].Core.Order); len(got) != 4 || got[0] != want[0].Core || got[3] != want[3].Core {
		t.Errorf("leases of the order: %v", got)
	}
	if got := j.Together(market.OrderID{99}); len(got) != 0 {
		t.Errorf("leases of another order: %v", got)
	}
	if j.Chain(all[1].ID) != all[1] || j.Chain(market.LeaseID{5}) != nil {
		t.Error("a line is found by another id than its first lease's")
	}
	if j.Settled() {
		t.Error("leases that go on are settled")
	}
	if len(j.Seats()) != 0 || j.Seat(0) != nil || j.Seat(-1) != nil || j.Seat(7) != nil {
		t.Error("ranks have leases before the machine gave them some")
	}
	j.Replace(all[:1])
	if got := j.Leases(); !slices.Equal(got, all[:1]) {
		t.Errorf("after Replace: %v", got)
	}
}

// Work under a command ends with it, and work under the next one begins anew.
func TestCommanded(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	j := w.Open(runtest.Spec(1), runtest.NewParts(), nil, nil)
	ctx, stop := context.WithCancel(t.Context())
	w.Runner.Start(ctx)
	j.Revoke() // there was none
	first := j.Commanded()
	if j.Commanded() != first || first.Err() != nil {
		t.Error("one command has two contexts")
	}
	j.Revoke()
	second := j.Commanded()
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("revoked: %v, the next one: %v", first.Err(), second.Err())
	}
	stop()
	if second.Err() == nil || j.Context() != ctx {
		t.Error("work goes on when the peer stops")
	}
	if err := run.Pause(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a pause of a peer that stops: %v", err)
	}
}

// After a restart a lease that was over meanwhile is expired, and its machine knows. A job of another peer waits for its
// command.
func TestRestore(t *testing.T) {
	t.Parallel()
	w, parts := runtest.New(t, store.NewMemory()), runtest.NewParts()
	j := w.Open(runtest.Spec(2), parts, nil, nil)
	all := w.Working(j, nil)
	all[1].Expire("it was over")
	guarded := w.Open(runtest.Spec(1), runtest.NewParts(), nil, func(of *record.Job) { of.Detached = &record.Detached{} })
	guarded.Mine = false
	w.Working(guarded, nil)
	if !j.Resumed() {
		t.Error("the job was begun by this process")
	}
	w.Restore(j, guarded)
	w.Run()
	parts.Until(t, func(effects []jobs.Effect) bool {
		r, ok := runtest.Has[jobs.ReclaimExecution](effects)
		return ok && r.Rank == 1
	})
	if st, err := guarded.State(); err != nil || !st.Command.Lost {
		t.Errorf("the command of another peer's job: %+v, %v", st.Command, err)
	}
	// The loss of a lease is reported while the process runs.
	all[0].Condemn("shared")
	lost, err := j.Until(t.Context(), func(st jobs.State) bool {
		return st.Ranks[0].State != jobs.RankRunning || st.Ranks[0].Doing == jobs.Reclaiming
	})
	if err != nil {
		t.Errorf("rank 0 is %+v, %v", lost.Ranks[0], err)
	}
	if cause, why := run.CauseOf(all[0]); cause != jobs.CauseCondemned || why != "shared" {
		t.Errorf("cause %v: %s", cause, why)
	}
	if cause, _ := run.CauseOf(all[1]); cause != jobs.CauseAbsent {
		t.Errorf("cause %v of a lease that was over", cause)
	}
	if f := run.FactOf(all[0]); f.ID != all[0].ID || f.Chain != all[0].First || !f.Open || f.Rank != 0 {
		t.Errorf("fact %+v", f)
	}
}

// Lines of leases that are over already are reported to machines that are there, however many jobs are restored.
func TestRestoreManyEnded(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	var all []*run.Job
	var parts []*runtest.Parts
	for range 50 {
		p := runtest.NewParts()
		j := w.Open(runtest.Spec(1), p, nil, nil)
		for _, l := range w.Working(j, nil) {
			l.Expire("it was over")
		}
		all, parts = append(all, j), append(parts, p)
	}
	w.Restore(all...)
	w.Run()
	for _, p := range parts {
		p.Until(t, func(effects []jobs.Effect) bool {
			_, ok := runtest.Has[jobs.ReclaimExecution](effects)
			return ok
		})
	}
}

// A provider's report of a running program is shown, and lost with the rank.
func TestSee(t *testing.T) {
	t.Parallel()
	_, j, _ := working(t, 1)
	ex := &nodepb.Execution{Seq: 1, State: nodepb.ExecState_EXEC_STATE_RUNNING}
	before := j.Snapshot()
	_, more, err := j.Trace.After(0)
	if err != nil {
		t.Fatal(err)
	}
	j.See(0, ex)
	if got := j.Peek().Ranks[0].Live; !got.Equal(record.LiveOf(ex)) || got.Equal(before.Ranks[0].Live) {
		t.Errorf("shown is %+v", got)
	}
	select {
	case <-more:
	case <-t.Context().Done():
		t.Error("nobody is woken by a report")
	}
	j.See(5, ex) // a rank that was scaled away
	if n := len(j.Peek().Ranks); n != 1 || !before.Ranks[0].Live.Equal(record.Live{}) {
		t.Errorf("%d ranks, and the snapshot has %+v", n, before.Ranks[0].Live)
	}
}

// The content of a lease's quote is shown with the rank that has the lease.
func TestFilled(t *testing.T) {
	t.Parallel()
	w, parts := runtest.New(t, store.NewMemory()), runtest.NewParts()
	j := w.Open(runtest.Spec(1), parts, nil, nil)
	w.Restore()
	w.Run()
	w.Begin(j)
	_, effects, _ := parts.Seen()
	o, _ := runtest.Has[jobs.OrderGang](effects)
	core := runtest.Core(0)
	core.RankEpoch = o.Seats[0].Epoch
	l := w.Lease(j, core)
	j.Hold(l)
	j.Filled(map[market.LeaseID]run.Offered{l.ID: {Route: "gossip", Units: record.Units{Class: "cpu"}}}, 3*time.Second)
	for _, ev := range []jobs.Event{
		jobs.OrderPlaced{Gang: o.Gang, Order: core.Order},
		jobs.GangFormed{Gang: o.Gang, Leases: []jobs.Lease{run.FactOf(l)}},
	} {
		if _, err := j.Ask(t.Context(), run.Event{Ev: ev}); err != nil {
			t.Fatal(err)
		}
	}
	parts.Until(t, func(all []jobs.Effect) bool {
		t.Logf("%#v", all)
		_, ok := runtest.Has[jobs.StartExecution](all)
		return ok
	})
	r := j.Snapshot().Ranks[0]
	if r.Route != "gossip" || r.Units.Class != "cpu" || r.State != record.RankRunning || j.Seat(0) != l {
		t.Errorf("shown is %+v", r)
	}
	steps, _, err := j.Trace.After(0)
	if err != nil || !slices.ContainsFunc(steps, func(s record.Step) bool { return s.Took == 3*time.Second }) {
		t.Errorf("steps %+v, %v", steps, err)
	}
}

// A job keeps a log for each rank, also for those that join.
func TestLogbook(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	j := w.Open(runtest.Spec(1), runtest.NewParts(), nil, func(of *record.Job) { of.Ranks[0].LogBase = 500 })
	if at := j.Snapshot().Ranks[0].LogBase; at != 0 {
		t.Errorf("the log of an execution begins at byte %d of an empty log", at)
	}
	if err := j.MakeRoom(3); err != nil || len(j.Logs()) != 3 {
		t.Fatalf("%d logs, %v", len(j.Logs()), err)
	}
	first := j.Logs()[2]
	if err := j.MakeRoom(2); err != nil || len(j.Logs()) != 3 || j.Logs()[2] != first {
		t.Errorf("%d logs, %v", len(j.Logs()), err)
	}
	st := jobs.State{Ranks: make([]jobs.Rank, 3)}
	st.Ranks[1] = jobs.Rank{State: jobs.RankRunning, Lease: market.LeaseID{4}, Provider: sign.Key{3}, Seq: 2}
	of, bases := j.Project(st)
	if len(of.Ranks) != 3 || len(bases) != 3 || of.Ranks[1].Seq != 2 || fmt.Sprint(bases) != "[0 0 0]" {
		t.Errorf("projected are %+v, logs begin at %v", of.Ranks, bases)
	}
}
