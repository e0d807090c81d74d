//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/bench"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/scenarios"
)

// members is the size of the cluster.
const members = 8

// unit is what each member has.
var unit = config.Unit{MilliCPU: 1000, MemoryMiB: 2048, DiskMiB: 2048}

// objectStore is what Ray's object store has of that, MiB.
const objectStore = "200"

const clusterFile = `apiVersion: v1
kind: Cluster
metadata: {name: %s}
spec:
  size: %d
  image: %s
  engine: {name: ray, objectStore: %s}
  resources: {units: 1, cpu: 1, memory: 2Gi}
  timeouts: {queue: 2m, run: 30m, stop: 1s}
  payment: {maxPrice: 1/unit-hour, budget: 5}
`

// interval is how many slots of 100 ms lie between receipts: 30 s. A lease that is paid more often is ended where a busy disk holds
// up the buyer's journal for as long, and what is measured then is another thing.
const interval = 300

// patience bounds one cluster's start: nothing is measured by it.
const patience = 5 * time.Minute

// BenchmarkRay compares how long a Ray cluster of eight takes to come up: from `starling cluster up` until Ray's own control
// store sees all nodes, on eight peers that have the image, and from the start of eight plain containers of the same image with the
// same commands, environment and limits, in turns on the same container engine. over-ms is the difference of the medians.
func BenchmarkRay(b *testing.B) {
	if os.Getenv("STARLING_DOCKER") != "1" {
		b.Skip("benchmarks of the container engine run with STARLING_DOCKER=1")
	}
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		b.Skip(localnet.ErrNotInstalled)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		b.Skip("there is no /dev/net/tun (modprobe tun)")
	}
	w := newWorld(b)
	var ours, plain, waited []float64
	stages := map[string][]float64{}
	pair := func() (risen, []time.Duration) {
		up, err := w.up(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		alone, err := w.bare.start(b.Context(), up.task)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("starling %v, bare %v\n%s", up.seen, alone, strings.Join(up.said, "\n"))
		return up, alone
	}
	syscall.Sync()
	pair() // not counted: an image that was fetched just now is not read as fast as it is later
	for b.Loop() {
		up, alone := pair()
		ours, plain = append(ours, millis(up.seen[members-1])), append(plain, millis(alone[members-1]))
		waited = append(waited, millis(up.running))
		for k, d := range up.at {
			stages[k] = append(stages[k], millis(d))
		}
	}
	for k, v := range stages {
		b.Logf("until %-12s %8.1f ms", k, bench.SpreadOf(v).P50)
	}
	all, none, running := bench.SpreadOf(ours), bench.SpreadOf(plain), bench.SpreadOf(waited)
	for _, figures := range []map[string]float64{all.Figures("submitted"), none.Figures("bare"), running.Figures("running")} {
		for unit, v := range figures {
			b.ReportMetric(v, unit)
		}
	}
	b.ReportMetric(members, "members")
	b.ReportMetric(all.P50-none.P50, "over-ms")
	b.ReportMetric(0, "ns/op")
}

// world is eight peers that sell, one that buys, and the container engine that all of them share with the plain containers.
type world struct {
	engine *engine.Engine
	image  string
	bare   *bare
	net    *testnet.Network
	buyer  *testnet.Peer
	client *api.Client
	binary string
	dir    string
	n      int // clusters so far
}

func newWorld(b *testing.B) *world {
	ctx := b.Context()
	set, err := images.Make(ctx, b.Logf)
	if errors.Is(err, images.ErrUnavailable) {
		b.Skip(strings.SplitN(err.Error(), "\n", 2)[0])
	} else if err != nil {
		b.Fatal(err)
	}
	w := &world{dir: b.TempDir()}
	w.engine, err = engine.Start(ctx, engine.Options{})
	if errors.Is(err, engine.ErrUnavailable) {
		b.Skip(err)
	} else if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.engine.Close() })
	r, err := engine.NewRegistry(w.engine.Net)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	if w.image, err = set.Push(r, images.Ray); err != nil {
		b.Fatal(err)
	}
	if err := w.engine.Call(ctx, http.MethodPost, "/images/create?fromImage="+url.QueryEscape(w.image), nil, nil); err != nil {
		b.Fatal(err)
	}
	if w.bare, err = newBare(ctx, w.engine, w.image, w.dir); err != nil {
		b.Fatal(err)
	}
	w.binary = filepath.Join(w.dir, "starling")
	if err := engine.Build(w.binary, "github.com/starling-network/starling/cmd/starling"); err != nil {
		b.Fatal(err)
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.dir, "net"), Binary: w.binary, Providers: members, Buyers: 1, Units: 1, Unit: unit, Interval: interval,
		Env: []string{"XDG_CACHE_HOME=" + filepath.Join(w.dir, "cache")}, Engine: func(int) string { return w.engine.Host() }, Registries: r.Addrs(), Say: b.Logf,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.net.Stop() })
	w.buyer = w.net.Buyers()[0]
	if w.client, err = w.buyer.Client(); err != nil {
		b.Fatal(err)
	}
	if err := w.found(ctx); err != nil {
		b.Fatal(err)
	}
	return w
}

// found waits until the buyer knows what all sell.
func (w *world) found(ctx context.Context) error {
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		offers, err := api.ListOffers.Call(ctx, w.client, api.ByClass{Class: "cpu"})
		answered := 0
		for _, o := range offers {
			if o.Answered {
				answered++
			}
		}
		return answered == members, fmt.Sprintf("%d offers answered", answered), err
	})
	return err
}

// risen is how a cluster of Starling's came up.
type risen struct {
	seen    []time.Duration // from the command until Ray saw one node, two, …
	running time.Duration   // until the buyer saw all programs run
	at      map[string]time.Duration
	task    cluster.Task // what the plain containers are to do
	said    []string
}

// up brings a cluster up by the command line, and ends it when Ray has seen all its nodes.
func (w *world) up(ctx context.Context) (up risen, err error) {
	w.n++
	name := fmt.Sprint("ray-", w.n)
	file := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, clusterFile, name, members, w.image, objectStore), 0o600); err != nil {
		return up, err
	}
	began := time.Now()
	command, err := scenarios.Follow(w.command("cluster", "up", file))
	if err != nil {
		return up, err
	}
	defer command.End()
	id := ""
	var gcs *store
	up.seen, err = watch(ctx, began, members, func(ctx context.Context) (n int, err error) {
		if gcs == nil {
			if id, gcs, err = w.store(ctx, name); err != nil {
				return 0, err
			}
		}
		if n, err = gcs.nodes(ctx); err == nil {
			return n, nil
		}
		if j, jerr := api.GetJob.Call(ctx, w.client, api.ByID{ID: id}); jerr == nil && j.State.Ended() {
			err = fmt.Errorf("%w: %s", errOver, j.Reason)
		}
		return 0, err
	})
	if gcs != nil {
		defer gcs.close()
	}
	if err != nil {
		return up, fmt.Errorf("%w\n%s", err, command.Text())
	}
	if _, err := command.Wait(ctx); err != nil {
		return up, err
	}
	j, err := api.GetJob.Call(ctx, w.client, api.ByID{ID: id})
	if err != nil {
		return up, err
	}
	up.task = cluster.Task{ID: id, Size: members, Begun: members, Class: j.Spec.Cluster.Network, Options: j.Spec.Cluster.Options,
		MilliCPU: j.Spec.Resources.PerUnit.MilliCPU, MemoryMiB: j.Spec.Resources.PerUnit.MemoryMiB, RTT: time.Duration(j.Network.RTTMicros) * time.Microsecond}
	steps, err := api.JobSteps.Call(ctx, w.client, api.ByID{ID: id})
	if err != nil {
		return up, err
	}
	up.at = map[string]time.Duration{"node 1": up.seen[0], "node 8": up.seen[members-1]}
	for _, s := range steps {
		at := s.At.Sub(began)
		up.said = append(up.said, fmt.Sprintf("%8.0f ms %s", millis(at), s))
		up.at[string(s.Kind)] = at
		if s.Kind == record.StepStarted {
			up.running = max(up.running, at)
		}
	}
	return up, w.down(ctx, id)
}

// command is starling for the buyer.
func (w *world) command(args ...string) scenarios.Command {
	return scenarios.Command{Cmd: exec.Command(w.binary, append([]string{"--home", w.buyer.Home}, args...)...)}
}

// find is the job of a cluster that is open.
func (w *world) find(ctx context.Context, name string) (string, error) {
	jobs, err := w.client.Jobs(ctx, buyer.Query{Name: name})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(jobs, func(j buyer.Job) bool { return j.Spec.Name == name })
	if i < 0 {
		return "", fmt.Errorf("there is no cluster %s yet", name)
	}
	return jobs[i].ID, nil
}

// store is the way to the control store of a cluster, once that is ordered: through its buyer's peer, as a person would go.
func (w *world) store(ctx context.Context, name string) (id string, s *store, err error) {
	id, err = w.find(ctx, name)
	if err != nil {
		return "", nil, err
	}
	token, err := api.ClusterToken.Call(ctx, w.client, api.ByID{ID: id})
	if err != nil {
		return "", nil, err
	}
	return id, newStore(token.Token, func(ctx context.Context) (net.Conn, error) {
		c, err := w.client.Forward(context.WithoutCancel(ctx), id, 0, cluster.PortRay)
		if err != nil {
			return nil, err
		}
		return conn{c}, nil
	}), nil
}

// down ends a cluster and waits until nothing of it is left.
func (w *world) down(ctx context.Context, id string) error {
	if err := api.StopJob.Send(ctx, w.client, api.ByID{ID: id}); err != nil {
		return err
	}
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		j, err := api.GetJob.Call(ctx, w.client, api.ByID{ID: id})
		if err != nil {
			return false, "", err
		}
		left, err := w.engine.Containers(ctx)
		return j.State.Ended() && len(left) == 0, fmt.Sprintf("%s, %d containers are left", j.Summary(), len(left)), err
	})
	return err
}

// lookEvery is how often it is asked how many nodes there are, of both sides.
const lookEvery = 200 * time.Millisecond

// errOver means that nothing more will come of a cluster.
var errOver = errors.New("the cluster has ended")

// watch asks again and again how many nodes there are until there are n, and says how long after began each was seen first.
func watch(ctx context.Context, began time.Time, n int, ask func(context.Context) (int, error)) (seen []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := errors.New("nothing was seen")
	for len(seen) < n {
		now, err := ask(ctx)
		if errors.Is(err, errOver) {
			return seen, err
		}
		if err != nil {
			last = err
		}
		for at := time.Since(began); len(seen) < min(now, n); {
			seen = append(seen, at)
		}
		select {
		case <-ctx.Done():
			return seen, fmt.Errorf("%d of %d nodes were seen: %w; %w", len(seen), n, ctx.Err(), last)
		case <-time.After(lookEvery):
		}
	}
	return seen, nil
}

// conn makes a stream of the local API a connection, with addresses and without deadlines: HTTP asks for no more.
type conn struct{ live.Conn }

func (conn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (conn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (conn) SetDeadline(time.Time) error      { return nil }
func (conn) SetReadDeadline(time.Time) error  { return nil }
func (conn) SetWriteDeadline(time.Time) error { return nil }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
