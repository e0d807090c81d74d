package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/attach"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// A program in a cluster can start programs in the other ranks, as mpirun does by rsh:
//
//	agent in the container ── service address ──▶ its peer ──▶ own rank: attached here
//	                                                      └── protocol.Rsh ──▶ peer of that rank: attached there
//
// Even with a hostile peer, a member can only run programs as the tenant in the containers of the same cluster, while
// the plan in force there names it as a member.
const (
	// maxSessions is how many programs one rank may have started in others at a time: one launcher, every other rank.
	maxSessions = 2 * cluster.MaxMembers
	// requestTime bounds the agent's time to send its request, or to receive a refusal.
	requestTime = 10 * time.Second
	// A rank that is not there yet, or with a peer that does not have our plan yet, is tried again for a while: a
	// launcher begins when its own container runs, and gives up at the first that fails.
	rshFor   = 30 * time.Second
	rshFirst = 250 * time.Millisecond
	rshMost  = 2 * time.Second
	// fellowTime is how long a peer's addresses, as a plan has them, are kept for dialling it.
	fellowTime = 10 * time.Minute

	codeFellow = "fellow" // the caller is no member of the cluster by the plan in force
)

// Fellows are the peers of the other ranks.
type Fellows interface {
	// Open opens a stream to a program beside another rank's.
	Open(ctx context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error)
}

// Remote are Fellows over the network.
type Remote struct {
	Host *p2p.Host
	Tag  string // of the network
}

// Open implements Fellows.
func (r Remote) Open(ctx context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error) {
	id, err := p2p.PeerIDFromKey(m.Provider())
	if err != nil {
		return nil, err
	}
	r.Host.Peerstore().AddAddrs(id, m.Addrs, fellowTime)
	r.Host.Forgive(id)
	_, conn, err := protocol.Rsh.Open(ctx, r.Host, r.Tag, id, req)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// services are this peer's services for a rank at the service address of its cluster.
func (m *membership) services() map[uint16]func(context.Context, net.Conn) {
	return map[uint16]func(context.Context, net.Conn){
		agent.Port: func(ctx context.Context, conn net.Conn) {
			if err := m.rsh(ctx, conn); err != nil && ctx.Err() == nil {
				m.h.Log.Debug("rsh ended", "lease", m.e.Lease, "err", err)
			}
		},
	}
}

// rsh serves one connection of a rank's agent.
func (m *membership) rsh(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.e.Alive(), cancel)()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	fail := func(err error) error {
		_ = conn.SetWriteDeadline(time.Now().Add(requestTime)) // the agent may not read
		return errors.Join(err, live.NewWriter(conn).Fail(reasonOf(err)))
	}
	if n := m.sessions.Add(1); n > maxSessions {
		m.sessions.Add(-1)
		return fail(fmt.Errorf("%d programs are started from this rank already", maxSessions))
	}
	defer m.sessions.Add(-1)
	_ = conn.SetReadDeadline(time.Now().Add(requestTime))
	req, err := agent.ReadRequest(conn)
	if err != nil {
		return fail(err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	program := &nodepb.LiveRequest_Attach{Args: req.Command(), Env: req.Env}
	if err := attach.Check(program); err != nil {
		return fail(err)
	}
	p, rank, err := m.rankNamed(req.Host)
	if err != nil {
		return fail(err)
	}
	m.h.Log.Info("a rank starts a program in another", "lease", m.e.Lease, "from", p.Rank, "to", rank)
	if to := m.here(p, rank); to != nil {
		h, leave, err := to.Enter()
		if err != nil {
			return fail(err)
		}
		defer leave()
		defer context.AfterFunc(to.Alive(), cancel)()
		run, err := attach.Program(to, h, program)
		if err != nil {
			return fail(err)
		}
		return live.Serve(ctx, conn, 0, 0, run)
	}
	there, err := m.reach(ctx, rank, program)
	if err != nil {
		return fail(err)
	}
	return live.Splice(ctx, conn, there) // both speak the same frames
}

// here returns the execution of a rank of the cluster that runs on this peer: m's own, or another one. It returns nil
// if the rank runs elsewhere.
func (m *membership) here(p *cluster.Plan, rank uint32) *executor.Execution {
	if rank == p.Rank {
		return m.e
	}
	if fellow, ok := p.Member(rank); ok {
		for _, to := range m.e.Under(fellow.Lease.Core.ID()) {
			if q, _ := of(to).planned(); q != nil && q.Rank == rank && !to.Ended() {
				return to
			}
		}
	}
	return nil
}

// rankNamed returns the plan in force, and the rank of a name or an address in it.
func (m *membership) rankNamed(host string) (*cluster.Plan, uint32, error) {
	p, _ := m.planned()
	if p == nil {
		return nil, 0, errNoNetworks
	}
	rank, ok := cluster.Resolve(host, p.ID)
	if a, err := netip.ParseAddr(host); err == nil {
		rank, ok = cluster.RankOf(a)
	}
	if !ok || rank >= p.Size {
		return nil, 0, fmt.Errorf("%.80s is no member of this cluster: want node-0 to node-%d, or head",
			live.Clean(host), p.Size-1)
	}
	return p, rank, nil
}

// reach opens the stream to a program in another rank, which may be away for a while.
func (m *membership) reach(ctx context.Context, rank uint32, a *nodepb.LiveRequest_Attach) (live.Conn, error) {
	opening, done := context.WithTimeout(ctx, rshFor)
	defer done()
	for wait := rshFirst; ; wait = min(2*wait, rshMost) {
		err := fmt.Errorf("rank %d is being replaced", rank)
		p, _ := m.planned()
		if fellow, ok := p.Member(rank); ok {
			id := fellow.Lease.Core.ID()
			req := &nodepb.LiveRequest{Lease: id[:], Op: &nodepb.LiveRequest_Attach_{Attach: a}}
			var conn live.Conn
			// The stream ends with ctx; the timeout applies only to opening it.
			if conn, err = m.h.Fellows.Open(ctx, fellow, req); err == nil {
				return conn, nil
			}
			if !passing(err) {
				return nil, err
			}
		}
		select {
		case <-opening.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// passing reports whether an error may be over soon.
func passing(err error) bool {
	var no *stream.Refused
	if errors.As(err, &no) {
		return no.Code == stream.CodeBusy || no.Code == codeFellow
	}
	return errors.Is(err, stream.ErrUnreachable)
}

// reasonOf is an error for the caller in the container.
func reasonOf(err error) string {
	var no *stream.Refused
	if errors.As(err, &no) {
		return no.Reason
	}
	return strings.TrimSpace(err.Error())
}

// Executions finds executions. executor.Executor implements it.
type Executions interface {
	Under(l market.LeaseID) []*executor.Execution
}

// Rsh attaches a program for another member of the cluster: for the peer of a rank, by the plan in force here.
func (h *Hook) Rsh(
	ctx context.Context, in Executions, from peer.ID, req *nodepb.LiveRequest, take attach.Accept,
) error {
	op, ok := req.Op.(*nodepb.LiveRequest_Attach_)
	if !ok || op.Attach == nil || op.Attach.Tty || len(req.Lease) != len(market.LeaseID{}) {
		return &stream.Malformed{Reason: "want a lease of 32 bytes and a program without a terminal"}
	}
	if err := attach.Check(op.Attach); err != nil {
		return err
	}
	e, rank, ok := memberOf(in.Under(market.LeaseID(req.Lease)), from)
	if !ok { // the same as for an unknown lease, so that the caller cannot find out leases
		return stream.Refuse(codeFellow, "no program runs here under a cluster's plan that has a rank of yours")
	}
	handle, leave, err := e.Enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(e.Alive(), cancel)()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		whileFellow(ctx, e, from)
		cancel()
	}()
	defer func() { cancel(); <-watched }()
	h.Log.Info("another rank starts a program", "lease", e.Lease, "from", rank)
	return attach.Serve(ctx, e, handle, op.Attach, take)
}

// memberOf returns the execution, of those under a lease, with a cluster in which a peer has a rank, and that rank.
func memberOf(under []*executor.Execution, from peer.ID) (*executor.Execution, uint32, bool) {
	for _, e := range under {
		if rank, ok := of(e).rankOf(from); ok && !e.Ended() {
			return e, rank, true
		}
	}
	return nil, 0, false
}

// rankOf returns the other rank of the execution's cluster that a peer has by the plan in force.
func (m *membership) rankOf(from peer.ID) (uint32, bool) {
	p, _ := m.planned()
	if p == nil {
		return 0, false
	}
	for _, other := range p.Members {
		id, err := p2p.PeerIDFromKey(other.Provider())
		if err == nil && id == from && other.Rank != p.Rank {
			return other.Rank, true
		}
	}
	return 0, false
}

// whileFellow returns when a peer has lost its rank, or ctx ends.
func whileFellow(ctx context.Context, e *executor.Execution, from peer.ID) {
	for {
		_, _, wake := e.Snapshot()
		if _, ok := of(e).rankOf(from); !ok {
			return
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}
