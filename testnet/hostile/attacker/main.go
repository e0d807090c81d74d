// Command attacker runs all attacks at once that are open to unknown peers with free keys, for a given time. Its
// targets are peers of the scenario that starts it, in separate network namespaces. It prints the number of tries of
// each attack, and the number of tries that a peer accepted.
//
//	attacker -genesis FILE -for 2m MULTIADDR...
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

func main() {
	genesis := flag.String("genesis", "", "file with the network's genesis")
	length := flag.Duration("for", 2*time.Minute, "how long")
	flag.Parse()
	if err := run(*genesis, *length, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

// keys is the number of the attacker's identities.
const keys = 100

func run(genesis string, length time.Duration, addrs []string) error {
	text, err := os.ReadFile(genesis)
	if err != nil {
		return err
	}
	a := &attacker{counts: map[string]*count{}}
	if err := json.Unmarshal(text, &a.genesis); err != nil {
		return fmt.Errorf("reading %s: %w", genesis, err)
	}
	for _, s := range addrs {
		info, err := peer.AddrInfoFromString(s)
		if err != nil {
			return err
		}
		a.targets = append(a.targets, *info)
	}
	if len(a.targets) == 0 {
		return errors.New("no targets")
	}
	if err := manyFiles(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "starling-attacker-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if a.store, err = blob.OpenStore(dir, 1<<20); err != nil {
		return err
	}
	for range keys {
		if err := a.addKey(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	a.attack(ctx)
	return json.NewEncoder(os.Stdout).Encode(a.report())
}

// manyFiles raises the limit of open files to one socket for each connection.
func manyFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = l.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

// attacker is a hostile client with many keys.
type attacker struct {
	genesis market.Genesis
	targets []peer.AddrInfo
	hosts   []host.Host // one for each key
	signers []sign.Private
	store   *blob.Store // for requested files

	mu     sync.Mutex
	counts map[string]*count
}

// addKey makes an identity with an own host without limits.
func (a *attacker) addKey() error {
	signer := newKey()
	h, err := libp2p.New(
		libp2p.Identity(p2p.PrivKey(signer.Seed())), libp2p.NoListenAddrs,
		libp2p.ProtocolVersion("starling/"+a.genesis.Tag()), libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.DisableMetrics())
	if err != nil {
		return err
	}
	a.hosts, a.signers = append(a.hosts, h), append(a.signers, signer)
	return nil
}

// count is the outcome of an attack.
type count struct {
	tried, taken atomic.Int64
}

func (a *attacker) count(name string) *count {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.counts[name]
	if c == nil {
		c = &count{}
		a.counts[name] = c
	}
	return c
}

func (c *count) note(err error) {
	c.tried.Add(1)
	if err == nil {
		c.taken.Add(1)
	}
}

// Report is the attacker's output: for each attack, the number of tries and of tries that a peer accepted.
type Report map[string]struct{ Tried, Taken int64 }

func (a *attacker) report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Report{}
	for name, c := range a.counts {
		out[name] = struct{ Tried, Taken int64 }{c.tried.Load(), c.taken.Load()}
	}
	return out
}

// workers is the number of workers of each attack against each target: a slow answer delays only one worker.
const workers = 4

// attack runs all attacks at once, each with its own keys, against all targets.
func (a *attacker) attack(ctx context.Context) {
	var wg sync.WaitGroup
	from := 0
	take := func(n int) []int { // keys unused by other attacks
		var out []int
		for range n {
			out = append(out, from)
			from++
		}
		return out
	}
	for _, w := range []struct {
		name string
		keys int
		do   func(ctx context.Context, c *count, keys []int, to peer.AddrInfo)
	}{
		{"silent handshakes", 0, a.silentHandshakes},
		{"mute streams", 8, a.muteStreams},
		{"mute callers", 10, a.muteCallers},
		{"connections", 18, a.connections},
		{"provider records", 4, a.providerRecords},
		{"values", 4, a.values},
		{"subscriptions", 12, a.subscriptions},
		{"gossip", 12, a.gossip},
		{"orders", 8, a.orders},
		{"quotes", 4, a.quotes},
		{"holds", 8, a.holds},
		{"circuits", 4, a.circuits},
		{"files", 4, a.files},
		{"questions", 4, a.questions},
	} {
		mine, c := take(w.keys), a.count(w.name)
		for _, to := range a.targets {
			for range workers {
				wg.Go(func() { w.do(ctx, c, mine, to) })
			}
		}
	}
	wg.Wait()
}

// pace calls f at a rate of perSecond until ctx ends.
func pace(ctx context.Context, perSecond int, f func(i int)) {
	every := time.NewTicker(time.Second / time.Duration(perSecond))
	defer every.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			f(i)
		}
	}
}
