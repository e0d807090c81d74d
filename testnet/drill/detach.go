// Package drill runs networks of peers in which something goes wrong: a job's client, its entry peer, a guardian and a
// provider are lost, or a provider sells one unit twice. Each drill checks the outcome and writes a report.
package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
)

// The peers of the demonstration, by number: those that sell, then those that sell nothing, the first of whom the
// laptop enters by.
const (
	detachSellers = 5
	detachEntry   = detachSellers
	detachOthers  = 6 // two to enter by, three guardians, and one more
)

const (
	detachTime     = 5 * time.Minute
	detachInterval = 80 // slots: a provider waits so long, and two seconds, for a supervisor
	detachRanks    = 3
	detachSeconds  = 45  // that each rank works
	detachTokens   = 100 // of the laptop
)

// Detach submits a job from a laptop outside the network, and then kills one part after another: the laptop's client,
// its entry peer, the guardian that supervises the job then, and a provider. The others bring the job to its end. The
// laptop comes back by another peer to its result and to the rest of its money. Detach writes detach.json, and returns
// an error if anything of that fails.
func Detach(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	d := &detach{out: o.Out, dir: dir, laptop: filepath.Join(dir, "detach", "laptop"),
		report: &DetachReport{Seconds: map[string]float64{}}}
	began := time.Now()
	if err := testnet.Timed(d.report.Seconds, "network", func() error { return d.start(ctx, o) }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.net.Stop()) }()
	defer func() { d.killClient() }()
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"submit", d.submit}, {"leave", d.leave}, {"lose", d.lose}, {"end", d.wait}, {"back", d.back},
		{"check", d.check}} {
		if err := testnet.Timed(d.report.Seconds, part.name, func() error { return part.do(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	d.report.Seconds["total"] = testnet.Seconds(time.Since(began))
	path := filepath.Join(dir, "detach.json")
	if err := testnet.WriteReport(path, d.report); err != nil {
		return err
	}
	d.say("\nDone in %.0f s. Everything is in %s", d.report.Seconds["total"], path)
	return nil
}

// DetachReport is the content of detach.json. Amounts are base units.
type DetachReport struct {
	Network     string               `json:"network"`
	Peers       []testnet.PeerReport `json:"peers"`
	Job         string               `json:"job"`
	Guardians   []string             `json:"guardians"`   // names, in the order of their keys
	Supervisors []string             `json:"supervisors"` // names, in order, the owner left out
	Killed      []string             `json:"killed"`
	Leases      int                  `json:"leases"` // the job's, the replacement among them
	Receipts    int                  `json:"receipts"`
	Results     []string             `json:"results"` // of each rank
	Wallet      string               `json:"wallet"`

	Before    market.Amount `json:"before"` // in the laptop's wallet
	After     market.Amount `json:"after"`
	Deposited market.Amount `json:"deposited"`
	Paid      market.Amount `json:"paid"` // out of the escrow, with the network's fees
	Refunded  market.Amount `json:"refunded"`
	// Seconds of wall time by stage.
	Seconds map[string]float64 `json:"seconds"`
}

// detach is one such demonstration under way.
type detach struct {
	out    io.Writer
	dir    string
	laptop string // home of the light client
	net    *testnet.Network
	report *DetachReport
	job    record.Job
}

func (d *detach) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// starling runs a command on the laptop.
func (d *detach) starling(ctx context.Context, into any, args ...string) error {
	return testnet.Command(ctx, d.say, d.net.Peers[0].Binary(), d.laptop, into, args...)
}

func (d *detach) start(ctx context.Context, o Options) (err error) {
	d.say("Starling: a job that outlives the laptop it came from")
	d.say("\n1. The network: %d peers that sell and %d that do not", detachSellers, detachOthers)
	d.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(d.dir, "detach", "net"), Providers: detachSellers, Buyers: detachOthers, Units: 1,
		RPC: o.RPC, Binary: o.Binary, Interval: detachInterval, Say: func(format string, args ...any) {
			d.say("   "+format, args...)
		},
	})
	if err != nil {
		return err
	}
	d.report.Network = d.net.Genesis.Tag()
	for _, p := range d.net.Peers {
		d.report.Peers = append(d.report.Peers, testnet.ReportOf(p))
	}
	c, err := d.net.Peers[detachEntry].Client()
	if err != nil {
		return err
	}
	return testnet.WaitOffers(ctx, c, detachSellers)
}

// address is where the laptop enters by a peer.
func (d *detach) address(ctx context.Context, i int) (string, error) {
	c, err := d.net.Peers[i].Client()
	if err != nil {
		return "", err
	}
	info, err := api.GetNode.Call(ctx, c, api.None{})
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(info.Addrs, func(a string) bool { return strings.Contains(a, "/tcp/") })
	if at < 0 {
		return "", fmt.Errorf("%s has no TCP address among %v", d.net.Peers[i].Name, info.Addrs)
	}
	return info.Addrs[at], nil
}

// submit has the laptop hand the job in.
func (d *detach) submit(ctx context.Context) error {
	entry, err := d.address(ctx, detachEntry)
	if err != nil {
		return err
	}
	d.say("\n2. A laptop that knows the address of %s alone hands in a job", d.net.Peers[detachEntry].Name)
	if err := os.RemoveAll(d.laptop); err != nil { // of an earlier run: it is pinned to that network
		return err
	}
	if err := os.MkdirAll(d.laptop, 0o700); err != nil {
		return err
	}
	program := filepath.Join(d.dir, "detach", "hash.wasm")
	if err := testnet.Compile(ctx, "github.com/starling-network/starling/testnet/jobs/hash", program); err != nil {
		return err
	}
	var w struct {
		Owner sign.Key `json:"owner"`
	}
	if err := d.starling(ctx, &w, "--peer", entry, "wallet", "show"); err != nil {
		return err
	}
	d.report.Wallet = w.Owner.String()
	d.report.Before = detachTokens * market.Amount(tokenUnit(d.net.Genesis.Decimals))
	if err := testnet.Fund(ctx, d.net.Dir, w.Owner, d.report.Before); err != nil {
		return err
	}
	c, err := api.Dial(d.laptop, config.FileAPI)
	if err == nil {
		err = testnet.WaitOffers(ctx, c, detachSellers)
	}
	if err != nil {
		return fmt.Errorf("the laptop: %w", err)
	}
	if err := d.starling(ctx, &d.job, "run", "-d", "-n", fmt.Sprint(detachRanks), "--max-price", "0.5", "--timeout",
		"5m", "--out", "/out", program, "--", fmt.Sprint(detachSeconds)); err != nil {
		return err
	}
	if d.job.Detached == nil || !d.job.Detached.Held {
		return fmt.Errorf("job %s is not held by guardians: %s", d.job.ID, d.job.Summary())
	}
	for _, m := range d.job.Detached.Guardians {
		d.report.Guardians = append(d.report.Guardians, d.name(m.Key))
	}
	d.report.Job = d.job.ID
	d.say("   job %s runs on %d peers; its guardians are %s, of whom two decide",
		d.job.ID, detachRanks, strings.Join(d.report.Guardians, ", "))
	return nil
}

// tokenUnit is how many base units a token has.
func tokenUnit(decimals uint8) uint64 {
	n := uint64(1)
	for range decimals {
		n *= 10
	}
	return n
}

// name of a peer.
func (d *detach) name(k sign.Key) string {
	if p := d.peer(k); p != nil {
		return p.Name
	}
	return k.Short()
}

func (d *detach) peer(k sign.Key) *testnet.Peer {
	if i := slices.IndexFunc(d.net.Peers, func(p *testnet.Peer) bool { return p.Key == k }); i >= 0 {
		return d.net.Peers[i]
	}
	return nil
}

// killClient ends the laptop's client with SIGKILL, if one runs.
func (d *detach) killClient() {
	path := filepath.Join(d.laptop, config.FileAPI)
	b, err := os.ReadFile(path)
	var e api.Endpoint
	if err == nil && json.Unmarshal(b, &e) == nil && e.PID > 0 {
		_ = syscall.Kill(e.PID, syscall.SIGKILL)
		_ = os.Remove(path)
	}
}

// leave kills the client and the peer that it entered by.
func (d *detach) leave(ctx context.Context) error {
	entry := d.net.Peers[detachEntry]
	d.say("\n3. The laptop's client is killed, and so is %s", entry.Name)
	d.killClient()
	d.report.Killed = append(d.report.Killed, "laptop", entry.Name)
	if err := entry.Kill(); err != nil {
		return err
	}
	by, err := d.supervised(ctx, sign.Key{})
	if err != nil {
		return err
	}
	d.say("   %s supervises the job now", by.Name)
	return nil
}

// supervised waits until a guardian that lives supervises the job, another one than not, and returns it.
func (d *detach) supervised(ctx context.Context, not sign.Key) (*testnet.Peer, error) {
	for {
		for _, m := range d.job.Detached.Guardians {
			p := d.peer(m.Key)
			if m.Key == not || !p.Running() {
				continue
			}
			g, err := d.guarded(ctx, p)
			if err == nil && g.Mine {
				d.report.Supervisors = append(d.report.Supervisors, p.Name)
				return p, nil
			}
		}
		if err := pause(ctx, "no guardian takes the job up"); err != nil {
			return nil, err
		}
	}
}

// guarded is the job as a guardian has it.
func (d *detach) guarded(ctx context.Context, p *testnet.Peer) (api.GuardedJob, error) {
	c, err := p.Client()
	if err != nil {
		return api.GuardedJob{}, err
	}
	jobs, err := api.ListGuarded.Call(ctx, c, api.None{})
	if err != nil {
		return api.GuardedJob{}, err
	}
	for _, g := range jobs {
		if g.Job == d.job.Detached.Terms {
			return g, nil
		}
	}
	return api.GuardedJob{}, fmt.Errorf("%s does not guard the job", p.Name)
}

// lose kills the guardian that supervises, and a provider.
func (d *detach) lose(ctx context.Context) error {
	if err := d.running(ctx, 5*time.Second); err != nil {
		return err
	}
	first := d.peer(d.key(d.report.Supervisors[0]))
	provider := d.peer(d.job.Ranks[1].Provider)
	d.say("\n4. %s is killed, too", first.Name)
	if err := first.Kill(); err != nil {
		return err
	}
	by, err := d.supervised(ctx, first.Key)
	if err != nil {
		return err
	}
	d.say("   %s supervises the job now", by.Name)
	if err := d.running(ctx, 5*time.Second); err != nil {
		return err
	}
	d.say("   %s, which runs rank 1, is killed; a standby that the laptop chose is to take its place", provider.Name)
	d.report.Killed = append(d.report.Killed, first.Name, provider.Name)
	return provider.Kill()
}

// key of a peer by its name.
func (d *detach) key(name string) sign.Key {
	return d.net.Peers[slices.IndexFunc(d.net.Peers, func(p *testnet.Peer) bool { return p.Name == name })].Key
}

// running lets the job run for a while.
func (d *detach) running(ctx context.Context, span time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(span):
		return nil
	}
}

// wait waits until a guardian reports the end of the job's work.
func (d *detach) wait(ctx context.Context) error {
	d.say("\n5. Nobody is there who submitted it, and the job goes on")
	for {
		for _, m := range d.job.Detached.Guardians {
			if p := d.peer(m.Key); p.Running() {
				if g, err := d.guarded(ctx, p); err == nil && g.Over {
					d.say("   %s: its work is over, the result is kept for its owner", p.Name)
					return nil
				}
			}
		}
		if err := pause(ctx, "the job does not end"); err != nil {
			return err
		}
	}
}
