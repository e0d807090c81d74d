package wards

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
)

// register has the wards of this peer, by job.
type register struct {
	*guard
	mu    sync.Mutex
	wards map[sign.Hash]*guarded
}

func (r *register) all() []*guarded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.wards))
}

// values returns the wards without their locks.
func (r *register) values() (out []Ward) {
	for _, w := range r.all() {
		w.mu.Lock()
		out = append(out, w.Ward)
		w.mu.Unlock()
	}
	return out
}

func (r *register) find(job sign.Hash) *guarded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wards[job]
}

// add journals a ward and begins to guard it.
func (r *register) add(ctx context.Context, ward Ward) (*guarded, error) {
	w := newGuarded(r.guard, ward)
	w.heard, w.refreshed = time.Now(), true
	if err := r.write(ctx, ward); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wards[ward.Job] = w
	return w, nil
}

// forget deletes a ward at the end of its time.
func (r *register) forget(ctx context.Context, w *guarded) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.Dismissed {
		if err := w.shut(ctx); err != nil {
			return err
		}
	}
	if err := wards.Remove(ctx, r.cfg.Store, w.Job); err != nil {
		return fmt.Errorf("forgetting a job: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wards, w.Job)
	return nil
}

// load reads the wards of an earlier process. Remains of a dismissed job, left when the process ended first, are
// removed.
func (r *register) load(ctx context.Context) error {
	r.wards = map[sign.Hash]*guarded{}
	err := wards.List(ctx, r.cfg.Store, "", func(job sign.Hash, w Ward) error {
		if w.Job != job || w.Epoch == 0 || len(w.Members) != len(w.Keys.Keys) {
			return fmt.Errorf("reading ward %s: it is of job %s", job, w.Job.Short())
		}
		if err := w.Check(r.cfg.Genesis); err != nil {
			return fmt.Errorf("reading ward %s: %w", job, err)
		}
		r.wards[job] = newGuarded(r.guard, w)
		return nil
	})
	if err != nil {
		return err
	}
	gone := map[sign.Hash]bool{}
	of := func(job sign.Hash) *guarded {
		w := r.wards[job]
		if w == nil || w.Dismissed {
			gone[job] = true
			return nil
		}
		return w
	}
	if err := states.List(ctx, r.cfg.Store, "", func(job sign.Hash, value guardian.SignedState) error {
		if w := of(job); w != nil {
			w.state = &value
		}
		return nil
	}); err != nil {
		return err
	}
	if err := each(ctx, r.cfg.Store, leases, func(job sign.Hash, rec keptRecord) error {
		w := of(job)
		if w == nil {
			return nil
		}
		k, err := w.ReloadLease(r.cfg.Genesis, rec.Lease, rec.Word)
		if err != nil {
			return err
		}
		w.leases[k.ID()] = &k
		w.bytes += k.Size()
		return nil
	}); err != nil {
		return err
	}
	if err := each(ctx, r.cfg.Store, receipts, func(job sign.Hash, _ []byte) error {
		if w := of(job); w != nil {
			w.receipts++
		}
		return nil
	}); err != nil {
		return err
	}
	for job := range gone {
		if err := remove(ctx, r.cfg.Store, job); err != nil {
			return err
		}
	}
	return nil
}

func newGuarded(g *guard, w Ward) *guarded {
	return &guarded{guard: g, Ward: w, leases: map[market.LeaseID]*guardian.SignedLease{}}
}
