package guardian

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
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

func put(kind, key string, v any) (store.Put, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return store.Put{}, fmt.Errorf("encoding %s %s: %w", kind, key, err)
	}
	return store.Put{Kind: kind, Key: key, Value: b}, nil
}

// write journals a ward.
func (s *Service) write(ctx context.Context, w Ward) error {
	p, err := put(kindWard, w.Job.String(), w)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.Write(ctx, p); err != nil {
		return fmt.Errorf("journalling a guarded job: %w", err)
	}
	return nil
}

// each reads the records of a kind, and which job each is of.
func (s *Service) each(ctx context.Context, kind string, f func(job sign.Hash, key string, value []byte) error) error {
	return s.cfg.Store.List(ctx, kind, "", func(key string, value []byte) error {
		text, _, _ := strings.Cut(key, "/")
		job, err := sign.ParseHash(text)
		if err == nil {
			err = f(job, key, value)
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", kind, key, err)
		}
		return nil
	})
}

// load reads the wards of an earlier process. Remains of a dismissed job, left when the process ended first, are
// removed.
func (s *Service) load(ctx context.Context) error {
	err := s.each(ctx, kindWard, func(job sign.Hash, _ string, value []byte) error {
		w := &ward{leases: map[market.LeaseID]*kept{}}
		if err := json.Unmarshal(value, &w.Ward); err != nil {
			return err
		}
		if w.Job != job || w.Epoch == 0 || len(w.Members) != len(w.Keys.Keys) {
			return fmt.Errorf("it is of job %s", w.Job.Short())
		}
		if err := w.Check(s.cfg.Genesis); err != nil {
			return err
		}
		s.wards[job] = w
		return nil
	})
	if err != nil {
		return err
	}
	gone := map[sign.Hash]bool{}
	if err := s.each(ctx, kindState, func(job sign.Hash, _ string, value []byte) error {
		w := s.wards[job]
		if w == nil || w.Dismissed {
			gone[job] = true
			return nil
		}
		w.state = &said{}
		return json.Unmarshal(value, w.state)
	}); err != nil {
		return err
	}
	if err := s.each(ctx, kindLease, func(job sign.Hash, _ string, value []byte) error {
		w := s.wards[job]
		if w == nil || w.Dismissed {
			gone[job] = true
			return nil
		}
		var rec keptRecord
		if err := json.Unmarshal(value, &rec); err != nil {
			return err
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
	if err := s.each(ctx, kindReceipt, func(job sign.Hash, _ string, _ []byte) error {
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
	w.Ward, w.state, w.key, w.leases, w.bytes, w.receipts, w.starving = next, nil, nil, map[market.LeaseID]*kept{}, 0, 0, time.Time{}
	s.drop(files, w)
	return s.remove(ctx, next.Job)
}

// removeBatch bounds one write.
const removeBatch = 1000

// remove deletes the journal's records of a job beside its ward.
func (s *Service) remove(ctx context.Context, job sign.Hash) error {
	for _, kind := range []string{kindState, kindLease, kindReceipt} {
		var puts []store.Put
		if err := s.cfg.Store.List(ctx, kind, job.String(), func(key string, _ []byte) error {
			puts = append(puts, store.Put{Kind: kind, Key: key})
			return nil
		}); err != nil {
			return fmt.Errorf("reading what a job left: %w", err)
		}
		for len(puts) > 0 {
			n := min(len(puts), removeBatch)
			if err := s.cfg.Store.Write(ctx, puts[:n]...); err != nil {
				return fmt.Errorf("removing what a job left: %w", err)
			}
			puts = puts[n:]
		}
	}
	return nil
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
	if err := s.cfg.Store.Write(ctx, store.Put{Kind: kindWard, Key: w.Job.String()}); err != nil {
		return fmt.Errorf("forgetting a job: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wards, w.Job)
	return nil
}
