package wards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/journal"
)

// readTimeout bounds a request to the other guardians for a job's standing.
const readTimeout = 3 * time.Second

// fellows are the guardians of a ward. *guardian.Panel implements it.
type fellows interface {
	Read(ctx context.Context) (guardian.Standing, error)
	Grant(ctx context.Context) (guardian.Standing, error)
	Close()
}

// shell connects wards with the journal, the other guardians, the chain and the files.
type shell struct {
	*guard
	files *fetcher
}

// Load implements machine.Shell. Remains of a dismissed job, left when the process ended first, are removed.
func (x shell) Load(ctx context.Context, add func(sign.Hash, guarded)) error {
	all, gone := map[sign.Hash]*guarded{}, map[sign.Hash]bool{}
	of := func(job sign.Hash) *guarded {
		w := all[job]
		if w == nil || w.Dismissed {
			gone[job] = true
			return nil
		}
		return w
	}
	if err := wards.List(ctx, x.cfg.Store, "", func(job sign.Hash, w Ward) error {
		if w.Job != job || w.Epoch == 0 || len(w.Members) != len(w.Keys.Keys) {
			return fmt.Errorf("reading ward %s: it is of job %s", job, w.Job.Short())
		}
		if err := w.Check(x.genesis); err != nil {
			return fmt.Errorf("reading ward %s: %w", job, err)
		}
		all[job] = &guarded{
			rules: &x.rules, Ward: w, key: x.open(w.Job, w.Sealed), erased: true,
			leases: map[market.LeaseID]*guardian.SignedLease{},
		}
		return nil
	}); err != nil {
		return err
	}
	if err := x.loadRecords(ctx, of); err != nil {
		return err
	}
	for job := range gone {
		if err := remove(ctx, x.cfg.Store, job); err != nil {
			return err
		}
	}
	for job, w := range all {
		add(job, *w)
	}
	return nil
}

// loadRecords reads the records beside the wards. of returns a ward that is not dismissed, or nil.
func (x shell) loadRecords(ctx context.Context, of func(job sign.Hash) *guarded) error {
	if err := states.List(ctx, x.cfg.Store, "", func(job sign.Hash, value guardian.SignedState) error {
		if w := of(job); w != nil {
			w.state = &value
		}
		return nil
	}); err != nil {
		return err
	}
	if err := each(ctx, x.cfg.Store, leases, func(job sign.Hash, rec keptRecord) error {
		w := of(job)
		if w == nil {
			return nil
		}
		k, err := w.ReloadLease(x.genesis, rec.Lease, rec.Word)
		if err != nil {
			return err
		}
		w.leases[k.ID()] = &k
		w.bytes += k.Size()
		return nil
	}); err != nil {
		return err
	}
	return each(ctx, x.cfg.Store, receipts, func(job sign.Hash, _ []byte) error {
		if w := of(job); w != nil {
			w.receipts++
		}
		return nil
	})
}

// Record implements machine.Shell.
func (x shell) Record(b *journal.Batch, job sign.Hash, _, next guarded, effects []effect) {
	for _, f := range effects {
		switch f := f.(type) {
		case putWard:
			wards.Put(b, job, next.Ward)
		case putState:
			states.Put(b, job, *next.state)
		case putLease:
			k := next.leases[f.id]
			leases.Put(b, leaseKey(job, f.id), keptRecord{k.Lease, k.Word})
		case putSigned:
			receipts.Put(b, receiptKey(job, f.receipt.Lease, f.receipt.Seq), f.receipt.Marshal())
		case removeWard:
			wards.Delete(b, job)
		}
	}
}

// Carry implements machine.Shell.
func (x shell) Carry(job sign.Hash, f effect) func(context.Context) []event {
	log := x.cfg.Log.With("job", job.Short())
	switch f := f.(type) {
	case superseded:
		log.Info("a job has another supervisor", "epoch", f.epoch, "supervisor", f.by.Short())
		if f.lost {
			x.supervisor.Yield(job, f.epoch)
		}
	case warn:
		log.Warn(f.text, "err", f.err)
	case removeWard:
		x.runner.Drop(job)
	case erase:
		return func(ctx context.Context) []event {
			return []event{erased{x.logged(ctx, job, remove(ctx, x.cfg.Store, job))}}
		}
	case arrange:
		return func(ctx context.Context) []event { return []event{x.files.arrange(ctx, f)} }
	case look:
		return func(ctx context.Context) []event {
			err := x.cfg.Backed(ctx, f.ward, f.state)
			if err != nil {
				log.Debug("a wage is not on chain yet", "err", err)
			}
			return []event{looked{err}}
		}
	case merge:
		return func(ctx context.Context) []event { return []event{x.merge(ctx, f)} }
	case takeOver:
		return func(ctx context.Context) []event {
			p := x.fellows(f.ward)
			defer p.Close()
			standing, err := p.Grant(ctx)
			_ = x.logged(ctx, job, err)
			return []event{tookOver{standing}}
		}
	case takeUp:
		return func(ctx context.Context) []event {
			f.taken.Panel = x.panel(f.ward)
			log.Info("supervising a job", "epoch", f.ward.Epoch)
			err := x.logged(ctx, job, x.supervisor.TakeUp(ctx, f.taken))
			if err != nil {
				f.taken.Panel.Close()
			}
			return []event{takenUp{f.ward.Epoch, err}}
		}
	}
	return nil
}

// merge reads the standing. Fewer answers than the threshold are no error.
func (x shell) merge(ctx context.Context, f merge) event {
	p := x.fellows(f.ward)
	defer p.Close()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	standing, err := p.Read(ctx)
	if errors.Is(err, guardian.ErrMinority) {
		err = nil
	}
	return merged{f.why, standing, err}
}

// logged logs an error, unless it is that of an ending process, and returns it.
func (x shell) logged(ctx context.Context, job sign.Hash, err error) error {
	if err != nil && ctx.Err() == nil {
		x.cfg.Log.Warn("guarding a job", "job", job.Short(), "err", err)
	}
	return err
}
