package buyer

import (
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
)

// Asks reports whether quotes for an order of this buyer's are taken now, and for how many leases it is.
func (b *Buyer) Asks(o market.OrderID) (leases uint32, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.auctions[o]
	if a == nil {
		return b.sizes.waits(o)
	}
	return a.order.Count, true
}

// TakeQuote takes the quote of a provider that heard an order over gossip, as the neighbour via brought it. Anybody can
// seal one.
func (b *Buyer) TakeQuote(via peer.ID, o market.OrderID, box []byte) error {
	b.sizes.came(o)
	b.mu.Lock()
	a := b.auctions[o]
	b.mu.Unlock()
	if a == nil {
		return stream.Refuse("closed", "the order takes no more quotes")
	}
	plain, err := b.reply(a.order.Nonce).Open(protocol.QuoteBox(b.tag, o), box)
	if err != nil {
		return &stream.Malformed{Reason: err.Error()}
	}
	var m marketpb.Quoted
	if err := proto.Unmarshal(plain, &m); err != nil {
		return &stream.Malformed{Reason: err.Error()}
	}
	q, err := market.DecodeQuote(b.domain, m.Quote, time.Now())
	if errors.Is(err, market.ErrExpired) || errors.Is(err, market.ErrNotYet) {
		return stream.Refuse("expired", err.Error())
	}
	if err != nil {
		return &stream.Malformed{Reason: err.Error()}
	}
	if why, no := b.blocked(q.Provider); no {
		a.trace.add(Step{At: time.Now(), Kind: StepBlocked, Provider: q.Provider.String(), Route: RouteGossip, Detail: why})
		return stream.Refuse(string(market.ReasonUnwanted), "no quotes of this provider are taken here")
	}
	if err := b.take(a, q.Provider, q, m.Offer, RouteGossip, via, time.Since(a.start)); err != nil {
		var r *market.Refusal
		if errors.As(err, &r) {
			return stream.Refuse(string(r.Reason), r.Error())
		}
		return &stream.Malformed{Reason: err.Error()}
	}
	b.known.answered(q.Provider, time.Now(), 0)
	return nil
}

// reply is the key to which quotes for the order with a nonce are sealed.
func (b *Buyer) reply(n market.Nonce) sealed.Reply {
	return sealed.Reply(sign.Sum([]byte("starling/reply/v1"), b.secret[:], n[:]))
}

// makeRoom gives up the latest quote of the neighbour that brought most, if that is more than via will have brought:
// one neighbour's quotes, which may all be its own, do not keep another's away. Quotes that were asked for stay. a.mu
// is held.
func (a *auction) makeRoom(via peer.ID) bool {
	brought := map[peer.ID]int{}
	latest := map[peer.ID]quoted{}
	for _, q := range a.quotes {
		if q.via == "" {
			continue
		}
		brought[q.via]++
		if old, ok := latest[q.via]; !ok || q.took > old.took {
			latest[q.via] = q
		}
	}
	most := via
	for v, n := range brought {
		if most == "" || n > brought[most] {
			most = v
		}
	}
	if most == "" || via != "" && brought[most] <= brought[via]+1 {
		return false
	}
	delete(a.quotes, latest[most].quote.Provider)
	return true
}
