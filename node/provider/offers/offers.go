// Package offers publishes a provider's offers: one for each class with units, signed, and renewed when it changes or
// before it expires.
package offers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/provider/policy"
)

const (
	// validity is how long an offer is good; it is renewed at half of that.
	validity = 10 * time.Minute
	// debounce keeps a burst of leases from becoming a burst of offers.
	debounce = 500 * time.Millisecond
	// movedBy is how far a coordinate must have moved for an offer to be renewed early: it never stands quite still.
	movedBy = 10 * time.Millisecond
)

// Provider is the state behind the offers.
type Provider interface {
	// Book returns the lease book as it stands.
	Book() lease.Book
	// Selling reports whether anything new is sold now.
	Selling(now time.Time) bool
	// Clusters reports whether any program here can be a member of a cluster.
	Clusters() bool
	// Egress returns the network access of the containers that run here.
	Egress() market.Egress
	// Coordinate returns this peer's place in the network, zero while it is unknown.
	Coordinate() market.Coordinate
	// Addrs returns the addresses of this peer.
	Addrs() []ma.Multiaddr
}

// Images has the images that are here.
type Images interface {
	// Ready returns the images that offers may name, the most useful first. It does not wait.
	Ready() []images.Prefix
}

// Publisher publishes offers.
type Publisher interface {
	// Offer publishes the signed offers, one for each class with units. Without offers it withdraws the published ones.
	// It is called from one goroutine.
	Offer(ctx context.Context, offers []market.Offer, envelopes [][]byte) error
}

// Config is the configuration of a Board. All of it is required, but for Images and the zero values of an offer's
// fields.
type Config struct {
	Domain    sign.Domain
	Key       sign.Signer
	Store     journal.Store
	Lots      []policy.Lot
	Hours     policy.Hours
	Template  market.Offer // the fields that are those of all offers
	Provider  Provider
	Images    Images // optional; if nil, no offer names images
	Publisher Publisher
	Log       *slog.Logger
}

// numbers has the last sequence number of a class, so that no number is ever used for two offers.
var numbers = journal.Define[market.Class, uint64]("offer")

// Board has the offers of all classes. New starts nothing; Run does.
type Board struct {
	cfg     Config
	changed chan struct{} // holds one token when the offers may have changed
	turn    chan struct{} // holds one token while offers are not being renewed: their numbers are journalled in order

	mu      sync.Mutex
	seqs    map[market.Class]uint64
	current map[market.Class]Published
	proofs  proofs
}

// Published is an offer and its envelope.
type Published struct {
	Offer    market.Offer
	Envelope []byte
}

// New reads the numbers of an earlier process.
func New(ctx context.Context, cfg Config) (*Board, error) {
	b := &Board{
		cfg: cfg, changed: make(chan struct{}, 1), turn: make(chan struct{}, 1), seqs: map[market.Class]uint64{},
		current: map[market.Class]Published{}, proofs: proofs{lists: map[sign.Hash][]market.Shown{}},
	}
	b.turn <- struct{}{}
	err := numbers.List(ctx, cfg.Store, "", func(c market.Class, seq uint64) error {
		b.seqs[c] = seq
		return nil
	})
	return b, err
}

// Change has Run compare the offers with the free units soon. It does not wait.
func (b *Board) Change() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// draft returns the current offer of a lot. b.mu is held.
func (b *Board) draft(l policy.Lot, now time.Time) market.Offer {
	book := b.cfg.Provider.Book()
	o := b.cfg.Template
	o.Class, o.PerUnit, o.Model, o.Capability, o.Simulated = l.Class, l.PerUnit, l.Model, l.Capability, l.Simulated
	o.Units, o.Total, o.Price = uint32(book.Free(l.Class)), uint32(book.Total(l.Class)), book.Limits().Asks[l.Class]
	o.Proven, o.Proof = uint32(book.Shown(l.Class)), b.proofs.roots[l.Class]
	o.NotBefore, o.Expires = now, now.Add(validity)
	o.MaxSlots = cmp.Or(l.MaxSlots, o.MaxSlots)
	o.Runtimes = slices.DeleteFunc(slices.Clone(o.Runtimes), func(name string) bool {
		return (name == market.Volume) != (l.Class == market.Disk)
	})
	p := b.cfg.Provider
	o.Coordinate, o.NoClusters, o.Egress = p.Coordinate(), !p.Clusters(), p.Egress()
	left := room(len(b.cfg.Lots)) - o.Images.Size()
	o.Addrs = Addrs(p.Addrs(), left)
	if b.cfg.Images == nil || l.Class == market.Disk {
		return o
	}
	for _, a := range o.Addrs {
		left -= addrSize(a)
	}
	all := b.cfg.Images.Ready()
	most := images.MaxReady
	for most > 0 && images.Size(most) > left {
		most--
	}
	o.Ready = images.NewReady(all, most)
	return o
}

// room returns the bytes of addresses that each of lots offers may have, so that their list fits one record of the DHT.
// The DHT also has the peer's addresses.
func room(lots int) int {
	const other = 502 // of an offer, its signature and its place in the list
	return max(market.MaxOfferList/lots-other, 0)
}

// Addrs returns the text of the first addresses that fit into room bytes.
func Addrs(all []ma.Multiaddr, room int) (out []string) {
	for _, a := range all {
		text := a.String()
		if room -= addrSize(text); len(out) == market.MaxAddrs || room < 0 {
			break
		}
		out = append(out, text)
	}
	return out
}

// addrSize is the size of an address in an offer, bytes.
func addrSize(text string) int { return len(text) + 3 }

// renew signs an offer of a lot under the next number of its class, which is journalled first. The caller has the turn.
func (b *Board) renew(ctx context.Context, l policy.Lot) (Published, error) {
	b.mu.Lock()
	o := b.draft(l, time.Now())
	o.Seq = b.seqs[l.Class] + 1
	b.mu.Unlock()
	if o.Total == 0 {
		return Published{}, market.Refuse(market.ReasonCapacity, "all units of class %s are withdrawn", l.Class)
	}
	if err := numbers.Write(ctx, b.cfg.Store, l.Class, o.Seq); err != nil {
		return Published{}, fmt.Errorf("journalling the offer's number: %w", err)
	}
	envelope, err := o.Encode(b.cfg.Domain, b.cfg.Key)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seqs[l.Class] = o.Seq
	if err != nil {
		return Published{}, err
	}
	b.current[l.Class] = Published{o, envelope}
	return b.current[l.Class], nil
}

// take waits for the turn to renew offers. The caller gives it back by the returned function.
func (b *Board) take(ctx context.Context) (back func(), err error) {
	select {
	case <-b.turn:
		return func() { b.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fresh returns the published offer of a class if most of its validity remains.
func (b *Board) fresh(c market.Class) (last Published, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, ok = b.current[c]
	return last, ok && time.Until(last.Offer.Expires) > validity/4
}

// Current returns the offer of a lot as last published, or a first one.
func (b *Board) Current(ctx context.Context, l policy.Lot) (Published, error) {
	if last, ok := b.fresh(l.Class); ok {
		return last, nil
	}
	back, err := b.take(ctx)
	if err != nil {
		return Published{}, err
	}
	defer back()
	if last, ok := b.fresh(l.Class); ok { // renewed meanwhile by another caller
		return last, nil
	}
	return b.renew(ctx, l)
}

// all renews the offers that changed or are half over, and returns all current ones.
func (b *Board) all(ctx context.Context) (offers []market.Offer, envelopes [][]byte, err error) {
	now := time.Now()
	if !b.cfg.Provider.Selling(now) {
		return nil, nil, nil
	}
	back, err := b.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer back()
	for _, l := range b.cfg.Lots {
		b.mu.Lock()
		next, last := b.draft(l, now), b.current[l.Class]
		b.mu.Unlock()
		if next.Total == 0 {
			continue
		}
		if stale(last.Offer, next, now) {
			if last, err = b.renew(ctx, l); err != nil {
				return nil, nil, err
			}
		}
		offers, envelopes = append(offers, last.Offer), append(envelopes, last.Envelope)
	}
	return offers, envelopes, nil
}

// stale reports whether a published offer has to be replaced by a fresh one.
func stale(was, fresh market.Offer, now time.Time) bool {
	return was.Units != fresh.Units || was.Total != fresh.Total || was.Price != fresh.Price ||
		was.Proven != fresh.Proven || was.Proof != fresh.Proof || !slices.Equal(was.Addrs, fresh.Addrs) ||
		was.NoClusters != fresh.NoClusters || moved(was.Coordinate, fresh.Coordinate) ||
		len(was.Ready) == 0 && len(fresh.Ready) > 0 ||
		was.Expires.Sub(now) <= validity/2
}

// moved reports whether an offer's coordinate is worth another offer.
func moved(was, is market.Coordinate) bool {
	if was.IsZero() || is.IsZero() {
		return was != is
	}
	was.Height, is.Height = max(was.Height, is.Height)-min(was.Height, is.Height), 0
	return was.Distance(is) > movedBy
}

// Run publishes the offers at the start, when free units, prices or the operator's settings change, when the hours
// begin and end, and before the last ones expire, until ctx ends.
func (b *Board) Run(ctx context.Context) {
	retry, public := time.Second, false
	for {
		offers, envelopes, err := b.all(ctx)
		if err == nil && (public || len(offers) > 0) {
			if err = b.cfg.Publisher.Offer(ctx, offers, envelopes); err == nil {
				public = len(offers) > 0
			}
		}
		wait := validity / 2
		if _, change := b.cfg.Hours.At(time.Now()); !change.IsZero() {
			wait = min(wait, time.Until(change))
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			b.cfg.Log.Warn("the offers could not be published; trying again", "err", err, "in", retry)
			wait, retry = retry, min(2*retry, time.Minute)
		} else {
			retry = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			continue
		case <-b.changed:
		}
		select { // include changes within the debounce
		case <-ctx.Done():
			return
		case <-time.After(debounce):
		}
	}
}

// Public counts the published offers that have not expired.
func (b *Board) Public(now time.Time) (n int) {
	if !b.cfg.Provider.Selling(now) {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.current {
		if o.Offer.Expires.After(now) {
			n++
		}
	}
	return n
}

// Seq returns the number of the last offer of a class in this process, 0 before the first.
func (b *Board) Seq(c market.Class) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current[c].Offer.Seq
}
