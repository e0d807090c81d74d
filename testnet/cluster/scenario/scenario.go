//go:build linux

// Package scenario runs clusters on a network of real peers behind emulated NATs, with a container engine for each
// provider and unmodified engines: Ray, PyTorch's torchrun, Open MPI, Dask. A buyer uses the command line; members are
// killed and replaced. testnet/scenarios/ray.sh, dask.sh and torchrun.sh show it, and the tests assert it.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/natlab"
	"github.com/starling-network/starling/testnet/scenarios"
)

// ErrUnavailable reports that the scenario cannot run on this machine; its text names the missing part.
var ErrUnavailable = errors.New("clusters cannot be tried here")

// members is the size of the clusters. One more provider sells, to replace a lost member.
const members = 3

// machine is one peer of the scenario.
type machine struct {
	name   string
	kind   natlab.Kind
	relays bool
	site   *natlab.Site
	peer   *testnet.Peer
	engine *engine.Engine // nil if it sells nothing
}

// machines returns the peers, with the providers first.
func machines() []*machine {
	return []*machine{
		{name: "public", kind: natlab.Public},
		{name: "cone", kind: natlab.Cone},
		{name: "symmetric", kind: natlab.Symmetric},
		{name: "cone-too", kind: natlab.Cone},
		{name: "relay", kind: natlab.Public, relays: true},
		{name: "buyer", kind: natlab.Cone},
	}
}

const sellers = members + 1

func (m *machine) place(rpc string) testnet.Place {
	p := scenarios.At(m.site, m.name, rpc)
	if m.relays {
		p = scenarios.Relay(p, m.site)
	}
	return p
}

// world is a running scenario.
type world struct {
	scenarios.Options
	lab      *natlab.Lab
	all      []*machine
	set      *images.Set
	registry *engine.Registry
	net      *testnet.Network
	chain    *localnet.Chain
	image    map[images.Name]string // by digest
	root     map[images.Name]string // directories of the file systems of images that the buyer also runs
	running  running
	killed   []sign.Key // peers that were killed, permanently or for a while
	notes    []string   // figures for the summary line
}

// note adds a figure to the summary line.
func (w *world) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// Available returns an error if the scenario cannot be run here.
func Available() error {
	if err := errors.Join(engine.Available(), natlab.Available()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("%w: there is no /dev/net/tun (modprobe tun)", ErrUnavailable)
	}
	return nil
}

// stepTime bounds one step. It is long, because nothing is measured by it and the machine may be busy.
const stepTime = 25 * time.Minute

// Run runs the parts of the scenario in engines: ray, ray-all (with stopped engines), torchrun, mpi, dask. The rows are
// the observations. It returns an error if the scenario failed to run, ErrUnavailable if this machine cannot run it.
func Run(ctx context.Context, o scenarios.Options, engines ...string) (rows []scenarios.Row, err error) {
	if err := Available(); err != nil {
		return nil, err
	}
	w := &world{Options: o, all: machines(), image: map[images.Name]string{}, root: map[images.Name]string{}}
	var steps []scenarios.Step
	wanted := map[images.Name]bool{}
	for _, name := range engines {
		switch name {
		case "ray", "ray-all":
			wanted[images.Ray] = true
			steps = append(steps, rayCluster{w}.steps(name == "ray-all")...)
		case "torchrun":
			wanted[images.Torch] = true
			steps = append(steps, torchJobs{w}.steps()...)
		case "mpi":
			wanted[images.MPI] = true
			steps = append(steps, mpiJobs{w}.steps()...)
		case "dask":
			wanted[images.Dask] = true
			steps = append(steps, daskCluster{w}.steps()...)
		default:
			return nil, fmt.Errorf("engine %q: unknown, want ray, ray-all, torchrun, mpi or dask", name)
		}
	}
	w.set, err = images.Make(ctx, o.Say, slices.Sorted(maps.Keys(wanted))...)
	switch {
	case errors.Is(err, images.ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx, wanted); err != nil {
		return nil, err
	}
	rows, err = scenarios.Play(ctx, o, stepTime, slices.Concat(
		[]scenarios.Step{{What: "the buyer finds all providers, behind their NATs", Run: w.found}}, steps,
		[]scenarios.Step{{What: "no container is left", Run: w.leavesNothing}}))
	if len(w.notes) > 0 {
		rows = append(rows, scenarios.Row{What: "in short", Got: strings.Join(w.notes, "; ")})
	}
	if err != nil || slices.ContainsFunc(rows, func(r scenarios.Row) bool { return r.Err != nil }) {
		w.tails(context.WithoutCancel(ctx))
	}
	return rows, err
}

func (w *world) find(name string) *machine {
	return w.all[slices.IndexFunc(w.all, func(m *machine) bool { return m.name == name })]
}

func (w *world) buyer() *machine { return w.find("buyer") }

func (w *world) start(ctx context.Context, wanted map[images.Name]bool) error {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	var err error
	if w.lab, err = natlab.New(); err != nil {
		return err
	}
	var nets []*natlab.Namespace
	for i, m := range w.all {
		if m.site, err = w.lab.Site(m.kind); err != nil {
			return err
		}
		what := ""
		if i < sellers {
			if m.engine, err = engine.Start(ctx, engine.Options{}); err != nil {
				return err
			}
			nets = append(nets, m.site.Namespace)
			what = ", sells, with its own container engine"
		}
		w.Say("%-10s %-10s %-12s seen as %s%s", m.name, m.kind, m.site.IP, m.site.Public, what)
	}
	if w.registry, err = engine.NewRegistry(nets...); err != nil {
		return err
	}
	if err := w.push(ctx, wanted); err != nil {
		return err
	}
	gate, err := w.lab.Site(natlab.Public)
	if err != nil {
		return err
	}
	if w.chain, err = localnet.Start(ctx, localnet.Config{SlotMillis: testnet.SlotMillis}); err != nil {
		return fmt.Errorf("starting the chain: %w", err)
	}
	rpc, err := w.lab.Serve(gate, 8899, strings.TrimPrefix(w.chain.URL(), "http://"))
	if err != nil {
		return err
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: sellers, Buyers: len(w.all) - sellers,
		Chain: w.chain, Connected: 1, Interval: interval,
		Env: []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")}, Say: w.Say, Units: 1,
		Unit:       config.Unit{MilliCPU: 1000, MemoryMiB: 2048, DiskMiB: 2048},
		Engine:     func(i int) string { return w.all[i].engine.Host() },
		Registries: w.registry.Addrs(),
		Place:      func(i int) testnet.Place { return w.all[i].place("http://" + rpc) },
	})
	if err != nil {
		return err
	}
	for i, m := range w.all {
		m.peer = w.net.Peers[i]
	}
	return nil
}

// interval is the number of slots of 100 ms between receipts: ten seconds, as on most networks. A broken path must be
// replaced within about that time.
const interval = 100

// jobs is the directory of the programs of testnet/jobs/cluster in the images.
const jobs = "/jobs"

// push pushes the images into the registry, with their programs.
func (w *world) push(ctx context.Context, wanted map[images.Name]bool) error {
	var files []engine.File
	for name, text := range programs() {
		files = append(files, engine.File{Path: jobs + "/" + name, Text: text})
	}
	slices.SortFunc(files, func(a, b engine.File) int { return strings.Compare(a.Path, b.Path) })
	for name := range wanted {
		ref, err := w.set.Push(w.registry, name, files...)
		if err != nil {
			return err
		}
		w.image[name] = ref
	}
	for _, name := range []images.Name{images.Ray, images.Dask} {
		if wanted[name] {
			w.root[name] = filepath.Join(w.Dir, string(name))
			if err := w.set.Unpack(ctx, name, w.root[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// found checks that each peer behind a NAT has a relay reservation, and that the buyer reached the provider of every
// offer.
func (w *world) found(ctx context.Context) (string, error) {
	for _, m := range w.all {
		if m.kind == natlab.Public {
			continue
		}
		c, err := m.peer.Client()
		if err != nil {
			return "", err
		}
		if _, err := scenarios.Until(ctx, func() (bool, string, error) {
			n, err := api.GetNode.Call(ctx, c, api.None{})
			return err == nil && len(n.Reach.Relays) > 0, fmt.Sprintf("%s is %s, with no relay", m.name, n.Reach.State),
				err
		}); err != nil {
			return "", err
		}
	}
	c, err := w.client()
	if err != nil {
		return "", err
	}
	return scenarios.Until(ctx, func() (bool, string, error) {
		offers, err := api.ListOffers.Call(ctx, c, api.ByClass{Class: "cpu"})
		answered := 0
		for _, o := range offers {
			if o.Answered {
				answered++
			}
		}
		return answered == sellers, fmt.Sprintf("%d offers, %d of them answered", len(offers), answered), err
	})
}

// tails prints the steps of the buyer's jobs and the ends of the logs of programs and peers, to diagnose a failure. It
// omits claims, one per metering interval, and the many programs of a polling step.
func (w *world) tails(ctx context.Context) {
	if c, err := w.client(); err == nil {
		jobs, _ := c.Jobs(ctx, record.Query{})
		for _, j := range jobs {
			said, err := w.done(ctx, "why", j.ID)
			w.Say("--- why %s, %s (%v):\n%s", j.ID, j.Spec.Name, err, said)
			logs, err := w.command(ctx, "logs", j.ID, "--tail", "40").Run()
			w.Say("--- logs %s (%v):\n%s\n%s", j.ID, err, logs.Out, logs.Err)
		}
	}
	for _, m := range w.all {
		if m.peer == nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.peer.Home, "peer.log"))
		var lines []string
		for line := range strings.Lines(string(b)) {
			if !strings.Contains(line, "a claim is paid") && !strings.Contains(line, "a second program is attached") {
				lines = append(lines, line)
			}
		}
		said := strings.Join(lines, "")
		w.Say("--- log of %s (%v):\n%s", m.name, err, said[max(0, len(said)-6000):])
	}
}

func (w *world) close() error {
	var errs []error
	w.unforward()
	if w.net != nil {
		errs = append(errs, w.net.Stop())
	}
	if w.chain != nil {
		errs = append(errs, w.chain.Close())
	}
	if w.registry != nil {
		errs = append(errs, w.registry.Close())
	}
	for _, m := range w.all {
		if m.engine != nil {
			errs = append(errs, m.engine.Close())
		}
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	return errors.Join(errs...)
}

// leavesNothing checks that every container ended with its job, the sidecars too.
func (w *world) leavesNothing(ctx context.Context) (string, error) {
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		var left []string
		for _, m := range w.all {
			if m.engine == nil {
				continue
			}
			list, err := m.engine.Containers(ctx)
			if err != nil {
				return false, "", err
			}
			for _, c := range list {
				left = append(left, fmt.Sprintf("%s: %.12s %s %s", m.name, c.ID, c.Status, c.Command))
			}
		}
		return len(left) == 0, strings.Join(left, "; "), nil
	})
	return "none", err
}
