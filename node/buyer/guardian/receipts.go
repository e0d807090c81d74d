package guardian

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify"
)

// Receipts returns the receipts of a lease that the guardians have, in order, each signed by both. If fewer than the
// threshold answered, it returns those found and ErrMinority.
func (p *Panel) Receipts(ctx context.Context, core market.LeaseCore) ([]verify.Receipt, error) {
	answers := everyone(ctx, p, func(ctx context.Context, _ int, m Member) ([]verify.Receipt, error) {
		return p.receipts(ctx, m, core)
	})
	found, failed, got := map[uint64]verify.Receipt{}, map[int]error{}, 0
	var ended error
	for range p.cfg.Members {
		a, err := next(ctx, answers)
		if err != nil {
			ended = err
			break
		}
		if a.err != nil {
			failed[a.from] = a.err
			continue
		}
		got++
		for _, r := range a.value {
			found[r.Seq] = r
		}
	}
	var out []verify.Receipt
	for _, seq := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[seq])
	}
	if got < int(p.cfg.Charter.Keys.Threshold) {
		return out, errors.Join(p.minority(got, failed), ended)
	}
	return out, nil
}

func (p *Panel) receipts(ctx context.Context, m Member, core market.LeaseCore) ([]verify.Receipt, error) {
	var out []verify.Receipt
	id := core.ID()
	for last := uint64(0); ; {
		after := &nodepb.GuardRequest_Receipts{Lease: id[:], After: last}
		reply, err := p.ask(ctx, m, &nodepb.GuardRequest{Op: &nodepb.GuardRequest_Receipts_{Receipts: after}})
		if err != nil {
			return nil, err
		}
		list := reply.GetReceipts()
		for _, b := range list.GetReceipts() {
			r, err := verify.UnmarshalReceipt(b)
			switch {
			case err != nil:
				return nil, err
			case r.Lease != id || r.Provider != core.Provider || r.Buyer != core.Buyer || r.Seq <= last:
				return nil, fmt.Errorf("receipt %d is of another lease, or out of order", r.Seq)
			}
			if err := r.CheckSignatures(p.domain); err != nil {
				return nil, err
			}
			last = r.Seq
			out = append(out, r)
		}
		if !list.GetMore() || len(list.Receipts) == 0 || len(out) > maxReceipts {
			return out, nil
		}
	}
}

var errEnough = errors.New("enough")

// receiptsOf gives receipts of a lease.
func (s *Service) receiptsOf(
	ctx context.Context, w *ward, q *nodepb.GuardRequest_Receipts,
) (*nodepb.GuardReply, error) {
	if len(q.GetLease()) != sign.HashSize {
		return nil, malformed("a lease of %d bytes", len(q.GetLease()))
	}
	id := market.LeaseID(q.Lease)
	out := &nodepb.GuardReply_ReceiptList{}
	err := receipts.List(ctx, s.cfg.Store, leaseKey(w.Job, id)+"/", func(key string, value []byte) error {
		switch {
		case key <= receiptKey(w.Job, id, q.After):
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
