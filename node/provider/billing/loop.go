package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Open starts the loop of a lease, once; with a reason, to end its work.
func (p *Meters) Open(r lease.Record, reason string) {
	p.mu.Lock()
	run := p.ctx
	p.mu.Unlock()
	p.wg.Go(func() {
		s, err := p.wait(run, r)
		if err != nil {
			if run.Err() == nil {
				p.cfg.Log.Error("a lease cannot be metered", "lease", r.Lease, "err", err)
			}
			return
		}
		if reason != "" {
			s.end(reason)
		}
		s.mu.Lock()
		running := s.running
		s.running = true
		s.mu.Unlock()
		if !running {
			s.run(run)
		}
	})
}

// End requests the loop of a lease to end its work.
func (p *Meters) End(r lease.Record, reason string) {
	if s := p.Find(r.Lease); s != nil {
		s.end(reason)
		return
	}
	p.Open(r, reason) // after a restart no meter exists, but a program may still run
}

// wait is load that waits for the chain: after a restart it may not have been seen yet.
func (p *Meters) wait(ctx context.Context, r lease.Record) (*Meter, error) {
	for {
		slot, err := p.cfg.Slots.Now(time.Now())
		if err == nil {
			return p.load(ctx, r, slot)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(slotRetry):
		}
	}
}

// Restart sets the context of all loops, and starts the sellers. It is called once, before the first loop.
func (p *Meters) Restart(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	p.wg.Go(func() { p.sellers.Run(ctx) })
}

// Resume restores ended leases that an earlier process did not settle or claim. The book resumes live ones.
func (p *Meters) Resume(ctx context.Context) error {
	return metering.Sellers.List(ctx, p.cfg.Store, "", func(id market.LeaseID, rec metering.SellerRecord) error {
		r, ok := p.cfg.Ledger.Book().Lease(id)
		if !ok || r.State != lease.Ended {
			return nil // an unpaid lease has nothing to settle
		}
		m, err := meter.RestoreSeller(p.terms(r), rec.Meter)
		if err != nil {
			return fmt.Errorf("reading the meter of lease %s: %w", id, err)
		}
		// The claimer may not have received the last voucher for an escrow.
		if m.State() != meter.SellerSettled || !r.Escrow.IsZero() {
			p.Open(r, r.EndReason)
		}
		return nil
	})
}

func (s *Meter) end(reason string) {
	s.mu.Lock()
	if s.ending == "" {
		s.ending = reason
	}
	s.mu.Unlock()
	wake(s.poke)
}

// over returns the reason for which the work must end, or "".
func (s *Meter) over() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.seller.State(); s.ending == "" && (st == meter.SellerStopping || st == meter.SellerClosing) {
		s.ending = "the work had ended before the peer was restarted"
	}
	return s.ending
}

// run meters the lease until it is settled or the peer stops. Failed steps, as with a journal on a full disk, are
// retried after a pause.
func (s *Meter) run(ctx context.Context) {
	p := s.p
	p.cfg.Host.Protect(s.payer(), tagOf(s.rec.Lease))
	defer func() { p.cfg.Host.Unprotect(s.payer(), tagOf(s.rec.Lease)) }()
	p.cfg.Money.Opened(ctx, s)
	var resumed, ended, settled bool
	var failures int
	for {
		var effects []meter.Effect
		var err error
		switch {
		case settled:
			if err = s.free(ctx); err == nil {
				return
			}
		case !resumed:
			effects, err = s.resume(ctx)
			resumed = err == nil
		case s.over() != "" && !ended:
			effects, err = s.endWork(ctx)
			ended = err == nil
		default:
			effects, err = s.tick(ctx)
		}
		done, failed := s.carryOut(ctx, effects)
		settled = settled || done
		p.cfg.Money.Earned(s)
		if ctx.Err() != nil {
			return
		}
		if err = errors.Join(err, failed); err != nil {
			failures++
			p.cfg.Log.Error("metering failed; trying again", "lease", s.rec.Lease, "failures", failures, "err", err)
		} else if failures = 0; settled || s.over() != "" && !ended {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
		case <-time.After(s.pause(failures)):
		}
	}
}

const (
	// shortest is the least time that the loop sleeps.
	shortest = 5 * time.Millisecond
	// askAgain is the longest pause before another request to a buyer that did not answer.
	askAgain = time.Second
)

// pause returns the time that the loop may sleep after consecutive failures: until the meter wakes, but at most a
// quarter of an interval, doubled after each failure. A buyer that did not answer gets another request after askAgain.
func (s *Meter) pause(failures int) time.Duration {
	s.mu.Lock()
	at := s.seller.Wake()
	s.mu.Unlock()
	g := s.p.cfg.Genesis
	most := max(time.Duration(g.IntervalSlots*g.SlotMillis)*time.Millisecond/4, 4*shortest)
	if at == 0 {
		return min(most, askAgain)
	}
	return min(max(s.p.cfg.Slots.Until(time.Now(), at), shortest<<min(failures, 20)), most)
}

func (s *Meter) tick(ctx context.Context) ([]meter.Effect, error) {
	sampled, err := s.sample(ctx)
	if err != nil || len(sampled) > 0 { // the sample ticked the clock too
		return sampled, err
	}
	return s.step(ctx, meter.Ticked{})
}

// carryOut carries out the seller's effects, all of them even when one fails; done means that the lease is settled.
func (s *Meter) carryOut(ctx context.Context, effects []meter.Effect) (done bool, failed error) {
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case meter.StartWork:
			// The buyer sends the program; the lease is open from now on.
		case meter.ProposeReceipt:
			more, err := s.propose(ctx, e.Core)
			failed = errors.Join(failed, err)
			effects = append(effects, more...)
		case meter.StopWork:
			s.end("the provider stopped: " + string(e.Reason))
		case meter.Settled:
			if !e.Agreed && e.Amount > 0 { // it neither continued to pay nor signed its debt
				s.p.cfg.Filed.Failed(*s.rec.Core, 0) // its best voucher is claimed
			}
			s.p.cfg.Log.Info("lease is settled", "lease", s.rec.Lease,
				"amount", s.p.cfg.Genesis.FormatAmount(e.Amount), "agreed", e.Agreed)
			done = true
		default:
			failed = errors.Join(failed, fmt.Errorf("unknown effect %T", e))
		}
	}
	return done, failed
}

// patience is the time limit of a buyer's co-signature. It is short enough for a second call, and for the loop to see
// that the buyer's money is used up.
func patience(s *Meter) time.Duration {
	g := s.p.cfg.Genesis
	interval := time.Duration(g.IntervalSlots*g.SlotMillis) * time.Millisecond
	return min(max(interval, minPatience), protocol.QuickAnswer)
}

// calling returns a context for one call to the buyer. It ends early if the loop is poked.
func calling(ctx context.Context, s *Meter) (call context.Context, done func()) {
	call, cancel := context.WithTimeout(ctx, patience(s))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.poke:
			wake(s.poke)
			cancel()
		case <-call.Done():
		}
	}()
	return call, func() {
		cancel()
		<-watched
	}
}

// wake leaves a token for the loop that reads poke.
func wake(poke chan<- struct{}) {
	select {
	case poke <- struct{}{}:
	default:
	}
}

// propose requests the buyer's co-signature of a receipt and the next voucher. A buyer that does not answer gets
// another request at the next tick.
func (s *Meter) propose(ctx context.Context, core verify.ReceiptCore) ([]meter.Effect, error) {
	sig, err := core.Sign(s.p.cfg.Domain, s.p.cfg.Key)
	if err != nil {
		return nil, err
	}
	b := core.Marshal()
	buyer := s.payer()
	s.p.cfg.Host.Forgive(buyer)
	call, done := calling(ctx, s)
	defer done()
	reply, err := protocol.Meter.Call(call, s.p.cfg.Host, s.p.cfg.Tag, buyer, &nodepb.MeterRequest{
		Lease: s.rec.Lease[:], Receipt: b[:], ProviderSignature: sig[:],
	})
	if err != nil {
		s.p.cfg.Log.Debug("a receipt was not co-signed", "lease", s.rec.Lease, "seq", core.Seq, "err", err)
		return nil, nil
	}
	// The voucher first: an answer may come after the grace, when any step without it stops the work.
	var all []meter.Event
	var failed error
	if len(reply.Voucher) > 0 {
		v, err := verify.UnmarshalSignedVoucher(reply.Voucher)
		if err == nil {
			all = append(all, meter.VoucherReceived{Voucher: v})
		}
		failed = s.p.blame(s.rec.Lease, err)
	}
	if len(reply.BuyerSignature) == sign.SignatureSize {
		all = append(all, meter.CosignatureReceived{Seq: core.Seq, Sig: sign.Signature(reply.BuyerSignature)})
	}
	var out []meter.Effect
	for _, ev := range all {
		more, err := s.step(ctx, ev)
		out, failed = append(out, more...), errors.Join(failed, s.p.blame(s.rec.Lease, err))
	}
	return out, failed
}

// blame logs the rule that a buyer's answer breaks; it counts as no answer.
func (p *Meters) blame(l market.LeaseID, err error) error {
	var rule *verify.RuleError
	if errors.As(err, &rule) || errors.Is(err, market.ErrMalformed) {
		p.cfg.Log.Warn("the buyer's answer breaks a rule", "lease", l, "err", err)
		return nil
	}
	return err
}

// endWork stops the lease's execution, ends its metering and then frees its units: in this order no slot is ever billed
// twice for one unit, whenever the peer crashes. It may be called again when it fails. An execution that goes over to a
// successor is not stopped.
func (s *Meter) endWork(ctx context.Context) ([]meter.Effect, error) {
	if next, err := s.takesOver(ctx); err != nil || next != nil {
		if err != nil {
			return nil, err
		}
		return s.handOver(ctx, *next)
	}
	if err := s.stopWork(ctx); err != nil {
		return nil, err
	}
	sampled, err := s.sample(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := s.step(ctx, workEnded(s))
	effects := append(sampled, ended...)
	if err != nil {
		return effects, err
	}
	return effects, s.release(ctx)
}

// stopWork lets nothing more begin under the lease and waits until nothing runs, if the lease controls the execution.
func (s *Meter) stopWork(ctx context.Context) error {
	commands := s.p.cfg.Ledger.Book().Commands(s.rec.Lease)
	if !commands {
		return nil
	}
	return s.p.cfg.Work.End(ctx, s.rec.First(), endGrace)
}

// release frees the units if the lease still has them.
func (s *Meter) release(ctx context.Context) error {
	p := s.p
	r, ok := p.cfg.Ledger.Book().Lease(s.rec.Lease)
	if !ok || !r.State.Live() {
		return nil
	}
	reason := s.over()
	if reason == "" {
		reason = "settled"
	}
	if _, err := p.cfg.Ledger.Step(ctx, lease.LeaseEnded{Lease: r.Lease, Reason: reason}); err != nil {
		return fmt.Errorf("freeing the units of a lease: %w", err)
	}
	return nil
}

// free frees the units after any end of the seller.
func (s *Meter) free(ctx context.Context) error {
	if err := s.stopWork(ctx); err != nil {
		return err
	}
	return s.release(ctx)
}
