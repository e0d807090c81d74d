package billing

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// sold is the lease of a Meter for node/metering.
type sold struct{ *Meter }

// String implements metering.Lease.
func (s sold) String() string { return s.rec.Lease.String() }

// Complete implements metering.Lease. Journalled effects are complete; the loop carries out the rest.
func (s sold) Complete(step *metering.Step[meter.Seller]) error {
	var rest []meter.Effect
	for _, e := range step.Effects {
		var put store.Put
		var err error
		switch e := e.(type) {
		case meter.Persist:
			floor := s.p.floor.meter(step.Now.Slot, step.Meter.Until(), s.rec.Units)
			rec := metering.SellerRecord{Floor: floor, At: step.Now.Time, Meter: e.State}
			put, err = metering.Sellers.Encode(s.rec.Lease, rec)
		case meter.CompleteReceipt:
			var sig sign.Signature
			if sig, err = e.Core.Sign(s.p.cfg.Domain, s.p.cfg.Key); err == nil {
				r := verify.Receipt{ReceiptCore: e.Core, ProviderSig: sig, BuyerSig: e.BuyerSig}
				step.Receipts = append(step.Receipts, r)
				put, err = receipts.Encode(keyOf(s.rec.Lease, e.Core.Seq), receipt{r.Marshal()})
			}
		default:
			rest = append(rest, e)
			continue
		}
		if err != nil {
			return err
		}
		step.Records = append(step.Records, put)
	}
	step.Effects = rest
	return nil
}

// Stepped implements metering.Lease. It passes on receipts to publish.
func (s sold) Stepped(step metering.Step[meter.Seller]) (later func(context.Context)) {
	s.mu.Lock()
	s.seller = step.Meter
	s.mu.Unlock()
	if len(step.Receipts) == 0 {
		return nil
	}
	sig, err := s.rec.Core.Sign(s.p.cfg.Domain, s.p.cfg.Key) // it is always the same
	if err != nil {
		s.p.cfg.Log.Error("receipts are not published", "lease", s.rec.Lease, "err", err)
		return nil
	}
	l := market.Lease{Core: *s.rec.Core, ProviderSig: sig, BuyerSig: s.rec.BuyerSig}
	for _, r := range step.Receipts {
		s.p.cfg.Filed.Filed(l, s.rec.Units, r)
	}
	return nil
}
