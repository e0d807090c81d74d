package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// An execution that is a rank of a cluster, or asks for a way out, has a network to itself, and this peer holds its
// other end. One that is of no cluster has no plan and no members:
//
//	Start (plan) ─▶ journal ─▶ runtime: sandbox with ovl0 ─▶ Tun ─▶ Networks.Join ─▶ SetMembers
//	Members (newer plan) ─▶ checked, journalled ─▶ SetMembers, SetFiles
//	end of the program ─▶ streams into it, then the network ─▶ outputs
//
// The next process of the peer takes over running programs with the plan in the journal.

// Networks joins executions to the overlays of their clusters, or to a way out alone.
type Networks interface {
	// Join makes an execution a member of an overlay, at first without others; where Joining names no cluster the execution has the way
	// out alone, and is given no members. It takes the TUN over, also when it fails.
	Join(j Joining) (Network, error)
}

// Joining is one execution that is to have a network.
type Joining struct {
	Cluster string             // none: it is of no cluster
	Key     cluster.PrivateKey // of a member
	Address netip.Addr
	MTU     int
	Tun     *os.File
	// Names are the addresses that a name has in its cluster, none when there is no such name.
	Names func(name string) []netip.Addr
	// Internet says that its job asks for a way out; without it there is none.
	Internet bool
	// Services are the peer's own services for the program at cluster.Service, by TCP port.
	Services map[uint16]func(context.Context, net.Conn)
	Log      *slog.Logger
}

// Network is one membership.
type Network interface {
	// SetMembers replaces the others. Once it returns, a removed one reaches the execution no more.
	SetMembers(others []Peer) error
	// Links says how the others are reached now.
	Links() []Link
	// Close leaves, and returns when nothing of the membership runs any more.
	Close() error
}

// Peer is another member.
type Peer struct {
	Key     market.OverlayKey
	Peer    peer.ID
	Address netip.Addr
	Addrs   []ma.Multiaddr
}

// Link is the way to another member.
type Link struct {
	Address   netip.Addr
	Path      nodepb.LinkPath
	RTT       time.Duration // 0: not known
	MTU       int           // 0: not known
	Rx, Tx    uint64        // bytes
	Handshake time.Time     // zero: none yet
}

const (
	// rejoinFirst and rejoinMost are how long is waited until a network that failed is tried again.
	rejoinFirst = time.Second
	rejoinMost  = 30 * time.Second
	// aloneMTU is of the device of an execution that is of no cluster: nothing wraps its packets.
	aloneMTU = runtime.MaxMTU

	codePlan    = "plan"     // a plan that cannot be taken
	codePlanOld = "plan-old" // one that is not newer
)

var errNoNetworks = errors.New("this provider gives programs no networks")

// membership is an execution's part of its cluster.
type membership struct {
	changing sync.Mutex    // taken before execution.mu: one change of plan or network at a time
	plan     *cluster.Plan // in force; nil: it is of no cluster. Replaced as a whole, under execution.mu
	network  Network       // nil: not joined. Under execution.mu
	sessions atomic.Int32  // programs that it has started in others, and that run
	again    chan struct{} // holds one token when the network has to be looked after
}

// current is the plan in force; nil: the execution is of no cluster.
func (e *execution) current() *cluster.Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plan
}

// networked reports whether the execution has a network, as a member of a cluster or alone.
func (e *execution) networked() bool { return e.current() != nil || e.outside() }

// outside reports whether the execution's job asks for a way out.
func (e *execution) outside() bool { return runtime.Network(e.work.Network) == runtime.NetworkInternet }

// joins says why a program of a runtime cannot be given a network, as a member of a cluster or alone, for its buyer to read.
func (x *executor) joins(ctx context.Context, rt runtime.Runtime) error {
	switch n, ok := rt.(runtime.Networker); {
	case x.networks == nil || x.member == nil:
		return errNoNetworks
	case !ok:
		return fmt.Errorf("the runtime %s has no networks", rt.Name())
	default:
		return n.CanOverlay(ctx)
	}
}

// overlaysAgain is after how long a peer that can have no member of a cluster looks whether it can now: its engine may have been away.
const overlaysAgain = 2 * time.Minute

// tryOverlays finds out which runtimes can have members, before the first order, and sets the reason for offers if none
// can. It returns when there is one, or ctx ends.
func (p *Provider) tryOverlays(ctx context.Context) {
	said := map[string]string{}
	for {
		none := true
		for name, rt := range p.cfg.Runtimes {
			err := p.exec.joins(ctx, rt)
			if ctx.Err() != nil {
				return
			}
			none = none && err != nil
			if why := fmt.Sprint(err); said[name] != why {
				said[name] = why
				p.cfg.Log.Info("whether executions may be members of clusters", "runtime", name, "why_not", err)
			}
		}
		if p.apart.Swap(none) != none {
			p.offerChanged()
		}
		if !none {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(overlaysAgain):
		}
	}
}

// joinsAny reports whether any program of this peer can be a member of a cluster; true while it has not tried.
func (p *Provider) joinsAny() bool { return !p.cfg.Policy.Clusters.No && !p.apart.Load() }

// joins says why one more program of a runtime is not to be a member of a cluster.
func (p *Provider) joins(ctx context.Context, runtime string) *market.Refusal {
	if p.cfg.Policy.Clusters.No {
		return market.Refuse(market.ReasonRuntime, "this provider's operator takes part in no clusters")
	}
	if rt := p.cfg.Runtimes[runtime]; rt != nil {
		if err := p.exec.joins(ctx, rt); err != nil {
			return market.Refuse(market.ReasonRuntime, "%v", err)
		}
	}
	return nil
}

// Members counts the executions of this peer that are members of a cluster.
func (p *Provider) Members() int { return p.exec.members() }

func (x *executor) members() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.exec {
		e.mu.Lock()
		if e.network != nil && e.plan != nil {
			n++
		}
		e.mu.Unlock()
	}
	return n
}

// own is a provider's data about itself as a member of a plan.
func (x *executor) own(l market.LeaseID, buyer sign.Key, p cluster.Plan) cluster.Own {
	self, _ := p.Own()
	return cluster.Own{Lease: l, Buyer: buyer, Key: x.member(self.Hold).Public()}
}

// admit checks the plan of a workload that is to start, and returns the known data of its ranks with it. It goes on
// from an earlier execution under the lease.
func (x *executor) admit(r request) (*cluster.Plan, cluster.Seen, error) {
	if r.work.GetCluster() == nil {
		return nil, nil, nil
	}
	p, err := cluster.Decode(r.work.Cluster)
	if err == nil {
		err = p.Check(x.domain, x.own(r.lease, r.owner, p))
	}
	var seen cluster.Seen
	for _, e := range x.of(r.lease) {
		if err != nil {
			break
		}
		if before := e.current(); before != nil {
			err = p.After(*before)
			seen = e.seen().Add(seen)
		}
	}
	if err == nil {
		seen, err = seen.See(p)
	}
	if err != nil {
		return nil, nil, workload.Bad("%v", err)
	}
	return &p, seen, nil
}

func (e *execution) seen() cluster.Seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.Seen
}

// setMembers puts a newer plan of the lease's buyer in force. It is journalled before anybody is let in or out.
func (x *executor) setMembers(ctx context.Context, e *execution, buyer sign.Key, m *nodepb.ClusterPlan) error {
	next, err := cluster.Decode(m)
	if err != nil {
		return refusePlan(err)
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	before := e.current()
	if before == nil || x.member == nil {
		return stream.Refuse(codePlan, "the execution is of no cluster")
	}
	if err := next.After(*before); err != nil {
		return refusePlan(err)
	}
	if next.Version == before.Version {
		return nil // asked again
	}
	if err := next.Check(x.domain, x.own(e.rec.Lease, buyer, next)); err != nil {
		return refusePlan(err)
	}
	seen, err := e.seen().See(next)
	if err != nil {
		return refusePlan(err)
	}
	if err := x.notePlan(ctx, e, &next, seen); err != nil {
		return err
	}
	x.log.Info("a cluster has other members", "lease", e.rec.Lease, "cluster", next.ID, "rank", next.Rank, "version", next.Version, "size", next.Size, "members", len(next.Members))
	if _, h, _ := e.snapshot(); h == nil {
		return nil // it starts with this plan
	}
	if err := x.connect(e.alive, e); err != nil && e.alive.Err() == nil {
		x.log.Warn("the members of a cluster are not in force yet", "lease", e.rec.Lease, "cluster", next.ID, "err", err)
		e.reconnect()
	}
	e.changed()
	return nil
}

func refusePlan(err error) error {
	if errors.Is(err, cluster.ErrOld) {
		return stream.Refuse(codePlanOld, err.Error())
	}
	return stream.Refuse(codePlan, err.Error())
}

// notePlan journals a plan. e.changing is held.
func (x *executor) notePlan(ctx context.Context, e *execution, next *cluster.Plan, seen cluster.Seen) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(next.Proto())
	if err != nil {
		return fmt.Errorf("encoding a plan: %w", err)
	}
	e.mu.Lock()
	plan, rec := e.plan, e.rec
	e.plan, e.rec.Plan, e.rec.Seen = next, b, seen
	e.mu.Unlock()
	if err := x.persist(ctx, e); err != nil {
		e.mu.Lock()
		e.plan, e.rec.Plan, e.rec.Seen = plan, rec.Plan, rec.Seen
		e.mu.Unlock()
		return err
	}
	return nil
}

// restorePlan reads the journal's record of an execution's cluster.
func (e *execution) restorePlan() error {
	e.again = make(chan struct{}, 1)
	m := e.work.Cluster
	if len(e.rec.Plan) > 0 {
		m = &nodepb.ClusterPlan{}
		if err := proto.Unmarshal(e.rec.Plan, m); err != nil {
			return err
		}
	}
	if m == nil {
		return nil
	}
	p, err := cluster.Decode(m)
	e.plan = &p
	return err
}

// overlay is the network that the sandbox of an execution is started with, and its environment.
func (e *execution) overlay(spec *runtime.Spec) {
	p := e.current()
	switch {
	case p == nil && e.outside():
		spec.Overlay = &runtime.Overlay{
			Address: cluster.Address(0), PrefixBits: cluster.Prefix.Bits(), MTU: aloneMTU, Hostname: "starling", Alone: true, Files: cluster.AloneFiles(),
		}
		return
	case p == nil:
		return
	}
	c := p.Contract()
	spec.Env = c.WithEnv(spec.Env)
	spec.Overlay = &runtime.Overlay{Address: c.Address(), PrefixBits: cluster.Prefix.Bits(), MTU: int(c.MTU), Hostname: c.Hostname(), First: p.First(), Files: c.Files()}
}

// connect brings the network of a running execution to the plan in force, joining first where it has not. e.changing is held.
func (x *executor) connect(ctx context.Context, e *execution) error {
	e.mu.Lock()
	p, h, network, over, have := e.plan, e.handle, e.network, e.over, e.state.PlanVersion
	e.mu.Unlock()
	if h == nil || over || p == nil && (network != nil || !e.outside()) || p != nil && network != nil && have == p.Version {
		return nil
	}
	rt, ok := x.runtimes[e.work.Runtime].(runtime.Networker)
	if !ok || x.networks == nil {
		return errNoNetworks
	}
	joined := network == nil
	if joined {
		tun, err := rt.Tun(ctx, *h)
		if err != nil {
			return fmt.Errorf("opening its network: %w", err)
		}
		network, err = x.networks.Join(x.joining(e, p, tun))
		if err != nil {
			return fmt.Errorf("joining its network: %w", err)
		}
		e.mu.Lock()
		e.network = network
		e.mu.Unlock()
	}
	if p == nil {
		return nil
	}
	others, err := peersOf(*p)
	if err != nil {
		return err
	}
	if err := network.SetMembers(others); err != nil {
		return fmt.Errorf("setting the members of its cluster: %w", err)
	}
	if err := rt.SetFiles(ctx, *h, p.Contract().Files()); err != nil {
		return fmt.Errorf("writing the members of its cluster: %w", err)
	}
	e.mu.Lock()
	e.state.PlanVersion = p.Version
	e.mu.Unlock()
	if joined {
		x.log.Info("an execution is a member of a cluster", "lease", e.rec.Lease, "cluster", p.ID, "rank", p.Rank, "version", p.Version, "size", p.Size, "members", len(p.Members))
	}
	return nil
}

// joining are the parameters with which an execution joins its network; p is nil for one of no cluster.
func (x *executor) joining(e *execution, p *cluster.Plan, tun *os.File) Joining {
	j := Joining{Address: cluster.Address(0), MTU: aloneMTU, Tun: tun, Names: e.names, Internet: e.outside(), Log: x.log.With("lease", e.rec.Lease)}
	if p != nil {
		self, _ := p.Own()
		j.Cluster, j.Key, j.Address, j.MTU = p.ID, x.member(self.Hold), cluster.Address(p.Rank), int(p.MTU)
		j.Services, j.Log = x.services(e), x.log.With("cluster", p.ID, "rank", p.Rank)
	}
	return j
}

func peersOf(p cluster.Plan) ([]Peer, error) {
	var out []Peer
	for _, m := range p.Members {
		if m.Rank == p.Rank {
			continue
		}
		id, err := p2p.PeerIDFromKey(m.Provider())
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", m.Rank, err)
		}
		out = append(out, Peer{Key: m.Key, Peer: id, Address: cluster.Address(m.Rank), Addrs: m.Addrs})
	}
	return out, nil
}

// names answers a name of the cluster that the execution is in. Every rank has its address, also while it is being replaced.
func (e *execution) names(name string) []netip.Addr {
	p := e.current()
	if p == nil {
		return nil
	}
	if rank, ok := cluster.Resolve(name, p.ID); ok && rank < p.Size {
		return []netip.Addr{cluster.Address(rank)}
	}
	return nil
}

// join is connect for a program that was just started.
func (x *executor) join(ctx context.Context, e *execution) error {
	e.changing.Lock()
	defer e.changing.Unlock()
	return x.connect(ctx, e)
}

func (e *execution) reconnect() {
	select {
	case e.again <- struct{}{}:
	default:
	}
}

// attend looks after the network of an execution until its program has ended: failed steps are retried.
func (x *executor) attend(e *execution) {
	t := time.NewTimer(0) // an execution of an earlier process has no network yet
	defer t.Stop()
	for wait := rejoinFirst; ; {
		select {
		case <-e.alive.Done():
			return
		case <-e.again:
		case <-t.C:
		}
		err := x.join(e.alive, e)
		if err == nil || e.alive.Err() != nil {
			wait = rejoinFirst
			continue
		}
		x.log.Warn("an execution has no network", "lease", e.rec.Lease, "again_in", wait, "err", err)
		t.Reset(wait)
		wait = min(2*wait, rejoinMost)
	}
}

// leave takes an execution's network away. Nothing may attach to it any more.
func (x *executor) leave(e *execution) {
	e.changing.Lock()
	defer e.changing.Unlock()
	e.mu.Lock()
	network := e.network
	e.network = nil
	e.mu.Unlock()
	if network == nil {
		return
	}
	if err := network.Close(); err != nil {
		x.log.Warn("leaving a network failed", "lease", e.rec.Lease, "err", err)
	}
}

// describe is the state of an execution for its buyer, with the ways to the other members.
func (e *execution) describe() *nodepb.Execution {
	s, _, _ := e.snapshot()
	e.mu.Lock()
	p, network := e.plan, e.network
	e.mu.Unlock()
	if p == nil || network == nil || s.State.Ended() {
		return s
	}
	links := map[uint32]Link{}
	for _, l := range network.Links() {
		if rank, ok := cluster.RankOf(l.Address); ok {
			links[rank] = l
		}
	}
	for _, m := range p.Members {
		l, ok := links[m.Rank]
		if !ok {
			continue
		}
		out := &nodepb.Link{
			Rank: m.Rank, Epoch: m.Epoch, Path: l.Path, RttMicros: uint64(max(l.RTT, 0) / time.Microsecond), Mtu: uint32(max(l.MTU, 0)), Received: l.Rx, Sent: l.Tx,
		}
		if !l.Handshake.IsZero() {
			out.HandshakeMillis = uint64(max(l.Handshake.UnixMilli(), 0))
		}
		s.Links = append(s.Links, out)
	}
	return s
}
