package testnet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/testnet"
)

var ckptMiB = flag.Int("checkpoint-mib", 1024, "size of the checkpoint of BenchmarkRestart")

// restarts is a network of a buyer and two providers, of which one at a time runs.
type restarts struct {
	*testing.B
	net     *testnet.Network
	c       *api.Client
	program job.Blob
}

// BenchmarkRestart kills the provider of a program with a large checkpoint. "restart-s" is the time from the next lease
// until the program runs there with its files. "copy-and-start-s" is that of a job on the same provider whose input is
// one file of the same size: its copy and the start. Providers have neither before. "of-copy-and-start" is the ratio.
func BenchmarkRestart(b *testing.B) {
	r := newRestarts(b)
	var restarted, copied time.Duration
	for i := 0; b.Loop(); i++ {
		from, to := r.net.Providers()[i%2], r.net.Providers()[1-i%2]
		spec := r.job(i)
		spec.Checkpoint = &job.Checkpoint{Path: "/ckpt", Every: job.Span(time.Second)}
		began := r.begin(spec, 1, func(j record.Job) bool {
			all := j.Ranks[0].Checkpoints
			return len(all) > 0 && all[0].Size >= int64(*ckptMiB)<<20
		})
		b.Logf("a program with its checkpoint: started %v after its lease", began)
		r.must(to.Start(b.Context()))
		r.must(from.Kill())
		moved := r.last()
		took := r.follow(moved, 2, func(record.Job) bool { return true })
		restarted += took
		r.stop(moved)

		content := io.LimitReader(rand.NewChaCha8([32]byte{31: byte(i + 1)}), int64(*ckptMiB)<<20)
		put, err := api.PutBlob.Call(b.Context(), r.c, api.Upload{Data: content})
		r.must(err)
		spec = r.job(i)
		spec.Inputs = []job.Input{{Source: "file", Path: "/data/file"}}
		spec.Blobs["file"] = put.Source()
		spec.Outputs = []job.Output{{Path: "/ckpt"}}
		spec.Args = []string{"0", "0"}
		alone := r.begin(spec, 1, func(record.Job) bool { return true })
		copied += alone
		r.stop(r.last())
		b.Logf("restart %v, copy and start %v", took, alone)
	}
	b.ReportMetric(restarted.Seconds()/float64(b.N), "restart-s")
	b.ReportMetric(copied.Seconds()/float64(b.N), "copy-and-start-s")
	b.ReportMetric(restarted.Seconds()/copied.Seconds(), "of-copy-and-start")
	b.ReportMetric(0, "ns/op")
}

func newRestarts(b *testing.B) *restarts {
	b.Helper()
	r, dir := &restarts{B: b}, b.TempDir()
	path, err := binary()
	r.must(err)
	module := filepath.Join(dir, "keep.wasm")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-o", module,
		"github.com/starling-network/starling/testnet/jobs/keep")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the program: %v\n%s", err, out)
	}
	r.net, err = testnet.Start(b.Context(), testnet.Options{
		Dir: filepath.Join(dir, "net"), Binary: path, Providers: 2, Late: []int{1}, Buyers: 1, Units: 2, Free: true,
		Connected: 1, Env: []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}, Say: b.Logf,
		Unit: config.Unit{MilliCPU: 1000, MemoryMiB: 256, DiskMiB: r.disk()},
	})
	r.must(err)
	b.Cleanup(func() { r.must(r.net.Stop()) })
	r.c, err = r.net.Buyers()[0].Client()
	r.must(err)
	f, err := os.Open(module)
	r.must(err)
	defer f.Close()
	put, err := api.PutBlob.Call(b.Context(), r.c, api.Upload{Data: f})
	r.must(err)
	r.program = put.Source()
	return r
}

// disk is the disk of a unit: the checkpoint, its two packs, and room for the tables of files.
func (r *restarts) disk() uint32 { return uint32(3**ckptMiB + *ckptMiB/4 + 64) }

func (r *restarts) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *restarts) job(i int) job.Job {
	const source = "keep.wasm"
	return job.Job{
		Name: "keep", Runtime: job.RuntimeWasm, Module: source, Count: 1, Payment: free,
		Args:      []string{strconv.Itoa(i + 1), strconv.Itoa(*ckptMiB)},
		Resources: job.Resources{Class: job.DefaultClass, Units: 1, PerUnit: market.Resources{DiskMiB: r.disk()}},
		Restart:   job.Restart{Max: 3}, Timeouts: job.Timeouts{Queue: 5 * time.Minute, Run: time.Hour, Stop: time.Second},
		Blobs: map[string]job.Blob{source: r.program},
	}
}

// begin submits a job and follows it.
func (r *restarts) begin(spec job.Job, starts int, until func(record.Job) bool) time.Duration {
	r.Helper()
	j, err := r.c.Submit(r.Context(), spec, job.Values{}, "")
	r.must(err)
	return r.follow(j.ID, starts, until)
}

// last returns the newest job.
func (r *restarts) last() string {
	r.Helper()
	jobs, err := r.c.Jobs(r.Context(), record.Query{Limit: 1})
	r.must(err)
	return jobs[0].ID
}

// follow waits until a job's program started so many times and until is true. It returns the time from the last lease
// until the last start.
func (r *restarts) follow(id string, starts int, until func(record.Job) bool) time.Duration {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Minute)
	defer cancel()
	var leased, started time.Time
	seen, over := 0, false
	var last record.Job
	err := r.c.Events(ctx, id, func(s record.Step) {
		switch s.Kind {
		case record.StepLeased:
			leased = s.At
		case record.StepStarted:
			started = s.At
			seen++
		}
		if over = seen >= starts && until(last); over {
			cancel()
		}
	}, func(j record.Job) {
		last = j
		if over = over || seen >= starts && until(j); over {
			cancel()
		}
	})
	if !over {
		r.Fatalf("job %s started %d times, want %d: %s, %v", id, seen, starts, last.Summary(), err)
	}
	return started.Sub(leased)
}

// stop stops a job and waits for its end.
func (r *restarts) stop(id string) {
	r.Helper()
	_, err := api.StopJob.Call(r.Context(), r.c, api.ByID{ID: id})
	r.must(err)
	for {
		j, err := api.GetJob.Call(r.Context(), r.c, api.ByID{ID: id})
		r.must(err)
		if j.State.Ended() {
			return
		}
		select {
		case <-r.Context().Done():
			r.must(errors.Join(fmt.Errorf("job %s did not end", id), r.Context().Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
