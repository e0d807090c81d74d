package buyer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/stream"
)

// extendWait is how long the answer to Extend waits for providers; one that has not answered by then is asked on.
const extendWait = 8 * time.Second

// Extend gives a job more time and, unless budget is zero, another budget. The leases it has are made longer where
// their providers agree, and nothing is started anew. ErrNotRunning for a job that is over; ErrRefused, ErrFunds or
// ErrLimit when money or limits do not allow it.
func (b *Buyer) Extend(ctx context.Context, id string, by time.Duration, budget market.Amount) (Extension, error) {
	s, err := b.get(id)
	if err != nil {
		return Extension{}, err
	}
	s.driver.extending.Lock()
	defer s.driver.extending.Unlock()
	j := s.snapshot()
	if j.State == Settling || j.State.Ended() || j.Stopping {
		return Extension{}, fmt.Errorf("%w: the job has %s; `starling job rerun` runs it again", ErrNotRunning,
			j.State.Past())
	}
	longer, err := b.longer(ctx, j, by, budget)
	if err != nil {
		return Extension{}, err
	}
	return s.driver.extend(ctx, longer, by)
}

// longer is the job with more time, checked as a new one is.
func (b *Buyer) longer(ctx context.Context, j Job, by time.Duration, budget market.Amount) (Job, error) {
	if by < job.MinTime || by > job.MaxRun {
		return j, fmt.Errorf("%w: %v more is not between %v and %v", ErrRefused, by, job.MinTime, job.MaxRun)
	}
	run := job.Span(j.Spec.Timeouts.Run + by)
	c := job.Changes{Run: &run}
	if budget > 0 {
		if budget < j.Spec.Payment.Budget {
			return j, fmt.Errorf("%w: a budget of %s is less than the job has, %s", ErrRefused,
				b.cfg.Genesis.FormatAmount(budget), b.cfg.Genesis.FormatAmount(j.Spec.Payment.Budget))
		}
		c.Budget = &budget
	}
	spec, err := j.Spec.With(c)
	if err != nil {
		return j, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	need, err := mostCost(spec)
	if err != nil {
		return j, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := b.pay.Afford(ctx, j.ID, need, spec.Count); err != nil {
		return j, err
	}
	j.Spec = spec
	return j, nil
}

// timeOf is when a slot begins, by the nominal length of slots.
func (s *supervisor) timeOf(now, slot market.Slot) time.Time {
	one := time.Duration(s.b.cfg.Genesis.SlotMillis) * time.Millisecond
	return time.Now().Add(time.Duration(int64(slot)-int64(now)) * one).Round(time.Second)
}

// refused ends a successor that its provider does not follow with. One that was paid for is retired when it is settled:
// until then the provider may still say that it costs nothing.
func (s *supervisor) refused(ctx context.Context, core market.LeaseCore, why error) {
	if l := s.b.leases.Get(core.ID()); l != nil {
		_ = l.Stop(ctx, why.Error())
		return
	}
	s.b.pay.Retire(pay.Lease{ID: core.ID(), Core: core, Job: s.trace.Job}) // its deposit, if there is one
}

// follow has a successor signed and pays for its first interval, both before it begins. What a provider refuses, and
// what it does not answer until then, is its error.
func (s *supervisor) follow(ctx context.Context, before *leases.Lease, core market.LeaseCore) error {
	if before == nil {
		return errors.New("the lease was lost meanwhile")
	}
	var last error
	for {
		err := s.sign(ctx, before, core)
		no := executions.Final(err)
		var bad *stream.Malformed
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case no != nil:
			return errors.New(no.Reason)
		case errors.As(err, &bad), errors.Is(err, market.ErrBadSignature):
			return err
		}
		last = err
		slot, err := s.b.cfg.Slots.Now(time.Now())
		if err == nil && slot >= core.Start || before.Context().Err() != nil {
			return fmt.Errorf("the provider did not agree before the lease was over: %w", last)
		}
		if pause(ctx, executions.Redial) != nil {
			return ctx.Err()
		}
	}
}

// sign takes the successor of a lease, once; whatever of it was done before is done again with the same result.
func (s *supervisor) sign(ctx context.Context, before *leases.Lease, core market.LeaseCore) error {
	b, money := s.b, buying{s.b}
	n := before.Find(core.ID())
	if n == nil {
		back, over := money.Commit(market.HoldID(core.Nonce), core.Provider, core.Cap)
		defer back()
		if over != "" {
			return stream.Refuse(string(market.ReasonLimit), over)
		}
		sig, err := core.Sign(b.domain, s.as.Key())
		if err != nil {
			return err
		}
		raw := core.Marshal()
		reply, err := b.leaseCall(ctx, before,
			&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Extend{Extend: &marketpb.Extend{
				Lease: before.ID[:], Core: raw[:], Signature: sig[:],
			}}})
		if err != nil {
			return err
		}
		if len(reply.GetExtended().GetSignature()) != sign.SignatureSize {
			return stream.ErrBadReply
		}
		signed := market.Lease{Core: core, ProviderSig: sign.Signature(reply.GetExtended().Signature), BuyerSig: sig}
		if err := signed.Check(b.domain); err != nil {
			return err
		}
		if n, err = b.leases.Successor(signed, before); err != nil {
			return err
		}
		if err := money.Fund(ctx, n.Job, n); err != nil {
			return err
		}
	}
	activate, err := money.Prepay(ctx, n)
	if err != nil {
		return err
	}
	reply, err := b.leaseCall(ctx, n, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: activate}})
	if err == nil && reply.GetActivated() == nil {
		err = stream.ErrBadReply
	}
	switch {
	case executions.Final(err) != nil, err == nil && n.Context().Err() != nil:
		_ = n.Stop(ctx, "the extension was not activated")
		if err == nil {
			err = errors.New("the lease was lost meanwhile")
			n.Release(ctx, err.Error())
		}
		return err
	case err != nil:
		return err
	}
	return n.Save(ctx, func(r *leases.Record) { r.Active = true })
}

func (b *Buyer) leaseCall(
	ctx context.Context, l *leases.Lease, req *marketpb.LeaseRequest,
) (*marketpb.LeaseReply, error) {
	b.cfg.Host.Forgive(l.Peer)
	ctx, cancel := context.WithTimeout(ctx, gangs.StepTimeout)
	defer cancel()
	return b.leases.Call(ctx, l.Peer, req)
}
