package buyer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// forgetBatch bounds how many records one write removes.
const forgetBatch = 1000

// forget removes jobs of others that this peer supervised and guards no more: their owners have them, or their time is over.
func (b *Buyer) forget(ctx context.Context) error {
	if b.cfg.Guardian == nil {
		return nil
	}
	guarded := map[sign.Hash]bool{}
	for _, c := range b.cfg.Guardian.Jobs() {
		guarded[c.Job] = true
	}
	var errs []error
	for _, s := range b.supervisors() {
		if d := s.peek().Detached; s.mine || d == nil || guarded[d.Terms] || !s.over() {
			continue
		}
		if err := b.forgetJob(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("forgetting job %s: %w", s.trace.Job, err))
		}
	}
	return errors.Join(errs...)
}

// forgetJob removes a job, its leases and all that is kept of them. One that has hired waits until that is wound up.
func (b *Buyer) forgetJob(ctx context.Context, s *supervisor) error {
	id := s.trace.Job
	money, end, ok := b.pay.letGo(id)
	if !ok {
		return b.pay.giveUp(id)
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := b.erase(ctx, s, money)
	if err == nil {
		b.mu.Lock()
		b.drop(s)
		b.mu.Unlock()
	}
	end(err == nil)
	s.gone(err == nil)
	return err
}

// erase deletes what the journal has of a job, and its logs: the job and its leases last, so that what is left after a crash is still a
// job, which is erased again.
func (b *Buyer) erase(ctx context.Context, s *supervisor, last []store.Put) error {
	id := s.trace.Job
	var first []store.Put
	all := func(kind, prefix string) error {
		return b.cfg.Store.List(ctx, kind, prefix, func(key string, _ []byte) error {
			first = append(first, store.Put{Kind: kind, Key: key})
			return nil
		})
	}
	err := all(trace.Records.Kind(), id+"/")
	for _, l := range s.bought() {
		err = errors.Join(err, all(kindReceipt, l.id.String()+"/"), all(probe.Records.Kind(), l.id.String()+"/"))
		last = append(last, store.Put{Kind: kindLease, Key: l.id.String()}, store.Put{Kind: kindPayer, Key: l.id.String()})
	}
	if err != nil {
		return err
	}
	for len(first) > 0 {
		n := min(len(first), forgetBatch)
		if err := b.cfg.Store.Write(ctx, first[:n]...); err != nil {
			return err
		}
		first = first[n:]
	}
	if err := os.RemoveAll(b.jobDir(id)); err != nil {
		return err
	}
	return b.cfg.Store.Write(ctx, append(last, store.Put{Kind: mesh.Records.Kind(), Key: id}, store.Put{Kind: kindJob, Key: id})...)
}

// giveUp winds up what was hired for a job.
func (x *escrowed) giveUp(job string) error {
	for _, name := range x.hires.Names() {
		if m, _, err := x.hires.Get(name); jobOf(name) != job || err != nil || m.Ending() {
			continue
		}
		if err := x.hires.Post(name, escrow.End{}); err != nil && !errors.Is(err, settle.ErrUnknown) {
			return fmt.Errorf("winding up what was hired: %w", err)
		}
	}
	return nil
}

func (free) giveUp(string) error { return nil }
