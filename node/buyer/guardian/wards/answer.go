package wards

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

var errUnknown = guardian.Refuse(guardian.CodeUnknown, "this peer guards no such job")

// Answer answers one request, of another peer or of this one.
func (s *Service) Answer(ctx context.Context, from sign.Key, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	if _, ok := req.Op.(*nodepb.GuardRequest_Offer_); ok {
		return s.doors.offer(from)
	}
	if len(req.Job) != sign.HashSize {
		return nil, malformed("a job of %d bytes", len(req.Job))
	}
	job := sign.Hash(req.Job)
	if e := req.GetEngage(); e != nil {
		return s.engage(ctx, from, job, e)
	}
	w, _, err := s.runner.Get(job)
	if err != nil || !w.Has(from) { // do not reveal that the job exists
		return nil, errUnknown
	}
	if req.Epoch > w.Epoch {
		if _, err := s.ask(ctx, job, learned{req.Epoch, req.Grant}); err != nil {
			return nil, err
		}
		if w, _, err = s.runner.Get(job); err != nil {
			return nil, errUnknown
		}
	}
	switch op := req.Op.(type) {
	case *nodepb.GuardRequest_Read_:
		return w.read(op.Read.GetAfter())
	case *nodepb.GuardRequest_Receipts_:
		return s.receiptsOf(ctx, job, op.Receipts)
	}
	ev, err := eventOf(w, by{from, req.Epoch}, req)
	if err != nil {
		return nil, err
	}
	effects, err := s.ask(ctx, job, ev)
	if err != nil {
		return nil, err
	}
	if _, ok := ev.(beaten); ok {
		if w, _, err = s.runner.Get(job); err != nil {
			return nil, errUnknown
		}
		return w.beatDone(), nil
	}
	if _, ok := ev.(dismissed); ok && len(effects) > 0 {
		s.cfg.Log.Info("a job was dismissed", "job", job.Short())
	}
	return s.sign(effects)
}

// eventOf parses a request that changes a ward, or is answered with a signature.
func eventOf(w guarded, who by, req *nodepb.GuardRequest) (event, error) {
	switch op := req.Op.(type) {
	case *nodepb.GuardRequest_Beat_:
		pb := op.Beat.GetState()
		if pb == nil {
			return beaten{by: who}, nil
		}
		if err := w.Commands(who.from, who.epoch); err != nil { // an earlier supervisor's state is not read
			return nil, err
		}
		st, err := w.ReadState(w.domain, pb)
		if err != nil {
			return nil, malformed("state: %v", err)
		}
		return beaten{who, &st}, nil
	case *nodepb.GuardRequest_Voucher_:
		l, err := guardian.ParseLease(op.Voucher.GetLease())
		if err != nil {
			return nil, malformed("%v", err)
		}
		return vouched{who, l}, nil
	case *nodepb.GuardRequest_Witness_:
		return witnessed{who, op.Witness.GetMessage()}, nil
	case *nodepb.GuardRequest_GrantTo:
		return requested{by{who.from, op.GrantTo.GetEpoch()}, market.Slot(op.GrantTo.GetSlot())}, nil
	case *nodepb.GuardRequest_Wage_:
		v, err := verify.UnmarshalVoucher(op.Wage.GetVoucher())
		if err != nil {
			return nil, malformed("%v", err)
		}
		return earnedWage{who, v}, nil
	case *nodepb.GuardRequest_Dismiss_:
		return dismissed{who}, nil
	}
	return nil, malformed("empty request")
}

// ask takes a ward one event further, and returns the effects once they are durable.
func (s *Service) ask(ctx context.Context, job sign.Hash, ev event) ([]effect, error) {
	effects, err := s.runner.Ask(ctx, job, ev)
	switch {
	case errors.Is(err, machine.ErrUnknown):
		return nil, errUnknown
	case errors.Is(err, machine.ErrBusy):
		return nil, stream.Refuse(stream.CodeBusy, err.Error())
	}
	return effects, err
}

// sign makes the reply with the signature that a step allows.
func (s *Service) sign(effects []effect) (*nodepb.GuardReply, error) {
	for _, f := range effects {
		switch f := f.(type) {
		case signText:
			sig, err := s.cfg.Key.Sign(f.text)
			if err != nil {
				return nil, fmt.Errorf("signing for a guarded job: %w", err)
			}
			return &nodepb.GuardReply{
				Op: &nodepb.GuardReply_Signed_{Signed: &nodepb.GuardReply_Signed{Signature: sig[:]}},
			}, nil
		case signGrant:
			sig, err := s.cfg.Key.Sign(f.text)
			if err != nil {
				return nil, fmt.Errorf("signing a grant: %w", err)
			}
			out, err := f.w.read(nil)
			if err != nil {
				return nil, err
			}
			out.GetStanding().Signature = sig[:]
			return out, nil
		}
	}
	return done(), nil
}

// engage takes a job on. The answer is Done once all data to supervise the job is stored. A paid guardian fetches
// nothing before its wage is on chain. Until then it answers Done only if Complete is not set.
func (s *Service) engage(
	ctx context.Context, from sign.Key, job sign.Hash, e *nodepb.GuardRequest_Engage,
) (*nodepb.GuardReply, error) {
	next, err := s.doors.wardOf(from, job, e)
	if err != nil {
		return nil, err
	}
	if err := s.doors.admit(ctx, next); err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, job, engaged{next}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.QuickAnswer/2)
	defer cancel()
	w, _ := s.runner.Until(ctx, job, func(w guarded) bool { return w.Ready || !w.fetching })
	switch backed := w.Unbacked.IsZero(); {
	case !backed && !e.Complete:
		return done(), nil
	case !backed:
		return nil, guardian.Refuse(guardian.CodeFetching, "this peer's wage is not on chain yet")
	case !w.Ready:
		return nil, guardian.Refuse(guardian.CodeFetching, "the job's files are on their way")
	}
	return done(), nil
}
