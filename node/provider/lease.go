package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// handleLease takes one step of a lease for the buyer that asks.
func (p *Provider) handleLease(ctx context.Context, from peer.ID, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	k, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	by := sign.Key(k)
	var ev lease.Event
	switch s := req.Step.(type) {
	case *marketpb.LeaseRequest_Reserve:
		ev, err = p.reserveEvent(ctx, from, s.Reserve)
	case *marketpb.LeaseRequest_Sign:
		ev, err = signEvent(by, s.Sign)
	case *marketpb.LeaseRequest_Activate:
		return p.activate(ctx, by, s.Activate)
	case *marketpb.LeaseRequest_Release:
		ev, err = releaseEvent(by, s.Release)
	default:
		err = &stream.Malformed{Reason: "no step of a lease"}
	}
	if err != nil {
		return nil, err
	}
	answer, err := p.step(ctx, ev)
	if err != nil {
		return nil, p.failed(err)
	}
	return p.reply(answer)
}

// failed keeps what went wrong inside from the other peer, but says what it can wait for.
func (p *Provider) failed(err error) error {
	if errors.Is(err, slots.ErrUnknown) {
		return stream.Refuse(stream.CodeBusy, err.Error())
	}
	return err
}

func (p *Provider) reserveEvent(ctx context.Context, from peer.ID, r *marketpb.Reserve) (lease.Event, error) {
	if len(r.GetHold()) != len(market.HoldID{}) {
		return nil, &stream.Malformed{Reason: "hold id is not 16 bytes"}
	}
	o, err := p.orderFrom(from, r.Order)
	if err != nil {
		return nil, err
	}
	if r.Units != o.UnitsPer {
		return nil, &stream.Malformed{Reason: fmt.Sprintf("%d units, the order says %d", r.Units, o.UnitsPer)}
	}
	if err := p.funds.covers(ctx, o, time.Now()); err != nil {
		return nil, refusal(err)
	}
	return lease.ReserveRequested{Hold: market.HoldID(r.Hold), Order: o, Price: market.Price(r.Price), Rank: r.Rank}, nil
}

func signEvent(by sign.Key, s *marketpb.Sign) (lease.Event, error) {
	if len(s.GetHold()) != len(market.HoldID{}) || len(s.GetSignature()) != sign.SignatureSize {
		return nil, &stream.Malformed{Reason: "hold id or signature has a wrong size"}
	}
	core, err := market.UnmarshalLeaseCore(s.Core)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	keys, err := market.UnmarshalKeySet(s.Keys)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	return lease.SignRequested{Hold: market.HoldID(s.Hold), By: by, Core: core, Keys: keys, BuyerSig: sign.Signature(s.Signature)}, nil
}

func releaseEvent(by sign.Key, r *marketpb.Release) (lease.Event, error) {
	switch of := r.GetOf().(type) {
	case *marketpb.Release_Hold:
		if len(of.Hold) == len(market.HoldID{}) {
			return lease.ReleaseRequested{Hold: market.HoldID(of.Hold), By: by}, nil
		}
	case *marketpb.Release_Lease:
		if len(of.Lease) == len(market.LeaseID{}) {
			return lease.ReleaseRequested{Lease: market.LeaseID(of.Lease), By: by}, nil
		}
	}
	return nil, &stream.Malformed{Reason: "neither a hold nor a lease is named"}
}

// reply turns the book's answer into what goes over the wire.
func (p *Provider) reply(answer lease.Effect) (*marketpb.LeaseReply, error) {
	switch a := answer.(type) {
	case lease.AnswerHeld:
		held := &marketpb.Held{Hold: a.Hold[:], Expires: a.Expires.UnixMilli()}
		for i := range a.Units {
			held.Units = append(held.Units, a.Units[i][:])
		}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Held{Held: held}}, nil
	case lease.AnswerSigned:
		sig, err := a.Core.Sign(p.domain, p.cfg.Key)
		if err != nil {
			return nil, err
		}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Signed{Signed: &marketpb.Signed{Hold: a.Hold[:], Signature: sig[:]}}}, nil
	case lease.AnswerActivated:
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Activated{Activated: &marketpb.Activated{Lease: a.Lease[:]}}}, nil
	case lease.AnswerReleased:
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Released{Released: &marketpb.Released{}}}, nil
	case lease.AnswerRefused:
		return nil, stream.Refuse(string(a.Refusal.Reason), a.Refusal.Error())
	}
	return nil, fmt.Errorf("the book did not answer: %T", answer)
}

// record returns an active lease of the buyer that asks.
func (p *Provider) record(from peer.ID, id []byte) (lease.Record, error) {
	k, err := p2p.KeyFromPeerID(from)
	if err != nil || len(id) != len(market.LeaseID{}) {
		return lease.Record{}, &stream.Malformed{Reason: "lease id is not 32 bytes"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.book.Lease(market.LeaseID(id))
	if !ok || r.Buyer != sign.Key(k) {
		return lease.Record{}, stream.Refuse("lease", "no such lease of yours here")
	}
	return r, nil
}

// handleExec starts, stops or describes an execution under a lease.
func (p *Provider) handleExec(ctx context.Context, from peer.ID, req *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
	r, err := p.record(from, req.Lease)
	if err != nil {
		return nil, err
	}
	var e *execution
	switch op := req.Op.(type) {
	case *nodepb.ExecRequest_Start_:
		if r.State != lease.Active {
			return nil, stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
		}
		if err := p.obey(r, req.Supervision); err != nil {
			return nil, err
		}
		e, err = p.exec.start(ctx, r.Lease, req.Seq, from, op.Start.GetWorkload(), p.limits(r))
		if errors.Is(err, workload.ErrWorkload) {
			return nil, stream.Refuse("workload", err.Error())
		}
		if err != nil {
			return nil, err
		}
	case *nodepb.ExecRequest_Stop_:
		if err := p.obey(r, req.Supervision); err != nil {
			return nil, err
		}
		found := false
		if e, found = p.exec.find(r.Lease, req.Seq); !found {
			return nil, stream.Refuse("execution", "no such execution")
		}
		grace := min(time.Duration(min(op.Stop.GetGraceMillis(), maxGraceMillis))*time.Millisecond, maxGrace)
		if err := p.exec.stop(ctx, e, grace); err != nil {
			return nil, err
		}
	case *nodepb.ExecRequest_Status_:
		found := false
		if e, found = p.exec.find(r.Lease, req.Seq); !found {
			return nil, stream.Refuse("execution", "no such execution")
		}
	default:
		return nil, &stream.Malformed{Reason: "nothing is asked"}
	}
	s, _, _ := e.snapshot()
	return &nodepb.ExecReply{Execution: s}, nil
}

const (
	maxGrace       = 4 * time.Second // within the deadline of one call
	maxGraceMillis = uint64(maxGrace / time.Millisecond)
)

// limits are what a lease's units add up to.
func (p *Provider) limits(r lease.Record) runtime.Limits {
	n := uint32(len(r.Units))
	return runtime.Limits{MemoryMiB: n * p.cfg.PerUnit.MemoryMiB, MilliCPU: n * p.cfg.PerUnit.MilliCPU, DiskMiB: n * p.cfg.PerUnit.DiskMiB}
}

// handleWatch follows an execution.
func (p *Provider) handleWatch(ctx context.Context, from peer.ID, req *nodepb.WatchRequest, send func(*nodepb.WatchItem) error) error {
	r, err := p.record(from, req.Lease)
	if err != nil {
		return err
	}
	e, ok := p.exec.find(r.Lease, req.Seq)
	if !ok {
		return stream.Refuse("execution", "no such execution")
	}
	return p.exec.watch(ctx, e, req, send)
}
