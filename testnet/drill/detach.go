// Package drill runs networks of peers with failures and fraud: a job loses its client, its entry peer, a guardian and
// a provider, or a provider sells one unit twice. Each drill checks the outcome and writes a report.
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

// The peers of the demonstration, by number: the providers, then the other peers. The first of those is the laptop's
// entry.
const (
	detachSellers = 5
	detachEntry   = detachSellers
	detachOthers  = 6 // two entries, three guardians, and one more
)

const (
	detachTime     = 5 * time.Minute
	detachInterval = 80 // slots; a provider waits for a supervisor for an interval and two seconds
	detachRanks    = 3
	detachSeconds  = 45  // work of each rank
	detachTokens   = 100 // of the laptop
)

// Detach submits a job from a laptop outside the network, and then kills in turn: the laptop's client, its entry peer,
// the guardian that supervises the job at that time, and a provider. The other peers complete the job. The laptop
// returns through another peer, to its result and the rest of its deposit. Detach writes detach.json, and returns an
// error if any of these steps fails.
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
	d.say("\nDone in %.0f s. The output is in %s", d.report.Seconds["total"], path)
	return nil
}

// DetachReport is the content of detach.json. Amounts are base units.
type DetachReport struct {
	Network     string               `json:"network"`
	Peers       []testnet.PeerReport `json:"peers"`
	Job         string               `json:"job"`
	Guardians   []string             `json:"guardians"`   // names, in the order of their keys
	Supervisors []string             `json:"supervisors"` // names, in order, without the owner
	Killed      []string             `json:"killed"`
	Leases      int                  `json:"leases"` // of the job, with the replacement
	Receipts    int                  `json:"receipts"`
	Results     []string             `json:"results"` // of each rank
	Wallet      string               `json:"wallet"`

	Before    market.Amount `json:"before"` // in the laptop's wallet
	After     market.Amount `json:"after"`
	Deposited market.Amount `json:"deposited"`
	Paid      market.Amount `json:"paid"` // from the escrow, with the network's fees
	Refunded  market.Amount `json:"refunded"`
	// Seconds of wall time by stage.
	Seconds map[string]float64 `json:"seconds"`
}

// detach is a running demonstration of Detach.
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
	d.say("Starling: a job that survives its laptop")
	d.say("\n1. The network: %d selling peers and %d others", detachSellers, detachOthers)
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

// address is the entry address of a peer for the laptop.
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

// submit submits the job from the laptop.
func (d *detach) submit(ctx context.Context) error {
	entry, err := d.address(ctx, detachEntry)
	if err != nil {
		return err
	}
	d.say("\n2. A laptop with only the address of %s submits a job", d.net.Peers[detachEntry].Name)
	if err := os.RemoveAll(d.laptop); err != nil { // an earlier run pinned another network
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
	d.say("   job %s runs on %d peers; its guardians are %s, two of which decide",
		d.job.ID, detachRanks, strings.Join(d.report.Guardians, ", "))
	return nil
}

// tokenUnit is the number of base units in a token.
func tokenUnit(decimals uint8) uint64 {
	n := uint64(1)
	for range decimals {
		n *= 10
	}
	return n
}

// name returns the name of a peer.
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

// leave kills the client and its entry peer.
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

// supervised waits until a running guardian other than not supervises the job, and returns it.
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
		if err := pause(ctx, "no guardian supervises the job"); err != nil {
			return nil, err
		}
	}
}

// guarded returns a guardian's view of the job.
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

// lose kills the supervising guardian, and a provider.
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
	d.say("   %s, which runs rank 1, is killed; one of the laptop's standbys replaces it", provider.Name)
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

// wait waits until a guardian reports that the job's work has ended.
func (d *detach) wait(ctx context.Context) error {
	d.say("\n5. The job continues without its submitter")
	for {
		for _, m := range d.job.Detached.Guardians {
			if p := d.peer(m.Key); p.Running() {
				if g, err := d.guarded(ctx, p); err == nil && g.Over {
					d.say("   %s: the job's work has ended, the result is kept for its owner", p.Name)
					return nil
				}
			}
		}
		if err := pause(ctx, "the job does not end"); err != nil {
			return err
		}
	}
}
