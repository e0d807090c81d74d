// Package harness runs whole peers inside one process, on a simulated network and a ledger in memory, so that tests
// cover days of a network in seconds: in a testing/synctest bubble time passes only while every peer waits.
//
// The peers are real. Simulated are the links (libp2p over QUIC on packets in memory), the chain (chain/chaintest), the
// journal (store.Memory, wrapped for power cuts at any write) and the sandbox (runtimetest.Fake).
package harness

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	rules "github.com/starling-network/starling/verify/audit"
)

// Options of a network. The default of a zero value is in the comment of the field.
type Options struct {
	Providers int           // selling peers; 5
	Buyers    int           // peers that only buy, numbered after the providers; 1
	Strangers int           // hosts without a peer, numbered after the buyers, for tests of the protocols; 0
	Entries   int           // number of buyers that relay for light clients; 0
	Units     uint32        // of each provider; 2
	RTT       time.Duration // between any two peers; 2 ms
	Programs  map[string]guest.Program
	// Forged are programs that a provider runs in place of the job's, by number.
	Forged map[int]map[string]guest.Program
	Chain  chaintest.Config
	// Crash cuts the power of a peer at a write of its first process, counted from its start.
	Crash map[int]Crash
	// Price of each provider in base units per unit-hour, by number; the default is 0.36 tokens.
	Price map[int]string
	// Region of each provider, by number; the default is "local".
	Region map[int]string
	// Limits are buyers' limits on the earnings of one provider in a day, in tokens, by the number of the peer.
	Limits map[int]string
	// GPUs of each provider, by number; the default is none.
	GPUs map[int]gpu.Source
	// Registry has the layers of all images; if nil, they have none.
	Registry *Registry
	// Hardware is the device that answers audits for a unit of each provider, by number; the default is the processor.
	Hardware map[int]Hardware
	// Masks is the total number of canaries; 0 disables them.
	Masks int
	// Twin gives a peer, by number, the key of another peer: one identity in two independent processes.
	Twin map[int]int
	// Links are the peers to which each peer connects at its start, by number; the default is peer 0.
	Links map[int][]int
	// Configure changes the configuration of a peer, by number.
	Configure func(i int, c *config.Config)
	// Real omits the genesis's mark of a simulated network.
	Real bool
	// Free makes a free network: no payments, and slots by the clock. Other networks settle through a model of
	// Starling's program.
	Free bool
	// AuditSlots is the length of an audit window; 0 disables audits. One window in AuditOneIn has an audit; 0 means
	// each.
	AuditSlots uint64
	AuditOneIn uint64
	// ChainDown starts the network while its chain answers no requests.
	ChainDown bool
	Log       *slog.Logger
}

// The network's genesis: slots of 100 ms, receipts every second.
const (
	slotMillis    = 100
	intervalSlots = 10
	funds         = 1_000_000_000 // base units of each buyer

	settlePoll  = 200 * time.Millisecond
	settleRetry = time.Second
	slotEvery   = time.Second
)

var escrowParams = escrow.Params{PollEvery: settlePoll, LookEvery: settleRetry, RetryAfter: settleRetry}

// Net is a network of whole peers. Its methods must be called from the test's goroutine.
type Net struct {
	Peers    []*Peer
	Chain    *chaintest.Chain
	Programs *chaintest.Programs // nil on a free network
	Genesis  market.Genesis
	Overlays *Overlays // of the clusters that peers run

	t     testing.TB
	opts  Options
	terms escrow.Net // on a network that is not free
	net   *p2ptest.Net
	masks atomic.Int64 // number of used masks
	stop  func()
}

// New makes the network and starts all peers, connected to peer 0. The network ends with the test.
func New(t testing.TB, o Options) *Net {
	t.Helper()
	if o.Providers == 0 {
		o.Providers = 5
	}
	if o.Buyers == 0 {
		o.Buyers = 1
	}
	if o.Units == 0 {
		o.Units = 2
	}
	if o.RTT == 0 {
		o.RTT = 2 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = p2ptest.Quiet()
	}
	n := &Net{
		t: t, opts: o, Chain: chaintest.NewChain(o.Chain), Overlays: &Overlays{},
		net: p2ptest.NewNet(t, o.Providers+o.Buyers+o.Strangers+o.Masks, o.RTT),
	}
	n.Chain.SetDown(o.ChainDown)
	n.Genesis = market.Genesis{
		Network: "harness", Chain: n.Chain.Genesis(), Symbol: "STAR", Decimals: 6,
		SlotMillis: slotMillis, IntervalSlots: intervalSlots,
		AuditSlots: o.AuditSlots, AuditOneIn: oneIn(o), Simulated: !o.Real,
	}
	if n.Genesis.Free = o.Free; !o.Free {
		n.settleByProgram()
		n.bondAll()
	}
	n.stop = p2ptest.Go(t, func(ctx context.Context) error {
		tick := time.NewTicker(slotMillis * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				n.Chain.Advance(1)
				if n.Programs != nil {
					n.Programs.Advance()
				}
			}
		}
	})
	base := t.TempDir()
	for i := range o.Entries {
		n.net.Restart(o.Providers+i, n.host(o.Providers+i))
	}
	for i := range o.Providers + o.Buyers {
		n.add(i, filepath.Join(base, name(i)))
	}
	t.Cleanup(n.Close)
	return n
}

// The network's terms: a provider has ten seconds to claim after a lease's end, and its escrow lasts ten seconds
// longer.
const (
	responseSlots = 100
	marginSlots   = 100
)

// oneIn is the value of the genesis: 0 without audits.
func oneIn(o Options) uint64 {
	if o.AuditSlots == 0 {
		return 0
	}
	return max(o.AuditOneIn, 1)
}

// settleByProgram puts the program's account of the network on the chain.
func (n *Net) settleByProgram() {
	p := account.Params{
		MarginSlots: marginSlots, ResponseSlots: responseSlots, UnbondingSlots: 2000, EvidenceSlots: 1000,
		MinStake: 1, AuditSlots: uint32(n.Genesis.AuditSlots),
	}
	if n.opts.AuditSlots > 0 { // judges need a bond, which is too small for other votes
		p.Votes = account.Votes{VotingSlots: 100, LockSlots: 100, LeastBonded: 1 << 40, LeastBond: 1,
			EpochSlots: 1 << 30, EpochsOfMonth: 1}
	}
	var err error
	if n.terms, n.Programs, err = chaintest.Found(n.Chain, &n.Genesis, p); err != nil {
		n.t.Fatal(err)
	}
}

// bonded is the bond of each judge.
const bonded = 1000

// bondAll registers and bonds the network's providers since its first slot, as judges. If they are too few to judge
// one another, it also bonds the first buyers.
func (n *Net) bondAll() {
	if n.opts.AuditSlots == 0 {
		return
	}
	for i := range max(n.opts.Providers, rules.MinBonded) {
		if _, twin := n.opts.Twin[i]; !twin {
			n.register(n.key(i), bonded)
		}
	}
}

// register registers a peer, with its own owner, since the first slot.
func (n *Net) register(k sign.Key, bonded uint64) {
	n.Programs.Register(account.Provider{Peer: k, Owner: ownerOf(k), Payout: k, Stake: bonded, Bonded: bonded})
}

// ownerOf returns the wallet of a registered peer.
func ownerOf(k sign.Key) sign.Key { return sign.Key(sign.Sum([]byte("owner"), k[:])) }

// key returns the key of peer i.
func (n *Net) key(i int) sign.Key {
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		n.t.Fatal(err)
	}
	return sign.NewPrivate(seed).Key()
}

// judges returns the roster of committees.
func (n *Net) judges() (out rules.Roster) {
	for i := range max(n.opts.Providers, rules.MinBonded) {
		out = append(out, rules.Member{Key: n.key(i), Owner: ownerOf(n.key(i)), Weight: bonded})
	}
	return out
}

// access returns a key's access to the chain, and to the program on it if there is one.
func (n *Net) access(key sign.Key) onchain.Access {
	a := onchain.Access{Ledger: slots.Wall(slotMillis), Escrow: escrowParams}
	if n.Programs != nil {
		l := n.Programs.Ledger(key)
		a.Ledger, a.Program = l, l
	}
	return a
}

// mint gives a peer the tokens of a buyer.
func (n *Net) mint(key sign.Key) {
	if n.Programs != nil {
		n.Programs.Mint(key, funds)
	}
}

// price is the default price of providers.
func (n *Net) price() (text string, p market.Price) {
	if n.opts.Free {
		return "0", 0
	}
	return "0.36", 360_000
}

// host returns the configuration of the host of peer i.
func (n *Net) host(i int) p2p.Config {
	return p2p.Config{NAT: p2p.NAT{Serve: i >= n.opts.Providers && i < n.opts.Providers+n.opts.Entries}}
}

func name(i int) string { return "peer-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) }

func (n *Net) add(i int, home string) {
	key := i
	if of, twin := n.opts.Twin[i]; twin {
		n.net.Twin(i, of)
		key = of
	}
	seed, err := p2p.SeedOf(p2ptest.Key(key))
	if err != nil {
		n.t.Fatal(err)
	}
	programs := n.opts.Programs
	if forged := n.opts.Forged[i]; forged != nil {
		programs = forged
	}
	p := newPeer(n, i, seed, home, programs)
	p.Engine = &engine{Fake: runtimetest.NewFake("docker", n.opts.Programs), dir: filepath.Join(home, "images"),
		registry: n.opts.Registry}
	if p.Blobs, err = blob.OpenStore(filepath.Join(home, "blobs"), 1<<30); err != nil {
		n.t.Fatal(err)
	}
	if i >= n.opts.Providers {
		n.mint(p.Key.Key())
	}
	n.Peers = append(n.Peers, p)
	p.start(n.net.Hosts[i])
}

// Provider returns selling peer i.
func (n *Net) Provider(i int) *Peer { return n.Peers[i] }

// Buyer returns buying peer i.
func (n *Net) Buyer(i int) *Peer { return n.Peers[n.opts.Providers+i] }

// Close stops every peer and the chain.
func (n *Net) Close() {
	running := 0
	for _, p := range n.Peers {
		p.Stop()
		running += p.Fake.Running() + p.Engine.Running()
		_ = p.Fake.Close()
		_ = p.Engine.Close()
	}
	n.stop()
	if running > 0 { // they end by themselves
		time.Sleep(runtimetest.FakeGrace + time.Second)
	}
}

// Settle waits until no peer has anything left to do for its leases.
func (n *Net) Settle() { time.Sleep(30 * time.Second) }

// Logger writes to stderr when HARNESS_LOG is set, else nowhere.
func Logger() *slog.Logger {
	if os.Getenv("HARNESS_LOG") == "" {
		return p2ptest.Quiet()
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
