package lines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/p2p/stream"
)

// succeed gets a successor signed and pays for it. If the provider refuses, a signed successor ends.
func (c Lines) succeed(ctx context.Context, before *leases.Lease, core market.LeaseCore) error {
	back := c.cfg.Money.Using(c.job.ID, core.Order)
	defer back()
	err := c.follow(ctx, before, core)
	if err != nil && ctx.Err() == nil {
		c.refused(ctx, core, err)
		if n := before.Find(core.ID()); n != nil { // it may cost its first interval
			f := run.FactOf(n)
			f.Usable = false
			c.job.Post(jobs.GangFormed{Leases: []jobs.Lease{f}})
			c.Cost(n)
		}
	}
	return err
}

// refused ends a successor that its provider refused. A paid successor is retired when it is settled: until then the
// provider may still waive its cost.
func (c Lines) refused(ctx context.Context, core market.LeaseCore, why error) {
	if l := c.cfg.Leases.Get(core.ID()); l != nil {
		_ = l.Stop(ctx, why.Error())
		return
	}
	c.cfg.Deposits.Retire(pay.Lease{ID: core.ID(), Core: core, Job: c.job.ID}) // its deposit, if there is one
}

// follow has a successor signed and pays for its first interval, both before it begins. It returns the provider's
// refusal, or an error if there is no answer until then.
func (c Lines) follow(ctx context.Context, before *leases.Lease, core market.LeaseCore) error {
	if before == nil {
		return errors.New("the lease was lost meanwhile")
	}
	var last error
	for {
		err := c.sign(ctx, before, core)
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
		slot, err := c.cfg.Clock.Now(time.Now())
		if err == nil && slot >= core.Start || before.Context().Err() != nil {
			return fmt.Errorf("the provider did not agree before the lease ended: %w", last)
		}
		if run.Pause(ctx, run.Redial) != nil {
			return ctx.Err()
		}
	}
}

// sign takes the successor of a lease, once. Steps that were done before are done again with the same result.
func (c Lines) sign(ctx context.Context, before *leases.Lease, core market.LeaseCore) error {
	n := before.Find(core.ID())
	if n == nil {
		back, over := c.cfg.Money.Commit(market.HoldID(core.Nonce), core.Provider, core.Cap)
		defer back()
		if over != "" {
			return stream.Refuse(string(market.ReasonLimit), over)
		}
		var err error
		if n, err = c.draft(ctx, before, core); err != nil {
			return err
		}
	}
	activate, err := c.cfg.Money.Prepay(ctx, n)
	if err != nil {
		return err
	}
	reply, err := c.call(ctx, n, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: activate}})
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

// draft makes the successor of a lease, collects both signatures, and sets its money aside.
func (c Lines) draft(ctx context.Context, before *leases.Lease, core market.LeaseCore) (*leases.Lease, error) {
	domain := c.cfg.Genesis.Domain()
	sig, err := core.Sign(domain, c.job.As().Key())
	if err != nil {
		return nil, err
	}
	raw := core.Marshal()
	reply, err := c.call(ctx, before,
		&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Extend{Extend: &marketpb.Extend{
			Lease: before.ID[:], Core: raw[:], Signature: sig[:],
		}}})
	if err != nil {
		return nil, err
	}
	if len(reply.GetExtended().GetSignature()) != sign.SignatureSize {
		return nil, stream.ErrBadReply
	}
	signed := market.Lease{Core: core, ProviderSig: sign.Signature(reply.GetExtended().Signature), BuyerSig: sig}
	if err := signed.Check(domain); err != nil {
		return nil, err
	}
	n, err := c.cfg.Leases.Successor(signed, before)
	if err != nil {
		return nil, err
	}
	return n, c.cfg.Money.Fund(ctx, n.Job, n)
}

// call sends a request to the provider of a lease.
func (c Lines) call(ctx context.Context, l *leases.Lease, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	c.cfg.Host.Forgive(l.Peer)
	ctx, cancel := context.WithTimeout(ctx, leases.StepTimeout)
	defer cancel()
	return c.cfg.Leases.Call(ctx, l.Peer, req)
}
