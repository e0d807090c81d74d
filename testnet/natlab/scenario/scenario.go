//go:build linux

// Package scenario runs a network of real peers behind emulated NATs and firewalls, and checks that they reach and work
// for each other: hole punching, relays, a peer that only dials out, a path that changes under a running job, another
// private network. testnet/scenarios/nat.sh shows it, and the tests assert it.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/natlab"
	"github.com/starling-network/starling/testnet/scenarios"
)

// machine is one peer of the scenario.
type machine struct {
	name   string
	kind   natlab.Kind
	sells  bool
	relays bool
	late   bool
	config string
	site   *natlab.Site
	peer   *testnet.Peer
}

// machines returns the peers, with the providers first.
func machines() []*machine {
	return []*machine{
		{name: "worker-cone", kind: natlab.Cone, sells: true},
		{name: "worker-sym", kind: natlab.Symmetric, sells: true},
		{name: "worker-closed", kind: natlab.Closed, sells: true},
		{name: "worker-out", kind: natlab.NoUDP, sells: true, config: "nat: {auto: true, dialOutOnly: true}"},
		{name: "relay-1", kind: natlab.Public, relays: true},
		{name: "relay-2", kind: natlab.Public, relays: true},
		{name: "buyer-cone", kind: natlab.Cone},
		{name: "buyer-sym", kind: natlab.Symmetric},
		{name: "buyer-moved", kind: natlab.Cone},
		{name: "locked", kind: natlab.Public, late: true, config: "privateNetwork: swarm.key"},
	}
}

func (m *machine) place(rpc string) testnet.Place {
	p := scenarios.At(m.site, m.name, rpc)
	p.Late, p.Config = m.late, m.config
	switch {
	case m.late:
		p.Listen = p.Listen[:1] // a private network has no QUIC
	case strings.Contains(m.config, "dialOutOnly"):
		p.Listen = nil
	case m.relays:
		p = scenarios.Relay(p, m.site)
	}
	return p
}

// world is a running scenario.
type world struct {
	scenarios.Options
	lab   *natlab.Lab
	all   []*machine
	net   *testnet.Network
	chain *localnet.Chain
	tick  []byte
}

// Run runs the scenario. The rows are the observations; an error means that it failed to run.
func Run(ctx context.Context, o scenarios.Options) (rows []scenarios.Row, err error) {
	if err := natlab.Available(); err != nil {
		return nil, err
	}
	w := &world{Options: o, all: machines()}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return scenarios.Play(ctx, o, stepTime, []scenarios.Step{
		{What: "every peer behind a NAT or firewall has reservations at relays", Run: w.reserved},
		{What: "a job with a changing path: relay, another relay, hole punched", Run: w.moves},
		{What: "cone to cone: hole punched, direct", Run: w.punched},
		{What: "symmetric to symmetric: relayed", Run: w.relayed},
		{What: "cone buys from symmetric: job done", Run: w.buys("buyer-cone", "worker-sym")},
		{What: "symmetric buys from a worker that accepts no connections: job done",
			Run: w.buys("buyer-sym", "worker-closed")},
		{What: "symmetric buys from a worker that only dials out, without UDP: job done",
			Run: w.buys("buyer-sym", "worker-out")},
		{What: "another private network: reported as such", Run: w.locked},
	})
}

// interval is the number of slots of 100 ms between receipts. A broken path must be replaced within about that time, or
// the worker stops for lack of payment: five seconds here, a minute on real networks.
const interval = 50

// stepTime bounds one step.
const stepTime = 4 * time.Minute

func (w *world) find(name string) *machine {
	return w.all[slices.IndexFunc(w.all, func(m *machine) bool { return m.name == name })]
}

func (w *world) start(ctx context.Context) error {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	if err := w.build(ctx); err != nil {
		return err
	}
	var err error
	if w.lab, err = natlab.New(); err != nil {
		return err
	}
	for _, m := range w.all {
		if m.site, err = w.lab.Site(m.kind); err != nil {
			return err
		}
		w.Say("%-14s %-12s %-15s seen as %s", m.name, m.kind, m.site.IP, m.site.Public)
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
	// These two have no direct path until the step of the changing path.
	if err := w.lab.Cut(w.find("buyer-moved").site, w.find("worker-cone").site); err != nil {
		return err
	}
	sells := 0
	for _, m := range w.all {
		if m.sells {
			sells++
		}
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: sells, Buyers: len(w.all) - sells,
		Chain: w.chain, Connected: 1, Interval: interval,
		Env: []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")}, Say: w.Say,
		Place: func(i int) testnet.Place { return w.all[i].place("http://" + rpc) },
	})
	if err != nil {
		return err
	}
	for i, m := range w.all {
		m.peer = w.net.Peers[i]
	}
	return nil
}

// build makes the program of the jobs.
func (w *world) build(ctx context.Context) error {
	path := filepath.Join(w.Dir, "tick.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path,
		"github.com/starling-network/starling/testnet/jobs/tick")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program: %w: %s", err, out)
	}
	var err error
	w.tick, err = os.ReadFile(path)
	return err
}

func (w *world) close() error {
	var errs []error
	if w.net != nil {
		errs = append(errs, w.net.Stop())
	}
	if w.chain != nil {
		errs = append(errs, w.chain.Close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	return errors.Join(errs...)
}

// ping pings b from a.
func (w *world) ping(ctx context.Context, a, b *machine) (api.PingResult, error) {
	c, err := a.peer.Client()
	if err != nil {
		return api.PingResult{}, err
	}
	id, err := p2p.PeerIDFromKey(b.peer.Key)
	if err != nil {
		return api.PingResult{}, err
	}
	return api.PingPeer.Call(ctx, c, api.PingRequest{Peer: id.String(), Count: 3})
}

// describe summarizes a ping's result.
func describe(r api.PingResult) string {
	if r.Problem != nil {
		return fmt.Sprintf("%s: %s", r.Problem.Reason, r.Problem.Text)
	}
	if len(r.RTTs) == 0 {
		return "no answer"
	}
	addr, _, relayed := strings.Cut(r.Conn.Addr, "/p2p/")
	if relayed {
		addr = "by the relay at " + addr
	}
	return fmt.Sprintf("%s, %s, %.1f ms", r.Conn.Path, addr, slices.Min(r.RTTs))
}

// submit submits a job of ticks ticks to the only worker in a region.
func (w *world) submit(ctx context.Context, c *api.Client, worker string, ticks int) (record.Job, error) {
	b, err := api.PutBlob.Call(ctx, c, api.Upload{Data: strings.NewReader(string(w.tick))})
	if err != nil {
		return record.Job{}, err
	}
	return c.Submit(ctx, job.Job{
		Name: "tick", Runtime: job.RuntimeWasm, Module: "tick.wasm", Args: []string{fmt.Sprint(ticks)}, Count: 1,
		Resources: job.Resources{Class: "cpu", Units: 1},
		Placement: job.Placement{Regions: []market.Region{market.Region(worker)}},
		Timeouts:  job.Timeouts{Queue: 30 * time.Second, Run: 10 * time.Minute},
		Payment:   job.Payment{MaxPrice: 1_000_000, Budget: 1_000_000, Decimals: 6},
		Blobs:     map[string]job.Blob{"tick.wasm": b.Source()},
	}, job.Values{}, "")
}
