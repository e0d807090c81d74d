//go:build linux

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/bench"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/localnet"
)

// BenchmarkStart compares the time from a job's submission until its buyer sees its container run, without the time in which its lease
// is funded, with that of the bare runtime, in turns: the start of the same image, which is there already. over-ms is the
// difference of the medians.
func BenchmarkStart(b *testing.B) {
	if os.Getenv("STARLING_DOCKER") != "1" {
		b.Skip("benchmarks of the container engine run with STARLING_DOCKER=1")
	}
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		b.Skip(localnet.ErrNotInstalled)
	}
	e, err := engine.Start(b.Context(), engine.Options{})
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	r, err := engine.NewRegistry()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	dir := b.TempDir()
	binary, box := filepath.Join(dir, "starling"), filepath.Join(dir, "box")
	for out, pkg := range map[string]string{binary: "cmd/starling", box: "testnet/engine/box"} {
		if err := engine.Build(out, "github.com/starling-network/starling/"+pkg); err != nil {
			b.Fatal(err)
		}
	}
	image, err := r.Push("box", nil, engine.File{Path: "/box", From: box})
	if err != nil {
		b.Fatal(err)
	}
	n, err := testnet.Start(b.Context(), testnet.Options{
		Dir: filepath.Join(dir, "net"), Binary: binary, Providers: 3, Buyers: 1, Env: []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")},
		Engine: func(int) string { return e.Host() }, Registries: r.Addrs(), Say: b.Logf,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Stop() })
	c, err := n.Buyers()[0].Client()
	if err != nil {
		b.Fatal(err)
	}
	spec := job.Job{
		Name: "bench", Runtime: job.RuntimeDocker, Image: image, Args: []string{"sleep", "100"}, Count: 1, Resources: job.Resources{Class: job.DefaultClass, Units: 1},
		Timeouts: job.Timeouts{Queue: 20 * time.Second, Run: time.Minute},
		Payment:  job.Payment{MaxPrice: 1_000_000, Budget: 1_000_000, Decimals: n.Genesis.Decimals},
	}
	bare, err := docker.New(b.Context(), docker.Config{Peer: "bare", Host: e.Host(), Guard: binary, Registries: r.Addrs()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = bare.Close() })
	for range 3 { // every provider was dialled, has the image
		if _, err := submitted(b.Context(), c, spec); err != nil {
			b.Fatal(err)
		}
	}
	if err := bare.Pull(b.Context(), image, nil, nil); err != nil {
		b.Fatal(err)
	}
	var jobs, alone []float64
	steps := map[record.StepKind][]float64{}
	for i := 0; b.Loop(); i++ {
		at, err := submitted(b.Context(), c, spec)
		if err != nil {
			b.Fatal(err)
		}
		for k, d := range at {
			steps[k] = append(steps[k], millis(d))
		}
		jobs = append(jobs, millis(at[record.StepStarted]-(at[record.StepLeased]-at[record.StepSigned])))
		began := time.Now()
		h, err := bare.Start(b.Context(), runtime.Spec{
			ID: "bare", Image: image, Args: []string{"sleep", "100"}, Dir: filepath.Join(dir, fmt.Sprint("bare-", i)), Limits: runtime.Limits{MemoryMiB: 512, MilliCPU: 1000},
		})
		if err != nil {
			b.Fatal(err)
		}
		alone = append(alone, millis(time.Since(began)))
		if _, err := bare.Wait(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		if err := bare.Destroy(b.Context(), h); err != nil {
			b.Fatal(err)
		}
	}
	for k, v := range steps {
		b.Logf("until %-8s %6.1f ms", k, bench.SpreadOf(v).P50)
	}
	all, none := bench.SpreadOf(jobs), bench.SpreadOf(alone)
	for _, figures := range []map[string]float64{all.Figures("submitted"), none.Figures("bare")} {
		for unit, v := range figures {
			b.ReportMetric(v, unit)
		}
	}
	b.ReportMetric(all.P50-none.P50, "over-ms")
	b.ReportMetric(0, "ns/op")
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// submitted runs a job and says how long after its submission its steps were; it returns when its work is over.
func submitted(ctx context.Context, c *api.Client, spec job.Job) (map[record.StepKind]time.Duration, error) {
	began := time.Now()
	j, err := c.Submit(ctx, spec, job.Values{}, "")
	if err != nil {
		return nil, err
	}
	at := map[record.StepKind]time.Duration{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = c.Events(ctx, j.ID, func(s record.Step) {
		at[s.Kind] = s.At.Sub(began)
	}, func(now record.Job) {
		if j = now; j.State == record.Settling || j.State.Ended() {
			cancel()
		}
	})
	if _, ok := at[record.StepStarted]; !ok {
		return nil, fmt.Errorf("job %s was never seen running: %s: %w", j.ID, j.Summary(), err)
	}
	return at, nil
}
