package wards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// read returns the job's standing.
func (w guarded) read(since []byte) (*nodepb.GuardReply, error) {
	if len(since) != 0 && len(since) != sign.HashSize {
		return nil, malformed("a lease of %d bytes", len(since))
	}
	out := &nodepb.GuardReply_Standing{Epoch: w.Epoch, Grant: w.Grant}
	ids := slices.SortedFunc(maps.Keys(w.leases), func(a, b market.LeaseID) int { return slices.Compare(a[:], b[:]) })
	if len(since) == 0 {
		if w.state != nil {
			out.State = w.state.PB()
		}
	} else {
		ids = slices.DeleteFunc(ids, func(id market.LeaseID) bool { return slices.Compare(id[:], since) <= 0 })
	}
	size := 0
	for i, id := range ids {
		k := w.leases[id]
		if size += k.Size() + verify.MaxSignedSupervisionGrant + 1024; size > pageBytes && i > 0 {
			out.More = true
			break
		}
		out.Leases = append(out.Leases, k.PB())
	}
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Standing_{Standing: out}}, nil
}

var errEnough = errors.New("enough")

// receiptsOf gives receipts of a lease.
func (g *guard) receiptsOf(
	ctx context.Context, job sign.Hash, q *nodepb.GuardRequest_Receipts,
) (*nodepb.GuardReply, error) {
	if len(q.GetLease()) != sign.HashSize {
		return nil, malformed("a lease of %d bytes", len(q.GetLease()))
	}
	id := market.LeaseID(q.Lease)
	out := &nodepb.GuardReply_ReceiptList{}
	err := receipts.List(ctx, g.cfg.Store, leaseKey(job, id)+"/", func(key string, value []byte) error {
		switch {
		case key <= receiptKey(job, id, q.After):
		case len(out.Receipts) == pageBytes/verify.ReceiptSize:
			out.More = true
			return errEnough
		default:
			out.Receipts = append(out.Receipts, value)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("reading receipts: %w", err)
	}
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Receipts{Receipts: out}}, nil
}

func done() *nodepb.GuardReply {
	return &nodepb.GuardReply{Op: &nodepb.GuardReply_Done_{Done: &nodepb.GuardReply_Done{}}}
}

// beatDone answers a beat with the spare files that are stored.
func (w guarded) beatDone() *nodepb.GuardReply {
	out := done()
	if w.state != nil && w.state.Epoch == w.Epoch {
		out.GetDone().Version = w.state.Version
		out.GetDone().Spare = guardian.SpareBits(w.state.Files, w.spare)
	}
	return out
}

func malformed(format string, args ...any) error {
	return &stream.Malformed{Reason: fmt.Sprintf(format, args...)}
}
