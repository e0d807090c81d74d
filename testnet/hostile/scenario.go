//go:build linux

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/natlab"
	"github.com/starling-network/starling/testnet/scenarios"
)

// The network: ten honest peers, including three buyers.
const (
	sellers = 7
	buyers  = 3
	units   = 2
)

// latency is the step that compares the times from order to leases.
const latency = "the time from an order to its leases"

// Options of the scenario.
type Options struct {
	scenarios.Options
	Attack time.Duration // time of honest jobs during the attack; 0: 2 minutes
	Quiet  time.Duration // time of honest jobs before it; 0: equal to Attack, for comparable numbers of jobs
}

// world is a running scenario.
type world struct {
	Options
	lab      *natlab.Lab
	chain    *localnet.Chain
	net      *testnet.Network
	attacker *natlab.Site
	program  string // path of the attacker's program
	tick     []byte // program of the honest jobs

	quiet, attacked sample
}

// Run runs the scenario. The rows are the observations; an error means that it failed to run.
func Run(ctx context.Context, o Options) (rows []scenarios.Row, err error) {
	if err := natlab.Available(); err != nil {
		return nil, err
	}
	if o.Attack == 0 {
		o.Attack = 2 * time.Minute
	}
	if o.Quiet == 0 {
		o.Quiet = o.Attack
	}
	w := &world{Options: o}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return scenarios.Play(ctx, o.Options, o.Quiet+o.Attack+4*time.Minute, []scenarios.Step{
		{What: fmt.Sprintf("honest jobs for %v", o.Quiet), Run: w.peace},
		{What: fmt.Sprintf("honest jobs for %v beside an attacker with a hundred keys: each completed and paid",
			o.Attack), Run: w.war},
		{What: latency, Run: w.latency},
		{What: "the memory of every peer", Run: w.memory},
		{What: "afterwards: all units are free, every offer is found, no peer is connected to the attacker",
			Run: w.after},
	})
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
	var sites []*natlab.Site
	for range sellers + buyers + 2 {
		s, err := w.lab.Site(natlab.Public)
		if err != nil {
			return err
		}
		sites = append(sites, s)
	}
	gate := sites[sellers+buyers]
	w.attacker = sites[sellers+buyers+1]
	if w.chain, err = localnet.Start(ctx, localnet.Config{SlotMillis: testnet.SlotMillis}); err != nil {
		return fmt.Errorf("starting the chain: %w", err)
	}
	rpc, err := w.lab.Serve(gate, 8899, strings.TrimPrefix(w.chain.URL(), "http://"))
	if err != nil {
		return err
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: sellers, Buyers: buyers, Units: units,
		Interval: 30, // 3 s: ten peers and the attacker share this machine
		Chain:    w.chain, Env: []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")}, Say: w.Say,
		Place: func(i int) testnet.Place {
			p := scenarios.At(sites[i], fmt.Sprintf("region-%d", i+1), "http://"+rpc)
			if i < 3 {
				return scenarios.Relay(p, sites[i])
			}
			return p
		},
	})
	return err
}

// build builds the program of the honest jobs and the attacker.
func (w *world) build(ctx context.Context) error {
	path := filepath.Join(w.Dir, "tick.wasm")
	w.program = filepath.Join(w.Dir, "attacker")
	for _, b := range []struct{ to, from, env string }{
		{path, "jobs/tick", "GOOS=wasip1 GOARCH=wasm"}, {w.program, "hostile/attacker", ""},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", b.to,
			"github.com/starling-network/starling/testnet/"+b.from)
		cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), strings.Fields(b.env)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", b.from, err, out)
		}
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

func (w *world) peace(ctx context.Context) (string, error) {
	var err error
	w.quiet, err = w.honest(ctx, w.Quiet)
	return w.quiet.String(), err
}

// war runs the attacker during honest jobs.
func (w *world) war(ctx context.Context) (string, error) {
	args := []string{"-genesis", filepath.Join(w.net.Peers[0].Home, config.FileGenesis), "-for", w.Attack.String()}
	for i, p := range w.net.Peers {
		id, err := p2p.PeerIDFromKey(p.Key)
		if err != nil {
			return "", err
		}
		for _, transport := range []string{"tcp/%d", "udp/%d/quic-v1"} {
			args = append(args, fmt.Sprintf("/ip4/5.9.%d.1/"+transport+"/p2p/%s", i+1, scenarios.Port, id))
		}
	}
	said := make(chan error, 1)
	var report map[string]struct{ Tried, Taken int64 }
	go func() {
		// The attacker has a lower priority than the peers for this machine's processors, to simulate a separate
		// machine. If Linux groups processes by session, the session's weight is lowered.
		cmd := exec.CommandContext(ctx, "setsid", append([]string{"-w", "sh", "-c",
			`{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$0" "$@"`, w.program}, args...)...)
		out, err := scenarios.Command{Cmd: cmd, Enter: w.attacker.Enter}.Run()
		if err == nil && out.Code != 0 {
			err = fmt.Errorf("the attacker failed: %v", out)
		}
		if err == nil {
			err = json.Unmarshal([]byte(out.Out), &report)
		}
		said <- err
	}()
	var err error
	w.attacked, err = w.honest(ctx, w.Attack)
	err = errors.Join(err, <-said)
	for _, name := range slices.Sorted(maps.Keys(report)) {
		w.Say("  %-18s tried %6d times, accepted %6d times", name, report[name].Tried, report[name].Taken)
	}
	return w.attacked.String(), err
}
