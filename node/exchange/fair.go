package exchange

import (
	"context"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
)

const (
	// maxOrders bounds the orders that wait for this peer's provider, and ordersPerVia the part of one neighbour.
	maxOrders    = 256
	ordersPerVia = 32
)

// fair is the queue of orders for this peer's provider. It serves the neighbours that forwarded them in turn, so that a
// flooding neighbour delays only its own orders. An order that does not fit is dropped: other providers received it
// too.
type fair struct {
	more chan struct{} // holds one token while orders wait

	mu      sync.Mutex
	turns   []peer.ID // the peers with waiting orders, the next one first
	waiting map[peer.ID][]market.Order
	all     int
	dropped uint64
}

func newFair() *fair {
	return &fair{more: make(chan struct{}, 1), waiting: map[peer.ID][]market.Order{}}
}

// put adds an order. Where all places are taken, the neighbour that has most of them loses its latest one.
func (f *fair) put(via peer.ID, o market.Order) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all >= maxOrders {
		most := slices.MaxFunc(f.turns, func(a, b peer.ID) int { return len(f.waiting[a]) - len(f.waiting[b]) })
		if n := len(f.waiting[most]); n > len(f.waiting[via])+1 {
			f.waiting[most] = f.waiting[most][:n-1] // one stays: its turn too
			f.all--
			f.dropped++
		}
	}
	if f.all >= maxOrders || len(f.waiting[via]) >= ordersPerVia {
		f.dropped++
		return
	}
	if len(f.waiting[via]) == 0 {
		f.turns = append(f.turns, via)
	}
	f.waiting[via] = append(f.waiting[via], o)
	f.all++
	f.wake()
}

// take waits for the next order.
func (f *fair) take(ctx context.Context) (market.Order, error) {
	for {
		if o, ok := f.next(); ok {
			return o, nil
		}
		select {
		case <-ctx.Done():
			return market.Order{}, ctx.Err()
		case <-f.more:
		}
	}
}

func (f *fair) next() (o market.Order, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == 0 {
		return o, false
	}
	via := f.turns[0]
	f.turns = f.turns[1:]
	o, f.waiting[via] = f.waiting[via][0], f.waiting[via][1:]
	if len(f.waiting[via]) > 0 {
		f.turns = append(f.turns, via)
	} else {
		delete(f.waiting, via)
	}
	if f.all--; f.all > 0 {
		f.wake() // for others that wait
	}
	return o, true
}

func (f *fair) wake() {
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// lost is how many orders were dropped.
func (f *fair) lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}
