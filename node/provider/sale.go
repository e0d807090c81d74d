package provider

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

const (
	// endGrace is how long a program may take to save its work when its lease ends.
	endGrace = 2 * time.Second
	// minPatience is the least time a buyer is given to co-sign a receipt.
	minPatience = time.Second
	// slotRetry is how often a lease looks whether the chain was seen at last.
	slotRetry = 200 * time.Millisecond
)

// sale is one lease's metering, from the first voucher to its settlement.
type sale struct {
	p   *Provider
	rec lease.Record

	mu         sync.Mutex
	buyer      peer.ID // the peer that co-signs and pays: it changes with the lease's supervisor
	seller     meter.Seller
	running    bool                  // its loop runs
	ending     string                // not empty: end the work, for this reason
	handed     bool                  // the execution went over to a successor
	poke       chan struct{}         // holds one token when ending was set
	funding    chan struct{}         // closed when its escrow is not looked for any more
	claimed    *verify.SignedVoucher // the last one that was given to the claimer
	claimedAll bool                  // and that there will be no other
	claimedFor market.Amount         // and of how much both have signed
}

func (s *sale) account() (receipts uint64, earned market.Amount) {
	if v, _, _ := s.best(); v != nil {
		earned = v.Cumulative
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seller.Last().Seq, earned
}

// best is the voucher to be paid by; nil before the first. No other will come once it is settled: then owed is due of it.
func (s *sale) best() (v *verify.SignedVoucher, owed market.Amount, settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v = s.seller.Closing(); v == nil {
		v = s.seller.Voucher()
	}
	return v, s.seller.Claim(0), s.seller.State() == meter.SellerSettled
}

func (p *Provider) terms(r lease.Record) meter.Terms {
	return protocol.MeterTerms(p.cfg.Genesis, *r.Core, r.Keys, r.Escrow, r.PerUnit, 0)
}

// loadSale returns the sale of a lease, restored from the journal or new, starting in slot.
func (p *Provider) loadSale(ctx context.Context, r lease.Record, slot market.Slot) (*sale, error) {
	p.mu.Lock()
	s := p.sales[r.Lease]
	p.mu.Unlock()
	if s != nil {
		return s, nil
	}
	buyer, err := p2p.PeerIDFromKey(r.Peer())
	if err != nil {
		return nil, err
	}
	s = &sale{p: p, rec: r, buyer: buyer, poke: make(chan struct{}, 1), funding: make(chan struct{})}
	state, err := p.cfg.Store.Get(ctx, kindSeller, r.Lease.String())
	switch {
	case err == nil:
		s.seller, err = meter.RestoreSeller(p.terms(r), state)
	case errors.Is(err, store.ErrNotFound):
		s.seller, err = meter.NewSeller(p.terms(r), p.notMetered(slot, r.Units))
	}
	if err != nil {
		return nil, fmt.Errorf("metering lease %s: %w", r.Lease.Short(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.sales[r.Lease]; other != nil {
		return other, nil
	}
	p.sales[r.Lease] = s
	return s, nil
}

// activate takes the voucher for the first interval and starts the lease.
func (p *Provider) activate(ctx context.Context, by sign.Key, a *marketpb.Activate) (*marketpb.LeaseReply, error) {
	if len(a.GetLease()) != len(market.LeaseID{}) {
		return nil, &stream.Malformed{Reason: "lease id is not 32 bytes"}
	}
	v, err := verify.UnmarshalSignedVoucher(a.Voucher)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	id := market.LeaseID(a.Lease)
	p.mu.Lock()
	r, ok := p.book.Lease(id)
	p.mu.Unlock()
	if !ok || r.Peer() != by {
		return nil, stream.Refuse("lease", "no such lease of yours here")
	}
	if r.State != lease.Signed && r.State != lease.Active {
		return nil, stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
	}
	slot, err := p.cfg.Slots.Now(time.Now())
	if err != nil {
		return nil, p.failed(err)
	}
	if r.State == lease.Signed {
		if r.Escrow, err = p.pay.promised(ctx, r, a.Funding); err != nil {
			return nil, err
		}
	}
	s, err := p.loadSale(ctx, r, slot)
	if err != nil {
		if errors.Is(err, meter.ErrTerms) {
			return nil, stream.Refuse("terms", err.Error())
		}
		return nil, err
	}
	// Its effects come again when the loop begins.
	if _, err := s.step(ctx, meter.VoucherReceived{Voucher: v}); err != nil {
		p.forgetWaiting(s)
		var rule *verify.RuleError
		if errors.As(err, &rule) {
			return nil, stream.Refuse("voucher", rule.Error())
		}
		return nil, err
	}
	answer, err := p.step(ctx, p.pay.activation(s, a.Funding, slot))
	if err != nil {
		return nil, p.failed(err)
	}
	return p.reply(answer)
}

// forgetWaiting drops a sale that was not paid for, so that the next attempt is
// billed from its own slot.
func (p *Provider) forgetWaiting(s *sale) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seller.State() == meter.SellerWaiting && p.sales[s.rec.Lease] == s {
		delete(p.sales, s.rec.Lease)
	}
}

// step takes the seller one event further, journals, and returns the effects that remain.
func (s *sale) step(ctx context.Context, ev meter.Event) ([]meter.Effect, error) {
	return s.apply(ctx, func(m meter.Seller, now market.Slot) (meter.Seller, []meter.Effect, error) { return m.Step(now, ev) })
}

func (s *sale) apply(ctx context.Context, f func(meter.Seller, market.Slot) (meter.Seller, []meter.Effect, error)) ([]meter.Effect, error) {
	slot, err := s.p.cfg.Slots.Now(time.Now())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next, effects, err := f(s.seller, slot)
	if err != nil {
		return nil, err
	}
	var puts []store.Put
	var rest []meter.Effect
	var signed []verify.Receipt
	for _, e := range effects {
		switch e := e.(type) {
		case meter.Persist:
			puts = append(puts, store.Put{Kind: kindSeller, Key: s.rec.Lease.String(), Value: e.State})
		case meter.CompleteReceipt:
			sig, err := e.Core.Sign(s.p.domain, s.p.cfg.Key)
			if err != nil {
				return nil, err
			}
			r := verify.Receipt{ReceiptCore: e.Core, ProviderSig: sig, BuyerSig: e.BuyerSig}
			signed = append(signed, r)
			puts = append(puts, store.Put{Kind: kindSold, Key: fmt.Sprintf("%s/%020d", s.rec.Lease, e.Core.Seq), Value: r.Marshal()})
		default:
			rest = append(rest, e)
		}
	}
	if len(puts) > 0 {
		puts = append(puts, s.p.metered(slot, next.Until(), s.rec.Units))
		if err := s.p.cfg.Store.Write(ctx, puts...); err != nil {
			return nil, fmt.Errorf("journalling a receipt: %w", err)
		}
	}
	s.seller = next
	return rest, s.file(signed)
}

// file passes on receipts to publish.
func (s *sale) file(rs []verify.Receipt) error {
	if len(rs) == 0 {
		return nil
	}
	sig, err := s.rec.Core.Sign(s.p.domain, s.p.cfg.Key) // it is always the same
	if err != nil {
		return err
	}
	for _, r := range rs {
		s.p.cfg.Filed(market.Lease{Core: *s.rec.Core, ProviderSig: sig, BuyerSig: s.rec.BuyerSig}, s.rec.Units, r)
	}
	return nil
}

// taken says why nothing can be commanded under a lease now.
func (p *Provider) taken(r lease.Record) error {
	p.mu.Lock()
	s := p.sales[r.Lease]
	p.mu.Unlock()
	switch {
	case s != nil:
		return nil
	case r.State == lease.Active: // just restarted
		return stream.Refuse(stream.CodeBusy, "the lease is being taken up again after a restart; ask again")
	}
	return stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
}

// metered records the highest slot with metering here, which is at most slots.Margin past the newest final one, and
// until when the units of a lease whose work is over were sold; 0 while it is not over. The journal has slot u64 ‖ time
// of writing, in seconds since 1970, u64, little-endian.
func (p *Provider) metered(slot, until market.Slot, units []market.UnitID) store.Put {
	p.floorMu.Lock()
	defer p.floorMu.Unlock()
	p.floor, p.ends = max(p.floor, slot), max(p.ends, until)
	for _, u := range units {
		p.until[u] = max(p.until[u], until)
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(max(p.floor, p.ends)))
	return store.Put{Kind: kindMetered, Key: "slot", Value: binary.LittleEndian.AppendUint64(b, uint64(time.Now().Unix()))}
}

// notMetered is slot, or the first one after it in which these units are not sold already, by a lease with work that
// ended in slot, or before a restart: this peer's view of the slot may have gone back meanwhile. Two receipts for one
// slot of a unit would prove a double sale.
func (p *Provider) notMetered(slot market.Slot, units []market.UnitID) market.Slot {
	p.floorMu.Lock()
	defer p.floorMu.Unlock()
	slot = max(slot, p.floor)
	for _, u := range units {
		slot = max(slot, p.until[u])
	}
	return slot
}

// loadMetered reads the record of metered, and bounds the first slot that the clock believes by it.
func (p *Provider) loadMetered(ctx context.Context) error {
	b, err := p.cfg.Store.Get(ctx, kindMetered, "slot")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading the last metered slot: %w", err)
	case len(b) != 16:
		return fmt.Errorf("reading the last metered slot: %d bytes", len(b))
	}
	p.floor = market.Slot(binary.LittleEndian.Uint64(b))
	if p.cfg.Slots != nil {
		p.cfg.Slots.Reached(p.floor, time.Unix(int64(binary.LittleEndian.Uint64(b[8:])), 0))
	}
	return nil
}
