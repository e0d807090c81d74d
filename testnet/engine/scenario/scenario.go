//go:build linux

// Package scenario runs containers on a network of real peers, with their own engines and registry. A buyer uses the
// command line as a user would. Providers and engines are killed, and input is hostile or wrong.
// testnet/scenarios/containers.sh shows it, and the tests assert it.
package scenario

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

// The secrets that must not appear in any file.
const (
	keySecret   = "hush-7f1d-secret-in-a-file"
	tokenSecret = "hush-93ab-secret-in-a-variable"
	badPassword = "hush-04c2-wrong-password"
)

// providers is the number of providers, each with its own engine.
const providers = 2

// stepTime bounds one step. It and the jobs' limits are long, because nothing is measured by them and the machine may
// be busy.
const stepTime = 10 * time.Minute

// world is a running scenario.
type world struct {
	scenarios.Options
	engines  []*engine.Engine
	registry *engine.Registry
	net      *testnet.Network
	gpus     bool
	image    string // public
	private  string // requires the password
	work     running
	price    []string // flags of a job
}

// Run runs the scenario. The rows are the observations. It returns an error if the scenario failed to run,
// ErrUnavailable if this machine cannot run it.
func Run(ctx context.Context, o scenarios.Options) (rows []scenarios.Row, err error) {
	if err := engine.Available(); err != nil {
		return nil, err
	}
	w := &world{Options: o, price: []string{"--max-price", "1", "--budget", "0.5"}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return scenarios.Play(ctx, o, stepTime, w.steps())
}

// steps are the steps in order: the first steps share a job.
func (w *world) steps() []scenarios.Step {
	bad, faults := badInputs{w}, engineFaults{w}
	all := []scenarios.Step{
		{What: "a job file: private image, secrets, input, output, health check", Run: w.submits},
		{What: "secrets and passwords are in no file while it runs", Run: w.leavesNoTrace},
		{What: "exec: standard input is forwarded, the exit code is returned", Run: w.execs},
		{What: "cp: files in and out", Run: w.copies},
		{What: "port-forward: an HTTP server in the container answers", Run: w.forwards},
		{What: "pause and resume: the container is frozen", Run: w.pauses},
		{What: "the program fails and is started again", Run: w.restarts},
		{What: "the provider's peer is killed and restarts: the container is adopted", Run: w.adopts},
		{What: "the program ends: results, receipts and payment", Run: w.finishes},
		{What: "stop: the container is gone", Run: w.stops},
		{What: "a container with the internet reaches its peer's resolver, and no machine or network around it",
			Run: bad.waysOut},
		{What: "a light client: exec, a terminal, files and a port of a container", Run: w.light},
		{What: "run -it, and ssh, scp, sftp and rsync into a container", Run: workplaces{w}.use},
		{What: "notebook: a server with a token answers at a port here", Run: workplaces{w}.notebook},
		{What: "an engine is killed and restarts: the rank is lost and moves", Run: faults.engineKilled},
		{What: "an engine is stopped: the rank is lost and moves", Run: faults.engineStopped},
	}
	if _, err := exec.LookPath("docker"); err != nil {
		w.Say("an image of no registry is not shown: docker is not installed (Debian: docker.io)")
	} else {
		const what = "an image of the buyer's docker, which no registry has: run stores it on the peer"
		all = append(all, scenarios.Step{What: what, Run: w.pushed})
	}
	if w.gpus {
		all = append(all, scenarios.Step{What: "simulated GPUs are marked as simulated everywhere", Run: w.simulated})
	}
	for _, b := range bad.bad() {
		all = append(all, scenarios.Step{What: "refused or ended: " + b.what,
			Run: func(ctx context.Context) (string, error) {
				return bad.try(ctx, b)
			}})
	}
	return append(all,
		scenarios.Step{What: "links in an output lead nowhere", Run: bad.links},
		scenarios.Step{What: "a log of 10 GiB is cut", Run: bad.floods},
		scenarios.Step{What: "secrets and passwords are in no file", Run: w.leavesNoTrace},
		scenarios.Step{What: "no container is left", Run: w.leavesNothing},
	)
}

func (w *world) start(ctx context.Context) error {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	box, probe := filepath.Join(w.Dir, "box"), filepath.Join(w.Dir, "probe")
	const module = "github.com/starling-network/starling/"
	if err := errors.Join(engine.Build(box, module+"testnet/engine/box"),
		engine.Build(probe, module+"node/runtime/docker/probe")); err != nil {
		return err
	}
	for range providers {
		began := time.Now()
		e, err := engine.Start(ctx, engine.Options{})
		if err != nil {
			return err
		}
		w.engines = append(w.engines, e)
		w.Say("a container engine in a network namespace of its own, up after %v",
			time.Since(began).Round(time.Millisecond))
	}
	var err error
	if w.registry, err = engine.NewRegistry(); err != nil {
		return err
	}
	files := []engine.File{{Path: "/box", From: box}, {Path: "/probe", From: probe}}
	if w.image, err = w.registry.Push("box", nil, files...); err != nil {
		return err
	}
	if w.private, err = w.registry.Push("private/box", nil,
		append(files, engine.File{Path: "/private", Text: "private"})...); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(w.Binary), "starling-nvml")); err == nil {
		w.gpus = true
	} else if _, err := exec.LookPath("starling-nvml"); err == nil {
		w.gpus = true
	} else {
		w.Say("simulated GPUs are not shown: "+
			"there is no starling-nvml beside %s (make build makes it where a C compiler is)",
			w.Binary)
	}
	o := testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: providers, Buyers: 1,
		Interval: 100, // ten seconds, as on most networks: shorter intervals end leases while the disk is busy
		Env:      []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")}, Say: w.Say,
		// a light client needs circuits to the providers
		Engine: func(i int) string { return w.engines[i].Host() }, Registries: w.registry.Addrs(), BuyersRelay: true,
		// as many processes as a fork bomb may have fit into the memory
		Unit: config.Unit{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 1024},
	}
	if w.gpus {
		o.GPUs = func(int) testnet.GPUs { return testnet.GPUs{Mock: mock, Devices: "all"} }
	}
	w.net, err = testnet.Start(ctx, o)
	return err
}

func (w *world) close() error {
	var errs []error
	if w.net != nil {
		errs = append(errs, w.net.Stop())
	}
	if w.registry != nil {
		errs = append(errs, w.registry.Close())
	}
	for _, e := range w.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
