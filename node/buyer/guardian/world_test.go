package guardian_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// world is an owner, host 0, its guardians, the hosts after it, and what becomes of them.
type world struct {
	t       *testing.T
	net     *p2ptest.Net
	charter guardian.Charter
	members []guardian.Member
	clock   guardiantest.Clock
	nodes   []*node // of the guardians, by host

	mu      sync.Mutex
	missing map[int]bool // hosts from which no file can be had
	backed  func(context.Context, wards.Ward, []byte) error
}

// node is one guardian.
type node struct {
	s     *wards.Service
	disk  *store.Memory
	stop  func()
	mu    sync.Mutex
	taken []guardian.Taken
	yield []uint64
	has   map[string]bool // files
}

func newWorld(t *testing.T, guardians int, threshold uint8, set ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, net: p2ptest.NewNet(t, guardians+1, 10*time.Millisecond), clock: guardiantest.Clock{Began: time.Now()}, nodes: make([]*node, guardians+1), missing: map[int]bool{}}
	w.charter, w.members = guardiantest.CharterOf(t, guardians, threshold)
	for i := range w.members {
		w.members[i].Addrs = w.addrs(guardiantest.HostOf(w.members[i].Key))
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
	key := guardiantest.PeerKey(i)
	ticks := slots.New(w.clock, guardiantest.Network.SlotMillis, time.Second, p2ptest.Quiet())
	if err := ticks.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	s, err := wards.New(w.t.Context(), wards.Config{
		Host: w.net.Hosts[i], Genesis: guardiantest.Network, Key: key, Payout: sign.Key{byte(i)}, Store: disk, Slots: ticks, Log: p2ptest.Quiet(),
		Policy: wards.Policy{Accept: true, MaxJobs: 2, MaxBytes: 100, Longest: time.Hour},
		Unseal: func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(key, p, box) },
		Backed: w.backed,
		Files:  files{w, n},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	s.HandTo(n)
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
func (w *world) owner() *guardian.Panel { return w.panel(0, 0, nil) }

func (w *world) panel(i int, epoch uint64, grant []byte) *guardian.Panel {
	p := guardian.NewPanel(guardian.PanelConfig{Host: w.net.Hosts[i], Genesis: guardiantest.Network, Key: guardiantest.PeerKey(i), Charter: w.charter, Members: w.members, Epoch: epoch, Grant: grant})
	w.t.Cleanup(p.Close)
	return p
}

func (w *world) engagement() guardian.Engagement {
	return guardian.Engagement{Key: guardiantest.JobKey, File: []byte("job"), Files: []guardian.File{guardiantest.FileOf("input")}, Addrs: w.addrs(0), Until: w.clock.Began.Add(time.Minute)}
}

func (w *world) now() market.Slot {
	tip, _ := w.clock.Tip(w.t.Context())
	return tip.Confirmed
}

// supervising waits until a guardian supervises under an epoch after one, and gives its host and what it took up.
func (w *world) supervising(after uint64) (int, guardian.Taken) {
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
	return 0, guardian.Taken{}
}

// TakeUp implements wards.Supervisor.
func (n *node) TakeUp(_ context.Context, t guardian.Taken) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = append(n.taken, t)
	return nil
}

// Yield implements wards.Supervisor.
func (n *node) Yield(_ sign.Hash, epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.yield = append(n.yield, epoch)
}

// files has every file that a host of the world has not lost.
type files struct {
	w *world
	n *node
}

func (f files) Fetch(_ context.Context, from peer.ID, c cid.Cid, _ int64) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	k, err := p2p.KeyFromPeerID(from)
	if err != nil || f.w.missing[guardiantest.HostOf(k)] {
		return errors.New("it is not there")
	}
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.has[c.String()] = true
	return nil
}

func (files) Share(peer.ID, cid.Cid) {}
func (files) Drop(...cid.Cid)        {}

// taken is how often guardian i took the job up.
func (n *node) times() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.taken)
}

// beating beats every so often until the returned function is called.
func (w *world) beating(p *guardian.Panel) (stop func()) {
	return p2ptest.Go(w.t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := p.Beat(ctx, nil); errors.Is(err, guardian.ErrSuperseded) {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(guardian.TimingOf(guardiantest.Network).Beat):
			}
		}
		return nil
	})
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
	to, err := w.net.Hosts[from].Remember(guardiantest.PeerKey(i).Key(), w.addrs(i))
	guardiantest.Must(w.t, err)
	return protocol.Guard.Call(w.t.Context(), w.net.Hosts[from], guardiantest.Network.Tag(), to, req)
}

// malicious makes host i answer what f says instead of what a guardian would; the rest it does.
func (w *world) malicious(i int, f func(req *nodepb.GuardRequest) *nodepb.GuardReply) {
	w.nodes[i].mu.Lock()
	defer w.nodes[i].mu.Unlock()
	s := w.nodes[i].s
	protocol.Guard.Handle(w.net.Hosts[i], guardiantest.Network.Tag(), func(ctx context.Context, from peer.ID, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
		if reply := f(req); reply != nil {
			return reply, nil
		}
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, err
		}
		return s.Answer(ctx, sign.Key(k), req)
	}, stream.Limits{Logger: p2ptest.Quiet()})
}

func sortedIDs(leases []guardian.Lease) (out []string) {
	for _, l := range leases {
		out = append(out, fmt.Sprint(l.ID()))
	}
	slices.Sort(out)
	return out
}

func sealedTo(t testing.TB, i int) []byte {
	t.Helper()
	seed := guardiantest.JobKey.Seed()
	box, err := sealed.Seal(guardiantest.PeerKey(i).Key(), guardian.SealedFor(guardiantest.Network.Tag(), guardiantest.JobTerms), seed[:])
	guardiantest.Must(t, err)
	return box
}

func without(gs []*nodepb.Guardian, k sign.Key) []*nodepb.Guardian {
	return slices.DeleteFunc(gs, func(g *nodepb.Guardian) bool { return sign.Key(g.Key) == k })
}
