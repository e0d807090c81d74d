package buyer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/secrets"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
)

// eraseBatch is how many records one write removes, about.
const eraseBatch = 1000

// forget removes jobs of others that this peer supervised and guards no more: their owners have them, or their time is
// over.
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
	money, end, ok := b.pay.LetGo(id)
	if !ok {
		return b.pay.GiveUp(id)
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var last journal.Batch
	last.Add(money...)
	record.Records.Delete(&last, id)
	var ids []string
	for _, l := range s.bought() {
		ids = append(ids, l.ID.String())
		last.Add(leases.Forget(l.ID)...)
	}
	err := b.erase(ctx, id, ids)
	if err == nil {
		err = last.Commit(ctx, b.cfg.Store)
	}
	if err == nil {
		b.mu.Lock()
		b.drop(s)
		b.mu.Unlock()
	}
	end(err == nil)
	s.gone(err == nil)
	return err
}

// erase deletes the job's logs and what the journal has of it, but neither the job nor its leases: the caller deletes
// those afterwards, so that a crash in between leaves a job, which can be erased again.
func (b *Buyer) erase(ctx context.Context, id string, bought []string) error {
	var gone journal.Batch
	st := b.cfg.Store
	mesh.Records.Delete(&gone, id)
	secrets.Records.Delete(&gone, id)
	if err := trace.Records.Clear(ctx, st, &gone, id+"/"); err != nil {
		return err
	}
	for _, l := range bought {
		err := errors.Join(leases.Receipts.Clear(ctx, st, &gone, l+"/"), probe.Records.Clear(ctx, st, &gone, l+"/"))
		if err == nil && gone.Len() >= eraseBatch {
			err = gone.Commit(ctx, st)
			gone = journal.Batch{}
		}
		if err != nil {
			return err
		}
	}
	if err := gone.Commit(ctx, st); err != nil {
		return err
	}
	return os.RemoveAll(b.jobDir(id))
}
