package leases

import (
	"context"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// meter co-signs a receipt, and pays on.
func (b *Book) meter(ctx context.Context, from peer.ID, req *nodepb.MeterRequest) (*nodepb.MeterReply, error) {
	if len(req.Lease) != len(market.LeaseID{}) || len(req.ProviderSignature) != sign.SignatureSize {
		return nil, &stream.Malformed{Reason: "lease id or signature has a wrong size"}
	}
	core, err := verify.UnmarshalReceiptCore(req.Receipt)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	l := b.Get(market.LeaseID(req.Lease))
	if l == nil || l.Peer != from {
		return nil, stream.Refuse("lease", "no such lease of yours here")
	}
	sig := sign.Signature(req.ProviderSignature)
	effects, err := metered{l}.step(ctx, meter.ReceiptProposed{Core: core, Sig: sig})
	if err != nil {
		return nil, err
	}
	reply := &nodepb.MeterReply{}
	for _, e := range effects {
		switch e := e.(type) {
		case meter.Refuse:
			return nil, stream.Refuse(string(e.Reason.Rule), e.Reason.Error())
		case meter.Cosign:
			sig, err := e.Core.Sign(b.domain, l.As.Key())
			if err != nil {
				return nil, err
			}
			reply.BuyerSignature = sig[:]
		case meter.IssueVoucher:
			if reply.Voucher, err = signed(ctx, l, e.Voucher); err != nil {
				return nil, err
			}
		case meter.StopPaying, meter.Settled: // carried out by Stepped
		default:
			return nil, fmt.Errorf("unknown effect %T", e)
		}
	}
	return reply, nil
}

// metered is a lease as node/metering runs its payer.
type metered struct{ *Lease }

// String implements metering.Lease.
func (l metered) String() string { return l.ID.String() }

// step sends the payer an event, journals the step with more, and returns its effects.
func (l metered) step(ctx context.Context, ev meter.Event, more ...store.Put) ([]meter.Effect, error) {
	l.add()
	return l.book.payers.Step(ctx, l, ev, more...)
}

// add adds the machine of the lease's payer, once: a dropped one does not come again.
func (l metered) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.added {
		l.added = true
		l.book.payers.Add(l, l.payer)
	}
}

// Complete implements metering.Lease.
func (l metered) Complete(s *metering.Step[meter.Payer]) error {
	var rest []meter.Effect
	for _, e := range s.Effects {
		switch e := e.(type) {
		case meter.Persist:
			p, err := Payers.Encode(l.ID, e.State)
			if err != nil {
				return err
			}
			s.Records = append(s.Records, p)
			continue
		case meter.Cosign:
			sig, err := e.Core.Sign(l.book.domain, l.As.Key())
			if err != nil {
				return err
			}
			r := verify.Receipt{ReceiptCore: e.Core, ProviderSig: e.ProviderSig, BuyerSig: sig}
			s.Receipts = append(s.Receipts, r)
			s.Records = append(s.Records, PutReceipt(l.ID, r))
		}
		rest = append(rest, e)
	}
	s.Effects = rest
	return nil
}

// Stepped implements metering.Lease.
func (l metered) Stepped(s metering.Step[meter.Payer]) (later func(context.Context)) {
	l.mu.Lock()
	l.payer = s.Meter
	used, units := l.usedUp(s.Now.Slot), l.rec.Units
	l.mu.Unlock()
	for _, r := range s.Receipts {
		l.book.cfg.Observer.Filed(l.Signed, units, r)
	}
	for _, e := range s.Effects {
		switch e := e.(type) {
		case meter.StopPaying:
			why := string(e.Reason)
			if e.Detail != "" {
				why = e.Detail
			}
			l.over(l.Lease, used, why)
		case meter.Settled:
			l.over(l.Lease, used, "the provider ended the lease")
			select {
			case <-l.settled:
			default:
				close(l.settled)
			}
		}
	}
	if st := s.Meter.State(); len(s.Records) > 0 && (st == meter.PayerStopping || st == meter.PayerSettled) {
		return func(ctx context.Context) { l.As.Changed(ctx, l.Lease) }
	}
	return nil
}
