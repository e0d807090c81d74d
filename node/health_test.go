package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// runs runs a peer until the test ends.
func runs(t *testing.T, p Parts) *Node {
	t.Helper()
	n := newNode(t, p)
	p2ptest.Go(t, n.Run)
	return n
}

// ill waits until a service of a peer has a problem, and returns it.
func ill(t *testing.T, n *Node, name string) service.Problem {
	t.Helper()
	for {
		for _, p := range n.Health() {
			if p.Service == name {
				return p
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s is in order", name)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// well waits until a service of a peer is in order.
func well(t *testing.T, n *Node, name string) {
	t.Helper()
	for {
		found := false
		for _, p := range n.Health() {
			found = found || p.Service == name
		}
		if !found {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s is out of order: %v", name, n.Health())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func wantProblem(t *testing.T, p service.Problem, problem, remedy string) {
	t.Helper()
	if !strings.Contains(p.Problem, problem) || !strings.Contains(p.Remedy, remedy) {
		t.Errorf("%+v, want %q, %q", p, problem, remedy)
	}
}

// A chain endpoint that goes away and comes back.
func TestHealthOfChain(t *testing.T) {
	t.Parallel()
	status := make(chan int, 1)
	status <- http.StatusServiceUnavailable
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := <-status
		status <- now
		w.WriteHeader(now)
		if now == http.StatusOK {
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":0,"result":77}`))
		}
	}))
	t.Cleanup(s.Close)
	p := tokenParts(t, 0)
	g := p.Genesis
	g.Chain = [32]byte{} // not checked
	l, err := solana.New(solana.ConfigOf([]string{s.URL + "/secret"}, g, p.Key))
	if err != nil {
		t.Fatal(err)
	}
	p.Ledger, p.SlotEvery = l, time.Minute // which an answer may take; a chain that never answered is asked every second
	n := runs(t, p)
	problem := ill(t, n, "slots")
	wantProblem(t, problem, "did not answer", "solana.rpc")
	wantProblem(t, problem, "HTTP status 503", "network")
	if strings.Contains(problem.Problem, "secret") {
		t.Errorf("the path of an endpoint is shown: %s", problem.Problem)
	}
	<-status
	status <- http.StatusOK
	well(t, n, "slots")
	if ahead, ok := l.Ahead(); !ok || ahead.Abs() > time.Hour {
		t.Errorf("clock ahead by %v, %t", ahead, ok)
	}
}

// A peer whose neighbours do not answer, and one that appears.
func TestHealthOfNeighbours(t *testing.T) {
	t.Parallel()
	p := freeParts(t)
	other := p2ptest.Key(1)
	id, err := peer.IDFromPrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	p.Host = p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Network: p.Genesis.Tag(), Bootstrap: []peer.AddrInfo{
		{ID: id, Addrs: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/1")}},
	}})
	n := runs(t, p)
	wantProblem(t, ill(t, n, "host"), "/ip4/127.0.0.1/tcp/1/p2p/"+id.String(), "starling peer ping")
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: other, Network: p.Genesis.Tag()})
	if err := h.Connect(t.Context(), peer.AddrInfo{ID: p.Host.ID(), Addrs: p.Host.Addrs()}); err != nil {
		t.Fatal(err)
	}
	well(t, n, "host")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	ill(t, n, "host")
}

// The first peer of a network waits for others, and is in order, also if it is to join by itself.
func TestHealthOfFirstPeer(t *testing.T) {
	t.Parallel()
	p := freeParts(t)
	id, err := peer.IDFromPrivateKey(p2ptest.Key(0))
	if err != nil {
		t.Fatal(err)
	}
	p.Host = p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Network: p.Genesis.Tag(), Bootstrap: []peer.AddrInfo{
		{ID: id, Addrs: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/1")}},
	}})
	n := runs(t, p)
	well(t, n, "host")
	if tried, refusal, alone := p.Host.Alone(); alone || refusal != nil || len(tried) > 0 {
		t.Errorf("alone %t, tried %v, %v", alone, tried, refusal)
	}
}

// A peer with another genesis than its bootstrap peer: both sides refuse it, and it knows why it is alone.
func TestHealthOfOtherGenesis(t *testing.T) {
	t.Parallel()
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Network: "other-1234"})
	p2ptest.Go(t, other.Run)
	p := freeParts(t)
	p.Host = p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Network: p.Genesis.Tag(),
		Bootstrap: []peer.AddrInfo{other.AddrInfo()}})
	n := runs(t, p)
	problem := ill(t, n, "host")
	wantProblem(t, problem, "connected to no other peer: peer "+other.ID().String()+" is online, on another network",
		"genesis.json")
	if want := fmt.Sprintf("(%q, this one is %q)", "other-1234", p.Genesis.Tag()); !strings.Contains(problem.Problem, want) {
		t.Errorf("problem %q: want %s", problem.Problem, want)
	}
}

// gone is a runtime whose container engine is away.
type gone struct{ runtime.Runtime }

func (gone) Name() string { return "docker" }
func (gone) Probe(context.Context) error {
	return errors.Join(runtime.ErrEngine, errors.New("no\x1bsocket"))
}

// A seller without its container engine.
func TestHealthOfEngine(t *testing.T) {
	t.Parallel()
	p := sells(freeParts(t))
	p.Runtimes = map[string]runtime.Runtime{"docker": gone{}}
	n := closed(t, newNode(t, p))
	wantProblem(t, ill(t, n, "provider"), "docker: ", "systemctl start docker")
	if problem := ill(t, n, "provider").Problem; strings.Contains(problem, "\x1b") {
		t.Errorf("%q", problem)
	}
}

// A peer whose journal is cut off.
func TestHealthOfJournal(t *testing.T) {
	t.Parallel()
	p := freeParts(t)
	disk := store.NewCrashing(store.NewMemory())
	p.Store = disk
	n := closed(t, newNode(t, p))
	well(t, n, "journal")
	disk.Cut()
	if err := n.p.Store.Write(t.Context(), store.Put{Kind: "test", Key: "a", Value: []byte{1}}); !errors.Is(err, store.ErrCrashed) {
		t.Fatalf("got %v", err)
	}
	wantProblem(t, ill(t, n, "journal"), store.ErrCrashed.Error(), "restart the peer")
}

// poor is a chain on which the peer's key has as many lamports as lent to it.
type poor struct {
	settle.Chain
	lamports atomic.Uint64
}

func (p *poor) Funds(context.Context) (chain.Funds, error) {
	return chain.Funds{Lamports: p.lamports.Load()}, nil
}

// A seller whose key cannot pay the fees of its claims, and one that is sent some.
func TestHealthOfFees(t *testing.T) {
	t.Parallel()
	p := sells(tokenParts(t, 0))
	p.Config.Provide.Price = "1"
	c := &poor{Chain: p.Program}
	p.Program = c
	n := runs(t, p)
	wantProblem(t, ill(t, n, "provider"), "nothing is sold: balance of the peer's key: got 0.00 SOL", "send SOL")
	c.lamports.Store(1e9)
	well(t, n, "provider")
}

// A seller with a unit that its audits found slow: it is withdrawn from sale.
func TestHealthOfAuditedUnits(t *testing.T) {
	t.Parallel()
	p := sells(tokenParts(t, 100))
	p.Config.Provide.Price = "1"
	lots := must(inventory.NewGPUs(p.GPUs).Lots(t.Context(), p.Config.Provide, inventory.Need{
		Owner: p.Key.Key(), Decimals: p.Genesis.Decimals, Log: p.Log,
	}))
	unit := lots[0].Units[0]
	kept := must(audit.OpenShelf(t.Context(), p.Store, p.Log)) // of an earlier process
	stop := p2ptest.Go(t, kept.Run)
	claim := audit.Claim{ID: unit.ID, Class: unit.Class, Resources: unit.Resources}
	for w, o := range []rules.Outcome{rules.Pass, rules.Late, rules.Late, rules.Late} {
		c := audittest.New(7)
		c.Unit, c.Verdict = unit.ID, func(v *rules.Verdict) { v.Outcome = o }
		r := audit.Result{Unit: claim, Record: must(c.Make())}
		if o != rules.Pass {
			r.Err = audit.ErrNotPassed
		}
		if err := kept.Keep(t.Context(), audit.Audited(rules.Window(w+1), time.Now(), r)...); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	n := newNode(t, p)
	well(t, n, "provider")
	wantProblem(t, ill(t, n, "audits"), "1 units do not pass their audits; of "+unit.ID.Short()+", delisted", "starling proof audit")
	p2ptest.Go(t, n.Run)
	wantProblem(t, ill(t, n, "provider"), "1 units are withdrawn from sale, "+unit.Serial, "starling provider resume")
}

// told is a light peer's connection to entries that a test chooses.
type told struct {
	fakeLight
	entries []peer.ID
	warning string
}

func (f *told) Entries() []peer.ID { return f.entries }
func (f *told) Warning() string    { return f.warning }

// A light peer without entry peers, with one that nobody confirms, and with enough of them.
func TestHealthOfEntries(t *testing.T) {
	t.Parallel()
	p := freeParts(t)
	f := &told{}
	p.Light = f
	n := closed(t, newNode(t, p))
	wantProblem(t, ill(t, n, "entries"), "no entry peer is connected", "--peer")
	f.entries, f.warning = []peer.ID{"a"}, "only one entry peer answers; name another by --peer"
	problem := ill(t, n, "entries")
	wantProblem(t, problem, "only one entry peer answers", "name another by --peer")
	if strings.Contains(problem.Problem, ";") {
		t.Errorf("the remedy is part of the problem: %q", problem.Problem)
	}
	f.entries, f.warning = []peer.ID{"a", "b"}, ""
	well(t, n, "entries")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
