// Package member gives executions their networks: membership in a cluster's overlay, or only internet access.
//
// An execution that is a rank of a cluster, or requests internet access, has its own network, and this peer holds the
// other end. An execution without a cluster has no plan and no members:
//
//	Admit (plan) ─▶ journal ─▶ Prestart: sandbox with ovl0 ─▶ Poststart: Tun ─▶ Networks.Join ─▶ SetMembers
//	Members (newer plan) ─▶ checked, journalled ─▶ SetMembers, SetFiles
//	end of the program ─▶ streams into it, then the network ─▶ outputs
//
// The next process of the peer takes over running programs with the plan in the journal.
//
// A rank's program can start programs in the other ranks, as mpirun does by rsh: see [Hook.Rsh].
package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// rejoinFirst and rejoinMost are how long is waited until a network that failed is tried again.
	rejoinFirst = time.Second
	rejoinMost  = 30 * time.Second
	// aloneMTU is of the device of an execution that is of no cluster: nothing wraps its packets.
	aloneMTU = runtime.MaxMTU

	codePlan    = "plan"     // a plan that cannot be taken
	codePlanOld = "plan-old" // a plan that is not newer

	noteName = "member" // of the hook's notes
)

var errNoNetworks = errors.New("this provider gives programs no networks")

// Hook is the hook of networks.
type Hook struct {
	Networks Networks // optional; if nil, no program gets a network
	Keys     Keys
	Domain   sign.Domain
	Fellows  Fellows
	Log      *slog.Logger
}

var (
	_ executor.Admission   = (*Hook)(nil)
	_ executor.Restoring   = (*Hook)(nil)
	_ executor.Prestart    = (*Hook)(nil)
	_ executor.Poststart   = (*Hook)(nil)
	_ executor.Recovery    = (*Hook)(nil)
	_ executor.Description = (*Hook)(nil)
)

// note is the journal's record of a membership.
type note struct {
	Plan []byte       `json:"plan"` // nodepb.ClusterPlan in force
	Seen cluster.Seen `json:"seen"` // known data of the ranks of its cluster
}

// Joins returns why a program of a runtime cannot be given a network, as a member of a cluster or alone, for its buyer.
// It returns nil if it can.
func (h *Hook) Joins(ctx context.Context, rt runtime.Runtime) error {
	switch n, ok := rt.(runtime.Networker); {
	case h.Networks == nil:
		return errNoNetworks
	case !ok:
		return fmt.Errorf("the runtime %s has no networks", rt.Name())
	default:
		return n.CanOverlay(ctx)
	}
}

// Members returns how many of these executions are members of clusters.
func Members(all []*executor.Execution) (n int) {
	for _, e := range all {
		if p, network := of(e).now(); p != nil && network != nil {
			n++
		}
	}
	return n
}

// Admit checks the plan of a workload. It continues from earlier executions under the lease.
func (h *Hook) Admit(e *executor.Execution, buyer sign.Key) error {
	m := h.begin(e)
	if e.Work.GetCluster() == nil {
		return nil
	}
	p, err := cluster.Decode(e.Work.Cluster)
	if err == nil {
		err = p.Check(h.Domain, h.own(e, buyer, p))
	}
	var seen cluster.Seen
	for _, earlier := range e.Under(e.Lease) {
		if err != nil {
			break
		}
		if before, known := of(earlier).planned(); before != nil {
			err = p.After(*before)
			seen = known.Add(seen)
		}
	}
	if err == nil {
		seen, err = seen.See(p)
	}
	if err != nil {
		return workload.Bad("%v", err)
	}
	n, err := noteOf(p, seen)
	if err != nil {
		return err
	}
	m.set(&p, seen)
	return e.Note(noteName, n)
}

func noteOf(p cluster.Plan, seen cluster.Seen) (note, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p.Proto())
	if err != nil {
		return note{}, fmt.Errorf("encoding a plan: %w", err)
	}
	return note{b, seen}, nil
}

// own is this provider's data about itself as a member of a plan.
func (h *Hook) own(e *executor.Execution, buyer sign.Key, p cluster.Plan) cluster.Own {
	self, _ := p.Own()
	return cluster.Own{Lease: e.Lease, Buyer: buyer, Key: h.Keys.Member(self.Hold).Public()}
}

// Restore reads the plan in force.
func (h *Hook) Restore(e *executor.Execution) error {
	m := h.begin(e)
	var n note
	if noted, err := e.Noted(noteName, &n); err != nil || !noted {
		return err
	}
	var plan nodepb.ClusterPlan
	if err := proto.Unmarshal(n.Plan, &plan); err != nil {
		return fmt.Errorf("reading a plan: %w", err)
	}
	p, err := cluster.Decode(&plan)
	if err != nil {
		return fmt.Errorf("reading a plan: %w", err)
	}
	m.set(&p, n.Seen)
	return nil
}

// Prestart adds the network of the sandbox, and the environment of a rank.
func (h *Hook) Prestart(_ context.Context, e *executor.Execution, l *executor.Launch) error {
	p, _ := of(e).planned()
	switch {
	case p == nil && of(e).outside():
		l.Spec.Overlay = &runtime.Overlay{
			Address: cluster.Address(0), PrefixBits: cluster.Prefix.Bits(), MTU: aloneMTU, Hostname: "starling",
			Alone: true, Files: cluster.AloneFiles(),
		}
		return nil
	case p == nil:
		return nil
	}
	c := p.Contract()
	l.Spec.Env = c.WithEnv(l.Spec.Env)
	l.Spec.Overlay = &runtime.Overlay{
		Address: c.Address(), PrefixBits: cluster.Prefix.Bits(), MTU: int(c.MTU), Hostname: c.Hostname(),
		First: p.First(), Files: c.Files(),
	}
	return nil
}

// Poststart joins the network. A program without its network does not run.
func (h *Hook) Poststart(ctx context.Context, e *executor.Execution) error {
	m := of(e)
	if !m.networked() {
		return nil
	}
	if err := m.join(ctx); err != nil {
		m.leave()
		advice := "this provider could not provide the network; another may"
		return &runtime.Failure{Class: runtime.ErrNoOverlay, Advice: advice, Cause: err}
	}
	e.Go(m.attend)
	return nil
}

// Recover joins again, and tries until that succeeds.
func (h *Hook) Recover(e *executor.Execution) {
	if m := of(e); m.networked() {
		e.Go(m.attend)
	}
}

// SetMembers puts a newer plan of the lease's buyer in force. It is journalled before any member is admitted or
// removed.
func (h *Hook) SetMembers(ctx context.Context, e *executor.Execution, buyer sign.Key, plan *nodepb.ClusterPlan) error {
	next, err := cluster.Decode(plan)
	if err != nil {
		return refusePlan(err)
	}
	m := of(e)
	<-m.turn
	defer m.give()
	before, known := m.planned()
	if before == nil {
		return stream.Refuse(codePlan, "the execution is of no cluster")
	}
	if err := next.After(*before); err != nil {
		return refusePlan(err)
	}
	if next.Version == before.Version {
		return nil // repeated request
	}
	if err := next.Check(h.Domain, h.own(e, buyer, next)); err != nil {
		return refusePlan(err)
	}
	seen, err := known.See(next)
	if err != nil {
		return refusePlan(err)
	}
	n, err := noteOf(next, seen)
	if err == nil {
		err = e.Keep(ctx, noteName, n)
	}
	if err != nil {
		return err
	}
	m.set(&next, seen)
	h.Log.Info("a cluster has other members", "lease", e.Lease, "cluster", next.ID, "rank", next.Rank,
		"version", next.Version, "size", next.Size, "members", len(next.Members))
	if _, handle, _ := e.Snapshot(); handle == nil {
		return nil // it starts with this plan
	}
	if err := m.connect(e.Alive()); err != nil && e.Alive().Err() == nil {
		h.Log.Warn("the members of a cluster are not in force yet", "lease", e.Lease, "cluster", next.ID, "err", err)
		m.reconnect()
	}
	e.Changed()
	return nil
}

func refusePlan(err error) error {
	if errors.Is(err, cluster.ErrOld) {
		return stream.Refuse(codePlanOld, err.Error())
	}
	return stream.Refuse(codePlan, err.Error())
}

// Describe adds the paths to the other members.
func (h *Hook) Describe(e *executor.Execution, s *nodepb.Execution) {
	p, network := of(e).now()
	if p == nil || network == nil || s.State.Ended() {
		return
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
			Rank: m.Rank, Epoch: m.Epoch, Path: l.Path, RttMicros: uint64(max(l.RTT, 0) / time.Microsecond),
			Mtu: uint32(max(l.MTU, 0)), Received: l.Rx, Sent: l.Tx,
		}
		if !l.Handshake.IsZero() {
			out.HandshakeMillis = uint64(max(l.Handshake.UnixMilli(), 0))
		}
		s.Links = append(s.Links, out)
	}
}
