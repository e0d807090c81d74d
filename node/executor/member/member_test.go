package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/exclusive"
)

// nets is Networks that carry nothing.
type nets struct {
	mu     sync.Mutex
	fail   error // of Join and SetMembers
	joined []*netOf
}

// netOf is one membership.
type netOf struct {
	nets    *nets
	joining Joining
	others  []Peer
	closed  bool
}

func (n *nets) Join(j Joining) (Network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return nil, errors.Join(n.fail, j.Tun.Close())
	}
	m := &netOf{nets: n, joining: j}
	n.joined = append(n.joined, m)
	return m, nil
}

func (n *nets) setFail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

// last is the newest membership.
func (n *nets) last() netOf {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.joined) == 0 {
		return netOf{}
	}
	return *n.joined[len(n.joined)-1]
}

func (m *netOf) SetMembers(others []Peer) error {
	m.nets.mu.Lock()
	defer m.nets.mu.Unlock()
	if m.nets.fail != nil {
		return m.nets.fail
	}
	m.others = others
	return nil
}

func (m *netOf) Links() []Link {
	m.nets.mu.Lock()
	defer m.nets.mu.Unlock()
	out := []Link{{Address: netip.MustParseAddr("10.1.2.3")}}
	for _, p := range m.others {
		out = append(out, Link{Address: p.Address, Path: nodepb.LinkPath_LINK_PATH_DIRECT, RTT: 3 * time.Millisecond, MTU: 1420, Rx: 1, Tx: 2, Handshake: time.Unix(5, 0)})
	}
	return out
}

func (m *netOf) Close() error {
	m.nets.mu.Lock()
	defer m.nets.mu.Unlock()
	m.closed = true
	return m.joining.Tun.Close()
}

func (m netOf) ranks() (out []uint32) {
	for _, p := range m.others {
		r, _ := cluster.RankOf(p.Address)
		out = append(out, r)
	}
	return out
}

var (
	testDomain = sign.Domain{Network: "test", Chain: sign.Hash{1}}
	testOwner  = executortest.Owner
)

func peerKey(rank uint32) sign.Private { return sign.NewPrivate([32]byte{22, byte(rank)}) }

// rankOf is a rank of a cluster that buyer has leased; each rank's provider is peerKey(rank).
func rankOf(t testing.TB, buyer sign.Private, rank, epoch uint32) cluster.Member {
	t.Helper()
	return rankBy(t, buyer, peerKey(rank), rank, epoch)
}

func rankBy(t testing.TB, buyer, provider sign.Private, rank, epoch uint32) cluster.Member {
	t.Helper()
	hold := market.HoldID{byte(rank + 1), byte(epoch + 1)}
	m := cluster.Member{Rank: rank, Epoch: epoch, Hold: hold, Key: cluster.MemberKey(provider, hold).Public(), Slots: 1}
	m.Lease.Core = market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Rank: rank, RankEpoch: epoch, Order: market.OrderID{7}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: sign.Key{3}, UnitsRoot: sign.Hash{4}, Terms: sign.Hash{5}, VoucherKeys: sign.Hash{6}, Rate: 1, Cap: 1000,
		Start: 10, ActivateBefore: 20, End: 1000, Nonce: market.OverlayNonce(hold, m.Key),
	}
	var err error
	if m.Lease.ProviderSig, err = m.Lease.Core.Sign(testDomain, provider); err != nil {
		t.Fatal(err)
	}
	if m.Lease.BuyerSig, err = m.Lease.Core.Sign(testDomain, buyer); err != nil {
		t.Fatal(err)
	}
	return m
}

func planOf(version uint64, members ...cluster.Member) *nodepb.ClusterPlan {
	return cluster.Plan{ID: "jabc", Rank: 1, Size: 4, Version: version, Members: members, MTU: 1280, Engine: "none"}.Proto()
}

// clusterBench is the executor of the peer of rank 1, in a synctest bubble.
type clusterBench struct {
	*executortest.Bench
	hook *Hook
	nets *nets
	fake *runtimetest.Fake
	own  cluster.Member
	work *nodepb.Workload
	last runtime.Spec
}

// specs is a Fake that keeps the spec that it was started with.
type specs struct {
	*runtimetest.Fake
	b *clusterBench
}

func (s specs) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	s.b.last = spec
	return s.Fake.Start(ctx, spec)
}

// peerKeys are the keys of the peer of rank 1.
type peerKeys struct{}

func (peerKeys) Member(h market.HoldID) cluster.PrivateKey { return cluster.MemberKey(peerKey(1), h) }

// machine is a peer without devices and secrets.
type machine struct{}

func (machine) Names([]market.UnitID) (ids, names []string, err error) { return nil, nil, nil }
func (machine) Evict(context.Context, []market.UnitID) error           { return nil }
func (machine) Open([]byte, market.LeaseID) ([]byte, error)            { return nil, errors.New("no secrets") }
func (machine) Health(context.Context, []market.UnitID) (exclusive.Snapshot, error) {
	return exclusive.Snapshot{}, errors.New("no health")
}

// echo says its arguments, its environment and its input.
func echo(p guest.Process) int {
	fmt.Fprintf(p.Stdout(), "%s %s:", strings.Join(p.Args(), " "), strings.Join(slices.DeleteFunc(p.Environ(), func(kv string) bool {
		return !strings.HasPrefix(kv, "OMPI_MCA_") && !strings.HasPrefix(kv, "NODE_RANK=")
	}), ","))
	_, _ = io.Copy(p.Stdout(), p.Stdin())
	return 5
}

func newClusterBench(t *testing.T) *clusterBench {
	t.Helper()
	b := &clusterBench{Bench: executortest.New(t), nets: &nets{}, own: rankOf(t, testOwner, 1, 0)}
	b.fake = runtimetest.NewFake("wasm", map[string]guest.Program{"wait": executortest.Wait, "/bin/sh": echo})
	b.work = &nodepb.Workload{Runtime: "wasm", Module: b.Module("wait")}
	b.equip(specs{b.fake, b}, b.nets, b.Blobs)
	b.Bench.Start()
	t.Cleanup(func() {
		for _, e := range b.All() {
			if _, h, _ := e.Snapshot(); h != nil {
				_ = b.fake.Destroy(context.Background(), *h)
			}
		}
	})
	return b
}

// equip sets the runtime and the networks of the next process.
func (b *clusterBench) equip(rt runtime.Runtime, networks Networks, blobs workload.Blobs) {
	b.Runtimes = map[string]runtime.Runtime{rt.Name(): rt}
	b.hook = &Hook{Networks: networks, Keys: peerKeys{}, Domain: testDomain, Log: b.Log, Fellows: nobody{}}
	b.Hooks = hooks.All(hooks.Config{
		Host: workload.Host{Runtimes: b.Runtimes, Network: egress.ModeInternet}, Opener: machine{}, Devices: machine{}, Blobs: blobs, Files: b.Files,
		Store: b.Store, Domain: testDomain, Key: peerKey(1), Retain: time.Hour, Log: b.Log,
	}, b.hook, nil)
}

// nobody is Fellows that cannot be reached.
type nobody struct{}

func (nobody) Open(context.Context, cluster.Member, *nodepb.LiveRequest) (live.Conn, error) {
	return nil, stream.Refuse("nobody", "")
}

// restart is the next process of the peer: its programs run on.
func (b *clusterBench) restart() {
	b.T.Helper()
	b.Restart()
	synctest.Wait()
}

func (b *clusterBench) start(seq uint64, plan *nodepb.ClusterPlan) (*executor.Execution, error) {
	w := proto.Clone(b.work).(*nodepb.Workload)
	w.Cluster, w.Env = plan, map[string]string{"NODE_IP": "mine"}
	e, err := b.Do(b.own.Lease.Core.ID(), seq, w)
	synctest.Wait()
	return e, err
}

// stop ends an execution.
func (b *clusterBench) stop(e *executor.Execution) {
	b.T.Helper()
	b.must(b.Executor.Stop(b.T.Context(), e, time.Second))
	synctest.Wait()
}

func (b *clusterBench) must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

func (b *clusterBench) members(e *executor.Execution, plan *nodepb.ClusterPlan) error {
	return b.hook.SetMembers(b.T.Context(), e, testOwner.Key(), plan)
}

func (b *clusterBench) wantRefused(what string, err error, code, text string) {
	b.T.Helper()
	var no *stream.Refused
	if !errors.As(err, &no) || no.Code != code || !strings.Contains(err.Error(), text) {
		b.T.Errorf("%s: %v, want it refused as %s with %q", what, err, code, text)
	}
}

// A rank starts with its place in the cluster, follows its plans while it runs, and leaves when its program ends.
func TestMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		e, err := b.start(1, planOf(1, rankOf(t, testOwner, 0, 0), b.own, rankOf(t, testOwner, 3, 2)))
		b.must(err)
		o := b.last.Overlay
		if o == nil || o.Address != netip.MustParseAddr("10.77.0.3") || o.PrefixBits != 16 || o.MTU != 1280 || o.Hostname != "node-1" || !strings.Contains(string(o.Files["/etc/hosts"]), "10.77.0.2 node-0 node-0.jabc head\n") {
			t.Errorf("started with %+v", o)
		}
		if env := b.last.Env; env["NODE_RANK"] != "1" || env["HEAD_IP"] != "10.77.0.2" || env["NODE_IP"] != "mine" {
			t.Errorf("started with %v", env)
		}
		n := b.nets.last()
		if n.joining.Key.Public() != b.own.Key || n.joining.Address != o.Address || n.joining.MTU != 1280 || n.joining.Internet || !slices.Equal(n.ranks(), []uint32{0, 3}) {
			t.Errorf("joined as %+v with %v", n.joining, n.others)
		}
		for name, want := range map[string]string{"node-0": "10.77.0.2", "HEAD.": "10.77.0.2", "node-2.jabc": "10.77.0.4", "node-4": "", "example.com": ""} {
			var got string
			if a := n.joining.Names(name); len(a) > 0 {
				got = a[0].String()
			}
			if got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		s := e.Describe()
		if len(s.Links) != 2 || s.Links[1].Rank != 3 || s.Links[1].Epoch != 2 || s.Links[1].Path != nodepb.LinkPath_LINK_PATH_DIRECT || s.Links[1].RttMicros != 3000 || s.Links[1].Mtu != 1420 || s.Links[1].HandshakeMillis != 5000 || s.PlanVersion != 1 {
			t.Errorf("told %v", s)
		}

		b.must(b.members(e, planOf(2, rankOf(t, testOwner, 0, 0), b.own)))
		if n := b.nets.last(); !slices.Equal(n.ranks(), []uint32{0}) {
			t.Errorf("members %v", n.ranks())
		}
		b.must(b.members(e, planOf(3, rankOf(t, testOwner, 0, 0), b.own, rankOf(t, testOwner, 3, 4))))
		if n := b.nets.last(); !slices.Equal(n.ranks(), []uint32{0, 3}) || len(b.nets.joined) != 1 {
			t.Errorf("members %v, joined %d times", n.ranks(), len(b.nets.joined))
		}
		b.must(b.members(e, planOf(3, rankOf(t, testOwner, 0, 0), b.own, rankOf(t, testOwner, 3, 4)))) // asked again
		if s := e.Describe(); s.PlanVersion != 3 || len(s.Links) != 2 || s.Links[1].Epoch != 4 {
			t.Errorf("told %v", s)
		}

		b.stop(e)
		if !b.nets.last().closed {
			t.Error("it is still a member")
		}
		if s := e.Describe(); !s.State.Ended() || len(s.Links) != 0 {
			t.Errorf("ended as %v", s)
		}
	})
}

// What is no plan for this rank, or takes back what was, changes nothing.
func TestWrongMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		head, third := rankOf(t, testOwner, 0, 0), rankOf(t, testOwner, 3, 2)
		other := sign.NewPrivate([32]byte{77})
		stolen := rankOf(t, testOwner, 1, 0)
		stolen.Key = head.Key
		for what, c := range map[string]struct {
			plan *nodepb.ClusterPlan
			text string
		}{
			"a wrong key of its own":         {planOf(1, head, stolen), "does not name its key"},
			"a member of another buyer":      {planOf(1, rankOf(t, other, 0, 0), b.own), "another buyer"},
			"all of another buyer":           {planOf(1, rankOf(t, other, 0, 0), rankOf(t, other, 1, 0)), "not the lease"},
			"the plan of another rank":       {proto.Clone(planOf(1, head, b.own, third)).(*nodepb.ClusterPlan), ""},
			"without the rank that it is of": {planOf(1, head), "not among its members"},
		} {
			if what == "the plan of another rank" {
				c.plan.Rank, c.text = 0, "not the lease"
			}
			if _, err := b.start(1, c.plan); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("started with %s: %v", what, err)
			}
		}
		e, err := b.start(1, planOf(5, head, b.own, third))
		b.must(err)
		wrong := rankOf(t, testOwner, 0, 0)
		wrong.Hold[9]++
		unsigned := rankOf(t, testOwner, 2, 0)
		unsigned.Lease.ProviderSig[0]++
		b.wantRefused("a lower version", b.members(e, planOf(4, head, b.own)), codePlanOld, "got version 4, want 5")
		b.wantRefused("the same version, but other members", b.members(e, planOf(5, head, b.own)), codePlanOld, "plan in force")
		b.wantRefused("a member whose key is not in its lease", b.members(e, planOf(6, wrong, b.own)), codePlan, "does not name its key")
		b.wantRefused("a member whose provider has not signed", b.members(e, planOf(6, head, b.own, unsigned)), codePlan, "provider")
		b.wantRefused("a member of another buyer", b.members(e, planOf(6, rankOf(t, other, 0, 0), b.own)), codePlan, "another buyer")
		b.wantRefused("no plan", b.members(e, nil), codePlan, "")
		b.wantRefused("who bought nothing", b.hook.SetMembers(t.Context(), e, other.Key(), planOf(6, head, b.own)), codePlan, "another buyer")
		if n := b.nets.last(); !slices.Equal(n.ranks(), []uint32{0, 3}) {
			t.Errorf("members %v", n.ranks())
		}
		b.must(b.members(e, planOf(6, head, b.own, rankOf(t, testOwner, 3, 3))))
		b.must(b.members(e, planOf(7, head, b.own)))
		b.wantRefused("the replaced one is back", b.members(e, planOf(8, head, b.own, third)), codePlan, "epoch 2: already")
		b.restart()
		e, ok := b.Find(executor.Key{Lease: b.own.Lease.Core.ID(), Seq: 1})
		if !ok {
			t.Fatal("the execution is forgotten")
		}
		b.wantRefused("it is back after a restart", b.members(e, planOf(8, head, b.own, third)), codePlan, "epoch 2: already")
		b.wantRefused("an old plan after a restart", b.members(e, planOf(6, head, b.own)), codePlanOld, "want 7 or later")
		b.stop(e)
		if _, err := b.start(2, planOf(8, head, b.own, third)); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "epoch 2: already") {
			t.Errorf("it is back in the next execution: %v", err)
		}
		if _, err := b.start(2, planOf(6, head, b.own)); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "not newer") {
			t.Errorf("an old plan in the next execution: %v", err)
		}
		b.must(second(b.start(2, planOf(8, head, b.own, rankOf(t, testOwner, 3, 3)))))
		plain := proto.Clone(b.work).(*nodepb.Workload)
		e = b.Must(market.LeaseID{9}, 1, plain)
		synctest.Wait()
		b.wantRefused("a plan for what is of no cluster", b.members(e, planOf(9, head, b.own)), codePlan, "of no cluster")
	})
}

func second[A any](_ A, err error) error { return err }

// The next process of the peer joins again with the plan in force.
func TestMemberSurvivesRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		e, err := b.start(1, planOf(1, rankOf(t, testOwner, 0, 0), b.own))
		b.must(err)
		b.must(b.members(e, planOf(2, rankOf(t, testOwner, 0, 1), b.own, rankOf(t, testOwner, 2, 0))))
		b.nets.setFail(errors.New("no sockets left"))
		b.restart()
		first := b.nets.joined[0]
		if !first.closed || len(b.nets.joined) != 1 {
			t.Errorf("closed %t, joined %d times", first.closed, len(b.nets.joined))
		}
		b.nets.setFail(nil)
		time.Sleep(rejoinMost)
		synctest.Wait()
		if n := b.nets.last(); len(b.nets.joined) != 2 || n.closed || !slices.Equal(n.ranks(), []uint32{0, 2}) || n.others[0].Key != rankOf(t, testOwner, 0, 1).Key {
			t.Errorf("joined %d times, closed %t, with %v", len(b.nets.joined), n.closed, n.others)
		}
		e, _ = b.Find(executor.Key{Lease: b.own.Lease.Core.ID(), Seq: 1})
		if s := e.Describe(); s.State != nodepb.ExecState_EXEC_STATE_RUNNING || s.PlanVersion != 2 || len(s.Links) != 2 {
			t.Errorf("it is %v", s)
		}
		b.stop(e)
		if !b.nets.last().closed {
			t.Error("it is still a member")
		}
	})
}

// failing is a store that takes nothing for a while.
type failing struct {
	store.Store
	err error
}

func (f *failing) Write(ctx context.Context, puts ...store.Put) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Write(ctx, puts...)
}

// Members are journalled before they are in force, and brought into force later where that fails.
func TestMembersAreJournalledFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		b.Stop()
		disk := &failing{Store: b.Store}
		b.Store = disk
		b.Bench.Start()
		head := rankOf(t, testOwner, 0, 0)
		e, err := b.start(1, planOf(1, head, b.own))
		b.must(err)
		disk.err = errors.New("disk full")
		if err := b.members(e, planOf(2, head, b.own, rankOf(t, testOwner, 2, 0))); !errors.Is(err, disk.err) {
			t.Errorf("the disk is full: %v", err)
		}
		if n := b.nets.last(); !slices.Equal(n.ranks(), []uint32{0}) || current(e).Version != 1 {
			t.Errorf("what is not in the journal is in force: %v", n.ranks())
		}
		disk.err = nil
		b.nets.setFail(errors.New("not now"))
		b.must(b.members(e, planOf(2, head, b.own, rankOf(t, testOwner, 2, 0))))
		if s := e.Describe(); s.PlanVersion != 1 {
			t.Errorf("told that version %d is in force", s.PlanVersion)
		}
		b.nets.setFail(nil)
		time.Sleep(rejoinMost)
		synctest.Wait()
		if n, s := b.nets.last(), e.Describe(); !slices.Equal(n.ranks(), []uint32{0, 2}) || s.PlanVersion != 2 {
			t.Errorf("members %v, version %d", n.ranks(), s.PlanVersion)
		}
	})
}

// bare is a runtime without networks.
type bare struct{ runtime.Runtime }

// unable says why it gives none.
type unable struct {
	*runtimetest.Fake
	why error
}

// CanOverlay says so.
func (u unable) CanOverlay(context.Context) error { return u.why }

// A rank that could not reach the others is refused before anything is fetched, and one that cannot join does not run.
func TestNoMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		plan := planOf(1, rankOf(t, testOwner, 0, 0), b.own)
		for text, rt := range map[string]runtime.Runtime{
			"the runtime wasm has no networks": bare{b.fake},
			"no /dev/net/tun here":             unable{b.fake, errors.New("no /dev/net/tun here")},
		} {
			b.Stop()
			b.equip(rt, b.nets, b.Blobs)
			b.Bench.Start()
			if _, err := b.start(1, plan); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %q", err, text)
			}
		}
		b.Stop()
		b.equip(specs{b.fake, b}, nil, b.Blobs)
		b.Bench.Start()
		if _, err := b.start(1, plan); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), errNoNetworks.Error()) {
			t.Errorf("%v", err)
		}
		b.Stop()
		b.equip(specs{b.fake, b}, b.nets, b.Blobs)
		b.Bench.Start()
		b.nets.setFail(errors.New("no sockets left"))
		e, err := b.start(1, plan)
		b.must(err)
		if s := e.Describe(); s.State != nodepb.ExecState_EXEC_STATE_FAILED || !strings.Contains(s.Message, "could not provide the network") || strings.Contains(s.Message, "sockets") {
			t.Errorf("it is %v", s)
		}
		_, h, _ := e.Snapshot()
		if _, err := b.fake.Stats(t.Context(), *h); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("its program is still there: %v", err)
		}
	})
}

// Whatever else it does, a rank has left its cluster when its outputs are read.
func TestMemberLeavesBeforeOutputs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		b.work.Outputs = []string{"/out"}
		left := false
		b.Stop()
		b.equip(specs{b.fake, b}, b.nets, watching{b.Blobs, func() { left = b.nets.last().closed }})
		b.Bench.Start()
		e, err := b.start(1, planOf(1, rankOf(t, testOwner, 0, 0), b.own))
		b.must(err)
		b.stop(e)
		if s := e.Describe(); s.State != nodepb.ExecState_EXEC_STATE_EXITED || len(s.Outputs) != 1 || !left {
			t.Errorf("left %t, it is %v", left, s)
		}
	})
}

// watching are blobs that tell when a directory is stored.
type watching struct {
	workload.Blobs
	told func()
}

func (w watching) PutTree(ctx context.Context, dir string, max int64) (blob.Tree, error) {
	w.told()
	return w.Blobs.PutTree(ctx, dir, max)
}

func current(e *executor.Execution) *cluster.Plan {
	p, _ := of(e).planned()
	return p
}

// images is a runtime of images, all of one program.
type images struct {
	specs
	module string
}

func (images) HasImage(context.Context, string) bool { return true }

func (images) Pull(context.Context, string, *runtime.RegistryAuth, func(done, total int64)) error {
	return nil
}

func (i images) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	s.Image, s.Module = "", i.module
	return i.specs.Start(ctx, s)
}

// A program that asks for a way out has the peer's, under its limits and closed addresses, and no other network.
func TestAttackContainerPassesTheWayOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClusterBench(t)
		b.Stop()
		b.fake = runtimetest.NewFake("docker", map[string]guest.Program{"wait": executortest.Wait})
		module := filepath.Join(t.TempDir(), "module")
		b.must(os.WriteFile(module, runtimetest.FakeModule("wait"), 0o644))
		b.equip(images{specs{b.fake, b}, module}, b.nets, b.Blobs)
		b.Bench.Start()
		b.work.Module, b.work.Runtime, b.work.Image = nil, "docker", "x.example/wait@sha256:"+strings.Repeat("0", 64)
		for i, asked := range []runtime.Network{runtime.NetworkNone, runtime.NetworkInternet} {
			w := proto.Clone(b.work).(*nodepb.Workload)
			w.Network = string(asked)
			l := market.LeaseID{byte(i)}
			e := b.Must(l, 1, w)
			synctest.Wait()
			o, in := b.last.Overlay, b.nets.last()
			if (o != nil) != (asked != "") || (in.nets != nil) != (asked != "") {
				t.Fatalf("network %q: overlay %+v, joined %v", asked, o, in.nets != nil)
			}
			if o != nil {
				if !o.Alone || !strings.Contains(string(o.Files[cluster.FileResolv]), cluster.Service.String()) {
					t.Errorf("it is started with %+v", o)
				}
				if j := in.joining; j.Cluster != "" || !j.Internet || j.Address != o.Address || j.MTU != o.MTU ||
					len(j.Services) != 0 || j.Names("node-0") != nil || Members(b.All()) != 0 {
					t.Errorf("it joins with %+v, %d members", j, Members(b.All()))
				}
			}
			b.stop(e)
			if o != nil && !b.nets.last().closed {
				t.Error("its way out is open after its end")
			}
		}
		b.nets.setFail(errors.New("dial unix /home/operator"))
		w := proto.Clone(b.work).(*nodepb.Workload)
		w.Network = string(runtime.NetworkInternet)
		s := b.Await(b.Must(market.LeaseID{9}, 1, w))
		if s.State != nodepb.ExecState_EXEC_STATE_FAILED || s.StartedMillis == 0 || strings.Contains(s.Message, "operator") {
			t.Errorf("without a way out: %v", s)
		}
	})
}
