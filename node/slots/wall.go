package slots

import (
	"context"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Wall is the chain of a free network: slots of this number of milliseconds of wall time, counted from 1970. It
// implements chain.Ledger. Peers with clocks seconds apart refuse each other's receipts, so they have to keep the time.
type Wall uint64

// Slot is the slot that it is now.
func (w Wall) Slot(context.Context) (market.Slot, error) {
	return market.Slot(uint64(time.Now().UnixMilli()) / uint64(w)), nil
}

// Tip is the slot that it is now: there is nothing that could be forked away.
func (w Wall) Tip(ctx context.Context) (chain.Tip, error) {
	s, err := w.Slot(ctx)
	return chain.Tip{Confirmed: s, Final: s}, err
}

// Balance is nothing: there is no money.
func (w Wall) Balance(context.Context, sign.Key) (market.Amount, error) { return 0, nil }
