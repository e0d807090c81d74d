package member

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p"
)

// membership is an execution's part of its network.
type membership struct {
	h        *Hook
	e        *executor.Execution
	turn     chan struct{} // holds one token while plan and network are not being changed
	again    chan struct{} // holds one token when the network needs work
	sessions atomic.Int32  // programs that it has started in others, and that run

	mu      sync.Mutex
	plan    *cluster.Plan // in force; nil if it is of no cluster. Replaced as a whole
	seen    cluster.Seen
	network Network // nil while it has not joined
}

type key struct{}

// begin adds a membership, at first of no cluster, to an execution.
func (h *Hook) begin(e *executor.Execution) *membership {
	m := &membership{h: h, e: e, turn: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	m.give()
	e.SetValue(key{}, m)
	return m
}

func of(e *executor.Execution) *membership { return e.Value(key{}).(*membership) }

func (m *membership) give() { m.turn <- struct{}{} }

// planned returns the plan in force, nil if the execution is of no cluster, and the known data of its ranks.
func (m *membership) planned() (*cluster.Plan, cluster.Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plan, m.seen
}

func (m *membership) set(p *cluster.Plan, seen cluster.Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plan, m.seen = p, seen
}

// now returns the plan in force and the network; nil if there is none.
func (m *membership) now() (*cluster.Plan, Network) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plan, m.network
}

// networked reports whether the execution has a network, as a member of a cluster or alone.
func (m *membership) networked() bool {
	p, _ := m.planned()
	return p != nil || m.outside()
}

// outside reports whether the execution's job requests internet access.
func (m *membership) outside() bool {
	return runtime.Network(m.e.Work.Network) == runtime.NetworkInternet
}

// connect brings the network of a running execution to the plan in force, and joins first if it has not. The caller
// has the turn.
func (m *membership) connect(ctx context.Context) error {
	p, network := m.now()
	s, h, _ := m.e.Snapshot()
	switch {
	case h == nil || m.e.Alive().Err() != nil || s.State.Ended():
		return nil
	case p == nil && (network != nil || !m.outside()):
		return nil
	case p != nil && network != nil && s.PlanVersion == p.Version:
		return nil
	}
	rt, ok := m.e.Runtime().(runtime.Networker)
	if !ok || m.h.Networks == nil {
		return errNoNetworks
	}
	joined := network == nil
	if joined {
		tun, err := rt.Tun(ctx, *h)
		if err != nil {
			return fmt.Errorf("opening network: %w", err)
		}
		if network, err = m.h.Networks.Join(m.joining(p, tun)); err != nil {
			return fmt.Errorf("joining network: %w", err)
		}
		m.mu.Lock()
		m.network = network
		m.mu.Unlock()
	}
	if p == nil {
		return nil
	}
	others, err := peersOf(*p)
	if err != nil {
		return err
	}
	if err := network.SetMembers(others); err != nil {
		return fmt.Errorf("setting cluster members: %w", err)
	}
	if err := rt.SetFiles(ctx, *h, p.Contract().Files()); err != nil {
		return fmt.Errorf("writing cluster members: %w", err)
	}
	m.e.Update(func(s *nodepb.Execution) { s.PlanVersion = p.Version })
	if joined {
		m.h.Log.Info("an execution is a member of a cluster", "lease", m.e.Lease, "cluster", p.ID, "rank", p.Rank,
			"version", p.Version, "size", p.Size, "members", len(p.Members))
	}
	return nil
}

// joining returns the parameters with which an execution joins its network; p is nil for one of no cluster.
func (m *membership) joining(p *cluster.Plan, tun *os.File) Joining {
	j := Joining{
		Address: cluster.Address(0), MTU: aloneMTU, Tun: tun, Names: m.names, Internet: m.outside(),
		Log: m.h.Log.With("lease", m.e.Lease),
	}
	if p != nil {
		self, _ := p.Own()
		j.Cluster, j.Key, j.Address, j.MTU = p.ID, m.h.Keys.Member(self.Hold), cluster.Address(p.Rank), int(p.MTU)
		j.Services, j.Log = m.services(), m.h.Log.With("cluster", p.ID, "rank", p.Rank)
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

// names resolves a name in the execution's cluster. Every rank has its address, also while it is being replaced.
func (m *membership) names(name string) []netip.Addr {
	p, _ := m.planned()
	if p == nil {
		return nil
	}
	if rank, ok := cluster.Resolve(name, p.ID); ok && rank < p.Size {
		return []netip.Addr{cluster.Address(rank)}
	}
	return nil
}

// join waits for the turn, and connects.
func (m *membership) join(ctx context.Context) error {
	<-m.turn
	defer m.give()
	return m.connect(ctx)
}

func (m *membership) reconnect() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// attend maintains the network of an execution until its program has ended, and then leaves it. It retries failed
// steps.
func (m *membership) attend(ctx context.Context) {
	defer m.leave()
	t := time.NewTimer(0) // an execution of an earlier process has no network yet
	defer t.Stop()
	for wait := rejoinFirst; ; {
		select {
		case <-ctx.Done():
			return
		case <-m.again:
		case <-t.C:
		}
		err := m.join(ctx)
		if err == nil || ctx.Err() != nil {
			wait = rejoinFirst
			continue
		}
		m.h.Log.Warn("an execution has no network", "lease", m.e.Lease, "again_in", wait, "err", err)
		t.Reset(wait)
		wait = min(2*wait, rejoinMost)
	}
}

// leave closes the network of an execution. Nothing may attach to it from then on.
func (m *membership) leave() {
	<-m.turn
	defer m.give()
	m.mu.Lock()
	network := m.network
	m.network = nil
	m.mu.Unlock()
	if network == nil {
		return
	}
	if err := network.Close(); err != nil {
		m.h.Log.Warn("leaving a network failed", "lease", m.e.Lease, "err", err)
	}
}
