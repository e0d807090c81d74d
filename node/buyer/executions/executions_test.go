package executions

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// lease is a lease with 1 GiB of disk.
type lease struct {
	ctx context.Context
	why string
}

func (l lease) Context() context.Context { return l.ctx }
func (l lease) LostReason() string       { return l.why }
func (l lease) Disk() int64              { return 1 << 30 }

// A provider names files that nobody asked for, or more than the lease's disk could hold: none of them is fetched.
func TestAttackUnaskedOutputs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fetched := 0
	c := New(Config{MaxOutput: 64 << 30, Fetch: func(context.Context, peer.ID, cid.Cid, int64) error {
		fetched++
		return nil
	}})
	out := func(path string, size uint64) *nodepb.Output {
		return &nodepb.Output{Path: path, Blob: &nodepb.Blob{Cid: blob.Sum([]byte(path)).Bytes(), Size: size, Tree: true}}
	}
	wanted := []job.Output{{Path: "/out"}, {Path: "/log"}}
	for name, c2 := range map[string]struct {
		outs    []*nodepb.Output
		lost    bool
		fetched int
	}{
		"those of the job":       {[]*nodepb.Output{out("/out", 1<<30), out("/log", 1<<20)}, false, 2},
		"another":                {[]*nodepb.Output{out("/out2", 1)}, true, 0},
		"one twice":              {[]*nodepb.Output{out("/out", 1), out("/out", 1)}, true, 1},
		"more than the disk":     {[]*nodepb.Output{out("/out", 3<<30)}, true, 0},
		"more than it with both": {[]*nodepb.Output{out("/out", 1<<30), out("/log", 1<<30)}, true, 1},
		"more than an output":    {[]*nodepb.Output{out("/out", 65<<30)}, false, 0},
		"none":                   {nil, false, 0},
	} {
		fetched = 0
		ex := &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED, Outputs: c2.outs}
		res, err := c.Gather(ctx, Execution{}, lease{ctx: ctx}, ex, wanted)
		if err != nil || (res.Lost != "") != c2.lost || fetched != c2.fetched || !c2.lost && len(res.Outputs) != fetched {
			t.Errorf("%s: %d fetched, lost %q, %v", name, fetched, res.Lost, err)
		}
	}
}

// Outputs of a provider that is busy are waited for as long as for a silent one.
func TestGatherFromBusyProvider(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("fetching: %w", stream.Refuse(stream.CodeBusy, "8 streams of one peer at a time"))
	file := &nodepb.Blob{Cid: blob.Sum([]byte("x")).Bytes(), Size: 1}
	ended := &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED,
		Outputs: []*nodepb.Output{{Path: "/out", Blob: file}}}
	for name, c := range map[string]struct {
		busy int // fetches
		lost bool
	}{"for a while": {6, false}, "for ever": {1 << 30, true}} {
		synctest.Test(t, func(t *testing.T) {
			fetched := 0
			client := New(Config{MaxOutput: 1 << 20, LostAfter: 30 * time.Second,
				Fetch: func(context.Context, peer.ID, cid.Cid, int64) error {
					if fetched++; fetched <= c.busy {
						return busy
					}
					return nil
				}})
			began := time.Now()
			res, err := client.Gather(t.Context(), Execution{}, lease{ctx: t.Context()}, ended, []job.Output{{Path: "/out"}})
			if err != nil || (res.Lost != "") != c.lost || len(res.Outputs) == 1 == c.lost {
				t.Errorf("%s: %d outputs, lost %q, %v", name, len(res.Outputs), res.Lost, err)
			}
			if took := time.Since(began); took > 30*time.Second || c.lost && took < 30*time.Second {
				t.Errorf("%s: %v", name, took)
			}
		})
	}
}

// A provider's texts about an execution cannot control a terminal.
func TestAttackTerminalTexts(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b31mhello\nhint: run this"
	sum, err := multihash.Sum(nil, multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{})
	for name, ex := range map[string]*nodepb.Execution{
		"no start": {State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: protocol.ReasonStart, Message: evil},
		"a loss":   {Reason: "lost", Message: evil},
		"an output": {State: nodepb.ExecState_EXEC_STATE_EXITED, Outputs: []*nodepb.Output{
			{Path: "/out/" + evil, Blob: &nodepb.Blob{Cid: cid.NewCidV1(cid.Raw, sum).Bytes()}}}},
		"a cid": {State: nodepb.ExecState_EXEC_STATE_EXITED, Outputs: []*nodepb.Output{{Path: "/out"}}},
	} {
		res, err := c.Gather(t.Context(), Execution{}, lease{ctx: t.Context()}, ex, []job.Output{{Path: "/out"}})
		if err != nil || res.Lost == "" || strings.ContainsAny(res.Lost, "\x1b\x07\u009b\n") {
			t.Errorf("%s: %q, %v", name, res.Lost, err)
		}
	}
	if got := record.Clean(strings.Repeat("x", 801)); !strings.HasSuffix(got, "…") {
		t.Errorf("a long text ends with %q", got[len(got)-3:])
	}
	failed := &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: "oom"}
	if res, err := c.Gather(t.Context(), Execution{}, lease{ctx: t.Context()}, failed, nil); err != nil || res.Lost != "" {
		t.Errorf("a program that failed: %q, %v", res.Lost, err)
	}
	over := &nodepb.Execution{Reason: "lost"}
	if res, _ := c.Gather(t.Context(), Execution{}, lease{t.Context(), "used up"}, over, nil); res.Lost != "used up" {
		t.Errorf("the end of a lease: %q", res.Lost)
	}
}

// noted is an observer.
type noted struct {
	states int
	stages []string
}

func (n *noted) Seen(*nodepb.Execution) { n.states++ }
func (n *noted) Reached(s jobs.Stage, detail string) {
	n.stages = append(n.stages, strings.TrimSpace(fmt.Sprint(s, " ", detail)))
}

// provider answers requests about one execution as a provider does.
type provider struct {
	asked chan *nodepb.ExecRequest
	busy  int
}

func (p *provider) exec(_ context.Context, _ peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
	if p.busy > 0 {
		p.busy--
		return nil, stream.Refuse(stream.CodeBusy, "busy")
	}
	p.asked <- req
	return &nodepb.ExecReply{Execution: &nodepb.Execution{Seq: req.Seq}}, nil
}

// Each request names its execution. A busy provider is asked again for the state.
func TestRequests(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	p := &provider{asked: make(chan *nodepb.ExecRequest, 9)}
	server := protocol.Exec.Handle(hosts[1], p2ptest.Network, p.exec, stream.Limits{Logger: p2ptest.Quiet()})
	defer server.Close()
	c := New(Config{Host: hosts[0], Tag: p2ptest.Network, LostAfter: time.Minute})
	x := Execution{Peer: hosts[1].ID(), Lease: market.LeaseID{7}, Seq: 3}
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"*nodepb.ExecRequest_Start_":   func() error { return c.Start(ctx, x, &nodepb.Workload{}) },
		"*nodepb.ExecRequest_Stop_":    func() error { return c.Stop(ctx, x, time.Second) },
		"*nodepb.ExecRequest_Pause_":   func() error { return c.Pause(ctx, x, true) },
		"*nodepb.ExecRequest_Resume_":  func() error { return c.Pause(ctx, x, false) },
		"*nodepb.ExecRequest_Members_": func() error { return c.Join(ctx, x, &nodepb.ClusterPlan{}) },
		"*nodepb.ExecRequest_Status_": func() error {
			ex, err := c.Status(ctx, x)
			if err == nil && ex.Seq != x.Seq {
				err = stream.ErrBadReply
			}
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		req := <-p.asked
		if got := fmt.Sprintf("%T", req.Op); got != name || market.LeaseID(req.Lease) != x.Lease || req.Seq != x.Seq {
			t.Errorf("got %s for lease %x, execution %d; want %s", got, req.Lease, req.Seq, name)
		}
	}
	p.busy = 2
	if ex, err := c.Await(ctx, x); err != nil || ex.Seq != x.Seq {
		t.Errorf("a busy provider: %v, %v", ex, err)
	}
}

// A slow provider has more time for one answer where a silent one has longer until it is lost.
func TestSlowProvider(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lostAfter, slow time.Duration
		answers         bool
	}{
		"long intervals":              {30 * time.Second, 8 * time.Second, true},
		"long intervals, too slow":    {5 * time.Minute, 11 * time.Second, false},
		"short intervals":             {3 * time.Second, 4 * time.Second, true},
		"short intervals and as slow": {3 * time.Second, 8 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := p2ptest.NewNet(t, 2, 10*time.Millisecond)
			net.ConnectAll()
			slow := func(_ context.Context, _ peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
				time.Sleep(c.slow)
				return &nodepb.ExecReply{Execution: &nodepb.Execution{Seq: req.Seq}}, nil
			}
			server := protocol.Exec.Handle(net.Hosts[1], p2ptest.Network, slow, stream.Limits{Logger: p2ptest.Quiet()})
			defer server.Close()
			client := New(Config{Host: net.Hosts[0], Tag: p2ptest.Network, LostAfter: c.lostAfter})
			err := client.Start(t.Context(), Execution{Peer: net.Hosts[1].ID(), Seq: 1}, &nodepb.Workload{})
			if (err == nil) != c.answers {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A follower reports each stage once, keeps the log, and refuses one with a gap.
func TestFollower(t *testing.T) {
	t.Parallel()
	log, err := ranklog.Open(filepath.Join(t.TempDir(), "rank.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.End()
	n := &noted{}
	f := New(Config{}).Follower(Execution{}, lease{ctx: t.Context()}, log, 0, n)
	const pulling, running = nodepb.ExecState_EXEC_STATE_PULLING, nodepb.ExecState_EXEC_STATE_RUNNING
	const starting, healthy, sick = nodepb.Health_HEALTH_STARTING, nodepb.Health_HEALTH_HEALTHY, nodepb.Health_HEALTH_UNHEALTHY
	reports := []*nodepb.Execution{
		{State: pulling}, {State: pulling, PullTotal: 5}, {State: pulling, PullTotal: 5}, {State: running, Health: starting},
		{State: running, Health: healthy}, {State: running, Health: sick, HealthMessage: "no\x1b answer"},
		{State: running, Health: sick}, {State: running, Health: healthy}, {State: running, Health: sick},
	}
	for _, ex := range reports {
		f.note(ex)
	}
	want := []string{
		fmt.Sprint(jobs.StagePulling), fmt.Sprint(jobs.StagePulled), fmt.Sprint(jobs.StageHealthy),
		fmt.Sprint(jobs.StageUnhealthy) + " unhealthy: " + record.Clean("no\x1b answer"),
		fmt.Sprint(jobs.StageUnhealthy) + " unhealthy",
	}
	if !slices.Equal(n.stages, want) || n.states != len(reports) {
		t.Errorf("%d reports, stages\n%q, want\n%q", n.states, n.stages, want)
	}
}

// The exit of a program follows from its provider's report.
func TestExitOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ex   *nodepb.Execution
		want jobs.Exit
	}{
		"exited": {&nodepb.Execution{ExitCode: 3}, jobs.Exit{Code: 3}},
		"image": {&nodepb.Execution{Reason: protocol.ReasonImage, Message: "no"},
			jobs.Exit{Reason: "image", Detail: "no", Hopeless: true}},
		"lost":     {&nodepb.Execution{Reason: "lost"}, jobs.Exit{Reason: "lost", Broken: true}},
		"killed":   {&nodepb.Execution{Reason: "killed", ExitCode: 137}, jobs.Exit{Code: 137, Reason: "killed", Broken: true}},
		"failed":   {&nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_FAILED}, jobs.Exit{Reason: "failed"}},
		"terminal": {&nodepb.Execution{Message: "\x1b[31mred"}, jobs.Exit{Detail: record.Clean("\x1b[31mred")}},
	} {
		if got, _ := ExitOf(c.ex); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
