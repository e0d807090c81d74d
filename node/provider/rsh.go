package provider

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
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// A program in a cluster starts others beside those of the other ranks, as mpirun does by rsh:
//
//	agent in the container ── service address ──▶ its peer ──▶ own rank: attached here
//	                                                      └── protocol.Rsh ──▶ peer of that rank: attached there
//
// By it a member, even with a hostile peer, can only run programs as the tenant in the containers of the same cluster,
// as long as the plan in force there names it as a member.
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

// fellow opens a stream to a program beside another rank's; nil in an executor means that none can be.
type fellow func(ctx context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error)

// openFellow is the fellow over the network.
func (p *Provider) openFellow(ctx context.Context, m cluster.Member, req *nodepb.LiveRequest) (live.Conn, error) {
	id, err := p2p.PeerIDFromKey(m.Provider())
	if err != nil {
		return nil, err
	}
	p.cfg.Host.Peerstore().AddAddrs(id, m.Addrs, fellowTime)
	p.cfg.Host.Forgive(id)
	_, conn, err := protocol.Rsh.Open(ctx, p.cfg.Host, p.tag, id, req)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// services are this peer's services for a rank at the service address of its cluster.
func (x *executor) services(e *execution) map[uint16]func(context.Context, net.Conn) {
	return map[uint16]func(context.Context, net.Conn){
		agent.Port: func(ctx context.Context, conn net.Conn) {
			if err := x.rsh(ctx, e, conn); err != nil && ctx.Err() == nil {
				x.log.Debug("rsh ended", "lease", e.rec.Lease, "err", err)
			}
		},
	}
}

// rsh serves one connection of a rank's agent.
func (x *executor) rsh(ctx context.Context, e *execution, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.alive, cancel)()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	fail := func(err error) error {
		_ = conn.SetWriteDeadline(time.Now().Add(requestTime)) // the agent may not read
		return errors.Join(err, live.NewWriter(conn).Fail(reasonOf(err)))
	}
	if n := e.sessions.Add(1); n > maxSessions {
		e.sessions.Add(-1)
		return fail(fmt.Errorf("%d programs are started from this rank already", maxSessions))
	}
	defer e.sessions.Add(-1)
	_ = conn.SetReadDeadline(time.Now().Add(requestTime))
	req, err := agent.ReadRequest(conn)
	if err != nil {
		return fail(err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	attach := &nodepb.LiveRequest_Attach{Args: req.Command(), Env: req.Env}
	if err := checkAttach(attach); err != nil {
		return fail(err)
	}
	rank, err := e.rankNamed(req.Host)
	if err != nil {
		return fail(err)
	}
	x.log.Info("a rank starts a program in another", "lease", e.rec.Lease, "from", e.current().Rank, "to", rank)
	if to := x.here(e, rank); to != nil {
		h, leave, err := to.enter()
		if err != nil {
			return fail(err)
		}
		defer leave()
		defer context.AfterFunc(to.alive, cancel)()
		run, err := x.attachment(to, h, attach)
		if err != nil {
			return fail(err)
		}
		return live.Serve(ctx, conn, 0, 0, run)
	}
	there, err := x.reach(ctx, e, rank, attach)
	if err != nil {
		return fail(err)
	}
	return live.Splice(ctx, conn, there) // both speak the same frames
}

// here is the execution of a rank of e's cluster that runs on this peer: e itself, or another one; nil: it runs elsewhere.
func (x *executor) here(e *execution, rank uint32) *execution {
	p := e.current()
	if rank == p.Rank {
		return e
	}
	if m, ok := p.Member(rank); ok {
		for _, to := range x.of(m.Lease.Core.ID()) {
			if q := to.current(); q != nil && q.Rank == rank && !to.ended() {
				return to
			}
		}
	}
	return nil
}

// rankNamed is the rank of a name or an address in the execution's cluster.
func (e *execution) rankNamed(host string) (uint32, error) {
	p := e.current()
	if p == nil {
		return 0, errNoNetworks
	}
	rank, ok := cluster.Resolve(host, p.ID)
	if a, err := netip.ParseAddr(host); err == nil {
		rank, ok = cluster.RankOf(a)
	}
	if !ok || rank >= p.Size {
		return 0, fmt.Errorf("%.80s is no member of this cluster: want node-0 to node-%d, or head", live.Clean(host), p.Size-1)
	}
	return rank, nil
}

// reach opens the stream to a program in another rank, which may be away for a while.
func (x *executor) reach(ctx context.Context, e *execution, rank uint32, attach *nodepb.LiveRequest_Attach) (live.Conn, error) {
	if x.fellow == nil {
		return nil, errNoNetworks
	}
	opening, done := context.WithTimeout(ctx, rshFor)
	defer done()
	for wait := rshFirst; ; wait = min(2*wait, rshMost) {
		err := fmt.Errorf("rank %d is being replaced", rank)
		if m, ok := e.current().Member(rank); ok {
			id := m.Lease.Core.ID()
			var conn live.Conn
			// The stream lives as long as ctx, not only as long as it may take to open it.
			if conn, err = x.fellow(ctx, m, &nodepb.LiveRequest{Lease: id[:], Op: &nodepb.LiveRequest_Attach_{Attach: attach}}); err == nil {
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

// passing says that an error may be over soon.
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

// handleRsh attaches a program for another member of the cluster: for the peer of a rank, by the plan in force here.
func (p *Provider) handleRsh(ctx context.Context, from peer.ID, req *nodepb.LiveRequest, take accept) error {
	return p.exec.handleRsh(ctx, from, req, take)
}

func (x *executor) handleRsh(ctx context.Context, from peer.ID, req *nodepb.LiveRequest, take accept) error {
	op, ok := req.Op.(*nodepb.LiveRequest_Attach_)
	if !ok || op.Attach == nil || op.Attach.Tty || len(req.Lease) != len(market.LeaseID{}) {
		return &stream.Malformed{Reason: "want a lease of 32 bytes and a program without a terminal"}
	}
	if err := checkAttach(op.Attach); err != nil {
		return err
	}
	e, rank, ok := x.memberOf(market.LeaseID(req.Lease), from)
	if !ok { // the same for a request about an unknown lease: the caller learns of no lease
		return stream.Refuse(codeFellow, "no program runs here under a cluster's plan that has a rank of yours")
	}
	h, leave, err := e.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(e.alive, cancel)()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		e.whileFellow(ctx, from)
		cancel()
	}()
	defer func() { cancel(); <-watched }()
	x.log.Info("another rank starts a program", "lease", e.rec.Lease, "from", rank)
	return x.attach(ctx, e, h, op.Attach, take)
}

// memberOf returns the execution under a lease in whose cluster a peer has a rank, and that rank.
func (x *executor) memberOf(l market.LeaseID, from peer.ID) (*execution, uint32, bool) {
	for _, e := range x.of(l) {
		if rank, ok := e.rankOf(from); ok && !e.ended() {
			return e, rank, true
		}
	}
	return nil, 0, false
}

// rankOf is the other rank of the execution's cluster that a peer has by the plan in force.
func (e *execution) rankOf(from peer.ID) (uint32, bool) {
	p := e.current()
	if p == nil {
		return 0, false
	}
	for _, m := range p.Members {
		if id, err := p2p.PeerIDFromKey(m.Provider()); err == nil && id == from && m.Rank != p.Rank {
			return m.Rank, true
		}
	}
	return 0, false
}

// whileFellow returns when a peer has no rank any more, or ctx ends.
func (e *execution) whileFellow(ctx context.Context, from peer.ID) {
	for {
		e.mu.Lock()
		wake := e.wake
		e.mu.Unlock()
		if _, ok := e.rankOf(from); !ok {
			return
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}
