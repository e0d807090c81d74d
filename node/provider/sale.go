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
	p     *Provider
	rec   lease.Record
	buyer peer.ID

	mu          sync.Mutex
	seller      meter.Seller
	supervision uint64
	running     bool          // its loop runs
	ending      string        // not empty: end the work, for this reason
	poke        chan struct{} // holds one token when ending was set
}

func (s *sale) account() (receipts uint64, earned market.Amount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.seller.Closing(); v != nil {
		earned = v.Cumulative
	} else if v := s.seller.Voucher(); v != nil {
		earned = v.Cumulative
	}
	return s.seller.Last().Seq, earned
}

func (p *Provider) terms(r lease.Record) meter.Terms {
	return protocol.MeterTerms(p.cfg.Genesis, *r.Core, r.Keys, p.cfg.PerUnit, 0)
}

// loadSale returns the sale of a lease, restored from the journal or new, starting in slot.
func (p *Provider) loadSale(ctx context.Context, r lease.Record, slot market.Slot) (*sale, error) {
	p.mu.Lock()
	s := p.sales[r.Lease]
	p.mu.Unlock()
	if s != nil {
		return s, nil
	}
	buyer, err := p2p.PeerIDFromKey(r.Buyer)
	if err != nil {
		return nil, err
	}
	s = &sale{p: p, rec: r, buyer: buyer, poke: make(chan struct{}, 1)}
	state, err := p.cfg.Store.Get(ctx, kindSeller, r.Lease.String())
	switch {
	case err == nil:
		s.seller, err = meter.RestoreSeller(p.terms(r), state)
	case errors.Is(err, store.ErrNotFound):
		s.seller, err = meter.NewSeller(p.terms(r), p.notMetered(slot))
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
	if !ok || r.Buyer != by {
		return nil, stream.Refuse("lease", "no such lease of yours here")
	}
	if r.State != lease.Signed && r.State != lease.Active {
		return nil, stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
	}
	slot, err := p.cfg.Slots.Now(time.Now())
	if err != nil {
		return nil, p.failed(err)
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
	answer, err := p.step(ctx, lease.FundingSeen{Lease: id, Landed: slot})
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
			puts = append(puts, store.Put{Kind: kindSold, Key: fmt.Sprintf("%s/%020d", s.rec.Lease, e.Core.Seq), Value: r.Marshal()})
		default:
			rest = append(rest, e)
		}
	}
	if len(puts) > 0 {
		puts = append(puts, s.p.metered(slot))
		if err := s.p.cfg.Store.Write(ctx, puts...); err != nil {
			return nil, fmt.Errorf("journalling a receipt: %w", err)
		}
	}
	s.seller = next
	return rest, nil
}

// obey refuses commands of a supervisor that a later one has replaced.
func (p *Provider) obey(r lease.Record, epoch uint64) error {
	p.mu.Lock()
	s := p.sales[r.Lease]
	p.mu.Unlock()
	switch {
	case s != nil:
	case r.State == lease.Active: // just restarted
		return stream.Refuse(stream.CodeBusy, "the lease is being taken up again after a restart; ask again")
	default:
		return stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch < s.supervision {
		return stream.Refuse("supervision", fmt.Sprintf("supervision epoch %d commands this lease, not %d", s.supervision, epoch))
	}
	s.supervision = epoch
	return nil
}

// metered remembers the highest slot in which anything was metered here.
func (p *Provider) metered(slot market.Slot) store.Put {
	p.floorMu.Lock()
	defer p.floorMu.Unlock()
	p.floor = max(p.floor, slot)
	return store.Put{Kind: kindMetered, Key: "slot", Value: binary.LittleEndian.AppendUint64(nil, uint64(p.floor))}
}

// notMetered is slot, or the first one after it that no lease was metered in
// before a restart: this peer's view of the slot may have gone back meanwhile,
// and no unit may be billed twice for one slot.
func (p *Provider) notMetered(slot market.Slot) market.Slot {
	p.floorMu.Lock()
	defer p.floorMu.Unlock()
	return max(slot, p.floor)
}

// loadMetered reads what metered wrote.
func (p *Provider) loadMetered(ctx context.Context) error {
	b, err := p.cfg.Store.Get(ctx, kindMetered, "slot")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading the last metered slot: %w", err)
	case len(b) != 8:
		return fmt.Errorf("reading the last metered slot: %d bytes", len(b))
	}
	p.floor = market.Slot(binary.LittleEndian.Uint64(b))
	return nil
}
