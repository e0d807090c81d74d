package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// SoldSince calls fn for each receipt in the journal that both signed, under the leases of the book that began in a slot or later, those of a lease
// in order. It ends with the first error of fn.
func (p *Provider) SoldSince(ctx context.Context, since market.Slot, fn func(l market.Lease, units []market.UnitID, r verify.Receipt) error) error {
	p.mu.Lock()
	recs := slices.Collect(p.book.Records())
	p.mu.Unlock()
	for _, r := range recs {
		if r.Core == nil || r.Core.Start < since || r.Lease.IsZero() {
			continue
		}
		sig, err := r.Core.Sign(p.domain, p.cfg.Key) // it is always the same
		if err != nil {
			return err
		}
		l := market.Lease{Core: *r.Core, ProviderSig: sig, BuyerSig: r.BuyerSig}
		err = p.cfg.Store.List(ctx, kindSold, r.Lease.String()+"/", func(key string, value []byte) error {
			receipt, err := verify.UnmarshalReceipt(value)
			if err != nil {
				return fmt.Errorf("reading receipt %s: %w", key, err)
			}
			return fn(l, r.Units, receipt)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
