package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// A lease is commanded by one peer: its buyer or the agent that its order named, until the guardians of its job give it
// to another one under a higher epoch. A grant is the threshold signature of the keys that sign the lease's vouchers.

// maxSeen bounds the leases of one line.
const maxSeen = 1024

// maxReceipts is how many receipts fit one answer.
const maxReceipts = 32

// handleSupervise lets a peer command a line of leases and its execution, with a grant by the guardians. It returns the
// receipts that the new supervisor has not seen.
func (v leases) handleSupervise(
	ctx context.Context, by sign.Key, req *marketpb.Supervise,
) (*marketpb.LeaseReply, error) {
	if len(req.GetLease()) != len(market.LeaseID{}) || len(req.Seen) > maxSeen {
		return nil, &stream.Malformed{Reason: "lease id of a wrong size, or too many leases"}
	}
	g, err := verify.UnmarshalSignedSupervisionGrant(req.Grant)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	if g.Supervisor != by {
		return nil, stream.Refuse(string(market.ReasonSupervision), "the grant is another peer's")
	}
	first := market.LeaseID(req.Lease)
	r, known := v.p.ledger.Book().Current(first)
	job, guardians, kept := v.p.work.Terms(first)
	switch {
	case known:
		job, guardians = r.JobTerms, r.Core.VoucherKeys
	case !kept:
		return nil, stream.Refuse("lease", "no such lease here")
	}
	if err := g.Check(v.p.domain, job, guardians); err != nil {
		return nil, stream.Refuse(string(market.ReasonSupervision), err.Error())
	}
	if known {
		answer, err := v.p.ledger.Step(ctx, lease.Supervised{Lease: first, By: by, Epoch: g.Epoch})
		if err != nil {
			return nil, v.failed(err)
		}
		if no, refused := answer.(lease.AnswerRefused); refused {
			return nil, refusal(no.Refusal)
		}
	}
	id, err := p2p.PeerIDFromKey(by)
	if err != nil {
		return nil, err
	}
	if err := v.p.work.HandTo(ctx, first, id, g.Epoch); err != nil {
		return nil, err
	}
	v.p.meters.HandTo(first)
	out, err := v.unseen(ctx, first, req.Seen)
	if err != nil {
		return nil, err
	}
	return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Supervised{Supervised: out}}, nil
}

// unseen lists receipts of a line after those in seen. Leases that are not in seen are omitted.
func (v leases) unseen(
	ctx context.Context, first market.LeaseID, seen []*marketpb.SeenReceipts,
) (*marketpb.Supervised, error) {
	out := &marketpb.Supervised{}
	for _, l := range seen {
		if len(l.GetLease()) != len(market.LeaseID{}) {
			return nil, &stream.Malformed{Reason: "lease id is not 32 bytes"}
		}
		id := market.LeaseID(l.Lease)
		r, ok := v.p.ledger.Book().Lease(id)
		if !ok || r.First() != first {
			continue
		}
		err := v.p.meters.Receipts(ctx, id, func(raw []byte) error {
			receipt, err := verify.UnmarshalReceipt(raw)
			switch {
			case err != nil:
				return fmt.Errorf("reading a receipt of lease %s: %w", id, err)
			case receipt.Seq <= l.Last:
			case len(out.Receipts) == maxReceipts:
				out.More = true
				return errEnough
			default:
				out.Receipts = append(out.Receipts, raw)
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

var errEnough = errors.New("enough")
