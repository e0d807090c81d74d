package buyer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/store"
)

// forget removes jobs of other owners that this peer supervised and no longer guards: their owners have them, or they
// expired.
func (b retiring) forget(ctx context.Context) error {
	if b.cfg.Guardian == nil {
		return nil
	}
	guarded := map[sign.Hash]bool{}
	for _, c := range b.cfg.Guardian.Jobs() {
		guarded[c.Job] = true
	}
	var errs []error
	for _, s := range b.supervisors() {
		if d := s.Peek().Detached; s.Mine || d == nil || guarded[d.Terms] || !s.over() {
			continue
		}
		if err := b.forgetJob(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("forgetting job %s: %w", s.ID, err))
		}
	}
	return errors.Join(errs...)
}

// forgetJob removes a job, its leases and all of their records. If the job has hired standbys, it first waits for their
// settlement.
func (b retiring) forgetJob(ctx context.Context, s *supervisor) error {
	id := s.ID
	money, end, ok := b.pay.LetGo(id)
	if !ok {
		return b.pay.GiveUp(id)
	}
	s.Freeze()
	last := append(money, store.Put{Kind: record.Records.Kind(), Key: id})
	var ids []string
	for _, l := range s.Bought() {
		ids = append(ids, l.ID.String())
		last = append(last, leases.Forget(l.ID)...)
	}
	err := b.erase(ctx, id, ids)
	if err == nil {
		err = archive.Write(ctx, b.cfg.Store, last...)
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

// erase deletes the job's logs and its records in the journal, see archive.Erase.
func (b retiring) erase(ctx context.Context, id string, bought []string) error {
	if err := archive.Erase(ctx, b.cfg.Store, id, bought); err != nil {
		return err
	}
	return os.RemoveAll(b.runner.Dir(id))
}
