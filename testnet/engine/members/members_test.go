//go:build linux

package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/natlab"
)

// port is where every peer listens.
const port = 4001

// lasting is how many slots of 100 ms lie between receipts: a provider that is silent for three times as long is taken for lost, and
// one that was killed here comes back before that on any machine.
const lasting = 200

// most bounds each thing that is waited for. Nothing is measured by it.
const most = 5 * time.Minute

// site is where a peer runs.
type site struct {
	kind   natlab.Kind
	relays bool
	at     *natlab.Site
	engine *engine.Engine // of one that sells
}

// lab is a network of two that sell, behind a NAT and with an engine each, a relay and a buyer.
type lab struct {
	*testing.T
	sites  []*site
	net    *testnet.Network
	binary string
	image  string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("STARLING_NETNS") == "" || os.Getenv("STARLING_DOCKER") != "1" {
		t.Skip("set STARLING_NETNS=1 and STARLING_DOCKER=1 to run engines behind NATs, as `make test` does")
	}
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		t.Skipf("%v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
	if err := errors.Join(engine.Available(), natlab.Available()); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("there is no /dev/net/tun: modprobe tun")
	}
	l := &lab{T: t, sites: []*site{{kind: natlab.Cone}, {kind: natlab.Cone}, {kind: natlab.Public, relays: true}, {kind: natlab.Cone}}}
	dir := t.TempDir()
	l.binary = filepath.Join(dir, "starling")
	box := filepath.Join(dir, "box")
	for out, pkg := range map[string]string{l.binary: "cmd/starling", box: "testnet/engine/box"} {
		l.must(engine.Build(out, "github.com/starling-network/starling/"+pkg))
	}
	internet, err := natlab.New()
	l.must(err)
	t.Cleanup(func() { _ = internet.Close() })
	var nets []*natlab.Namespace
	for i, s := range l.sites {
		s.at, err = internet.Site(s.kind)
		l.must(err)
		if i < 2 {
			s.engine, err = engine.Start(t.Context(), engine.Options{})
			if errors.Is(err, engine.ErrUnavailable) {
				t.Skip(err)
			}
			l.must(err)
			t.Cleanup(func() { _ = s.engine.Close() })
			nets = append(nets, s.at.Namespace)
		}
	}
	registry, err := engine.NewRegistry(nets...)
	l.must(err)
	t.Cleanup(func() { _ = registry.Close() })
	l.image, err = registry.Push("box", nil, engine.File{Path: "/box", From: box})
	l.must(err)
	gate, err := internet.Site(natlab.Public)
	l.must(err)
	chain, err := localnet.Start(t.Context(), localnet.Config{SlotMillis: testnet.SlotMillis})
	l.must(err)
	t.Cleanup(func() { _ = chain.Close() })
	rpc, err := internet.Serve(gate, 8899, strings.TrimPrefix(chain.URL(), "http://"))
	l.must(err)
	l.net, err = testnet.Start(t.Context(), testnet.Options{
		Dir: filepath.Join(dir, "net"), Binary: l.binary, Providers: 2, Buyers: 2, Chain: chain, Connected: 1, Interval: lasting, Units: 1,
		Env: []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}, Say: t.Logf,
		Unit:   config.Unit{MilliCPU: 1000, MemoryMiB: 256, DiskMiB: 256},
		Engine: func(i int) string { return l.sites[i].engine.Host() }, Registries: registry.Addrs(),
		Place: func(i int) testnet.Place { return l.sites[i].place("http://" + rpc) },
	})
	l.must(err)
	t.Cleanup(func() { _ = l.net.Stop() })
	return l
}

func (s *site) place(rpc string) testnet.Place {
	p := testnet.Place{
		Enter: s.at.Enter, RPC: rpc, Region: "local",
		Listen: []string{fmt.Sprintf("/ip4/0.0.0.0/tcp/%d", port), fmt.Sprintf("/ip4/0.0.0.0/udp/%d/quic-v1", port)},
	}
	if s.relays {
		p.Config = "relay: {serve: true}"
		p.Boot = fmt.Sprintf("/ip4/%s/tcp/%d", s.at.Public, port)
	}
	return p
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) buyer() *testnet.Peer { return l.net.Buyers()[1] }

// starling runs a command of the buyer's that has to succeed.
func (l *lab) starling(args ...string) string {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), l.binary, append([]string{"--home", l.buyer().Home}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := l.sites[len(l.sites)-1].at.Do(cmd.Run); err != nil {
		l.Fatalf("starling %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// until polls f until it is content; saw says what it saw last.
func (l *lab) until(what string, f func() (done bool, saw string)) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), most)
	defer cancel()
	for {
		done, saw := f()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			for _, p := range l.net.Peers {
				b, _ := os.ReadFile(filepath.Join(p.Home, "peer.log"))
				l.Logf("--- %s:\n%s", p.Name, b[max(0, len(b)-4000):])
			}
			l.Fatalf("%s: gave up; last: %s", what, saw)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const clusterFile = `apiVersion: v1
kind: Cluster
metadata: {name: talk}
spec:
  size: 2
  image: %s
  engine: none
  command: [/box, talk]
  resources: {class: cpu}
  placement: {network: wan}
  timeouts: {queue: 2m, run: 30m}
  payment: {maxPrice: 1, budget: 1}
`

// Containers behind two NATs talk over one TCP connection, which outlives the process of either of their peers.
func TestConnectionOutlivesPeers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	c, err := l.buyer().Client()
	l.must(err)
	l.until("both that sell are found and answer", func() (bool, string) {
		offers, err := api.ListOffers.Call(t.Context(), c, api.ByClass{Class: "cpu"})
		answered := 0
		for _, o := range offers {
			if o.Answered {
				answered++
			}
		}
		return answered == 2, fmt.Sprintf("%d offers, %d of them answered: %v", len(offers), answered, err)
	})
	file := filepath.Join(t.TempDir(), "talk.yaml")
	l.must(os.WriteFile(file, fmt.Appendf(nil, clusterFile, l.image), 0o600))
	id := strings.TrimSpace(l.starling("submit", "-d", file))
	job := func() record.Job {
		l.Helper()
		j, err := api.GetJob.Call(t.Context(), c, api.ByID{ID: id})
		l.must(err)
		return j
	}
	// back is the highest number that came back to rank 1.
	back := func() (n int, log string) {
		log = l.starling("logs", "--rank", "1", id)
		lines := strings.Split(strings.TrimSpace(log), "\n")
		n, _ = strconv.Atoi(strings.TrimPrefix(lines[len(lines)-1], "back "))
		return n, log[max(0, len(log)-300):]
	}
	counts := func(what string, from int) (now int) {
		l.Helper()
		l.until(what, func() (bool, string) {
			n, log := back()
			now = n
			if j := job(); j.State.Ended() {
				l.Fatalf("%s: the job is %s: %s", what, j.State, j.Reason)
			}
			return n > from, fmt.Sprintf("%d came back, want more than %d: %s; the job is %s: %s", n, from, log, job().State, job().Reason)
		})
		return now
	}
	n := counts("two containers talk", 5)
	l.until("both say how they reach each other", func() (bool, string) {
		for rank, r := range job().Ranks {
			if w := r.Live.Ways; w == nil || w.Direct+w.Relayed != 1 {
				return false, fmt.Sprintf("rank %d: %+v", rank, r.Live.Ways)
			}
			t.Logf("rank %d: %+v", rank, *r.Live.Ways)
		}
		return true, ""
	})
	before := job().Ranks // a busy machine may take more than one order, and each is under an epoch of its own
	for _, p := range l.net.Providers() {
		l.must(p.Kill())
		n, _ = back()
		l.must(p.Start(t.Context()))
		n = counts("they talk on after the peer of one was killed", n+20)
	}
	j := job()
	for rank, r := range j.Ranks {
		if r.Restarts != 0 || r.Epoch != before[rank].Epoch {
			t.Errorf("rank %d was taken anew: it was %+v, and is %+v", rank, before[rank], r)
		}
	}
	if _, log := back(); strings.Count(l.starling("logs", "--rank", "1", id), "connected to") != 1 {
		t.Errorf("it connected again: %s", log)
	}
	t.Logf("%d numbers came back over one connection", n)
	l.starling("stop", id)
	for _, s := range l.sites[:2] {
		l.until("no container is left", func() (bool, string) {
			list, err := s.engine.Containers(t.Context())
			l.must(err)
			return len(list) == 0, fmt.Sprint(list)
		})
	}
}
