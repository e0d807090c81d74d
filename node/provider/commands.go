package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// maxGrace is the most a buyer can give a program to end by itself.
	maxGrace       = 5 * time.Minute
	maxGraceMillis = uint64(maxGrace / time.Millisecond)
	// stopWait is how long a stop is waited for before it is answered: within the deadline of one call.
	stopWait = 3 * time.Second
)

// stopWithin asks an execution to end. One that has longer than a call may take ends while its buyer watches it, or asks again.
func (p *Provider) stopWithin(e *execution, grace time.Duration) error {
	e.mu.Lock()
	asked := e.stop
	e.mu.Unlock()
	if asked {
		return nil
	}
	done := make(chan error, 1)
	p.wg.Go(func() {
		err := p.exec.stop(p.exec.ctx, e, grace)
		if err != nil {
			e.mu.Lock()
			e.stop = false // it can be asked for again
			e.mu.Unlock()
		}
		done <- err
	})
	t := time.NewTimer(stopWait)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return nil
	}
}

// mine finds an execution of the buyer that asks. It is there for as long as it is kept, also when its lease is long over
// and forgotten.
func (p *Provider) mine(from peer.ID, id []byte, seq uint64) (*execution, error) {
	if len(id) != len(market.LeaseID{}) {
		return nil, &stream.Malformed{Reason: "lease id is not 32 bytes"}
	}
	if e, ok := p.exec.find(market.LeaseID(id), seq); ok && e.buyer() == from {
		return e, nil
	}
	if _, err := p.record(from, id); err != nil {
		return nil, err
	}
	return nil, stream.Refuse("execution", "no such execution")
}

// handleExec starts, stops, pauses, resumes or describes an execution under a lease.
func (p *Provider) handleExec(ctx context.Context, from peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
	e, err := p.mine(from, req.Lease, req.Seq)
	var no *stream.Refused
	if err != nil && !errors.As(err, &no) {
		return nil, err
	}
	switch op := req.Op.(type) {
	case *nodepb.ExecRequest_Start_:
		// An ended one is reported also after its lease has ended: its buyer may have been away.
		if err != nil || !e.ended() {
			e, err = p.start(ctx, from, req, op.Start.GetWorkload())
		}
	case *nodepb.ExecRequest_Stop_:
		grace := min(time.Duration(min(op.Stop.GetGraceMillis(), maxGraceMillis))*time.Millisecond, maxGrace)
		err = p.command(from, req, e, err, func() error { return p.stopWithin(e, grace) })
	case *nodepb.ExecRequest_Pause_:
		err = p.command(from, req, e, err, func() error { return p.exec.setPaused(ctx, e, true) })
	case *nodepb.ExecRequest_Resume_:
		err = p.command(from, req, e, err, func() error { return p.exec.setPaused(ctx, e, false) })
	case *nodepb.ExecRequest_Seen_:
		if err == nil {
			err = p.seen(ctx, from, e, op.Seen)
		}
	case *nodepb.ExecRequest_Members_:
		err = p.command(from, req, e, err, func() error {
			r, err := p.record(from, req.Lease)
			if err != nil {
				return err
			}
			return p.exec.setMembers(ctx, e, r.Core.Buyer, op.Members.GetPlan())
		})
	case *nodepb.ExecRequest_Status_:
	default:
		return nil, &stream.Malformed{Reason: "nothing is asked"}
	}
	if err != nil {
		return nil, err
	}
	return &nodepb.ExecReply{Execution: e.describe()}, nil
}

// start runs a workload under a live lease.
func (p *Provider) start(ctx context.Context, from peer.ID, req *nodepb.ExecRequest, w *nodepb.Workload) (*execution, error) {
	r, err := p.record(from, req.Lease)
	if err == nil && r.State == lease.Active {
		if err = p.pay.may(ctx, r); err == nil {
			r, err = p.record(from, req.Lease) // it may have ended meanwhile
		}
	}
	if err != nil {
		return nil, err
	}
	if r.State != lease.Active {
		return nil, stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
	}
	if err := p.taken(r); err != nil {
		return nil, err
	}
	e, err := p.exec.start(ctx, request{lease: r.First(), seq: req.Seq, buyer: from, owner: r.Core.Buyer, units: r.Units, limits: p.limits(r), work: w,
		job: r.JobTerms, guardians: r.Core.VoucherKeys, epoch: r.Supervision})
	if errors.Is(err, workload.ErrWorkload) {
		return nil, stream.Refuse("workload", err.Error())
	}
	return e, err
}

// command carries out do for the supervisor of an execution's lease; on one that has ended it does nothing.
func (p *Provider) command(from peer.ID, req *nodepb.ExecRequest, e *execution, found error, do func() error) error {
	if found != nil {
		return found
	}
	if e.ended() {
		return nil
	}
	if err := p.commands(from, req.Lease); err != nil {
		return err
	}
	return do()
}

// commands refuses peers that do not command a lease, or do no more.
func (p *Provider) commands(from peer.ID, id []byte) error {
	r, err := p.record(from, id)
	if err != nil {
		return err
	}
	return p.taken(r)
}

// handleWatch follows an execution.
func (p *Provider) handleWatch(ctx context.Context, from peer.ID, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error) error {
	e, err := p.mine(from, req.Lease, req.Seq)
	if err != nil {
		return err
	}
	return p.exec.watch(ctx, e, req, send)
}
