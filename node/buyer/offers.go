package buyer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// find looks offers up in the DHT, remembers them and says how many there were.
func (b *Buyer) find(ctx context.Context, c market.Class, regions []market.Region) int {
	found, err := b.cfg.Find(ctx, c, regions, maxAsked)
	if err != nil && ctx.Err() == nil {
		b.cfg.Log.Debug("looking for offers", "err", err)
	}
	for _, o := range found {
		b.known.offer(o)
		b.prove(o, 0, func() {}) // so that an order need not wait for it
	}
	return len(found)
}

// Offers looks for offers of a class or family, "" for all, asks their providers
// whether they are there and for the records that they name, and returns what is known.
func (b *Buyer) Offers(ctx context.Context, c market.Class) []Known {
	var wg sync.WaitGroup
	families := []market.Class{c}
	if c == "" {
		families = []market.Class{"cpu", "gpu"}
	}
	for _, f := range families {
		wg.Go(func() { b.find(ctx, f, nil) })
	}
	wg.Wait()
	sem := make(chan struct{}, 32)
	asked := map[sign.Key]bool{b.self: true}
	if b.cfg.Proofs != nil {
		for _, k := range b.known.class(c, time.Now()) {
			wg.Go(func() { b.proveNow(ctx, k.Offer) })
		}
	}
	for _, k := range b.known.class(c, time.Now()) {
		if time.Since(k.Answered) < probeFresh || asked[k.Offer.Provider] {
			continue
		}
		asked[k.Offer.Provider] = true
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			b.probe(ctx, k)
		})
	}
	wg.Wait()
	out := b.known.class(c, time.Now())
	for i := range out {
		out[i].Shown = b.candidate(out[i]).Shown
	}
	return out
}

// probe asks a provider for the status of nothing: any answer means it is there.
func (b *Buyer) probe(ctx context.Context, k Known) {
	id, err := b.remember(k.Offer.Provider, k.Offer.Addrs)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	start := time.Now()
	_, err = protocol.Exec.Call(ctx, b.cfg.Host, b.tag, id, &nodepb.ExecRequest{})
	var no *stream.Refused
	var bad *stream.Malformed
	if err == nil || errors.As(err, &no) || errors.As(err, &bad) {
		b.known.answered(k.Offer.Provider, time.Now(), time.Since(start))
	} else {
		b.known.silent(k.Offer.Provider)
	}
}
