package harness

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

// Peer is one peer of the network, running or crashed.
type Peer struct {
	*node.Node // of the running process
	Key        sign.Private
	Journal    *store.Memory // survives a crash
	Blobs      *blob.Store
	Fake       *runtimetest.Fake
	Engine     *engine // runs containers
	Home       string

	net    *Net
	i      int
	cancel context.CancelFunc
	done   chan struct{}
	power  *power
	err    error
}

func (p *Peer) start(h *p2p.Host) {
	n := p.net
	var at Crash
	if p.power == nil {
		at = n.opts.Crash[p.i]
	}
	p.power = newPower(n.t, p.Journal, at, func() { n.net.Cut(p.i) })
	p.startOn(h, p.power)
}

func (p *Peer) startOn(h *p2p.Host, st store.Store) {
	n := p.net
	cfg := config.Default()
	cfg.Region = "local"
	cfg.Buy.Limits.PerProviderPerDay = n.opts.Limits[p.i]
	if p.i < n.opts.Providers {
		cfg.Provide.Enabled = true
		cfg.Provide.Units = n.opts.Units
		cfg.Provide.Unit = config.Unit{MilliCPU: 1000, MemoryMiB: 64, DiskMiB: 16}
		cfg.Provide.Price, _ = n.price()
		if price := n.opts.Price[p.i]; price != "" {
			cfg.Provide.Price = price
		}
		if region := n.opts.Region[p.i]; region != "" {
			cfg.Region = region
		}
	}
	if n.opts.Configure != nil {
		n.opts.Configure(p.i, &cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	p.Node, err = node.New(ctx, node.Parts{
		Access: n.access(p.Key.Key()),
		Config: cfg, Home: p.Home, Genesis: n.Genesis, Key: p.Key, Owner: p.Key.Key(), Host: h, Store: st,
		Blobs: p.Blobs, Runtimes: map[string]runtime.Runtime{"wasm": p.Fake, "docker": p.Engine,
			"volume": runtimetest.NewVolumes()},
		SlotEvery: slotEvery, NoAPI: true, Version: "test", GPUs: n.opts.GPUs[p.i], Hardware: n.opts.Hardware[p.i],
		Networks: n.Overlays.at(h.ID()), Mask: n.mask(), Log: n.opts.Log.With("peer", name(p.i)),
	})
	if err != nil {
		cancel()
		if p.power.down() { // it crashed during its start
			return
		}
		n.t.Fatalf("starting %s: %v", name(p.i), err)
	}
	p.cancel, p.done = cancel, make(chan struct{})
	links, given := n.opts.Links[p.i]
	if !given && p.i > 0 {
		links = []int{0}
	}
	for _, to := range links {
		if n.net.Hosts[to] == nil {
			continue
		}
		if err := h.Connect(ctx, n.net.Addr(to)); err != nil {
			n.t.Fatalf("connecting %s: %v", name(p.i), err)
		}
	}
	go func() {
		defer close(p.done)
		p.err = p.Node.Run(ctx)
	}()
}

// Stop ends the peer's process gracefully. Its journal and files stay.
func (p *Peer) Stop() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	<-p.done
	p.cancel = nil
	if p.err != nil && !errors.Is(p.err, context.Canceled) {
		p.net.t.Errorf("%s ended with: %v", name(p.i), p.err)
	}
}

// Kill ends the peer as a power cut does: from now on it sends no message and writes nothing to its journal. Its
// programs run for a while. Kill also cleans up a peer that crashed by itself.
func (p *Peer) Kill() {
	p.power.cut()
	p.net.net.Crash(p.i)
	if p.cancel != nil {
		p.cancel()
		<-p.done
		p.cancel = nil
	}
	p.Fake, p.Engine = p.Fake.Restart(), &engine{Fake: p.Engine.Fake.Restart(), dir: p.Engine.dir,
		registry: p.Engine.registry}
}

// Restart starts a killed or stopped peer on its old state.
func (p *Peer) Restart() {
	p.start(p.net.net.Restart(p.i, p.net.host(p.i)))
}

// Crashed is closed when the power of the running process is cut.
func (p *Peer) Crashed() <-chan struct{} { return p.power.crash.Crashed() }

// Fill makes every write to the journal fail with err, as on a full disk; nil ends that.
func (p *Peer) Fill(err error) { p.power.fill(err) }

// Writes lists the kinds of the running process's journal writes, one entry for each write.
func (p *Peer) Writes() []string { return p.power.kinds() }

// Put stores content on the peer and returns it as a job's blob.
func (p *Peer) Put(content string) job.Blob {
	c, n, err := p.Blobs.Put(context.Background(), strings.NewReader(content))
	if err != nil {
		p.net.t.Fatal(err)
	}
	return job.Blob{CID: c.String(), Size: n}
}

// Read returns the content of a blob on the peer.
func (p *Peer) Read(text string) string {
	c, err := cid.Parse(text)
	if err != nil {
		p.net.t.Fatal(err)
	}
	f, err := p.Blobs.Open(c)
	if err != nil {
		p.net.t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		p.net.t.Fatal(err)
	}
	return string(b)
}

// Job returns a job of count ranks that runs the Fake's program of that name.
func (p *Peer) Job(program string, count uint32, args ...string) job.Job {
	pay := job.Payment{MaxPrice: 1_000_000, Budget: 50_000_000, Decimals: 6}
	if p.net.opts.Free {
		pay = job.Payment{Decimals: 6, Free: true}
	}
	return job.Job{
		Name: program, Runtime: "wasm", Module: program + ".wasm", Args: args, Count: count,
		Resources: job.Resources{Class: "cpu", Units: 1}, Restart: job.Restart{Max: 3}, Probes: job.ProbesOff,
		Timeouts: job.Timeouts{Queue: 20 * time.Second, Run: 10 * time.Minute},
		Payment:  pay,
		Blobs:    map[string]job.Blob{program + ".wasm": p.Put(string(runtimetest.FakeModule(program)))},
	}
}

// Submit submits a job.
func (p *Peer) Submit(spec job.Job) buyer.Job {
	p.net.t.Helper()
	for try := 0; ; try++ {
		j, err := p.Node.Buyer().Submit(context.Background(), buyer.Submission{Spec: spec})
		switch {
		case err == nil:
			return j
		case try == 99 || !errors.Is(err, slots.ErrUnknown):
			p.net.t.Fatalf("submitting: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // a newly started peer has not read the chain yet
	}
}

// Wait returns the job when it has ended, or fails the test after most.
func (p *Peer) Wait(id string, most time.Duration) buyer.Job {
	p.net.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	j, err := p.Node.Buyer().Wait(ctx, id)
	if err != nil {
		p.net.t.Fatalf("job %s has not ended after %v: %s\n%s", id, most, j.Summary(), p.Why(id))
	}
	return j
}

// Why returns the job's decision trace as text.
func (p *Peer) Why(id string) string {
	steps, _, err := p.Node.Buyer().Trace(id, 0)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.String())
		b.WriteByte('\n')
	}
	return b.String()
}
