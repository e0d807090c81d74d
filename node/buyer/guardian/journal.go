package guardian

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/verify/meter"
)

// keptRecord is a lease in the journal.
type keptRecord struct {
	Lease
	Word Word `json:"word"`
}

func leaseKey(job sign.Hash, l market.LeaseID) string { return job.String() + "/" + l.String() }

func receiptKey(job sign.Hash, l market.LeaseID, seq uint64) string {
	return fmt.Sprintf("%s/%020d", leaseKey(job, l), seq)
}

// write journals a ward.
func (s *Service) write(ctx context.Context, w Ward) error {
	if err := wards.Write(ctx, s.cfg.Store, w.Job, w); err != nil {
		return fmt.Errorf("journalling a guarded job: %w", err)
	}
	return nil
}

// each reads the records of a table. Their keys begin with a job.
func each[V any](ctx context.Context, s *Service, t journal.Table[string, V], f func(job sign.Hash, v V) error) error {
	return t.List(ctx, s.cfg.Store, "", func(key string, v V) error {
		text, _, _ := strings.Cut(key, "/")
		job, err := sign.ParseHash(text)
		if err == nil {
			err = f(job, v)
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", t.Kind(), key, err)
		}
		return nil
	})
}

// load reads the wards of an earlier process. Remains of a dismissed job, left when the process ended first, are
// removed.
func (s *Service) load(ctx context.Context) error {
	err := wards.List(ctx, s.cfg.Store, "", func(job sign.Hash, value Ward) error {
		w := &ward{Ward: value, leases: map[market.LeaseID]*kept{}}
		if w.Job != job || w.Epoch == 0 || len(w.Members) != len(w.Keys.Keys) {
			return fmt.Errorf("reading ward %s: it is of job %s", job, w.Job.Short())
		}
		if err := w.Check(s.cfg.Genesis); err != nil {
			return fmt.Errorf("reading ward %s: %w", job, err)
		}
		s.wards[job] = w
		return nil
	})
	if err != nil {
		return err
	}
	gone := map[sign.Hash]bool{}
	if err := states.List(ctx, s.cfg.Store, "", func(job sign.Hash, value said) error {
		w := s.wards[job]
		if w == nil || w.Dismissed {
			gone[job] = true
			return nil
		}
		w.state = &value
		return nil
	}); err != nil {
		return err
	}
	if err := each(ctx, s, leases, func(job sign.Hash, rec keptRecord) error {
		w := s.wards[job]
		if w == nil || w.Dismissed {
			gone[job] = true
			return nil
		}
		payer, err := meter.RestorePayer(w.terms(s.cfg.Genesis, rec.Lease, rec.Word.Epoch), rec.Payer)
		if err != nil {
			return err
		}
		w.leases[rec.ID()] = &kept{Lease: rec.Lease, Word: rec.Word, payer: payer}
		w.bytes += rec.size()
		return nil
	}); err != nil {
		return err
	}
	if err := each(ctx, s, receipts, func(job sign.Hash, _ []byte) error {
		if w := s.wards[job]; w == nil || w.Dismissed {
			gone[job] = true
		} else {
			w.receipts++
		}
		return nil
	}); err != nil {
		return err
	}
	for job := range gone {
		if err := s.remove(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// shut ends a ward: its data goes, the wages of its guardians stay. w is locked.
func (s *Service) shut(ctx context.Context, w *ward) error {
	next := w.Ward
	next.Dismissed, next.Sealed, next.File, next.Files, next.Escrows = true, nil, nil, nil, nil
	if next.OverAt == 0 {
		next.OverAt, _ = s.slot()
	}
	if err := s.write(ctx, next); err != nil {
		return err
	}
	files := w.Files
	if w.state != nil {
		files = append(files[:len(files):len(files)], w.state.Files...)
	}
	w.Ward, w.state, w.key, w.leases = next, nil, nil, map[market.LeaseID]*kept{}
	w.bytes, w.receipts, w.starving = 0, 0, time.Time{}
	s.drop(files, w)
	return s.remove(ctx, next.Job)
}

// removeBatch bounds one write.
const removeBatch = 1000

// remove deletes the journal's records of a job beside its ward.
func (s *Service) remove(ctx context.Context, job sign.Hash) error {
	var b journal.Batch
	states.Delete(&b, job)
	if err := removeAll(ctx, s, &b, leases, job); err != nil {
		return err
	}
	return removeAll(ctx, s, &b, receipts, job)
}

// removeAll deletes the records of a job in a table, after those of a batch.
func removeAll[V any](
	ctx context.Context, s *Service, b *journal.Batch, t journal.Table[string, V], job sign.Hash,
) error {
	var keys []string
	if err := t.List(ctx, s.cfg.Store, job.String(), func(key string, _ V) error {
		keys = append(keys, key)
		return nil
	}); err != nil {
		return fmt.Errorf("reading what a job left: %w", err)
	}
	for {
		n := min(len(keys), removeBatch)
		for _, key := range keys[:n] {
			t.Delete(b, key)
		}
		if err := b.Commit(ctx, s.cfg.Store); err != nil {
			return fmt.Errorf("removing what a job left: %w", err)
		}
		*b = journal.Batch{}
		if keys = keys[n:]; len(keys) == 0 {
			return nil
		}
	}
}

// forget deletes a ward at the end of its time.
func (s *Service) forget(ctx context.Context, w *ward) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.Dismissed {
		if err := s.shut(ctx, w); err != nil {
			return err
		}
	}
	if err := wards.Remove(ctx, s.cfg.Store, w.Job); err != nil {
		return fmt.Errorf("forgetting a job: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wards, w.Job)
	return nil
}
