package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm"
	"github.com/starling-network/starling/testnet"
)

// StartReport is the time from the submission of a job until its program runs, beside the bare runtime.
type StartReport struct {
	Runtime string `json:"runtime"`
	// Submitted is the time from the submission at the buyer's local API until the buyer sees the program run on a
	// provider that it has paid before: order, quotes, lease, first voucher, start and its report. It excludes the
	// funding of the lease, which depends on the chain.
	Submitted Spread `json:"submitted"`
	// First is the same for providers that the buyer has not paid before: they wait until the lease's escrow is on
	// chain.
	First Spread `json:"first,omitzero"`
	// Bare is the time in which the runtime alone starts the same program. Its measurements alternate with the jobs.
	Bare Spread `json:"bare"`
	// Overhead is the difference of the medians.
	Overhead float64 `json:"overhead"`
	// Ordered, Leased and Started are the parts of Submitted: until the order is published, then until the lease is
	// signed and the first voucher paid, then until the buyer sees the program run.
	Ordered Spread `json:"ordered,omitzero"`
	Leased  Spread `json:"leased,omitzero"`
	Started Spread `json:"started,omitzero"`
}

// benchStarts is the number of jobs, and of programs without a job.
const benchStarts = 30

// sleepTime is the run time of the program: long enough for the buyer to see it run.
const sleepTime = 100 * time.Millisecond

// starts measures the start of programs, as jobs and without.
func (b *bench) starts(ctx context.Context) error {
	bare, err := b.bareWasm(ctx)
	if err != nil {
		return err
	}
	defer bare.close()
	spec, err := b.sleeper(ctx)
	if err != nil {
		return err
	}
	r, err := b.startsOf(ctx, job.RuntimeWasm, spec, bare.start)
	if err != nil {
		return err
	}
	b.said(r)
	return nil
}

// startsOf alternates between a job and the bare runtime, so that both run under the same load: each begins when all
// earlier jobs are settled, as those of orders do.
func (b *bench) startsOf(
	ctx context.Context, name string, spec job.Job, bare func(context.Context) (time.Duration, error),
) (StartReport, error) {
	var submitted, ordered, leased, started, first, alone []float64
	again := 0
	for n := 0; len(submitted) < benchStarts && n < 5*benchStarts; n++ {
		if err := b.calm(ctx); err != nil {
			return StartReport{}, err
		}
		a, err := bare(ctx)
		if err != nil {
			return StartReport{}, fmt.Errorf("starting without a job: %w", err)
		}
		s, known, err := b.submitted(ctx, spec)
		if errors.Is(err, errNotAtOnce) && again < mostAgain {
			again++
			continue
		}
		if err != nil {
			return StartReport{}, fmt.Errorf("starting by a job: %w", err)
		}
		switch {
		case n < benchWarm:
		case known:
			submitted, alone = append(submitted, millis(s.total)), append(alone, millis(a))
			ordered, leased = append(ordered, millis(s.ordered)), append(leased, millis(s.leased))
			started = append(started, millis(s.started))
		default:
			first = append(first, millis(s.total))
		}
	}
	if len(submitted) < benchStarts {
		return StartReport{}, fmt.Errorf("only %d of %d jobs went to providers that were paid before",
			len(submitted), 5*benchStarts)
	}
	r := StartReport{Runtime: name, Submitted: SpreadOf(submitted), First: SpreadOf(first), Bare: SpreadOf(alone),
		Ordered: SpreadOf(ordered), Leased: SpreadOf(leased), Started: SpreadOf(started)}
	r.Overhead = r.Submitted.P50 - r.Bare.P50
	return r, nil
}

// containerStarts measures the same for containers, and the cost of a writable layer and mapped users, by Go benchmarks
// with their own engines. They need root and Docker's packages; without them it reports that they are skipped.
func (b *bench) containerStarts(ctx context.Context) error {
	b.say("the start of containers, with an engine of its own")
	figures, err := ofEngine(ctx, b, "./testnet/engine/scenario", "BenchmarkStart")
	if err == nil && figures != nil {
		var r StartReport
		if r, err = startReport(job.RuntimeDocker, figures); err == nil {
			b.said(r)
		}
	}
	const pkg, name = "./node/runtime/docker", "BenchmarkStartLayers"
	layers, failed := ofEngine(ctx, b, pkg, name)
	if failed == nil && layers != nil {
		r := CoreResult{Benchmark: pkg + " " + name, Unit: "ms", Measured: layers["over-ms"], Limit: 20,
			What: "a container's writable layer and mapped users, of its start"}
		b.say("   %s: %.1f ms", r.What, r.Measured)
		b.report.Cores = append(b.report.Cores, r)
	}
	return errors.Join(err, failed)
}

// ofEngine returns the figures of a Go benchmark with a container engine; nil if it is skipped.
func ofEngine(ctx context.Context, b *bench, pkg, name string) (map[string]float64, error) {
	out, err := goTest(ctx, []string{"STARLING_DOCKER=1", "STARLING_LOCALNET=1"}, "-v", "-run", "^$", "-bench",
		"^"+name+"$", "-benchtime", fmt.Sprintf("%dx", benchStarts), pkg)
	if err != nil {
		return nil, err
	}
	if why, ok := skipped(out, name); ok {
		b.say("   %-12s not measured: %s", name, why)
		return nil, nil
	}
	found, err := parseBenchmarks(out)
	if err == nil && found[name] == nil {
		err = fmt.Errorf("%s: no figures", name)
	}
	return found[name], err
}

// skipped reports whether a test or benchmark was skipped, and returns the reason.
func skipped(out []byte, name string) (why string, ok bool) {
	lines := strings.Split(string(out), "\n")
	for i, l := range lines {
		if i > 0 && strings.HasPrefix(strings.TrimSpace(l), "--- SKIP: "+name) {
			_, why, _ = strings.Cut(lines[i-1], ": ")
			return why, true
		}
	}
	return "", false
}

// Figures are a spread in a benchmark's output: "submitted-p50-ms" and so on. spreadIn parses them.
func (s Spread) Figures(of string) map[string]float64 {
	return map[string]float64{of + "-min-ms": s.Min, of + "-mean-ms": s.Mean, of + "-p50-ms": s.P50,
		of + "-p90-ms": s.P90, of + "-p99-ms": s.P99, of + "-max-ms": s.Max}
}

// spreadIn parses a spread from a benchmark's figures.
func spreadIn(figures map[string]float64, of string) Spread {
	at := func(which string) float64 { return figures[of+"-"+which+"-ms"] }
	return Spread{Min: at("min"), Mean: at("mean"), P50: at("p50"), P90: at("p90"), P99: at("p99"), Max: at("max")}
}

func startReport(name string, figures map[string]float64) (StartReport, error) {
	r := StartReport{Runtime: name, Submitted: spreadIn(figures, "submitted"), Bare: spreadIn(figures, "bare")}
	if r.Submitted.P50 == 0 || r.Bare.P50 == 0 {
		return r, errors.New("the benchmark reports no median")
	}
	r.Overhead = r.Submitted.P50 - r.Bare.P50
	return r, nil
}

// said records and prints a report.
func (b *bench) said(r StartReport) {
	b.say("   %-12s submitted to running: %s; bare: %s", r.Runtime, r.Submitted, r.Bare)
	if r.Leased.P50 > 0 {
		b.say("   %-12s until ordered: %s", "", r.Ordered)
		b.say("   %-12s then until leased: %s", "", r.Leased)
		b.say("   %-12s then until running: %s", "", r.Started)
	}
	b.report.Starts = append(b.report.Starts, r)
}

// startTimes are the parts of the time from a submission until the program runs, without the funding of the lease.
type startTimes struct{ total, ordered, leased, started time.Duration }

// submitted runs a job. It returns the time until its program ran, and reports whether the buyer had paid the provider
// before.
func (b *bench) submitted(ctx context.Context, spec job.Job) (took startTimes, known bool, err error) {
	began := time.Now()
	j, steps, err := b.follow(ctx, spec)
	if err != nil {
		return took, false, err
	}
	t, err := timesOf(steps)
	if err != nil {
		return took, false, fmt.Errorf("job %s: %w", j.ID, err)
	}
	known = len(j.Ranks) == 1 && b.paid[j.Ranks[0].Provider]
	for _, s := range steps {
		switch s.Kind {
		case record.StepLeased:
			took.leased = t.total - t.publish - t.fund
			took.ordered = s.At.Sub(began) - t.fund - took.leased
		case record.StepStarted:
			took.total = s.At.Sub(began) - t.fund
			took.started = took.total - took.leased - took.ordered
			return took, known, nil
		}
	}
	return took, false, fmt.Errorf("job %s ended and was never seen running", j.ID)
}

// sleeper returns a job of the sleeping program.
func (b *bench) sleeper(ctx context.Context) (job.Job, error) {
	spec := b.spec(1, false)
	blob, err := b.put(ctx, testnet.Sleep(sleepTime))
	spec.Blobs = map[string]job.Blob{spec.Module: blob}
	return spec, err
}

// bareRuntime starts programs without a job.
type bareRuntime struct {
	rt   runtime.Runtime
	spec runtime.Spec
	dir  string
	n    int
	end  func() error
}

// bareWasm is the wasm runtime of this process, with its programs compiled as a peer compiles them.
func (b *bench) bareWasm(ctx context.Context) (*bareRuntime, error) {
	dir, err := os.MkdirTemp(b.dir, "bare-")
	if err != nil {
		return nil, err
	}
	module := filepath.Join(dir, "sleeps.wasm")
	if err := os.WriteFile(module, testnet.Sleep(sleepTime), 0o600); err != nil {
		return nil, err
	}
	rt, err := wasm.New(wasm.Config{CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		return nil, err
	}
	return &bareRuntime{rt: rt, dir: dir, end: rt.Close,
		spec: runtime.Spec{ID: "bare", Module: module, Limits: runtime.Limits{MemoryMiB: 64}}}, ctx.Err()
}

func (r *bareRuntime) start(ctx context.Context) (time.Duration, error) {
	r.n++
	spec := r.spec
	spec.Dir = filepath.Join(r.dir, fmt.Sprint(r.n))
	began := time.Now()
	h, err := r.rt.Start(ctx, spec)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if _, err := r.rt.Wait(ctx, h); err != nil {
		return 0, err
	}
	return took, r.rt.Destroy(ctx, h)
}

func (r *bareRuntime) close() {
	_ = r.end()
	_ = os.RemoveAll(r.dir)
}
