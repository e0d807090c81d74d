package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// endGrace is how long a program may take to save its work when its lease ends.
const endGrace = 2 * time.Second

// sale is one lease's metering, from the first voucher to its settlement.
type sale struct {
	p     *Provider
	rec   lease.Record
	buyer peer.ID

	mu          sync.Mutex
	seller      meter.Seller
	receipts    uint64
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
		s.seller, err = meter.NewSeller(p.terms(r), slot)
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
	if err := s.take(ctx, meter.VoucherReceived{Voucher: v}); err != nil {
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

// take gives the seller an event from outside its loop; what it wants done is
// done by the loop, but for the journal.
func (s *sale) take(ctx context.Context, ev meter.Event) error {
	_, err := s.step(ctx, ev)
	return err
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
		if err := s.p.cfg.Store.Write(ctx, puts...); err != nil {
			return nil, fmt.Errorf("journalling a receipt: %w", err)
		}
	}
	s.seller = next
	return rest, nil
}

// activateLocked starts the loop of a lease that is paid for. p.mu is held.
func (p *Provider) activateLocked(_ context.Context, r lease.Record) error {
	run := p.ctx
	p.wg.Go(func() {
		slot, err := p.cfg.Slots.Now(time.Now())
		for err != nil { // after a restart the chain may not have been seen yet
			select {
			case <-run.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
			slot, err = p.cfg.Slots.Now(time.Now())
		}
		s, err := p.loadSale(run, r, slot)
		if err != nil {
			p.cfg.Log.Error("a lease cannot be metered", "lease", r.Lease, "err", err)
			return
		}
		s.mu.Lock()
		running := s.running
		s.running = true
		s.mu.Unlock()
		if !running {
			s.run(run)
		}
	})
	return nil
}

// endLocked asks the loop of a lease to end its work. p.mu is held.
func (p *Provider) endLocked(id market.LeaseID, reason string) {
	s := p.sales[id]
	if s == nil { // after a restart: nothing is metered any more, but something may still run
		r, ok := p.book.Lease(id)
		run := p.ctx
		if !ok {
			return
		}
		p.wg.Go(func() {
			slot, err := p.cfg.Slots.Now(time.Now())
			if err != nil {
				slot = r.Core.Start
			}
			s, err := p.loadSale(run, r, slot)
			if err != nil {
				p.cfg.Log.Error("a lease cannot be ended", "lease", id, "err", err)
				return
			}
			s.end(reason)
			s.mu.Lock()
			running := s.running
			s.running = true
			s.mu.Unlock()
			if !running {
				s.run(run)
			}
		})
		return
	}
	s.end(reason)
}

func (s *sale) end(reason string) {
	s.mu.Lock()
	if s.ending == "" {
		s.ending = reason
	}
	s.mu.Unlock()
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// run meters the lease until it is settled or the peer stops.
func (s *sale) run(ctx context.Context) {
	p := s.p
	p.cfg.Host.Protect(s.buyer, "lease/"+s.rec.Lease.Short())
	defer p.cfg.Host.Unprotect(s.buyer, "lease/"+s.rec.Lease.Short())
	effects, err := s.apply(ctx, meter.Seller.Resume)
	if err != nil && ctx.Err() == nil {
		p.cfg.Log.Error("metering could not be resumed; trying again", "lease", s.rec.Lease, "err", err)
	}
	ended := false
	for {
		done, err := s.carryOut(ctx, effects)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.cfg.Log.Error("metering failed; trying again", "lease", s.rec.Lease, "err", err)
		}
		if done {
			s.finish(ctx)
			return
		}
		s.mu.Lock()
		reason := s.ending
		s.mu.Unlock()
		if reason != "" && !ended {
			ended = true
			effects, err = s.endWork(ctx, reason)
		} else {
			select {
			case <-ctx.Done():
				return
			case <-s.poke:
				effects = nil
				continue
			case <-time.After(s.pause()):
			}
			effects, err = s.tick(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Error("metering failed; trying again", "lease", s.rec.Lease, "err", err)
		}
	}
}

// pause is how long the loop may sleep.
func (s *sale) pause() time.Duration {
	s.mu.Lock()
	wake := s.seller.Wake()
	s.mu.Unlock()
	g := s.p.cfg.Genesis
	interval := time.Duration(g.IntervalSlots*g.SlotMillis) * time.Millisecond
	most := interval / 4
	if wake == 0 {
		return max(most, 20*time.Millisecond)
	}
	return min(max(s.p.cfg.Slots.Until(time.Now(), wake), 5*time.Millisecond), max(most, 20*time.Millisecond))
}

func (s *sale) tick(ctx context.Context) ([]meter.Effect, error) {
	if err := s.take(ctx, meter.UsageSampled{CPUMillis: s.p.exec.cpuMillis(ctx, s.rec.Lease)}); err != nil {
		return nil, err
	}
	return s.step(ctx, meter.Ticked{})
}

// carryOut does what the seller wants; done says that the lease is settled.
func (s *sale) carryOut(ctx context.Context, effects []meter.Effect) (done bool, err error) {
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case meter.StartWork:
			// The buyer says what to run; the lease is open from now on.
		case meter.ProposeReceipt:
			more, err := s.propose(ctx, e.Core)
			if err != nil {
				return false, err
			}
			effects = append(effects, more...)
		case meter.StopWork:
			s.end("the provider stopped: " + string(e.Reason))
		case meter.Settled:
			s.p.cfg.Log.Info("lease is settled", "lease", s.rec.Lease, "amount", s.p.cfg.Genesis.FormatAmount(e.Amount), "agreed", e.Agreed)
			return true, nil
		default:
			return false, fmt.Errorf("unknown effect %T", e)
		}
	}
	return false, nil
}

// propose has the buyer co-sign a receipt and takes the next voucher. A buyer
// that does not answer is asked again at the next tick.
func (s *sale) propose(ctx context.Context, core verify.ReceiptCore) ([]meter.Effect, error) {
	sig, err := core.Sign(s.p.domain, s.p.cfg.Key)
	if err != nil {
		return nil, err
	}
	b := core.Marshal()
	s.p.cfg.Host.Forgive(s.buyer)
	reply, err := protocol.Meter.Call(ctx, s.p.cfg.Host, s.p.tag, s.buyer, &nodepb.MeterRequest{
		Lease: s.rec.Lease[:], Receipt: b[:], ProviderSignature: sig[:],
	})
	if err != nil {
		s.p.cfg.Log.Debug("a receipt was not co-signed", "lease", s.rec.Lease, "seq", core.Seq, "err", err)
		return nil, nil
	}
	var out []meter.Effect
	if len(reply.BuyerSignature) == sign.SignatureSize {
		more, err := s.step(ctx, meter.CosignatureReceived{Seq: core.Seq, Sig: sign.Signature(reply.BuyerSignature)})
		if err != nil {
			return out, s.blame(err)
		}
		out = append(out, more...)
	}
	if len(reply.Voucher) > 0 {
		v, err := verify.UnmarshalSignedVoucher(reply.Voucher)
		if err != nil {
			return out, s.blame(err)
		}
		more, err := s.step(ctx, meter.VoucherReceived{Voucher: v})
		if err != nil {
			return out, s.blame(err)
		}
		out = append(out, more...)
	}
	return out, nil
}

// blame logs what a buyer's answer breaks; it is as if there had been none.
func (s *sale) blame(err error) error {
	var rule *verify.RuleError
	if errors.As(err, &rule) || errors.Is(err, market.ErrMalformed) {
		s.p.cfg.Log.Warn("the buyer's answer breaks a rule", "lease", s.rec.Lease, "err", err)
		return nil
	}
	return err
}

// endWork stops what runs under the lease and frees its units.
func (s *sale) endWork(ctx context.Context, reason string) ([]meter.Effect, error) {
	p := s.p
	p.exec.stopLease(ctx, s.rec.Lease, endGrace)
	if err := p.exec.idle(ctx, s.rec.Lease); err != nil {
		return nil, err
	}
	if _, err := p.step(ctx, lease.LeaseEnded{Lease: s.rec.Lease, Reason: reason}); err != nil {
		var invalid *lease.InvalidTransition
		if !errors.As(err, &invalid) {
			return nil, err
		}
	}
	if err := s.take(ctx, meter.UsageSampled{CPUMillis: p.exec.cpuMillis(ctx, s.rec.Lease)}); err != nil {
		return nil, err
	}
	return s.step(ctx, meter.WorkEnded{Output: p.exec.digest(s.rec.Lease)})
}

// finish makes sure that the units are free, however the seller came to its end.
func (s *sale) finish(ctx context.Context) {
	s.mu.Lock()
	reason := s.ending
	s.mu.Unlock()
	if reason == "" {
		reason = "settled"
	}
	p := s.p
	p.exec.stopLease(ctx, s.rec.Lease, endGrace)
	if err := p.exec.idle(ctx, s.rec.Lease); err != nil {
		return
	}
	p.mu.Lock()
	r, ok := p.book.Lease(s.rec.Lease)
	p.mu.Unlock()
	if ok && r.State.Live() {
		if _, err := p.step(ctx, lease.LeaseEnded{Lease: s.rec.Lease, Reason: reason}); err != nil && ctx.Err() == nil {
			p.cfg.Log.Error("the units of a lease could not be freed", "lease", s.rec.Lease, "err", err)
		}
	}
}

// obey refuses commands of a supervisor that a later one has replaced.
func (p *Provider) obey(id market.LeaseID, epoch uint64) error {
	p.mu.Lock()
	s := p.sales[id]
	p.mu.Unlock()
	if s == nil {
		return stream.Refuse("lease", "the lease is not active")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch < s.supervision {
		return stream.Refuse("supervision", fmt.Sprintf("supervision epoch %d commands this lease, not %d", s.supervision, epoch))
	}
	s.supervision = epoch
	return nil
}

// digest names what the last execution of a lease left: SHA-256 of its outputs' digests.
func (x *executor) digest(l market.LeaseID) sign.Hash {
	var last *nodepb.Execution
	for _, e := range x.of(l) {
		if s, _, _ := e.snapshot(); s.State == nodepb.ExecState_EXEC_STATE_EXITED && (last == nil || s.Seq > last.Seq) {
			last = s
		}
	}
	if last == nil || len(last.Outputs) == 0 {
		return sign.Hash{}
	}
	parts := [][]byte{[]byte("starling/output/v1")}
	for _, o := range last.Outputs {
		parts = append(parts, o.Blob.Cid)
	}
	return sign.Sum(bytes.Join(parts, nil))
}

// idle waits until nothing runs under a lease.
func (x *executor) idle(ctx context.Context, l market.LeaseID) error {
	for {
		var wake <-chan struct{}
		if !slices.ContainsFunc(x.of(l), func(e *execution) bool {
			s, _, w := e.snapshot()
			wake = w
			return !ended(s.State)
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// sweep removes what leases left that ended longer ago than outputs are kept.
func (p *Provider) sweep(ctx context.Context) {
	for _, id := range p.exec.leases() {
		p.mu.Lock()
		r, ok := p.book.Lease(id)
		s := p.sales[id]
		p.mu.Unlock()
		if ok && r.State.Live() {
			continue
		}
		if since := p.exec.idleSince(id, time.Now()); since < p.cfg.Retain {
			continue
		}
		if err := p.exec.forget(ctx, id); err != nil {
			p.cfg.Log.Warn("an ended lease could not be cleaned up", "lease", id, "err", err)
			continue
		}
		if s != nil {
			p.mu.Lock()
			delete(p.sales, id)
			p.mu.Unlock()
		}
	}
}
