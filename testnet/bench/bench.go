// Package bench measures leases, clusters, idle peers and the chain's cost on a local network, beside Go benchmarks on
// one core. It writes one report, and compares it with the targets.
package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/testnet"
)

// Options of a benchmark.
type Options struct {
	Dir        string    // directory of the output
	RPC        string    // URL of a running local validator; "" starts one
	Samples    int       // orders on each route, at least 1
	ReportOnly bool      // a missed target is not an error
	Only       []string  // the parts to measure, of Parts; all if empty
	Out        io.Writer // output for the person watching
}

// ErrTargets means that the benchmark ran to its end and missed a target.
var ErrTargets = errors.New("targets were missed")

// Parts are the parts of a benchmark, in order.
var Parts = []string{"cores", "overlay", "simulated", "containers", "cluster", "chain", "network"}

// Samples is the default number of orders on each route.
const Samples = 60

// The benchmark's network and its load.
const (
	benchPeers = 20 // one of them buys
	benchUnits = 4  // of each provider: enough that no order of a series waits for earlier leases
	benchWarm  = 3  // uncounted first orders: they compile the program and connect to every provider
	benchGangs = 20
	benchGang  = 5                // leases of each of those
	benchQuiet = 10 * time.Second // idle time before the measurement of idle peers
	benchIdle  = 30 * time.Second // length of that measurement
	benchTime  = 40 * time.Minute
)

// endsAtOnce is a WASI program: a memory of one page and a start function that returns.
var endsAtOnce = []byte{
	0x00, 'a', 's', 'm', 1, 0, 0, 0, // magic, version
	1, 4, 1, 0x60, 0, 0, // types: one function without parameters and results
	3, 2, 1, 0, // functions: one, of type 0
	5, 3, 1, 0, 1, // memories: one, at least one page
	7, 19, 2, // exports: two
	6, 'm', 'e', 'm', 'o', 'r', 'y', 2, 0, // memory 0
	6, '_', 's', 't', 'a', 'r', 't', 0, 0, // function 0
	10, 4, 1, 2, 0, 0x0b, // code: one body of two bytes, no locals, end
}

// Run measures a network of 20 real peer processes, the same network simulated, the start of a cluster, and the cores.
// It writes bench.json and prints the results beside the targets. After a failed part it measures the others. It
// returns the errors of the failed parts, and ErrTargets if a target is missed.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, benchTime)
	defer cancel()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	machine, err := thisMachine(dir)
	if err != nil {
		return err
	}
	b := &bench{o: o, dir: dir, report: &Report{Machine: machine, Seconds: map[string]float64{}}}
	began := time.Now()
	parts := map[string]func(context.Context) error{
		"cores": b.cores, "overlay": b.overlay, "simulated": b.simulated, "containers": b.containerStarts,
		"cluster": b.clusterStart, "chain": b.escrowCost, "network": b.network,
	}
	// The cores and the simulation run first, while no other process uses the machine.
	for _, name := range Parts {
		if len(o.Only) > 0 && !slices.Contains(o.Only, name) {
			continue
		}
		b.try(ctx, name, func() error { return b.stage(name, func() error { return parts[name](ctx) }) })
		if ctx.Err() != nil {
			break
		}
	}
	b.report.Seconds["total"] = time.Since(began).Round(time.Millisecond).Seconds()
	return b.finish()
}

// bench is a running benchmark.
type bench struct {
	o      Options
	dir    string
	report *Report

	net    *testnet.Network
	client *api.Client // of the buying peer
	module job.Blob
	jobs   []string // all submitted jobs
	failed []error  // errors of the parts

	unsettled []string          // submitted jobs that were unsettled at the last poll
	paid      map[sign.Key]bool // providers of settled jobs
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.o.Out, format+"\n", args...) }

// stage runs one part and records its duration.
func (b *bench) stage(name string, do func() error) error {
	began := time.Now()
	err := do()
	b.report.Seconds[name] = time.Since(began).Round(time.Millisecond).Seconds()
	return err
}

// try runs one part or route. It shows an error at once and records it.
func (b *bench) try(ctx context.Context, name string, do func() error) {
	err := do()
	if err == nil {
		return
	}
	err = fmt.Errorf("%s: %w", name, err)
	b.failed = append(b.failed, err)
	if ctx.Err() == nil {
		b.say("   FAILED, continuing: %v", err)
	}
}

// start starts the network and waits until the buyer has found every provider.
func (b *bench) start(ctx context.Context) (err error) {
	b.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(b.dir, "bench"), Providers: benchPeers - 1, Buyers: 1, Units: benchUnits, RPC: b.o.RPC,
		Say: func(format string, args ...any) { b.say("   "+format, args...) },
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.net.Stop())
		}
	}()
	if b.client, err = b.net.Buyers()[0].Client(); err != nil {
		return err
	}
	if err := testnet.WaitOffers(ctx, b.client, benchPeers-1); err != nil {
		return err
	}
	if b.module, err = b.put(ctx, endsAtOnce); err != nil {
		return err
	}
	if _, err := b.orders(ctx, b.spec(1, false), benchWarm); err != nil {
		return fmt.Errorf("first orders: %w", err)
	}
	return nil
}

// spec is a job with ranks that end at once.
func (b *bench) spec(count uint32, gossip bool) job.Job {
	const source = "ends-at-once.wasm"
	return job.Job{
		Name: "bench", Runtime: job.RuntimeWasm, Module: source, Count: count,
		Resources: job.Resources{Class: job.DefaultClass, Units: 1}, Placement: job.Placement{GossipOnly: gossip},
		Restart:  job.Restart{Max: 0},
		Timeouts: job.Timeouts{Queue: 20 * time.Second, Run: time.Minute},
		Payment:  job.Payment{MaxPrice: 1_000_000, Budget: 1_000_000, Decimals: b.net.Genesis.Decimals},
		Blobs:    map[string]job.Blob{source: b.module},
	}
}

// mostAgain is the percentage of orders that a provider may refuse, as it does if its clock is seconds ahead on a busy
// machine. They are counted, and replaced by further orders.
const mostAgain = 2

// orders submits a job n times in sequence and reads the duration of each order from its trace. Each begins when all
// earlier jobs are settled: the settlement of a job takes the processors for seconds, and most of that is the local
// chain, which executes a transaction once more for each of its instructions, to profile them.
func (b *bench) orders(ctx context.Context, spec job.Job, n int) (RouteReport, error) {
	samples := make([]orderTimes, 0, n)
	before, err := b.usage()
	if err != nil {
		return RouteReport{}, err
	}
	again := 0
	for len(samples) < n {
		if err := b.calm(ctx); err != nil {
			return RouteReport{}, err
		}
		t, err := b.order(ctx, spec)
		if errors.Is(err, errNotAtOnce) && again < max(n*mostAgain/100, 1) {
			again++
			continue
		}
		if err != nil {
			return RouteReport{}, err
		}
		samples = append(samples, t)
	}
	after, err := b.usage()
	if err != nil {
		return RouteReport{}, err
	}
	r := routeReport(samples)
	r.Again = again
	for i := range after {
		r.CPU += millis(after[i].cpu-before[i].cpu) / float64(n)
	}
	return r, nil
}

func (b *bench) order(ctx context.Context, spec job.Job) (orderTimes, error) {
	_, steps, err := b.follow(ctx, spec)
	if err != nil {
		return orderTimes{}, err
	}
	return timesOf(steps)
}

// follow submits a job and returns it with its trace when its work has ended.
func (b *bench) follow(ctx context.Context, spec job.Job) (record.Job, []record.Step, error) {
	j, err := b.client.Submit(ctx, spec, job.Values{}, "")
	if err != nil {
		return j, nil, err
	}
	b.jobs, b.unsettled = append(b.jobs, j.ID), append(b.unsettled, j.ID)
	ectx, cancel := context.WithCancel(ctx)
	defer cancel()
	var steps []record.Step
	over := false
	err = b.client.Events(ectx, j.ID, func(s record.Step) { steps = append(steps, s) }, func(now record.Job) {
		if j = now; j.State == record.Settling || j.State.Ended() {
			over = true
			cancel()
		}
	})
	if err != nil && !over {
		return j, nil, err
	}
	if j.State == record.Failed || j.Outcome == record.Failed {
		return j, nil, fmt.Errorf("job %s failed: %s", j.ID, j.Reason)
	}
	return j, steps, nil
}

// put uploads a program to the buying peer.
func (b *bench) put(ctx context.Context, program []byte) (job.Blob, error) {
	m, err := api.PutBlob.Call(ctx, b.client, api.Upload{Data: bytes.NewReader(program)})
	return m.Source(), err
}

// settled waits until every job has ended and checks that it paid its debt. A job owes nothing if its lease ended in
// its first slot.
func (b *bench) settled(ctx context.Context) error {
	if err := b.calm(ctx); err != nil {
		return err
	}
	jobs, err := b.client.Jobs(ctx, record.Query{Limit: record.PageMax})
	if err != nil {
		return err
	}
	p := PaymentReport{Jobs: len(b.jobs)}
	for _, j := range jobs {
		if j.State != record.Succeeded || j.Paid+j.Held != j.Owed {
			return fmt.Errorf("job %s %s, owes %d and paid %d: %s", j.ID, j.State, j.Owed, j.Paid, j.Reason)
		}
		p.Settled++
		p.Owed += j.Owed
		p.Paid += j.Paid + j.Held
		p.Receipts += j.Receipts
	}
	if p.Settled != p.Jobs {
		return fmt.Errorf("%d jobs are listed as settled, %d were submitted", p.Settled, p.Jobs)
	}
	b.report.Payment.add(p)
	return nil
}

// idle measures the processes of idle peers.
func (b *bench) idle(ctx context.Context) error {
	if err := sleep(ctx, benchQuiet); err != nil {
		return err
	}
	before, err := b.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(ctx, benchIdle); err != nil {
		return err
	}
	after, err := b.usage()
	if err != nil {
		return err
	}
	b.report.Idle = idleReport(before, after, time.Since(began))
	return nil
}

func (b *bench) usage() ([]usage, error) {
	out := make([]usage, len(b.net.Peers))
	for i, p := range b.net.Peers {
		var err error
		if out[i], err = usageOf(p.PID); err != nil {
			return nil, fmt.Errorf("measuring %s: %w", p.Name, err)
		}
	}
	return out, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// finish writes bench.json and prints the table.
func (b *bench) finish() error {
	missed := b.report.judge()
	path := filepath.Join(b.dir, "bench.json")
	if err := testnet.WriteReport(path, b.report); err != nil {
		return err
	}
	b.report.print(b.o.Out)
	b.say("\nDone in %.0f s. The output is in %s", b.report.Seconds["total"], path)
	if missed > 0 && !b.o.ReportOnly {
		b.failed = append(b.failed, fmt.Errorf("%d of the %w", missed, ErrTargets))
	}
	return errors.Join(b.failed...)
}
