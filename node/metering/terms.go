package metering

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/meter"
)

// How far apart the two ends of a lease may be, in time; in slots it is at least one.
const (
	// graceTime is how long a provider works unpaid while the next voucher is on its way, beside one interval.
	graceTime = 2 * time.Second
	// skewTime is how far the two ends' views of the current slot may differ.
	skewTime = 1500 * time.Millisecond
	// aheadTime is the maximum prepayment of a buyer: its programs survive an absence of its peer for that time.
	aheadTime = 20 * time.Second
	// receiptIntervals is the minimum number of intervals that a buyer waits for a receipt.
	receiptIntervals = 3
)

// AheadSlots returns the maximum number of slots that a buyer pays ahead, beside the interval that it always pays.
func AheadSlots(g market.Genesis) uint64 { return g.SlotsIn(aheadTime) }

// Terms returns the terms of a lease that is paid from an escrow, or directly if that is zero.
// Both ends derive them from the network's genesis, the lease and where it is funded, so that they agree.
func Terms(
	g market.Genesis, core market.LeaseCore, keys market.KeySet, escrow sign.Key, perUnit market.Resources,
	supervision uint64,
) meter.Terms {
	return meter.Terms{
		Domain: g.Domain(), Core: core, Keys: keys, Escrow: escrow, Supervision: supervision,
		IntervalSlots: g.IntervalSlots, GraceSlots: g.IntervalSlots + g.SlotsIn(graceTime),
		SkewSlots: max(g.SlotsIn(skewTime), 1), SlotMillis: g.SlotMillis,
		ReceiptSlots: receiptIntervals * g.IntervalSlots,
		MilliCPU:     uint64(core.Units) * uint64(perUnit.MilliCPU),
	}
}
