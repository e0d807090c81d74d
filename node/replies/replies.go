// Package replies routes quotes back to buyers. An order names no address, because a stranger could direct packets to
// any address by it. A quote returns over the connections by which its order came, one peer at a time, without new
// connections:
//
//	buyer ── order ──▸ peer ── order ──▸ peer ── order ──▸ provider
//	buyer ◂── box ──── peer ◂── box ──── peer ◂── box ──── provider
//
// A box is the quote and its offer, sealed to the key that the order names. A forwarding peer can read only the order's
// id.
//
// Keys are free, and a box can be junk. So forwarding is bounded: the quotes for one order, of which each neighbour
// gets at most half of the room that others left; boxes per second, for one neighbour and for the strangers in one
// network; and pending boxes, by the standing of the receiver (package admit). Strangers in one network count as one
// neighbour. Boxes over a limit are refused and dropped: a quote is no promise, and others arrive by other routes.
package replies

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
)

// Limits on the boxes that are passed on.
const (
	// Fresh is how long after its order a quote is passed on.
	Fresh = time.Minute
	// maxTallies bounds the orders with counted quotes. It is more than gossip lets through in two minutes.
	maxTallies = 1 << 16
	// A neighbour that has all the quotes of several busy buyers behind it sends some dozen a second.
	perPeer, peerBurst       = 64, 256
	perNetwork, networkBurst = 128, 512 // of strangers
	maxSenders               = 4096
	// maxParcels is how many boxes wait or are on their way, a place each.
	maxParcels = 1024
	// maxFlying is how many are on their way to one neighbour: fewer than it answers of one peer at a time.
	maxFlying = 12
	// maxWaiting is how many wait for one.
	maxWaiting = 128
)

// Way is where a quote for an order goes.
type Way struct {
	To     peer.ID // the neighbour that the order came from; this host for its user's own order
	Leases uint32  // of the order
}

// Config is the surroundings of a Router.
type Config struct {
	Host    *p2p.Host
	Network string // the network's tag
	// Way returns the way of an order that this peer received within Fresh, or of its user's own.
	Way func(market.OrderID) (Way, bool)
	// Take processes a quote that a neighbour delivered for an order of this peer's user.
	Take func(via peer.ID, o market.OrderID, box []byte) error
	Log  *slog.Logger
}

// Stats counts quotes since the start.
type Stats struct {
	Passed  uint64 // brought one peer nearer
	Taken   uint64 // for orders of this peer's user
	Refused uint64 // over a limit, or for an unknown order
	Lost    uint64 // the next peer was gone, did not answer or refused
}

// Router passes quotes on. New starts nothing; Run does.
type Router struct {
	cfg      Config
	peers    *rates.Limiter[peer.ID]
	networks *rates.Limiter[netip.Prefix]
	places   *admit.Places

	passed, taken, refused, lost atomic.Uint64

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before and after
	tallies map[market.OrderID]*tally
	swept   time.Time
	lanes   map[peer.ID]*lane
	wg      sync.WaitGroup
}

// lane is the way to one neighbour.
type lane struct {
	flying  int
	waiting []parcel
}

// parcel is a box that is passed on, and a function that gives its place back.
type parcel struct {
	order market.OrderID
	box   []byte
	free  func()
}

// New makes a router.
func New(cfg Config) *Router {
	return &Router{
		cfg: cfg, tallies: map[market.OrderID]*tally{}, lanes: map[peer.ID]*lane{}, places: admit.NewPlaces(maxParcels),
		peers:    rates.New[peer.ID](perPeer, peerBurst, maxSenders),
		networks: rates.New[netip.Prefix](perNetwork, networkBurst, maxSenders),
	}
}

// Stats returns the counts so far.
func (r *Router) Stats() Stats {
	return Stats{Passed: r.passed.Load(), Taken: r.taken.Load(), Refused: r.refused.Load(), Lost: r.lost.Load()}
}

// Run passes quotes on until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	srv := protocol.Quote.Handle(r.cfg.Host, r.cfg.Network, r.handle, stream.Limits{Logger: r.cfg.Log})
	<-ctx.Done()
	srv.Close()
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

// errNoWay is returned for an order that was not received here, or too long ago.
var errNoWay = stream.Refuse("closed", "the order takes no more quotes")

// Send seals a quote and its offer to the order's key and sends them along the order's way. It does not block.
func (r *Router) Send(o market.Order, quote, offer []byte) error {
	plain, err := proto.Marshal(&marketpb.Quoted{Quote: quote, Offer: offer})
	if err != nil {
		return err
	}
	box, err := sealed.SealReply(o.ReplyKey, protocol.QuoteBox(r.cfg.Network, o.ID), plain)
	if err != nil {
		return err
	}
	return r.pass(r.cfg.Host.ID(), o.ID, box, time.Now())
}

// handle passes on the boxes of a neighbour.
func (r *Router) handle(_ context.Context, from peer.ID, req *marketpb.QuoteRequest) (*marketpb.QuoteReply, error) {
	if len(req.Order) != len(market.OrderID{}) ||
		len(req.Box) < sealed.Overhead || len(req.Box) > protocol.MaxQuoteBox {
		return nil, &stream.Malformed{Reason: "no order or no box of a quote"}
	}
	now, at := time.Now(), r.strangers(from)
	if !r.peers.Allow(from, now) || at.IsValid() && !r.networks.Allow(at, now) {
		r.refused.Add(1)
		return nil, stream.Refuse(stream.CodeBusy, "too many quotes")
	}
	if err := r.pass(from, market.OrderID(req.Order), req.Box, now); err != nil {
		return nil, err
	}
	return &marketpb.QuoteReply{}, nil
}

// pass brings a box one peer nearer to its buyer, or hands it to this peer's user.
func (r *Router) pass(from peer.ID, o market.OrderID, box []byte, now time.Time) error {
	way, ok := r.cfg.Way(o)
	if !ok || way.To == from && from != r.cfg.Host.ID() {
		r.refused.Add(1)
		return errNoWay
	}
	if !r.count(from, o, way, now) {
		r.refused.Add(1)
		return stream.Refuse("enough", "the order has enough quotes that came this way")
	}
	if way.To == r.cfg.Host.ID() {
		r.taken.Add(1)
		return r.cfg.Take(from, o, box)
	}
	if !r.launch(way.To, o, box) {
		r.refused.Add(1)
		return stream.Refuse(stream.CodeBusy, "too many quotes wait here")
	}
	return nil
}

// strangers returns the network of a peer that is a stranger; the zero prefix for all others.
func (r *Router) strangers(p peer.ID) netip.Prefix {
	if p == r.cfg.Host.ID() || r.cfg.Host.Standing(p) != admit.Stranger {
		return netip.Prefix{}
	}
	return admit.NetworkOfPeer(r.cfg.Host.Network(), p)
}

// launch sends a box to a neighbour, concurrently with other boxes. It reports whether there was room.
func (r *Router) launch(to peer.ID, o market.OrderID, box []byte) bool {
	free := r.places.Take(r.cfg.Host.Standing(to), r.strangers(to))
	if free == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		free()
		return false
	}
	l := r.lanes[to]
	if l == nil {
		l = &lane{}
		r.lanes[to] = l
	}
	p := parcel{o, box, free}
	switch {
	case len(l.waiting) >= maxWaiting:
		free()
		return false
	case l.flying >= maxFlying:
		l.waiting = append(l.waiting, p)
		return true
	}
	l.flying++
	ctx := r.ctx
	r.wg.Go(func() {
		for ok := true; ok; p, ok = r.landed(to) {
			r.deliver(ctx, to, p)
		}
	})
	return true
}

// landed returns the next box for a neighbour; false if none waits.
func (r *Router) landed(to peer.ID) (p parcel, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[to]
	if len(l.waiting) > 0 {
		p, l.waiting = l.waiting[0], l.waiting[1:]
		return p, true
	}
	if l.flying--; l.flying == 0 {
		delete(r.lanes, to)
	}
	return p, false
}

// deliver brings a box to a neighbour over the connection that there is.
func (r *Router) deliver(ctx context.Context, to peer.ID, p parcel) {
	defer p.free()
	ctx = network.WithNoDial(ctx, "a quote is never dialled for")
	_, err := protocol.Quote.Call(ctx, r.cfg.Host, r.cfg.Network, to,
		&marketpb.QuoteRequest{Order: p.order[:], Box: p.box})
	if err == nil {
		r.passed.Add(1)
		return
	}
	r.lost.Add(1)
	if !errors.Is(err, context.Canceled) {
		r.cfg.Log.Debug("a quote was not passed on", "order", p.order.Short(), "to", to, "err", err)
	}
}

// Most returns the maximum number of forwarded quotes for an order of a number of leases.
func Most(leases uint32) int { return min(2*match.MaxQuotes(leases), 1024) }
