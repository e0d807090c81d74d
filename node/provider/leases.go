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
	"github.com/starling-network/starling/node/provider/ledger"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// leases serves the steps of leases.
type leases struct{ p *Provider }

// handleLease takes one step of a lease for the requesting buyer.
func (v leases) handleLease(
	ctx context.Context, from peer.ID, req *marketpb.LeaseRequest,
) (*marketpb.LeaseReply, error) {
	k, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	by := sign.Key(k)
	var ev lease.Event
	switch s := req.Step.(type) {
	case *marketpb.LeaseRequest_Reserve:
		ev, err = v.reserveEvent(ctx, from, s.Reserve)
	case *marketpb.LeaseRequest_Sign:
		ev, err = v.signEvent(by, s.Sign)
	case *marketpb.LeaseRequest_Activate:
		return v.activate(ctx, by, s.Activate)
	case *marketpb.LeaseRequest_Extend:
		ev, err = v.extendEvent(by, s.Extend)
	case *marketpb.LeaseRequest_Release:
		ev, err = releaseEvent(by, s.Release)
	case *marketpb.LeaseRequest_Supervise:
		return v.handleSupervise(ctx, by, s.Supervise)
	default:
		err = &stream.Malformed{Reason: "no step of a lease"}
	}
	if err != nil {
		return nil, err
	}
	answer, err := v.p.ledger.Step(ctx, ev)
	if err != nil {
		return nil, v.failed(err)
	}
	return v.reply(answer)
}

// failed hides an internal error from the other peer, but names a cause that it can wait for.
func (v leases) failed(err error) error {
	if errors.Is(err, slots.ErrUnknown) || errors.Is(err, ledger.ErrBusy) {
		return stream.Refuse(stream.CodeBusy, err.Error())
	}
	return err
}

func (v leases) reserveEvent(ctx context.Context, from peer.ID, r *marketpb.Reserve) (lease.Event, error) {
	if len(r.GetHold()) != len(market.HoldID{}) {
		return nil, &stream.Malformed{Reason: "hold id is not 16 bytes"}
	}
	o, err := v.p.quotes.orderFrom(from, r.Order)
	if err != nil {
		return nil, err
	}
	if r.Units != o.UnitsPer {
		return nil, &stream.Malformed{Reason: fmt.Sprintf("units: got %d, want the order's %d", r.Units, o.UnitsPer)}
	}
	if err := v.p.cfg.Genesis.CheckPrice(market.Price(r.Price)); err != nil {
		return nil, refusal(err)
	}
	class := market.Class(r.Class)
	if class != "" && class.Check() != nil {
		return nil, &stream.Malformed{Reason: class.Check().Error()}
	}
	var backing *lease.Backing
	if !v.holds(market.HoldID(r.Hold), o.Peer()) { // holds are answered even if the operator has paused meanwhile
		now := time.Now()
		if no := v.p.quotes.admits(ctx, o, now); no != nil {
			return nil, refusal(no)
		}
		if slot, err := v.p.cfg.Slots.Now(now); err == nil {
			_, backing = v.p.quotes.recent(lease.Now{Time: now, Slot: slot}, o)
		}
		if backing == nil {
			if backing, err = v.p.quotes.backing(ctx, o, true); err != nil {
				return nil, refusal(err)
			}
		}
		if r.Image != "" {
			if err := v.p.cfg.Policy.AllowImage(r.Image); err != nil {
				return nil, refusal(err)
			}
		}
		if r.Overlay {
			if no := v.p.joins(ctx, o.Runtime); no != nil {
				return nil, refusal(no)
			}
		}
	}
	return lease.ReserveRequested{
		Hold: market.HoldID(r.Hold), Order: o, Price: market.Price(r.Price), Rank: r.Rank, Class: class,
		Overlay: r.Overlay, Backing: backing,
	}, nil
}

// holds reports whether the peer has this hold.
func (v leases) holds(id market.HoldID, by sign.Key) bool {
	r, ok := v.p.ledger.Book().Hold(id)
	return ok && r.Peer() == by
}

func (v leases) signEvent(by sign.Key, s *marketpb.Sign) (lease.Event, error) {
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
	now := time.Now()
	if slot, err := v.p.cfg.Slots.Now(now); err == nil && core.End > slot {
		if err := v.p.cfg.Policy.Hours.Covers(now, now.Add(v.p.lasts(uint64(core.End-slot)))); err != nil {
			return nil, stream.Refuse(string(market.ReasonClosed), err.Error())
		}
	}
	return lease.SignRequested{
		Hold: market.HoldID(s.Hold), By: by, Core: core, Keys: keys, BuyerSig: sign.Signature(s.Signature),
	}, nil
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
	return nil, &stream.Malformed{Reason: "request without a hold or lease"}
}

// reply converts the book's answer to the message for the wire.
func (v leases) reply(answer lease.Effect) (*marketpb.LeaseReply, error) {
	switch a := answer.(type) {
	case lease.AnswerHeld:
		held := &marketpb.Held{Hold: a.Hold[:], Expires: a.Expires.UnixMilli()}
		if !a.Overlay.IsZero() {
			held.OverlayKey = a.Overlay[:]
		}
		for i := range a.Units {
			held.Units = append(held.Units, a.Units[i][:])
		}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Held{Held: held}}, nil
	case lease.AnswerSigned:
		sig, err := a.Core.Sign(v.p.domain, v.p.cfg.Key)
		if err != nil {
			return nil, err
		}
		signed := &marketpb.Signed{Hold: a.Hold[:], Signature: sig[:]}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Signed{Signed: signed}}, nil
	case lease.AnswerExtended:
		sig, err := a.Core.Sign(v.p.domain, v.p.cfg.Key)
		if err != nil {
			return nil, err
		}
		extended := &marketpb.Extended{Signature: sig[:]}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Extended{Extended: extended}}, nil
	case lease.AnswerActivated:
		activated := &marketpb.Activated{Lease: a.Lease[:]}
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Activated{Activated: activated}}, nil
	case lease.AnswerReleased:
		return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Released{Released: &marketpb.Released{}}}, nil
	case lease.AnswerRefused:
		return nil, stream.Refuse(string(a.Refusal.Reason), a.Refusal.Error())
	}
	return nil, fmt.Errorf("the book did not answer: %T", answer)
}

// record returns the lease in force of a line that the requesting peer commands. id is the line's first lease.
func (v leases) record(from peer.ID, id []byte) (lease.Record, error) {
	k, err := p2p.KeyFromPeerID(from)
	if err != nil || len(id) != len(market.LeaseID{}) {
		return lease.Record{}, &stream.Malformed{Reason: "lease id is not 32 bytes"}
	}
	r, ok := v.p.ledger.Book().Current(market.LeaseID(id))
	switch {
	case !ok:
		return lease.Record{}, stream.Refuse("lease", "no such lease of yours here")
	case r.Peer() != sign.Key(k) && r.Supervision > 0:
		return lease.Record{}, stream.Refuse(string(market.ReasonSupervision),
			fmt.Sprintf("another peer commands this lease under supervision epoch %d", r.Supervision))
	case r.Peer() != sign.Key(k):
		return lease.Record{}, stream.Refuse("lease", "no such lease of yours here")
	}
	return r, nil
}
