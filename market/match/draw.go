package match

import (
	"encoding/binary"
	"math"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// DrawAll has every provider quote.
	DrawAll = math.MaxUint32
	// wantLeast is the approximate target number of quotes for an order: enough to choose from, in a network of any
	// size.
	wantLeast = 48
	// wantPer is the target for each lease, and wantMost the maximum for an order of many leases.
	wantPer, wantMost = 3, 384
	// again is by how much the chance grows each time that an order brought too few: from one quote of ten thousand
	// providers to all of them in five orders.
	again = 8
	// maxSize bounds an estimate, since it is based on data from peers.
	maxSize = 1 << 20
	// roomy is the ratio of a shard's providers to the wanted quotes, so that a random draw seldom yields too few.
	roomy = 3
	// crowded is by how much more there are taken to be than came, where as many came as could.
	crowded = 2
	// settled is how much of an estimate comes from the last order.
	settled = 0.5
)

// ShardOf returns the shard of a provider, 1 to [market.Shards]: one more than the first byte of
// SHA-256("starling/shard/v1" ‖ provider) modulo their number.
func ShardOf(provider sign.Key) uint32 {
	h := sign.Sum([]byte("starling/shard/v1"), provider[:])
	return 1 + uint32(h[0])%market.Shards
}

// Drawn reports whether a provider quotes for an order over gossip: the first four bytes, big-endian, of
// SHA-256("starling/draw/v1" ‖ order ‖ provider) are not above the order's draw. Where the order names a shard, the
// provider must be in it, and a sixteenth of the number is compared. Of all providers of the class, either is so with a
// chance of (draw+1)/2³².
func Drawn(order market.Order, provider sign.Key) bool {
	h := sign.Sum([]byte("starling/draw/v1"), order.ID[:], provider[:])
	at := binary.BigEndian.Uint32(h[:4])
	if order.Shard == 0 {
		return at <= order.Draw
	}
	return at/market.Shards <= order.Draw && ShardOf(provider) == order.Shard
}

// MaxQuotes is the maximum number of quotes that are kept for an order. It exceeds the expected draw by more than
// chance explains.
func MaxQuotes(leases uint32) int { return 64 + 4*int(min(leases, market.MaxCount)) }

// Population is an estimate of how many providers would quote for orders of one class if all were drawn. The zero value
// means unknown.
type Population struct{ n float64 }

// Guess is an estimate that no order has tried yet.
func Guess(n int) Population { return Population{float64(min(max(n, 0), maxSize))} }

// Size returns the estimated number of providers; 0 means unknown.
func (p Population) Size() int { return int(math.Round(p.n)) }

// FitsShard reports whether one shard's providers are enough for a new order of this number of leases. The estimate's
// draw then fits a shard, too.
func (p Population) FitsShard(leases uint32) bool { return p.n >= market.Shards*roomy*wanted(leases) }

// wanted is the target number of quotes for an order.
func wanted(leases uint32) float64 { return float64(max(wantLeast, min(wantPer*leases, wantMost))) }

// Draw returns the draw for an order, after asked earlier requests that each brought too few quotes. It is never 0.
func (p Population) Draw(leases uint32, asked int) uint32 {
	chance := wanted(leases) / max(p.n, 1) * math.Pow(again, float64(min(max(asked, 0), 8)))
	if chance >= 1 {
		return DrawAll
	}
	return uint32(max(chance*(1<<32)-1, 1))
}

// Learn returns the estimate after an order with a draw brought a number of quotes, out of at most most. An order to
// all providers replaces the estimate; other orders move it by half. If the quotes reached the maximum, the estimate
// grows.
func (p Population) Learn(draw uint32, quotes, most int) Population {
	n := min((float64(quotes)+0.5)*(1<<32)/(float64(draw)+1), maxSize)
	switch {
	case draw == DrawAll:
		n = float64(quotes)
	case quotes < most && p.n > 0:
		n = settled*n + (1-settled)*p.n
	}
	if quotes >= most {
		n = max(crowded*n, p.n)
	}
	return Population{min(n, maxSize)}
}
