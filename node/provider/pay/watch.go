package pay

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/provider/billing"
)

// record is the lease as the book has it now.
func (x *Escrowed) record(s *billing.Meter) (lease.Record, bool) {
	return x.cfg.Ledger.Book().Lease(s.Record().Lease)
}

// watch polls for a lease's escrow until the book has it, or FundBy has passed. It continues after the end of a lease:
// an early start is given back only after its escrow was confirmed.
func (x *Escrowed) watch(ctx context.Context, s *billing.Meter) {
	log := x.cfg.Log.With("lease", s.Record().Lease)
	funded := false
	defer func() {
		x.starts.Return(s.Record().Lease, funded)
		s.Funded()
	}()
	missing := false // the chain answered, and had no such escrow
	inTime := false  // the lease ended before its escrow had to be there
	for pause := fundingFirst; ; pause = min(2*pause, fundingLook) {
		r, ok := x.record(s)
		if !ok || r.FundBy == 0 {
			funded = ok
			return
		}
		over := r.State != lease.Active
		if now, err := x.cfg.Slots.Now(time.Now()); over && err == nil {
			if now > r.FundBy {
				if missing && !inTime {
					x.distrust(*r.Core, s.Promised())
				}
				return
			}
			inTime = true
		}
		landed, wrong, err := x.look(ctx, r)
		missing = errors.Is(err, escrow.ErrNoEscrow) || errors.Is(err, escrow.ErrNoTranche)
		switch {
		case over && err == nil:
			funded = wrong == nil
			return
		case wrong != nil:
			x.distrust(*r.Core, s.Promised())
			log.Warn("escrow of a lease: mismatch with its buyer's promise", "escrow", r.Escrow, "err", wrong)
			_, err = x.cfg.Ledger.Step(ctx, lease.FundingWrong{Lease: r.Lease, Reason: wrong.Error()})
		case err == nil:
			_, err = x.cfg.Ledger.Step(ctx, lease.FundingSeen{Lease: r.Lease, Landed: landed})
		}
		if err == nil {
			continue // the book has it
		}
		log.Debug("a lease's escrow is not on chain yet", "escrow", r.Escrow, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// look reads the lease's escrow. It returns the slot in which its leaf landed, or the fault of the escrow. After an
// error neither is known: the escrow may exist, or be created later.
func (x *Escrowed) look(ctx context.Context, r lease.Record) (landed market.Slot, wrong, err error) {
	net, f, err := x.funding(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.QuickAnswer)
	defer cancel()
	view, err := x.cfg.Chain.Look(ctx, r.Escrow, []uint16{f.Tranche}, escrow.Confirmed)
	if err != nil {
		return 0, nil, err
	}
	landed, err = escrow.CheckFunding(net, view, *r.Core, r.Keys, f)
	if err == nil || errors.Is(err, escrow.ErrNoEscrow) || errors.Is(err, escrow.ErrNoTranche) {
		return landed, nil, err
	}
	return 0, err, nil
}

func (x *Escrowed) funding(ctx context.Context, r lease.Record) (escrow.Net, escrow.Funding, error) {
	net, err := x.cfg.Network.Get(ctx)
	if err != nil {
		return net, escrow.Funding{}, err
	}
	f, err := escrow.UnmarshalFunding(r.Funding)
	return net, f, err
}
