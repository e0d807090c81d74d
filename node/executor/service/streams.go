package service

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/attach"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// maxGrace is the longest grace that a buyer can give a program.
	maxGrace       = 5 * time.Minute
	maxGraceMillis = uint64(maxGrace / time.Millisecond)
)

// Leases are the leases under which executions run. Errors are refusals for the requesting peer.
type Leases interface {
	hooks.Leases
	// Commanded returns the line of leases with this first lease, if a peer commands it.
	Commanded(by peer.ID, first []byte) (executor.Lease, error)
	// Change is Commanded for a change of executions. It also refuses leases that are not metered now.
	Change(by peer.ID, first []byte) (executor.Lease, error)
	// Begin is Change for a new execution. It also refuses it before the lease is active and paid for, and may wait a
	// moment for that.
	Begin(ctx context.Context, by peer.ID, first []byte) (executor.Lease, error)
	// Simulated reports whether any of a lease's units is no hardware.
	Simulated(units []market.UnitID) bool
}

// open registers the streams. close ends them.
func (s *Service) open() (close func()) {
	host, tag, log := s.cfg.Host, s.cfg.Tag, s.cfg.Log
	calls := stream.Limits{PerPeer: 64, Logger: log}
	lives := stream.Limits{PerPeer: 2 * executor.MaxStreams, Concurrent: 8 * executor.MaxStreams, Logger: log}
	servers := []*stream.Server{
		protocol.Exec.Handle(host, tag, s.command, calls),
		protocol.Watch.Serve(host, tag, s.watch, calls),
		protocol.Live.Serve(host, tag, s.live, lives),
		protocol.Rsh.Serve(host, tag, s.rsh, lives),
	}
	return func() {
		for _, s := range servers {
			s.Close()
		}
	}
}

// find returns an execution of the requesting buyer. It is found while it is retained, even after its lease has ended
// and is forgotten.
func (s *Service) find(from peer.ID, id []byte, seq uint64) (*executor.Execution, error) {
	if len(id) != len(market.LeaseID{}) {
		return nil, &stream.Malformed{Reason: "lease id is not 32 bytes"}
	}
	if e, ok := s.run.Find(executor.Key{Lease: market.LeaseID(id), Seq: seq}); ok && e.Commander() == from {
		return e, nil
	}
	if _, err := s.cfg.Leases.Commanded(from, id); err != nil {
		return nil, err
	}
	return nil, stream.Refuse("execution", "no such execution")
}

// command starts, stops, pauses, resumes or describes an execution under a lease.
func (s *Service) command(ctx context.Context, from peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
	e, err := s.find(from, req.Lease, req.Seq)
	if _, refused := errors.AsType[*stream.Refused](err); err != nil && !refused {
		return nil, err
	}
	if req.Op == nil {
		return nil, &stream.Malformed{Reason: "request without an operation"}
	}
	if start, ok := req.Op.(*nodepb.ExecRequest_Start_); ok {
		// An ended one is reported also after its lease has ended: its buyer may have been away.
		if err != nil || !e.Ended() {
			e, err = s.start(ctx, from, req, start.Start.GetWorkload())
		}
	} else if err == nil {
		err = s.change(ctx, from, req, e)
	}
	if err != nil {
		return nil, err
	}
	return &nodepb.ExecReply{Execution: e.Describe()}, nil
}

// change carries out a command about an execution. If it has ended, commands to programs have no effect.
func (s *Service) change(ctx context.Context, from peer.ID, req *nodepb.ExecRequest, e *executor.Execution) error {
	switch op := req.Op.(type) {
	case *nodepb.ExecRequest_Status_:
		return nil
	case *nodepb.ExecRequest_Seen_:
		l, err := s.cfg.Leases.Commanded(from, e.Lease[:])
		if err != nil {
			return err
		}
		return s.snapshots.Seen(ctx, e, l.Buyer, op.Seen.GetSnapshot(), op.Seen.GetSignature())
	}
	if e.Ended() {
		return nil
	}
	l, err := s.cfg.Leases.Change(from, req.Lease)
	if err != nil {
		return err
	}
	switch op := req.Op.(type) {
	case *nodepb.ExecRequest_Stop_:
		grace := time.Duration(min(op.Stop.GetGraceMillis(), maxGraceMillis)) * time.Millisecond
		return s.run.AskToStop(e, grace)
	case *nodepb.ExecRequest_Pause_:
		return executor.SetPaused(ctx, e, true)
	case *nodepb.ExecRequest_Resume_:
		return executor.SetPaused(ctx, e, false)
	case *nodepb.ExecRequest_Members_:
		return s.members.SetMembers(ctx, e, l.Buyer, op.Members.GetPlan())
	}
	return &stream.Malformed{Reason: "request without an operation"}
}

// start runs a workload under a live lease.
func (s *Service) start(
	ctx context.Context, from peer.ID, req *nodepb.ExecRequest, w *nodepb.Workload,
) (*executor.Execution, error) {
	l, err := s.cfg.Leases.Begin(ctx, from, req.Lease)
	if err != nil {
		return nil, err
	}
	e, err := s.run.Start(ctx, from, l, req.Seq, w)
	if errors.Is(err, workload.ErrWorkload) {
		return nil, stream.Refuse("workload", err.Error())
	}
	return e, err
}

// watch follows an execution.
func (s *Service) watch(
	ctx context.Context, from peer.ID, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error,
) error {
	e, err := s.find(from, req.Lease, req.Seq)
	if err != nil {
		return err
	}
	return executor.Watch(ctx, e, req, send)
}

// live opens a stream into a running execution: a second program, a port, its files, or a measurement.
func (s *Service) live(ctx context.Context, from peer.ID, req *nodepb.LiveRequest, take attach.Accept) error {
	e, err := s.find(from, req.Lease, req.Seq)
	if err != nil {
		return err
	}
	l, err := s.cfg.Leases.Change(from, req.Lease)
	if err != nil {
		return err
	}
	h, leave, err := e.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if op, ok := req.Op.(*nodepb.LiveRequest_Forward_); ok {
		return attach.Forward(ctx, e, h, op.Forward.GetPort(), take)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.Alive(), cancel)()
	switch op := req.Op.(type) {
	case *nodepb.LiveRequest_Attach_:
		s.cfg.Log.Info("a second program is attached", "lease", e.Lease)
		return attach.Serve(ctx, e, h, op.Attach, take)
	case *nodepb.LiveRequest_CopyOut_:
		return attach.CopyOut(ctx, e, op.CopyOut.GetPath(), take)
	case *nodepb.LiveRequest_CopyIn_:
		return attach.CopyIn(ctx, e, op.CopyIn, take)
	case *nodepb.LiveRequest_Probe_:
		if s.cfg.Leases.Simulated(l.Units) {
			return stream.Refuse("device", "devices are simulated and compute nothing")
		}
		return s.probes.Serve(ctx, l.Buyer, e, h, take)
	}
	return &stream.Malformed{Reason: "request without an operation"}
}

func (s *Service) rsh(ctx context.Context, from peer.ID, req *nodepb.LiveRequest, take attach.Accept) error {
	return s.members.Rsh(ctx, s.run, from, req, take)
}
