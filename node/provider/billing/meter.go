package billing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

const (
	// endGrace is how long a program may take to save its work when its lease ends.
	endGrace = 2 * time.Second
	// minPatience is the shortest time limit of a buyer's co-signature.
	minPatience = time.Second
	// slotRetry is the polling interval of a lease until the chain's slot is known.
	slotRetry = 200 * time.Millisecond
)

// Meter is the metering of one lease, from the first voucher to its settlement.
type Meter struct {
	p   *Meters
	rec lease.Record

	mu      sync.Mutex
	buyer   peer.ID       // the peer that co-signs and pays: it changes with the lease's supervisor
	seller  meter.Seller  // after its last step
	running bool          // its loop runs
	ending  string        // not empty: end the work, for this reason
	handed  bool          // the execution went over to a successor
	poke    chan struct{} // holds one token when ending was set
	funding chan struct{} // closed when the search for its escrow ends
	claimed Claimed
}

// Account returns the number of receipts, and the amount of the best voucher.
func (s *Meter) Account() (receipts uint64, earned market.Amount) {
	if v, _, _ := s.Best(); v != nil {
		earned = v.Cumulative
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seller.Last().Seq, earned
}

// Best returns the voucher to be paid by, nil before the first. No other will come once the lease is settled: then owed
// is due of it.
func (s *Meter) Best() (v *verify.SignedVoucher, owed market.Amount, settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v = s.seller.Closing(); v == nil {
		v = s.seller.Voucher()
	}
	return v, s.seller.Claim(0), s.seller.State() == meter.SellerSettled
}

func (p *Meters) terms(r lease.Record) meter.Terms {
	return metering.Terms(p.cfg.Genesis, *r.Core, r.Keys, r.Escrow, r.PerUnit, 0)
}

// load returns the meter of a lease, restored from the journal or new, activated in slot.
func (p *Meters) load(ctx context.Context, r lease.Record, slot market.Slot) (*Meter, error) {
	if s := p.Find(r.Lease); s != nil {
		return s, nil
	}
	buyer, err := p2p.PeerIDFromKey(r.Peer())
	if err != nil {
		return nil, err
	}
	s := &Meter{p: p, rec: r, buyer: buyer, poke: make(chan struct{}, 1), funding: make(chan struct{})}
	rec, err := metering.Sellers.Get(ctx, p.cfg.Store, r.Lease)
	switch {
	case err == nil:
		s.seller, err = meter.RestoreSeller(p.terms(r), rec.Meter)
	case errors.Is(err, store.ErrNotFound):
		s.seller, err = meter.NewSeller(p.terms(r), slot, p.floor.free(r.Units))
	}
	if err != nil {
		return nil, fmt.Errorf("metering lease %s: %w", r.Lease.Short(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.all[r.Lease]; other != nil {
		return other, nil
	}
	p.all[r.Lease] = s
	p.sellers.Add(sold{s}, s.seller)
	return s, nil
}

// forgetWaiting drops a meter that was not paid for, so that the next attempt is
// billed from its own slot.
func (p *Meters) forgetWaiting(s *Meter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.mu.Lock()
	waiting := s.seller.State() == meter.SellerWaiting
	s.mu.Unlock()
	if waiting && p.all[s.rec.Lease] == s && p.sellers.Remove(sold{s}) { // no other voucher is under way
		delete(p.all, s.rec.Lease)
	}
}

// step sends the seller an event. Once the step is journalled, it returns the effects that remain.
func (s *Meter) step(ctx context.Context, ev meter.Event) ([]meter.Effect, error) {
	return s.p.sellers.Step(ctx, sold{s}, ev)
}

// resume returns the effects of an earlier process that may be outstanding.
func (s *Meter) resume(ctx context.Context) ([]meter.Effect, error) {
	return s.p.sellers.Resume(ctx, sold{s})
}

// Record returns the lease as it was when its metering began.
func (s *Meter) Record() lease.Record { return s.rec }

// Start returns the first slot that is billed.
func (s *Meter) Start() market.Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seller.Start()
}

// Promised returns the amount of the lease's best voucher.
func (s *Meter) Promised() market.Amount {
	if v, _, _ := s.Best(); v != nil {
		return v.Cumulative
	}
	return 0
}

// Signed returns the amount that both have signed.
func (s *Meter) Signed() market.Amount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seller.Last().Cumulative
}

// Claimed is the claimer's part of a lease's earnings.
type Claimed struct {
	Voucher *verify.SignedVoucher // the last one
	All     bool                  // there will be no other
	For     market.Amount         // that both have signed
}

// Claimed returns the claimer's state of the lease.
func (s *Meter) Claimed() Claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed
}

// SetClaimed sets the claimer's state of the lease.
func (s *Meter) SetClaimed(c Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = c
}

// Funding returns a channel that is closed when the search for the lease's escrow ends.
func (s *Meter) Funding() <-chan struct{} { return s.funding }

// Funded closes the channel of Funding. It is called once.
func (s *Meter) Funded() { close(s.funding) }
