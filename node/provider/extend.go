package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// activate takes the voucher for the first interval and starts the lease.
func (v leases) activate(ctx context.Context, by sign.Key, a *marketpb.Activate) (*marketpb.LeaseReply, error) {
	if len(a.GetLease()) != len(market.LeaseID{}) {
		return nil, &stream.Malformed{Reason: "lease id is not 32 bytes"}
	}
	voucher, err := verify.UnmarshalSignedVoucher(a.Voucher)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	id := market.LeaseID(a.Lease)
	r, ok := v.p.ledger.Book().Lease(id)
	if !ok || r.Peer() != by {
		return nil, stream.Refuse("lease", "no such lease of yours here")
	}
	if r.State != lease.Signed && r.State != lease.Active {
		return nil, stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
	}
	slot, err := v.p.cfg.Slots.Now(time.Now())
	if err != nil {
		return nil, v.failed(err)
	}
	if r.State == lease.Signed {
		if r.Escrow, err = v.p.pay.Promised(ctx, r, a.Funding); err != nil {
			return nil, err
		}
	}
	s, err := v.p.meters.Begin(ctx, r, slot, voucher)
	if err != nil {
		return nil, err
	}
	answer, err := v.p.ledger.Step(ctx, v.p.pay.Activation(s, a.Funding, slot))
	if err != nil {
		return nil, v.failed(err)
	}
	return v.reply(answer)
}

// extendEvent reads a successor that a buyer has signed. Earlier promises are kept even if the operator has paused
// meanwhile.
func (v leases) extendEvent(by sign.Key, e *marketpb.Extend) (lease.Event, error) {
	if len(e.GetLease()) != len(market.LeaseID{}) || len(e.GetSignature()) != sign.SignatureSize {
		return nil, &stream.Malformed{Reason: "lease id or signature has a wrong size"}
	}
	core, err := market.UnmarshalLeaseCore(e.Core)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	ev := lease.ExtendRequested{
		Lease: market.LeaseID(e.Lease), By: by, Core: core, BuyerSig: sign.Signature(e.Signature),
	}
	if v.p.ledger.Book().Extended(ev.Lease) {
		return ev, nil
	}
	if no := v.p.cfg.Policy.Serves(by); no != nil {
		return nil, refusal(no)
	}
	if v.p.Paused() {
		return nil, refusal(market.Refuse(market.ReasonPaused,
			"this provider sells nothing new for now, and makes no lease longer"))
	}
	now := time.Now()
	slot, err := v.p.cfg.Slots.Now(now)
	if err != nil {
		return nil, v.failed(err)
	}
	if core.End > slot {
		if err := v.p.cfg.Policy.Hours.Covers(now, now.Add(v.p.lasts(uint64(core.End-slot)))); err != nil {
			return nil, refusal(market.Refuse(market.ReasonClosed, "%v", err))
		}
	}
	return ev, nil
}
