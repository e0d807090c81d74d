package clustercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// sweepFile is a cluster that waits for work.
const sweepFile = `apiVersion: v1
kind: Cluster
metadata: {name: sweep}
spec:
  size: 3
  image: rayproject/ray@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  engine: ray
  resources: {gpus: 2}
  autostop: 30m
  payment: {maxPrice: 1, budget: 5}
`

// fakeBuyer is a buying side with clusters that need no machines, behind a peer's real API. What it does not do is not asked of it here.
type fakeBuyer struct {
	server.Jobs
	server.Records
	server.Programs
	server.Market
	home string

	mu    sync.Mutex
	jobs  []record.Job // newest first
	steps []record.Step
	wake  chan struct{}
	head  string // address of what answers at the head's ports
	// refuse is what is answered to a change of size and for the token.
	refuse error
	execs  []int // ranks that were asked to run something
}

const fakeToken = "0123456789abcdef0123456789abcdef"

// someKey is a key that belongs to somebody.
func someKey(n byte) sign.Key { return sign.NewPrivate([32]byte{n}).Key() }

// newFakeBuyer runs it with its API.
func newFakeBuyer(t *testing.T) *fakeBuyer {
	t.Helper()
	f := &fakeBuyer{home: t.TempDir(), wake: make(chan struct{})}
	g, err := json.Marshal(market.Genesis{Network: "cli", Chain: sign.Hash{1}, Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 150, Simulated: true})
	if err == nil {
		err = os.WriteFile(filepath.Join(f.home, config.FileGenesis), g, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Listen("", filepath.Join(f.home, config.FileAPI), f, f.routes(), p2ptest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, s.Run)
	return f
}

func (f *fakeBuyer) routes() []route.Bound {
	return slices.Concat(server.BindJobs(f), server.BindRecords(f), server.BindClusters(f), server.BindPrograms(f, p2ptest.Quiet()), server.BindMarket(f))
}

// cli runs a command.
func (f *fakeBuyer) cli(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	var out, errs clitest.Buffer
	code := f.app(&out, &errs).Run(t.Context(), args)
	return clitest.Result{Code: code, Out: out.String(), Err: errs.String()}
}

func (f *fakeBuyer) app(out, errs io.Writer) *cli.App {
	return &cli.App{In: strings.NewReader(""), Out: out, Err: errs, Commands: []func(*cli.App) *cobra.Command{
		NewCluster, func(a *cli.App) *cobra.Command { return jobcmd.NewJob(a) },
	}, Getenv: func(name string) string {
		return map[string]string{"STARLING_HOME": f.home}[name]
	}}
}

// file writes a file and returns its path.
func (f *fakeBuyer) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// add puts a job there as it was submitted.
func (f *fakeBuyer) add(t *testing.T, id, text string) {
	t.Helper()
	spec, err := jobfile.Parse([]byte(text), jobfile.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.submit(id, spec); err != nil {
		t.Fatal(err)
	}
}

func (f *fakeBuyer) submit(id string, spec job.Job) (record.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := record.Job{ID: id, Spec: spec, State: record.Matching, Created: time.Now(), Ranks: make([]record.Rank, spec.Count)}
	for i := range j.Ranks {
		j.Ranks[i].State = record.RankWaiting
	}
	f.jobs = append([]record.Job{j}, f.jobs...)
	return j, nil
}

// change does something to a job and tells its followers, with steps that led to it.
func (f *fakeBuyer) change(id string, do func(*record.Job), steps ...record.Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.jobs {
		if f.jobs[i].ID == id {
			f.jobs[i].Ranks = slices.Clone(f.jobs[i].Ranks)
			do(&f.jobs[i])
		}
	}
	f.steps = append(f.steps, steps...)
	close(f.wake)
	f.wake = make(chan struct{})
}

// up makes all ranks of a cluster run, and its engine ready.
func up(j *record.Job) {
	j.Network = &record.Span{Class: cluster.WAN, RTTMicros: 61_000, LeastMbit: 940, Relayed: 1, Paths: 3}
	j.State, j.Started, j.Cluster = record.Running, time.Now(), &record.Cluster{Ready: time.Now(), Version: 1}
	for i := range j.Ranks {
		j.Ranks[i] = record.Rank{State: record.RankRunning, Epoch: 1, Lease: market.LeaseID{byte(i + 1)}, Provider: someKey(byte(i + 1)), Begun: time.Now(),
			Units: record.Units{Class: "gpu/l4", Model: "NVIDIA L4", Simulated: true}, Live: record.Live{Phase: "running", Ways: &record.Ways{Plan: 1, Direct: len(j.Ranks) - 1}}}
		if i > 0 {
			j.Ranks[i].Live.Ways.Head = &record.Way{Path: record.PathDirect, RTTMillis: 12.4, MTU: 1420}
		}
	}
}

func (f *fakeBuyer) KeyOf(string) (string, bool) { return "", false }

func (f *fakeBuyer) Job(id string) (record.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if strings.HasPrefix(j.ID, id) {
			return j, nil
		}
	}
	return record.Job{}, fmt.Errorf("%w: %q", record.ErrNoJob, id)
}

func (f *fakeBuyer) List(_ context.Context, q record.Query) (record.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := record.Page{Jobs: []record.Job{}}
	for _, j := range f.jobs {
		if strings.Contains(j.Spec.Name, q.Name) && (q.State != "open" || !j.State.Ended()) {
			p.Jobs = append(p.Jobs, j)
		}
	}
	return p, nil
}

func (f *fakeBuyer) Submit(_ context.Context, sub record.Submission) (record.Job, error) {
	return f.submit("jsubmitted"+sub.Spec.Name, sub.Spec)
}

func (f *fakeBuyer) Trace(id string, after int) ([]record.Step, <-chan struct{}, error) {
	_, err := f.Job(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps[min(after, len(f.steps)):]), f.wake, err
}

func (f *fakeBuyer) Receipts(_ context.Context, id string) ([]record.LeaseAccount, error) {
	j, err := f.Job(id)
	out := []record.LeaseAccount{}
	for i, r := range j.Ranks {
		if r.Lease.IsZero() {
			continue
		}
		core := market.LeaseCore{
			Version: market.LeaseVersion, Units: 2, Rank: uint32(i), RankEpoch: r.Epoch, Order: market.OrderID{1}, Buyer: someKey(99), Provider: r.Provider, Payout: someKey(98),
			UnitsRoot: sign.Hash{1}, Terms: sign.Hash{1}, VoucherKeys: sign.Hash{1}, Rate: 10_000_000, Cap: 1_000_000, Start: 1, ActivateBefore: 10, End: 1000, Nonce: market.Nonce{1},
		}
		if err := core.Validate(); err != nil {
			return nil, err
		}
		out = append(out, record.LeaseAccount{Lease: r.Lease, Rank: uint32(i), Epoch: r.Epoch, Active: true, Owed: 1000, Signed: market.Lease{Core: core}.Marshal()})
	}
	return out, err
}

func (f *fakeBuyer) Stop(_ context.Context, id string) error {
	_, err := f.Job(id)
	f.change(id, func(j *record.Job) { j.State, j.Ended = record.Stopped, time.Now() })
	return err
}

func (f *fakeBuyer) Log(_ context.Context, id string, rank int, _ ranklog.Query, w io.Writer) error {
	if _, err := f.Job(id); err != nil {
		return err
	}
	text := fmt.Sprintf("rank %d says hello\n", rank)
	_, err := w.Write(append([]byte{ranklog.StreamStdout, 0, 0, 0, 0, 0, 0, byte(len(text))}, text...))
	return err
}

func (f *fakeBuyer) ScaleWithin(_ context.Context, id string, size uint32, budget market.Amount) (record.Job, error) {
	if f.refuse != nil {
		return record.Job{}, f.refuse
	}
	f.change(id, func(j *record.Job) {
		j.Spec.Count = size
		if budget > 0 {
			j.Spec.Payment.Budget = budget
		}
		for len(j.Ranks) < int(size) {
			j.Ranks = append(j.Ranks, record.Rank{State: record.RankWaiting})
		}
		j.Ranks = j.Ranks[:size]
	})
	return f.Job(id)
}

func (f *fakeBuyer) ClusterToken(string) (string, error) { return fakeToken, f.refuse }

func (f *fakeBuyer) Paths(context.Context, string) ([]cluster.Path, error) {
	return []cluster.Path{{B: 1, RTTMicros: 12_400, Mbit: 940}, {B: 2, RTTMicros: 61_000, Relayed: true}}, nil
}

// conn is one end of a connection between this process and itself, and the other.
func loop() (here, there live.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err := ln.Accept()
	if err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a.(*net.TCPConn), b.(*net.TCPConn), nil
}

// Attach runs `fail N`, which ends with N plus the rank, or echoes its arguments.
func (f *fakeBuyer) Attach(ctx context.Context, id string, rank int, p live.Program) (live.Conn, error) {
	if _, err := f.runs(id, rank); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.execs = append(f.execs, rank)
	f.mu.Unlock()
	here, there, err := loop()
	if err != nil {
		return nil, err
	}
	go live.Serve(ctx, there, 0, 0, func(_ context.Context, s live.Session) (int, error) {
		if p.Args[0] == "fail" {
			return rank + 1, nil
		}
		_, err := fmt.Fprintln(s.Stdout, strings.Join(p.Args, " "))
		return 0, err
	})
	return here, nil
}

func (f *fakeBuyer) runs(id string, rank int) (record.Job, error) {
	j, err := f.Job(id)
	if err == nil && j.Ranks[rank].State != record.RankRunning {
		err = fmt.Errorf("%w: rank %d of the job is %s", record.ErrNotRunning, rank, j.Ranks[rank].State)
	}
	return j, err
}

func (f *fakeBuyer) Forward(_ context.Context, id string, rank int, _ uint16) (live.Conn, error) {
	if _, err := f.runs(id, rank); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := net.Dial("tcp", f.head)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// Offers, for a dry run.
func (f *fakeBuyer) Offers(context.Context, string) ([]api.OfferInfo, error) {
	return []api.OfferInfo{}, nil
}

// handler serves what answers at the head.
func (f *fakeBuyer) handler(t *testing.T, h http.Handler) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-done })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head = ln.Addr().String()
}
