// Package demo is the demonstration: a network of peers on one machine trains a model for one of them. One provider is
// killed in the middle, and every payment is checked.
package demo

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/jobs/lm/corpus"
	"github.com/starling-network/starling/testnet/jobs/lm/model"
)

// Options of a demonstration.
type Options struct {
	Dir string    // directory of the output
	RPC string    // URL of a running local validator; "" starts one
	Out io.Writer // output for the person watching
	// Binary is the peers' program; "" is this one.
	Binary string
	// Text is the amount of training text; zero fields select the job's own sizes.
	Text corpus.Config
}

// The demonstration: number of workers, and the round in which a provider dies.
const (
	demoWorkers = 5
	// demoInterval is the metering interval in slots, 3 s. A provider that answers nothing for three of them is lost:
	// five trainers on a slow machine keep their peers waiting for seconds.
	demoInterval = 30
	demoKillIn   = 2                // round, counted from 0
	demoTime     = 25 * time.Minute // on a slow and busy machine
)

// Run starts five selling peers and a buying one, has them train a model, kills one of them in the middle, checks all
// payments, and writes demo.json. It returns an error if any of these steps fails.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	d := &demo{out: o.Out, dir: dir, text: o.Text, lm: filepath.Join(dir, "lm"),
		report: &Report{Seconds: map[string]float64{}}}
	d.tty = isTerminal(o.Out)
	began := time.Now()
	if err := d.stage("prepare", func() error { return d.prepare(ctx) }); err != nil {
		return err
	}
	if err := d.stage("network", func() error { return d.start(ctx, o) }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.net.Stop()) }()
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"discover", d.discover}, {"train", d.train}, {"verify", d.verify}, {"single_machine", d.single},
		{"restart", d.restart},
	} {
		if err := d.stage(s.name, func() error { return s.do(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	d.report.Seconds["total"] = testnet.Seconds(time.Since(began))
	return d.finish()
}

// demo is a running demonstration.
type demo struct {
	out    io.Writer
	tty    bool
	dir    string
	lm     string // directory of the job's files
	source string // where the job's source lies
	report *Report

	text   corpus.Config
	corpus corpus.Corpus
	net    *testnet.Network
	client *api.Client // of the buying peer
	job    record.Job
	before map[string]market.Amount // balance of every owner, by peer name

	mu  sync.Mutex // of the output
	bar *progressbar.ProgressBar
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// stage runs one part and records its duration.
func (d *demo) stage(name string, do func() error) error {
	return testnet.Timed(d.report.Seconds, name, do)
}

// say prints a line, above the progress bar if there is one.
func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil && d.tty {
		_ = d.bar.Clear()
	}
	fmt.Fprintf(d.out, format+"\n", args...)
	if d.bar != nil && d.tty {
		_ = d.bar.RenderBlank()
	}
}

func (d *demo) title(text string) { d.say("\n%s", text) }

// prepare compiles the job and splits the texts.
func (d *demo) prepare(ctx context.Context) error {
	d.say("Starling: five peers, no coordinator, one job, paid on a Solana runtime")
	d.title("1. The job: a byte-level language model, trained on the Go source of this machine")
	if err := os.MkdirAll(filepath.Join(d.lm, "shards"), 0o755); err != nil {
		return err
	}
	const pkg = "github.com/starling-network/starling/testnet/jobs/lm"
	source, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return fmt.Errorf("finding the job's source (this needs Go, and runs in a checkout of the source): %w", err)
	}
	d.source = string(bytes.TrimSpace(source))
	if err := testnet.Compile(ctx, pkg+"/cmd/train", filepath.Join(d.lm, "train.wasm")); err != nil {
		return err
	}
	text, err := corpus.Source(ctx)
	if err != nil {
		return err
	}
	d.text.Workers = demoWorkers
	if d.corpus, err = corpus.Build(text, d.text); err != nil {
		return err
	}
	for i, s := range d.corpus.Shards {
		if err := os.WriteFile(filepath.Join(d.lm, "shards", fmt.Sprint(i)+".bin"), s, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(d.lm, "heldout.bin"), d.corpus.HeldOut, 0o644); err != nil {
		return err
	}
	orders := corpus.Orders(d.corpus.Shards, d.corpus.HeldOut)
	d.report.Reference = Reference{Order0: orders[0], Order1: orders[1], Order2: orders[2]}
	d.say("   %d shards of %d KiB and %d KiB held out, from %d files",
		len(d.corpus.Shards), len(d.corpus.Shards[0])>>10, len(d.corpus.HeldOut)>>10, d.corpus.Files)
	d.say("   counting models on the held-out text: order 0 %.3f, order 1 %.3f, order 2 %.3f bits per byte",
		orders[0], orders[1], orders[2])
	return nil
}

// start starts the network.
func (d *demo) start(ctx context.Context, o Options) (err error) {
	d.title("2. The network: five selling peers, one buying peer, a local Solana")
	d.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(d.dir, "demo"), Providers: demoWorkers, Buyers: 1, Units: 2, RPC: o.RPC, Binary: o.Binary,
		Price: func(i int) string { return fmt.Sprintf("0.%02d", 30+2*i) }, Interval: demoInterval,
		Say: func(format string, args ...any) { d.say("   "+format, args...) },
	})
	if err != nil {
		return err
	}
	if d.client, err = d.net.Buyers()[0].Client(); err != nil {
		return err
	}
	for _, p := range d.net.Peers {
		d.report.Peers = append(d.report.Peers, testnet.ReportOf(p))
	}
	d.before, err = d.balances(ctx)
	return err
}

// discover waits until the buying peer has found every offer in the DHT.
func (d *demo) discover(ctx context.Context) error {
	if err := testnet.WaitOffers(ctx, d.client, demoWorkers); err != nil {
		return err
	}
	d.say("   the buying peer found %d offers in the DHT; every provider answered a probe", demoWorkers)
	return nil
}

// train submits the job, follows it, and kills a provider during it.
func (d *demo) train(ctx context.Context) error {
	d.title("3. One order for five workers")
	spec, err := d.spec(ctx)
	if err != nil {
		return err
	}
	if d.job, err = d.client.Submit(ctx, spec, job.Values{}, "demo"); err != nil {
		return err
	}
	d.say("   job %s: %s", d.job.ID, spec)
	w := &watch{demo: d, ranks: map[int]record.Step{}}
	d.bar = progressbar.NewOptions(demoWorkers*spec.RoundCount(), progressbar.OptionSetWriter(d.out),
		progressbar.OptionSetVisibility(d.tty), progressbar.OptionSetDescription("   training"),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionShowElapsedTimeOnFinish())
	step, change := func(s record.Step) { w.step(ctx, s) }, func(j record.Job) { w.change(ctx, j) }
	err = d.client.Events(ctx, d.job.ID, step, change)
	_ = d.bar.Finish()
	d.bar = nil
	if err = errors.Join(err, w.err); err != nil {
		return err
	}
	if d.job, err = api.GetJob.Call(ctx, d.client, api.ByID{ID: d.job.ID}); err != nil {
		return err
	}
	if d.job.State != record.Succeeded {
		return fmt.Errorf("the job %s: %s", d.job.State, d.job.Reason)
	}
	if d.report.Killed == nil {
		return errors.New("no provider was killed: the job ended too early")
	}
	return nil
}

// spec reads the job file and uploads its files.
func (d *demo) spec(ctx context.Context) (job.Job, error) {
	text, err := os.ReadFile(filepath.Join(d.source, "job.yaml"))
	if err != nil {
		return job.Job{}, fmt.Errorf("reading the job file: %w", err)
	}
	spec, err := jobfile.Parse(text, jobfile.Token{Decimals: d.net.Genesis.Decimals})
	if err != nil {
		return spec, err
	}
	spec = spec.In(d.lm)
	blobs := map[string]job.Blob{}
	for _, source := range spec.Sources() {
		f, err := os.Open(source)
		if err != nil {
			return spec, err
		}
		b, err := api.PutBlob.Call(ctx, d.client, api.Upload{Data: f})
		f.Close()
		if err != nil {
			return spec, fmt.Errorf("uploading %s: %w", source, err)
		}
		blobs[source] = b.Source()
	}
	return spec.WithBlobs(blobs)
}

// metrics reads the reduce step's figures from the round's output.
func (d *demo) metrics(ctx context.Context, cid string) (float64, error) {
	r, err := d.client.GetBlob(ctx, cid)
	if err != nil {
		return 0, fmt.Errorf("reading a round's output: %w", err)
	}
	defer r.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err != nil {
			return 0, fmt.Errorf("reading a round's output: %w", err)
		}
		if h.Name != "metrics.json" {
			continue
		}
		var m struct {
			BitsPerByte float64 `json:"bits_per_byte"`
		}
		if err := json.NewDecoder(io.LimitReader(t, 1<<20)).Decode(&m); err != nil {
			return 0, fmt.Errorf("reading a round's figure: %w", err)
		}
		return m.BitsPerByte, nil
	}
}

// name returns the testnet's name of a peer.
func (d *demo) name(key string) string {
	for _, p := range d.net.Peers {
		if p.Key.String() == key {
			return p.Name
		}
	}
	return key
}

// single trains the same model on this machine alone, on the same data in the workers' order.
func (d *demo) single(ctx context.Context) error {
	d.title("6. The same model trained on one machine with the same data")
	m := model.New(model.DefaultBits)
	rounds := len(d.report.Rounds)
	for r := range rounds {
		for _, shard := range d.corpus.Shards {
			if err := ctx.Err(); err != nil {
				return err
			}
			from, to := model.Slice(len(shard), r, rounds)
			m.Train(shard, from, to, nil)
		}
	}
	d.report.Reference.SingleMachine = m.Evaluate(d.corpus.HeldOut)
	last := d.report.Rounds[rounds-1].BitsPerByte
	d.report.Reference.Difference = last/d.report.Reference.SingleMachine - 1
	d.say("   %.4f bits per byte; the network's model has %.4f (%+.2f %%)",
		d.report.Reference.SingleMachine, last, 100*d.report.Reference.Difference)
	for i, r := range d.report.Rounds {
		if i > 0 && r.BitsPerByte >= d.report.Rounds[i-1].BitsPerByte {
			return fmt.Errorf("round %d did not improve: %.4f after %.4f bits per byte",
				r.Round, r.BitsPerByte, d.report.Rounds[i-1].BitsPerByte)
		}
	}
	switch {
	case last >= d.report.Reference.Order2:
		return fmt.Errorf("the model ends at %.4f bits per byte, order 2 has %.4f", last, d.report.Reference.Order2)
	case d.report.Reference.Difference > 0.02:
		return fmt.Errorf("the model is %.1f %% worse than on one machine, 2 %% are allowed",
			100*d.report.Reference.Difference)
	}
	return nil
}
