package provider

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// offerValidity is how long an offer is good; it is renewed at half of that.
	offerValidity = 10 * time.Minute
	// offerDebounce keeps a burst of leases from becoming a burst of offers.
	offerDebounce = 500 * time.Millisecond
	// quoteValidity is how long a quote may be acted on.
	quoteValidity = time.Minute
	// maxQuoting bounds the quotes that are on their way to buyers at a time.
	maxQuoting = 64
)

// offer is what is for sale right now, under sequence number seq.
func (p *Provider) offer(now time.Time, seq uint64) market.Offer {
	total, free := p.Units()
	return market.Offer{
		Provider: p.self, Seq: seq, Class: p.Class(), Region: p.cfg.Region, Units: uint32(free), Total: uint32(total),
		PerUnit: p.cfg.PerUnit, Price: p.cfg.Price, MinSlots: p.cfg.MinSlots, MaxSlots: p.cfg.MaxSlots,
		Runtimes: slices.Sorted(maps.Keys(p.cfg.Runtimes)), Payout: p.cfg.Owner, NotBefore: now, Expires: now.Add(offerValidity),
		Addrs: p.addrs(), Version: p.cfg.Version, GenesisHash: p.cfg.Genesis.Hash(),
	}
}

func (p *Provider) addrs() []string {
	var out []string
	for _, a := range p.cfg.Host.Addrs() {
		if len(out) < market.MaxAddrs {
			out = append(out, a.String())
		}
	}
	return out
}

// nextOffer signs an offer under the next sequence number, journalled first so
// that no number is ever used for two offers.
func (p *Provider) nextOffer(ctx context.Context) (market.Offer, []byte, error) {
	seq := uint64(1)
	b, err := p.cfg.Store.Get(ctx, kindOffer, string(p.Class()))
	switch {
	case err == nil && len(b) == 8:
		seq = binary.LittleEndian.Uint64(b) + 1
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return market.Offer{}, nil, fmt.Errorf("reading the offer's number: %w", err)
	}
	if err := p.cfg.Store.Write(ctx, store.Put{Kind: kindOffer, Key: string(p.Class()), Value: binary.LittleEndian.AppendUint64(nil, seq)}); err != nil {
		return market.Offer{}, nil, fmt.Errorf("journalling the offer's number: %w", err)
	}
	o := p.offer(time.Now(), seq)
	env, err := o.Encode(p.domain, p.cfg.Key)
	return o, env, err
}

// current returns the offer as last published, or a first one.
func (p *Provider) current(ctx context.Context) (market.Offer, []byte, error) {
	p.offerMu.Lock()
	defer p.offerMu.Unlock()
	if len(p.offered) > 0 && time.Until(p.lastOffer.Expires) > offerValidity/4 {
		return p.lastOffer, p.offered, nil
	}
	return p.renewLocked(ctx)
}

func (p *Provider) renewLocked(ctx context.Context) (market.Offer, []byte, error) {
	o, env, err := p.nextOffer(ctx)
	if err == nil {
		p.lastOffer, p.offered = o, env
	}
	return o, env, err
}

// advertise publishes the offer at the start, when free units change, and before
// the last one expires.
func (p *Provider) advertise(ctx context.Context) error {
	retry := time.Second
	for {
		p.offerMu.Lock()
		o, env, err := p.renewLocked(ctx)
		p.offerMu.Unlock()
		if err == nil {
			err = p.cfg.Offered(ctx, o, env)
		}
		wait := offerValidity / 2
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			p.cfg.Log.Warn("the offer could not be published; trying again", "err", err, "in", retry)
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
		select { // take what changes within the debounce along
		case <-ctx.Done():
			return nil
		case <-time.After(offerDebounce):
		}
	}
}

// quote answers an order, or says why not.
func (p *Provider) quote(ctx context.Context, o market.Order, drawn bool) (quote, offer []byte, err error) {
	now := time.Now()
	if _, err := p.cfg.Slots.Now(now); err != nil {
		return nil, nil, market.Refuse(market.ReasonLimit, "%v", err)
	}
	if !p.rates.allow(o.Buyer, now) {
		return nil, nil, market.Refuse(market.ReasonLimit, "too many orders from this buyer; at most %d a second", ordersPerSecond)
	}
	cur, env, err := p.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, free := p.Units()
	cur.Units = uint32(free) // the published number may lag behind
	cand := match.Candidate{Offer: cur, Reliability: 1}
	res := match.Rank(o, []match.Candidate{cand}, now, match.DefaultWeights(p.cfg.Genesis))
	if len(res.Refused) > 0 {
		r := res.Refused[0]
		return nil, nil, &market.Refusal{Reason: r.Reason, Detail: r.Detail}
	}
	if drawn && !match.Drawn(o.ID, p.self, o.Draw, p.population()) {
		return nil, nil, market.Refuse(market.ReasonLimit, "not drawn for this order")
	}
	if err := p.funds.covers(ctx, o, now); err != nil {
		return nil, nil, err
	}
	q := market.Quote{
		Order: o.ID, Price: p.cfg.Price, Leases: min(uint32(free)/o.UnitsPer, o.Count), Payout: p.cfg.Owner,
		Expires: now.Add(quoteValidity), Region: p.cfg.Region, OfferSeq: cur.Seq, PerUnit: p.cfg.PerUnit,
		Addrs: p.addrs(), Version: p.cfg.Version,
	}
	quote, err = q.Encode(p.domain, p.cfg.Key)
	return quote, env, err
}

// population is how many peers this one thinks could answer an order: those it
// has in its address book.
func (p *Provider) population() uint32 { return uint32(len(p.cfg.Host.Network().Peers()) + 1) }

func (p *Provider) handleAsk(ctx context.Context, from peer.ID, req *marketpb.AskRequest) (*marketpb.AskReply, error) {
	o, err := p.orderFrom(from, req.Order)
	if err != nil {
		return nil, err
	}
	q, offer, err := p.quote(ctx, o, false)
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
	case o.Buyer != sign.Key(key):
		return o, &stream.Malformed{Reason: "the order is another buyer's"}
	}
	return o, nil
}

// refusal turns an error into what the other peer may see.
func refusal(err error) error {
	var r *market.Refusal
	if errors.As(err, &r) {
		return stream.Refuse(string(r.Reason), r.Error())
	}
	return err
}

// listen answers the orders that come over gossip.
func (p *Provider) listen(ctx context.Context) error {
	sem := make(chan struct{}, maxQuoting)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		o, err := p.cfg.Orders(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("hearing orders: %w", err)
		}
		if o.Buyer == p.self {
			continue
		}
		select {
		case sem <- struct{}{}:
		default:
			p.cfg.Log.Warn("too many orders at once; one is left to others", "order", o.ID.Short())
			continue
		}
		wg.Go(func() {
			defer func() { <-sem }()
			p.answer(ctx, o)
		})
	}
}

// answer sends a quote for a gossiped order to its buyer.
func (p *Provider) answer(ctx context.Context, o market.Order) {
	q, offer, err := p.quote(ctx, o, true)
	if err != nil {
		p.cfg.Log.Debug("no quote for a gossiped order", "order", o.ID.Short(), "reason", err)
		return
	}
	id, err := p2p.PeerIDFromKey(o.Buyer)
	if err != nil {
		return
	}
	var addrs []ma.Multiaddr
	for _, a := range o.ReplyTo {
		if m, err := ma.NewMultiaddr(a); err == nil {
			addrs = append(addrs, m)
		}
	}
	p.cfg.Host.Peerstore().AddAddrs(id, addrs, peerstore.TempAddrTTL)
	if _, err := protocol.Quote.Call(ctx, p.cfg.Host, p.tag, id, &marketpb.QuoteRequest{Quote: q, Offer: offer}); err != nil {
		p.cfg.Log.Debug("a quote did not reach its buyer", "order", o.ID.Short(), "err", err)
	}
}

// What one buyer may ask of this provider, so that free orders cannot freeze it.
const (
	ordersPerSecond = 20
	orderBurst      = 100
	maxBuyers       = 4096
)

// rateLimiter counts orders by buyer.
type rateLimiter struct {
	mu sync.Mutex
	m  map[sign.Key]*rate.Limiter
}

func newRateLimiter() *rateLimiter { return &rateLimiter{m: map[sign.Key]*rate.Limiter{}} }

func (r *rateLimiter) allow(k sign.Key, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.m[k]
	if l == nil {
		if len(r.m) >= maxBuyers {
			for old, l := range r.m { // those whose bucket is full again have been quiet
				if l.TokensAt(now) >= orderBurst {
					delete(r.m, old)
				}
			}
			if len(r.m) >= maxBuyers {
				return false
			}
		}
		l = rate.NewLimiter(ordersPerSecond, orderBurst)
		r.m[k] = l
	}
	return l.AllowN(now, 1)
}

// fundsCache looks up what buyers hold and remembers it for a while, so that a
// proof of funds costs one look at the chain for many orders.
type fundsCache struct {
	balance func(context.Context, sign.Key) (market.Amount, error)

	mu sync.Mutex
	m  map[sign.Key]funds
}

type funds struct {
	amount market.Amount
	at     time.Time
}

const (
	fundsFresh   = 10 * time.Second
	fundsTimeout = 500 * time.Millisecond
)

func newFundsCache(balance func(context.Context, sign.Key) (market.Amount, error)) *fundsCache {
	return &fundsCache{balance: balance, m: map[sign.Key]funds{}}
}

// covers refuses an order whose wallet holds less than the order claims. When
// the chain does not answer the claim is believed: the prepaid interval is what
// protects the provider then.
func (f *fundsCache) covers(ctx context.Context, o market.Order, now time.Time) error {
	if f.balance == nil {
		return nil
	}
	f.mu.Lock()
	have, ok := f.m[o.FundsAccount]
	f.mu.Unlock()
	if !ok || now.Sub(have.at) > fundsFresh {
		ctx, cancel := context.WithTimeout(ctx, fundsTimeout)
		defer cancel()
		amount, err := f.balance(ctx, o.FundsAccount)
		if err != nil {
			return nil
		}
		have = funds{amount, now}
		f.mu.Lock()
		if len(f.m) >= maxBuyers {
			clear(f.m)
		}
		f.m[o.FundsAccount] = have
		f.mu.Unlock()
	}
	if have.amount < o.Funds {
		return market.Refuse(market.ReasonFunds, "the order says that wallet %s holds %d, it holds %d", o.FundsAccount.Short(), o.Funds, have.amount)
	}
	return nil
}
