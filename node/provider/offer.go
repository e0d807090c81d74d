package provider

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// offerValidity is how long an offer is good; it is renewed at half of that.
	offerValidity = 10 * time.Minute
	// offerDebounce keeps a burst of leases from becoming a burst of offers.
	offerDebounce = 500 * time.Millisecond
	// quoteValidity is how long a quote may be acted on.
	quoteValidity = time.Minute
	// maxQuoteAddrs is how many bytes of addresses a quote carries.
	maxQuoteAddrs = 1024
	// maxAnswering is how many gossiped orders are answered at a time, all of which may wait for the chain. Others wait, and are dropped
	// where too many do.
	maxAnswering = 32
)

// published is an offer and its envelope.
type published struct {
	offer    market.Offer
	envelope []byte
}

// offer is the current offer of one lot, under sequence number seq.
func (p *Provider) offer(l Lot, now time.Time, seq uint64) market.Offer {
	p.mu.Lock()
	total, free, price := p.book.Total(l.Class), p.book.Free(l.Class), p.book.Limits().Asks[l.Class]
	proven, proof := p.book.Shown(l.Class), p.proofs.roots[l.Class]
	p.mu.Unlock()
	var where market.Coordinate
	if p.cfg.Coordinate != nil {
		where = p.cfg.Coordinate()
	}
	return market.Offer{
		Coordinate: where,
		Provider:   p.self, Seq: seq, Class: l.Class, Region: p.cfg.Region, Units: uint32(free), Total: uint32(total),
		PerUnit: l.PerUnit, Price: price, MinSlots: p.cfg.MinSlots, MaxSlots: p.cfg.MaxSlots,
		Runtimes: slices.Sorted(maps.Keys(p.cfg.Runtimes)), Payout: p.cfg.Owner, NotBefore: now, Expires: now.Add(offerValidity),
		Addrs: p.addrs(addrRoom(len(p.cfg.Lots)) - p.images().Size()), Version: p.cfg.Version, GenesisHash: p.cfg.Genesis.Hash(),
		Model: l.Model, Capability: l.Capability, Simulated: l.Simulated, Proven: uint32(proven), Proof: proof, NoClusters: !p.joinsAny(),
		Egress: p.egress(), Images: p.images(),
	}
}

// egress is the network access of the containers that run here.
func (p *Provider) egress() market.Egress {
	if !p.containers() || p.apart.Load() {
		return market.EgressNone
	}
	switch p.cfg.Network {
	case egress.ModeInternet:
		return market.EgressInternet
	case egress.ModeAllowlist:
		return market.EgressListed
	default:
		return market.EgressNone
	}
}

// images is the policy for images in offers.
func (p *Provider) images() market.ImagePolicy {
	if !p.containers() {
		return market.ImagePolicy{}
	}
	return p.cfg.Policy.Images.Policy()
}

// containers reports whether any runtime runs images.
func (p *Provider) containers() bool {
	for _, r := range p.cfg.Runtimes {
		if _, ok := r.(runtime.Images); ok {
			return true
		}
	}
	return false
}

// addrRoom is how many bytes of addresses each of so many offers may have, for their list to fit one record of the DHT,
// which knows the peer's addresses besides.
func addrRoom(lots int) int {
	const other = 502 // of an offer, its signature and its place in the list
	return max(market.MaxOfferList/lots-other, 0)
}

func (p *Provider) addrs(room int) []string {
	var out []string
	for _, a := range p.cfg.Host.Addrs() {
		text := a.String()
		if room -= len(text) + 3; len(out) == market.MaxAddrs || room < 0 {
			break
		}
		out = append(out, text)
	}
	return out
}

// nextOffer signs an offer under the next sequence number of its class, journalled first so that no number is ever used
// for two offers.
func (p *Provider) nextOffer(ctx context.Context, l Lot) (published, error) {
	seq := uint64(1)
	b, err := p.cfg.Store.Get(ctx, kindOffer, string(l.Class))
	switch {
	case err == nil && len(b) == 8:
		seq = binary.LittleEndian.Uint64(b) + 1
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return published{}, fmt.Errorf("reading the offer's number: %w", err)
	}
	o := p.offer(l, time.Now(), seq)
	if o.Total == 0 {
		return published{}, market.Refuse(market.ReasonCapacity, "all units of class %s are withdrawn", l.Class)
	}
	if err := p.cfg.Store.Write(ctx, store.Put{Kind: kindOffer, Key: string(l.Class), Value: binary.LittleEndian.AppendUint64(nil, seq)}); err != nil {
		return published{}, fmt.Errorf("journalling the offer's number: %w", err)
	}
	env, err := o.Encode(p.domain, p.cfg.Key)
	return published{o, env}, err
}

// current returns the offer of a class as last published, or a first one.
func (p *Provider) current(ctx context.Context, l Lot) (published, error) {
	p.offerMu.Lock()
	defer p.offerMu.Unlock()
	if last, ok := p.offers[l.Class]; ok && time.Until(last.offer.Expires) > offerValidity/4 {
		return last, nil
	}
	return p.renewLocked(ctx, l)
}

func (p *Provider) renewLocked(ctx context.Context, l Lot) (published, error) {
	next, err := p.nextOffer(ctx, l)
	if err == nil {
		p.offers[l.Class] = next
	}
	return next, err
}

// renew renews the offers of the lots that changed or whose offer is half over, and returns all current ones.
func (p *Provider) renew(ctx context.Context) (offers []market.Offer, envelopes [][]byte, err error) {
	p.offerMu.Lock()
	defer p.offerMu.Unlock()
	now := time.Now()
	if open, _ := p.cfg.Policy.Hours.At(now); !open || p.paused() || p.feeless() != "" {
		return nil, nil, nil
	}
	for _, l := range p.cfg.Lots {
		fresh := p.offer(l, now, 0)
		if fresh.Total == 0 {
			continue
		}
		last := p.offers[l.Class]
		if o := last.offer; o.Units != fresh.Units || o.Total != fresh.Total || o.Price != fresh.Price || o.Proven != fresh.Proven || o.Proof != fresh.Proof || !slices.Equal(o.Addrs, fresh.Addrs) ||
			o.NoClusters != fresh.NoClusters || moved(o.Coordinate, fresh.Coordinate) || o.Expires.Sub(now) <= offerValidity/2 {
			if last, err = p.renewLocked(ctx, l); err != nil {
				return nil, nil, err
			}
		}
		offers, envelopes = append(offers, last.offer), append(envelopes, last.envelope)
	}
	return offers, envelopes, nil
}

// movedBy is how far a coordinate must have moved for an offer to say so before it is renewed anyway: it never stands quite still.
const movedBy = 10 * time.Millisecond

// moved reports whether an offer's coordinate is worth another offer.
func moved(was, is market.Coordinate) bool {
	if was.IsZero() || is.IsZero() {
		return was != is
	}
	was.Height, is.Height = max(was.Height, is.Height)-min(was.Height, is.Height), 0
	return was.Distance(is) > movedBy
}

// advertise publishes the offers at the start, when free units, prices or the operator's word change, when the hours
// begin and end, and before the last ones expire.
func (p *Provider) advertise(ctx context.Context) error {
	retry := time.Second
	public := false
	for {
		offers, envelopes, err := p.renew(ctx)
		if err == nil && (public || len(offers) > 0) {
			if err = p.cfg.Offered(ctx, offers, envelopes); err == nil {
				public = len(offers) > 0
			}
		}
		wait := offerValidity / 2
		if _, change := p.cfg.Policy.Hours.At(time.Now()); !change.IsZero() {
			wait = min(wait, time.Until(change))
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			p.cfg.Log.Warn("the offers could not be published; trying again", "err", err, "in", retry)
			wait, retry = retry, min(2*retry, time.Minute)
		} else {
			retry = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			continue
		case <-p.changed:
		}
		select { // include changes within the debounce
		case <-ctx.Done():
			return nil
		case <-time.After(offerDebounce):
		}
	}
}

// quote answers an order, or says why not.
// The order came from its peer itself, or by gossip (direct is false).
func (p *Provider) quote(ctx context.Context, o market.Order, direct bool) (quote, offer []byte, err error) {
	defer func() { p.counts.quoted(err) }()
	now := time.Now()
	if !p.rates.Allow(o.Peer(), now) {
		return nil, nil, market.Refuse(market.ReasonLimit, "too many orders from this buyer; at most %d a second", ordersPerSecond)
	}
	if no := p.admits(ctx, o, now); no != nil {
		return nil, nil, no
	}
	slot, err := p.cfg.Slots.Now(now)
	if err != nil {
		return nil, nil, market.Refuse(market.ReasonLimit, "%v", err)
	}
	can, no := p.canDo(lease.Now{Time: now, Slot: slot}, o, nil)
	if no != nil {
		return nil, nil, no
	}
	backing, err := p.backing(ctx, o, direct)
	if err != nil {
		return nil, nil, err
	}
	if can, no = p.canDo(lease.Now{Time: now, Slot: slot}, o, backing); no != nil {
		return nil, nil, no
	}
	if id, err := p2p.PeerIDFromKey(o.Peer()); backing != nil && err == nil {
		p.cfg.Host.Fund(id)
	}
	l := p.lot(can.Class)
	cur, err := p.current(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	q := market.Quote{
		Order: o.ID, Price: can.Price, Leases: can.Leases, Payout: p.cfg.Owner,
		Expires: now.Add(quoteValidity), Region: p.cfg.Region, OfferSeq: cur.offer.Seq, PerUnit: l.PerUnit,
		Addrs: p.addrs(maxQuoteAddrs), Version: p.cfg.Version,
		Class: l.Class, Model: l.Model, Capability: l.Capability, Simulated: l.Simulated,
	}
	quote, err = q.Encode(p.domain, p.cfg.Key)
	return quote, cur.envelope, err
}

// canDo is the book's current answer to an order.
func (p *Provider) canDo(now lease.Now, o market.Order, backing *lease.Backing) (lease.Quoted, *market.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.book.Quote(now, o, backing)
}

func (p *Provider) handleAsk(ctx context.Context, from peer.ID, req *marketpb.AskRequest) (*marketpb.AskReply, error) {
	o, err := p.orderFrom(from, req.Order)
	if err != nil {
		return nil, err
	}
	q, offer, err := p.quote(ctx, o, true)
	if err != nil {
		return nil, refusal(err)
	}
	return &marketpb.AskReply{Quote: q, Offer: offer}, nil
}

// orderFrom decodes an order that its buyer sent itself.
func (p *Provider) orderFrom(from peer.ID, envelope []byte) (market.Order, error) {
	key, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return market.Order{}, &stream.Malformed{Reason: err.Error()}
	}
	o, err := market.DecodeOrder(p.domain, envelope, time.Now())
	switch {
	case errors.Is(err, market.ErrExpired), errors.Is(err, market.ErrNotYet):
		return o, stream.Refuse("expired", err.Error())
	case err != nil:
		return o, &stream.Malformed{Reason: err.Error()}
	case o.Peer() != sign.Key(key):
		return o, &stream.Malformed{Reason: "the order is another buyer's"}
	}
	return o, nil
}

// refusal converts an error to one that the other peer may see.
func refusal(err error) error {
	var r *market.Refusal
	if errors.As(err, &r) {
		return stream.Refuse(string(r.Reason), r.Error())
	}
	return err
}

// listen answers the orders that come over gossip, a few at a time.
func (p *Provider) listen(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range maxAnswering {
		g.Go(func() error {
			for {
				o, err := p.cfg.Orders(ctx)
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return fmt.Errorf("hearing orders: %w", err)
				}
				p.answer(ctx, o)
			}
		})
	}
	return g.Wait()
}

// answer sends a quote for a gossiped order on its way to the buyer, where this provider is drawn for it. Nobody is dialled.
func (p *Provider) answer(ctx context.Context, o market.Order) {
	if o.Peer() == p.self || !match.Drawn(o, p.self) {
		return
	}
	q, offer, err := p.quote(ctx, o, false)
	if err == nil {
		err = p.cfg.Reply(o, q, offer)
	}
	if err != nil {
		p.cfg.Log.Debug("no quote for a gossiped order", "order", o.ID.Short(), "reason", err)
	}
}

// Limits of one buyer's requests to this provider, so that free orders cannot freeze it.
const (
	ordersPerSecond = 20
	orderBurst      = 100
	maxBuyers       = 4096
)

// Out counts the offers that are out.
func (p *Provider) Out() (n int) {
	now := time.Now()
	if open, _ := p.cfg.Policy.Hours.At(now); !open || p.paused() || p.feeless() != "" {
		return 0
	}
	p.offerMu.Lock()
	defer p.offerMu.Unlock()
	for _, o := range p.offers {
		if o.offer.Expires.After(now) {
			n++
		}
	}
	return n
}
