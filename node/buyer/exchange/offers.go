package exchange

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/book"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// probesAtOnce bounds the concurrent polls of Offers.
const probesAtOnce = 32

// Find looks up offers in the DHT, adds them to the book, and returns their number. It requests two for each lease, and
// at least maxAsked.
func (x *Exchange) Find(ctx context.Context, c market.Class, regions []market.Region, leases uint32) int {
	found, err := x.cfg.Network.Find(ctx, c, regions, max(maxAsked, 2*int(leases)))
	if err != nil && ctx.Err() == nil {
		x.cfg.Log.Debug("looking for offers", "err", err)
	}
	for _, o := range found {
		x.Book.Add(o)
		x.prove(o, 0, func() {}) // so that an order need not wait for it
	}
	return len(found)
}

// Offers searches for offers of a class or family, "" for all. It polls their providers, fetches the records that they
// name, and returns all known offers.
func (x *Exchange) Offers(ctx context.Context, c market.Class) []book.Known {
	var wg sync.WaitGroup
	families := []market.Class{c}
	if c == "" {
		families = []market.Class{"cpu", "gpu", market.Disk}
	}
	for _, f := range families {
		wg.Go(func() { x.Find(ctx, f, nil, 0) })
	}
	wg.Wait()
	places := make(chan struct{}, probesAtOnce)
	asked := map[sign.Key]bool{x.cfg.Self: true}
	if x.cfg.Proofs != nil {
		for _, k := range x.Book.Class(c, time.Now()) {
			wg.Go(func() { x.proveNow(ctx, k.Offer) })
		}
	}
	for _, k := range x.Book.Class(c, time.Now()) {
		if k.Fresh(time.Now()) || asked[k.Offer.Provider] {
			continue
		}
		asked[k.Offer.Provider] = true
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			x.probe(ctx, k)
		})
	}
	wg.Wait()
	out := x.Book.Class(c, time.Now())
	for i := range out {
		out[i].Shown = x.candidate(out[i]).Shown
	}
	return out
}

// probe requests the status of an empty execution from a provider: any answer means that it is online.
func (x *Exchange) probe(ctx context.Context, k book.Known) {
	id, err := x.cfg.Host.Remember(k.Offer.Provider, k.Offer.Addrs)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	start := time.Now()
	_, err = protocol.Exec.Call(ctx, x.cfg.Host, x.tag, id, &nodepb.ExecRequest{})
	var no *stream.Refused
	var bad *stream.Malformed
	if err == nil || errors.As(err, &no) || errors.As(err, &bad) {
		x.Book.Answered(k.Offer.Provider, time.Now(), time.Since(start))
	} else {
		x.Book.Silent(k.Offer.Provider)
	}
}
