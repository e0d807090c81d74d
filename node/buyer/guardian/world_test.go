package guardian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// network has no program: 10 slots of 100 ms in an interval, so that a supervisor is silent after 1.5 s.
var network = market.Genesis{Network: "test", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", SlotMillis: 100, IntervalSlots: 10, Simulated: true}

const firstSlot = 1000

// peerKey is the key of host i.
func peerKey(i int) sign.Private {
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		panic(err)
	}
	return sign.NewPrivate(seed)
}

func named(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

var (
	jobKey   = named("job")
	provider = named("provider")
	jobTerms = sign.Sum([]byte("terms"))
)

func fileOf(content string) File {
	mh, err := multihash.Sum([]byte(content), multihash.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return File{CID: cid.NewCidV1(cid.Raw, mh), Size: int64(len(content))}
}

// charterOf a job of host 0, guarded by the hosts 1 to n, and where they are; the members are in the order of their keys.
func charterOf(t interface{ Fatal(...any) }, n int, threshold uint8) (Charter, []Member) {
	var keys []sign.Key
	for i := range n {
		keys = append(keys, peerKey(i+1).Key())
	}
	ks, err := market.NewKeySet(threshold, keys...)
	if err != nil {
		t.Fatal(err)
	}
	var members []Member
	for _, k := range ks.Keys {
		members = append(members, Member{Key: k})
	}
	return Charter{Job: jobTerms, Owner: peerKey(0).Key(), Buyer: jobKey.Key(), Keys: ks}, members
}

// hostOf is the host whose key it is.
func hostOf(k sign.Key) int {
	for i := range 16 {
		if peerKey(i).Key() == k {
			return i
		}
	}
	return -1
}

// newLease is a lease of the job, which n tells from others.
func newLease(c Charter, n byte, start market.Slot) market.Lease {
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: c.Buyer, Provider: provider.Key(), Payout: sign.Key{7},
		UnitsRoot: market.UnitsRoot([]market.UnitID{{9}}), Terms: c.Job, VoucherKeys: c.Keys.Hash(),
		Rate: 2_500_000, Cap: 5000, Start: start, ActivateBefore: start + 20, End: start + 1000, Nonce: market.Nonce{n},
	}
	l := market.Lease{Core: core}
	l.ProviderSig, _ = core.Sign(network.Domain(), provider)
	l.BuyerSig, _ = core.Sign(network.Domain(), jobKey)
	return l
}

// paying is a lease with both its machines' part that matters: the payer, and a provider that signs what is due.
type paying struct {
	t     testing.TB
	c     Charter
	lease market.Lease
	payer meter.Payer
	chain verify.Chain
	began market.Slot
}

func startPaying(t testing.TB, c Charter, n byte, now market.Slot, epoch uint64) *paying {
	t.Helper()
	l := newLease(c, n, now)
	payer, err := meter.NewPayer(c.terms(network, Lease{Signed: l, MilliCPU: 1000}, epoch))
	if err != nil {
		t.Fatal(err)
	}
	p := &paying{t: t, c: c, lease: l, payer: payer, chain: verify.NewChain(l.Core), began: now}
	p.step(now, meter.Started{})
	return p
}

// resume is the lease as another supervisor found it.
func resume(t testing.TB, c Charter, l Lease, epoch uint64) *paying {
	t.Helper()
	payer, err := meter.RestorePayer(c.terms(network, l, epoch), l.Payer)
	if err != nil {
		t.Fatal(err)
	}
	return &paying{t: t, c: c, lease: l.Signed, payer: payer, chain: verify.NewChain(l.Signed.Core).Resume(payer.Last(), payer.Began()), began: payer.Began()}
}

func (p *paying) step(now market.Slot, ev meter.Event) {
	p.t.Helper()
	next, _, err := p.payer.Step(now, ev)
	if err != nil {
		p.t.Fatal(err)
	}
	p.payer = next
}

// receipt has the provider bill up to slot to, in slot now.
func (p *paying) receipt(now, to market.Slot, final bool) {
	p.t.Helper()
	from := p.began
	if last := p.chain.Last(); last.Seq > 0 {
		from = last.To
	}
	core, err := p.chain.Next(from, to, func(r *verify.ReceiptCore) {
		if final {
			r.Flags |= verify.ReceiptFinal
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
	sig, err := core.Sign(network.Domain(), provider)
	if err != nil {
		p.t.Fatal(err)
	}
	before := p.payer.Last().Seq
	p.step(now, meter.ReceiptProposed{Core: core, Sig: sig})
	if p.payer.Last().Seq != before+1 {
		p.t.Fatalf("the payer refused receipt %d", core.Seq)
	}
	if p.chain, err = p.chain.Follow(core); err != nil {
		p.t.Fatal(err)
	}
}

// handed is the lease as its supervisor hands it in.
func (p *paying) handed() Lease {
	p.t.Helper()
	state, err := p.payer.Marshal()
	if err != nil {
		p.t.Fatal(err)
	}
	return Lease{Signed: p.lease, Record: []byte("record"), Payer: state, MilliCPU: 1000}
}

// clock tells the slot by the time since it began.
type clock struct{ began time.Time }

func (c clock) Tip(context.Context) (chain.Tip, error) {
	now := firstSlot + market.Slot(time.Since(c.began)/(100*time.Millisecond))
	return chain.Tip{Confirmed: now, Final: now}, nil
}

// world is an owner, host 0, its guardians, the hosts after it, and what becomes of them.
type world struct {
	t       *testing.T
	net     *p2ptest.Net
	charter Charter
	members []Member
	clock   clock
	nodes   []*node // of the guardians, by host

	mu      sync.Mutex
	missing map[int]bool // hosts from which no file can be had
	backed  func(context.Context, Ward, []byte) error
}

// node is one guardian.
type node struct {
	s     *Service
	disk  *store.Memory
	stop  func()
	mu    sync.Mutex
	taken []Taken
	yield []uint64
	has   map[string]bool // files
}

func newWorld(t *testing.T, guardians int, threshold uint8, set ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, net: p2ptest.NewNet(t, guardians+1, 10*time.Millisecond), clock: clock{time.Now()}, nodes: make([]*node, guardians+1), missing: map[int]bool{}}
	w.charter, w.members = charterOf(t, guardians, threshold)
	for i := range w.members {
		w.members[i].Addrs = w.addrs(hostOf(w.members[i].Key))
	}
	for _, f := range set {
		f(w)
	}
	for i := 1; i <= guardians; i++ {
		w.start(i, store.NewMemory())
	}
	return w
}

func (w *world) addrs(i int) []string {
	var out []string
	for _, a := range w.net.Addr(i).Addrs {
		out = append(out, a.String())
	}
	return out
}

// start runs guardian i on a journal.
func (w *world) start(i int, disk *store.Memory) {
	w.t.Helper()
	n := &node{disk: disk, has: map[string]bool{}}
	key := peerKey(i)
	ticks := slots.New(w.clock, network.SlotMillis, time.Second, p2ptest.Quiet())
	if err := ticks.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	s, err := New(w.t.Context(), Config{
		Host: w.net.Hosts[i], Genesis: network, Key: key, Payout: sign.Key{byte(i)}, Store: disk, Slots: ticks, Log: p2ptest.Quiet(),
		Policy: Policy{Accept: true, MaxJobs: 2, MaxBytes: 100, Longest: time.Hour},
		Unseal: func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(key, p, box) },
		Backed: w.backed,
		Fetch: func(_ context.Context, from peer.ID, c cid.Cid, _ int64) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			k, err := p2p.KeyFromPeerID(from)
			if err != nil || w.missing[hostOf(k)] {
				return errors.New("it is not there")
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.has[c.String()] = true
			return nil
		},
		Grant: func(peer.ID, cid.Cid) {},
		TakeUp: func(_ context.Context, t Taken) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.taken = append(n.taken, t)
			return nil
		},
		Yield: func(_ sign.Hash, epoch uint64) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.yield = append(n.yield, epoch)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.s = s
	stop := p2ptest.Go(w.t, s.Run)
	n.stop = func() {
		stop()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, t := range n.taken {
			t.Panel.Close()
		}
		n.taken = nil
	}
	w.t.Cleanup(n.stop)
	w.nodes[i] = n
}

// crash ends guardian i as a power cut does, and gives what is on its disk.
func (w *world) crash(i int) *store.Memory {
	w.net.Cut(i)
	disk := w.nodes[i].disk.Snapshot()
	w.nodes[i].stop()
	w.net.Crash(i)
	w.nodes[i] = nil
	return disk
}

// back starts guardian i again.
func (w *world) back(i int, disk *store.Memory) {
	w.net.Restart(i, p2p.Config{})
	w.start(i, disk)
}

// owner is the owner's panel.
func (w *world) owner() *Panel { return w.panel(0, 0, nil) }

func (w *world) panel(i int, epoch uint64, grant []byte) *Panel {
	p := NewPanel(PanelConfig{Host: w.net.Hosts[i], Genesis: network, Key: peerKey(i), Charter: w.charter, Members: w.members, Epoch: epoch, Grant: grant})
	w.t.Cleanup(p.Close)
	return p
}

func (w *world) engagement() Engagement {
	return Engagement{Key: jobKey, File: []byte("job"), Files: []File{fileOf("input")}, Addrs: w.addrs(0), Until: w.clock.began.Add(time.Minute)}
}

func (w *world) now() market.Slot {
	tip, _ := w.clock.Tip(w.t.Context())
	return tip.Confirmed
}

// supervising waits until a guardian supervises under an epoch after one, and gives its host and what it took up.
func (w *world) supervising(after uint64) (int, Taken) {
	w.t.Helper()
	for range 600 {
		for i, n := range w.nodes {
			if n == nil {
				continue
			}
			n.mu.Lock()
			for _, t := range n.taken {
				if epoch, _ := t.Panel.Epoch(); epoch > after && t.Panel.Supervises() {
					n.mu.Unlock()
					return i, t
				}
			}
			n.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("nobody took the job over after epoch %d", after)
	return 0, Taken{}
}

// taken is how often guardian i took the job up.
func (n *node) times() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.taken)
}

// beating beats every so often until the returned function is called.
func (w *world) beating(p *Panel) (stop func()) {
	return p2ptest.Go(w.t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := p.Beat(ctx, nil); errors.Is(err, ErrSuperseded) {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(TimingOf(network).Beat):
			}
		}
		return nil
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	var r *stream.Refused
	if !errors.As(err, &r) || r.Code != code {
		t.Fatalf("got %v, want refusal %s", err, code)
	}
}

// raw asks guardian i as host from, whatever it likes.
func (w *world) raw(from, i int, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	w.t.Helper()
	m := Member{Key: peerKey(i).Key(), Addrs: w.addrs(i)}
	return ask(w.t.Context(), w.net.Hosts[from], network.Tag(), m, req)
}

// malicious makes host i answer what f says instead of what a guardian would; the rest it does.
func (w *world) malicious(i int, f func(req *nodepb.GuardRequest) *nodepb.GuardReply) {
	w.nodes[i].mu.Lock()
	defer w.nodes[i].mu.Unlock()
	s := w.nodes[i].s
	protocol.Guard.Handle(w.net.Hosts[i], network.Tag(), func(ctx context.Context, from peer.ID, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
		if reply := f(req); reply != nil {
			return reply, nil
		}
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, err
		}
		return s.answer(ctx, sign.Key(k), req)
	}, stream.Limits{Logger: p2ptest.Quiet()})
}

func sortedIDs(leases []Lease) (out []string) {
	for _, l := range leases {
		out = append(out, fmt.Sprint(l.ID()))
	}
	slices.Sort(out)
	return out
}

func sealedTo(t testing.TB, i int) []byte {
	t.Helper()
	seed := jobKey.Seed()
	box, err := sealed.Seal(peerKey(i).Key(), SealedFor(network.Tag(), jobTerms), seed[:])
	must(t, err)
	return box
}

func without(gs []*nodepb.Guardian, k sign.Key) []*nodepb.Guardian {
	return slices.DeleteFunc(gs, func(g *nodepb.Guardian) bool { return sign.Key(g.Key) == k })
}
