package programs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run/runtest"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// provider runs one program as the test says.
type provider struct {
	mu      sync.Mutex
	ops     []string
	refuse  error // of requests
	did     chan struct{}
	reports chan *nodepb.Execution
}

func (p *provider) exec(_ context.Context, _ peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
	defer func() { p.did <- struct{}{} }()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch req.Op.(type) {
	case *nodepb.ExecRequest_Start_:
		p.ops = append(p.ops, "start")
	case *nodepb.ExecRequest_Stop_:
		p.ops = append(p.ops, "stop")
	case *nodepb.ExecRequest_Status_:
		p.ops = append(p.ops, "status")
	}
	return &nodepb.ExecReply{Execution: &nodepb.Execution{Seq: req.Seq}}, p.refuse
}

func (p *provider) watch(
	ctx context.Context, _ peer.ID, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error,
) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ex := <-p.reports:
			ex.Seq = req.Seq
			err := send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: ex}})
			if err != nil || ex.State.Ended() {
				return err
			}
		}
	}
}

func (p *provider) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ops...)
}

// world is a job with one rank, whose lease is the provider's.
type world struct {
	*runtest.World
	*Programs
	parts    *runtest.Parts
	provider *provider
	lease    *leases.Lease

	mu      sync.Mutex
	sealed  error
	granted int
	fetched int
	dropped []cid.Cid
	faults  int
	seen    []int
	heard   chan int
}

// SealFor implements Secrets.
func (w *world) SealFor(context.Context, record.Job, sign.Key, market.LeaseID) ([]byte, error) {
	return []byte("box"), w.sealed
}

// Grant implements Files.
func (w *world) Grant(peer.ID, cid.Cid) { w.granted++ }

// Drop implements Files.
func (w *world) Drop(all ...cid.Cid) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped = append(w.dropped, all...)
}

// Has implements Packs: all packs of a world have 50 bytes.
func (w *world) Has(cid.Cid) bool { return true }

// Size implements Packs.
func (w *world) Size(cid.Cid) (int64, error) { return 50, nil }

// CheckTree implements Packs.
func (w *world) CheckTree(context.Context, cid.Cid, int64) (int64, error) { return 50, nil }

func (w *world) fetch(context.Context, peer.ID, cid.Cid, int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetched++
	return nil
}

// Failed implements Reputation.
func (w *world) Failed(market.LeaseCore, market.Amount) { w.faults++ }

// For implements Plans.
func (w *world) For(context.Context, int) (*nodepb.ClusterPlan, error) {
	return &nodepb.ClusterPlan{}, nil
}

// Attached implements Plans.
func (w *world) Attached(context.Context, int) func() { return func() {} }

// Heard implements Plans.
func (w *world) Heard(rank int, _ *nodepb.Execution) { w.heard <- rank }

// Seen implements Observer.
func (w *world) Seen(rank int, _ *nodepb.Execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, rank)
}

func newWorld(t *testing.T, change func(*jobs.State)) *world {
	t.Helper()
	w := &world{World: runtest.New(t, store.NewMemory()), parts: runtest.NewParts(), heard: make(chan int, 99),
		provider: &provider{reports: make(chan *nodepb.Execution, 9), did: make(chan struct{}, 99)}}
	host := p2ptest.LoopbackHost(t, p2p.Config{Key: p2p.PrivKey([32]byte{100})})
	p2ptest.ConnectAll(t, w.Host, host)
	tag, calls := runtest.Genesis.Tag(), stream.Limits{Logger: p2ptest.Quiet()}
	for _, s := range []interface{ Close() }{
		protocol.Exec.Handle(host, tag, w.provider.exec, calls), protocol.Watch.Serve(host, tag, w.provider.watch, calls),
	} {
		t.Cleanup(s.Close)
	}
	spec := runtest.Spec(1)
	spec.Probes = job.ProbesOff
	spec.Outputs = []job.Output{{Path: "/out"}}
	spec.Checkpoint = &job.Checkpoint{Path: "/ckpt", Every: job.Span(time.Second)}
	spec.Resources.PerUnit.DiskMiB = 1
	j := w.Open(spec, w.parts, nil, nil)
	w.Programs = New(&Config{
		Host: w.Host, Genesis: runtest.Genesis, Clock: w.World, Secrets: w, Files: w, MaxOutput: 100, Tasks: &w.Tasks,
		Log: p2ptest.Quiet(), Packs: w, Executions: executions.New(executions.Config{
			Host: w.Host, Tag: tag, LostAfter: time.Minute, MaxOutput: 100, Fetch: w.fetch,
		}),
	}, j, w, w)
	w.lease = w.Working(j, change)[0]
	w.Restore(j)
	w.Run()
	w.Settle(j)
	t.Cleanup(w.Leave)
	return w
}

func (w *world) exec() jobs.Exec { return jobs.Exec{Rank: 0, Lease: w.lease.ID, Seq: 1} }

// until waits until the machine's rank is as wanted.
func (w *world) until(t *testing.T, wanted func(jobs.Rank) bool) jobs.Rank {
	t.Helper()
	st, err := w.Programs.Until(t.Context(), func(st jobs.State) bool { return wanted(st.Ranks[0]) })
	if err != nil {
		t.Fatal(err)
	}
	return st.Ranks[0]
}

const (
	running = nodepb.ExecState_EXEC_STATE_RUNNING
	exited  = nodepb.ExecState_EXEC_STATE_EXITED
)

// A program is started once and followed to its end. Each report reaches the observers, and the end the machine.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()})
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()}) // it is followed
	w.provider.reports <- &nodepb.Execution{State: running}
	w.until(t, func(r jobs.Rank) bool { return r.Doing == jobs.Up })
	if rank := <-w.heard; rank != 0 {
		t.Errorf("the plan of rank %d was heard of", rank)
	}
	w.provider.reports <- &nodepb.Execution{State: exited, ExitCode: 3}
	r := w.until(t, func(r jobs.Rank) bool { return r.State == jobs.RankFailed || r.Exit.Code != 0 })
	if r.Exit.Code != 3 {
		t.Errorf("the rank is %+v", r)
	}
	w.Leave()
	w.Tasks.Wait()
	if got := strings.Join(w.provider.asked(), " "); got != "start" {
		t.Errorf("the provider was asked to %s", got)
	}
	if w.mu.Lock(); len(w.seen) != 2 {
		t.Errorf("seen were %d reports", len(w.seen))
	}
	w.mu.Unlock()
}

// An output that is larger than this peer takes fails its program.
func TestLargeOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()})
	big := &nodepb.Output{Path: "/out", Blob: &nodepb.Blob{Size: 101}}
	w.provider.reports <- &nodepb.Execution{State: exited, Outputs: []*nodepb.Output{big}}
	r := w.until(t, func(r jobs.Rank) bool { return r.Exit.Reason != "" })
	if r.Exit.Reason != "output" || !strings.Contains(r.Exit.Detail, "101 bytes") {
		t.Errorf("exit %+v", r.Exit)
	}
}

// A provider that refuses a program loses its rank, one that is busy does not.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.provider.refuse = stream.Refuse("image", "no such image")
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()})
	w.parts.Until(t, func(all []jobs.Effect) bool { _, ok := runtest.Has[jobs.EndLease](all); return ok })
	if r := w.Peek().Ranks[0]; r.State == record.RankRunning {
		t.Errorf("rank %+v", r)
	}
}

// A job whose secrets cannot be sealed fails, and nothing is sent.
func TestUnsealed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.sealed = errors.New("no key")
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()})
	st, err := w.Programs.Until(t.Context(), func(st jobs.State) bool { return st.Phase >= jobs.Stopping })
	if err != nil || st.Outcome.Code != jobs.CodePeer || !strings.Contains(st.Outcome.Reason, "no key") {
		t.Errorf("outcome %+v, %v", st.Outcome, err)
	}
	w.Tasks.Wait()
	if got := w.provider.asked(); len(got) != 0 {
		t.Errorf("the provider was asked to %v", got)
	}
}

// A program that another process started is found where it runs, and ended.
func TestHalt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Halt(jobs.StopExecution{Exec: w.exec(), Grace: time.Second})
	<-w.provider.did
	w.provider.reports <- &nodepb.Execution{State: running}
	<-w.heard
	w.provider.reports <- &nodepb.Execution{State: exited}
	<-w.heard
	w.until(t, func(r jobs.Rank) bool { return r.Doing != jobs.Up })
	w.Leave()
	w.Tasks.Wait()
	if got := strings.Join(w.provider.asked(), " "); got != "stop" {
		t.Errorf("the provider was asked to %s", got)
	}
	if !w.back(0) || w.back(0) {
		t.Error("a rank is taken up once after a restart")
	}
}

// An execution is known while its rank runs it. A state of the machine without it ends the work on it, and so does the
// loss of command.
func TestChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	f, already := w.followed(w.exec())
	if already || w.known(w.exec()) != f || w.known(jobs.Exec{Rank: 0, Seq: 9}) != nil || w.known(jobs.Exec{Rank: 7}) != nil {
		t.Error("known is another execution than the one that is followed")
	}
	if again, already := w.followed(w.exec()); again != f || !already {
		t.Error("an execution is followed twice")
	}
	st, err := w.State()
	if err != nil {
		t.Fatal(err)
	}
	w.Changed(st)
	if f.ctx.Err() != nil || w.known(w.exec()) != f {
		t.Error("an execution that goes on is not followed any more")
	}
	next := w.exec()
	next.Seq++
	g, _ := w.followed(next)
	if f.ctx.Err() == nil || g.ctx.Err() != nil || w.known(w.exec()) != nil {
		t.Error("the execution before is followed beside its successor")
	}
	w.Changed(st) // the machine has the one before
	if g.ctx.Err() == nil || w.known(next) != nil {
		t.Error("an execution that the machine does not have is followed")
	}
	f, _ = w.followed(w.exec())
	w.Leave()
	if f.ctx.Err() == nil || w.known(w.exec()) != nil {
		t.Error("an execution is followed without the command")
	}
	if f, _ = w.followed(w.exec()); f.ctx.Err() != nil {
		t.Error("nothing can be followed under the next command")
	}
	st.Ranks = nil
	w.Changed(st)
	if f.ctx.Err() == nil || len(w.following) != 0 {
		t.Error("the execution of a rank that was scaled away is followed")
	}
}

// A provider that is silent is asked until it answers.
func TestPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Poll(jobs.PollProvider{Exec: w.exec()}) // it is not followed
	if _, already := w.followed(w.exec()); already {
		t.Error("a poll follows an execution")
	}
	w.Programs.Post(jobs.ProviderSilent{Exec: w.exec()})
	w.until(t, func(r jobs.Rank) bool { return !r.Silent.IsZero() })
	w.Poll(jobs.PollProvider{Exec: w.exec()})
	w.until(t, func(r jobs.Rank) bool { return r.Silent.IsZero() })
	w.Tasks.Wait()
	if got := strings.Join(w.provider.asked(), " "); got != "status" {
		t.Errorf("the provider was asked for %s", got)
	}
}

// The probes of a rank keep one record under each of its leases, and move the rank only if its user wants that.
func TestProbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := probed{w.Programs, 0, w.lease}
	if x := p.Record(); x.Lease != w.lease.First || x.Budget.Lease == 0 {
		t.Errorf("a new record is %+v", x)
	}
	change := func(x *record.Exclusive) { x.Budget.Lease += time.Second }
	if err := p.Update(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	first := p.begun().Budget.Lease
	if err := p.Update(t.Context(), change); err != nil || p.Record().Budget.Lease != first+2*time.Second {
		t.Errorf("the record is %+v, %v", p.Record(), err)
	}
	gone := probed{w.Programs, 4, w.lease} // a rank that was scaled away
	if err := gone.Update(t.Context(), change); err != nil || gone.Ready() || gone.Record().Budget.Lease != first {
		t.Errorf("a rank that is gone has %+v, %v", gone.Record(), err)
	}
	if p.Ready() {
		t.Error("a program that nobody has seen is probed")
	}
	p.Shared("as quick as half")
	if w.lease.Condemned() {
		t.Error("a rank is moved against its user's will")
	}
	w.Show(func(j *record.Job) bool {
		j.Spec.Probes = job.ProbesMove
		return true
	})
	p.Shared("as quick as half")
	if !w.lease.Condemned() {
		t.Error("a rank stays on shared units")
	}
}
