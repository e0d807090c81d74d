package pay

import (
	"context"
	"net/netip"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/billing"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
)

// Free is the payment of a free network: nothing costs anything.
type Free struct{}

// Promised refuses funding.
func (Free) Promised(_ context.Context, _ lease.Record, funding []byte) (sign.Key, error) {
	if len(funding) > 0 {
		return sign.Key{}, stream.Refuse(string(market.ReasonUnfunded), "funding: a free network has no escrows")
	}
	return sign.Key{}, nil
}

// Activation needs no funding.
func (Free) Activation(s *billing.Meter, _ []byte, now market.Slot) lease.Event {
	return lease.FundingSeen{Lease: s.Record().Lease, Landed: now}
}

// May lets work begin at once.
func (Free) May(context.Context, lease.Record) error { return nil }

// Opened does nothing.
func (Free) Opened(context.Context, *billing.Meter) {}

// Earned does nothing.
func (Free) Earned(*billing.Meter) {}

// Run does nothing.
func (Free) Run(context.Context) {}

// Accounts returns nothing.
func (Free) Accounts() map[market.LeaseID]settle.Account { return nil }

// Backing requires nothing.
func (Free) Backing(context.Context, market.Order, admit.Standing, netip.Prefix) (*lease.Backing, error) {
	return nil, nil
}

// Recent returns nothing.
func (Free) Recent(market.Order) *lease.Backing { return nil }
