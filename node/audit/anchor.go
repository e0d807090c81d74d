package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// Kinds of the journal.
const (
	kindAnchored = "auditanchor" // chain.Inclusion by record; unknown for one of which nobody remembers whether it was anchored
	kindBatch    = "auditbatch"  // batch, while its transaction may land; of key batchKey
	batchKey     = "now"
)

// maxBatch bounds an anchor; further records come in the next.
const maxBatch = 1024

// unknown is the inclusion of a record whose anchor was signed and may have landed: it is not anchored again.
var unknown = []byte{0}

// batch is the content of one anchor, as signed.
type batch struct {
	Records []sign.Hash    `json:"records"` // in the order of the root
	Tx      chain.Prepared `json:"tx"`
}

func (b batch) anchor() chain.Anchor {
	root := chain.RootOf(b.Records)
	return chain.Anchor{Of: chain.OfRecords, Root: root, Count: uint64(len(b.Records)), Ref: chain.RefOf(root, 1)}
}

// openAnchors reads the anchors of an earlier process.
func (s *Shelf) openAnchors(ctx context.Context) error {
	s.anchored = map[sign.Hash]chain.Inclusion{}
	err := s.store.List(ctx, kindAnchored, "", func(key string, b []byte) error {
		hash, err := sign.ParseHash(key)
		if err == nil && !slices.Equal(b, unknown) {
			s.anchored[hash], err = chain.UnmarshalInclusion(b)
		} else if err == nil {
			s.anchored[hash] = chain.Inclusion{}
		}
		if err != nil {
			return fmt.Errorf("reading the anchor of record %s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.store.List(ctx, kindBatch, "", func(key string, b []byte) error {
		if err := json.Unmarshal(b, &s.batch); err != nil {
			return fmt.Errorf("reading the anchor %s that is under way: %w", key, err)
		}
		return nil
	})
}

// Anchored is where a record of this peer's is anchored; false while it is not.
func (s *Shelf) Anchored(record sign.Hash) (chain.Inclusion, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.anchoredLocked(record)
}

func (s *Shelf) anchoredLocked(record sign.Hash) (chain.Inclusion, bool) {
	in := s.anchored[record]
	return in, in.Tx != ""
}

// draw is the content of the next anchor, the oldest first.
func (s *Shelf) draw() (records []sign.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Past
	for _, ps := range s.past {
		for _, p := range ps {
			if _, done := s.anchored[p.Record]; !p.Record.IsZero() && !done {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b Past) int { return cmp.Or(cmp.Compare(a.Window, b.Window), a.Unit.Compare(b.Unit)) })
	for _, p := range out[:min(len(out), maxBatch)] {
		records = append(records, p.Record)
	}
	return records
}

// signed keeps a batch before its transaction is sent.
func (s *Shelf) signed(ctx context.Context, b batch) error {
	value, err := json.Marshal(b)
	if err == nil {
		err = s.store.Write(ctx, store.Put{Kind: kindBatch, Key: batchKey, Value: value})
	}
	if err == nil {
		s.mu.Lock()
		s.batch = b
		s.mu.Unlock()
	}
	return err
}

// underWay is the batch with a transaction that may land.
func (s *Shelf) underWay() batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batch
}

// landed keeps for each record of the batch where it is anchored, and nothing of records that nobody can ask for any more. Of a transaction that
// nobody remembers, the zero id, it keeps that.
func (s *Shelf) landed(ctx context.Context, tx chain.TxID, status chain.TxStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, now := s.batch, map[sign.Hash]chain.Inclusion{}
	puts := []store.Put{{Kind: kindBatch, Key: batchKey}}
	anchor := b.anchor()
	for i, r := range b.Records {
		value := unknown
		if now[r] = (chain.Inclusion{}); tx != "" {
			now[r] = chain.Include(anchor, b.Records, i, tx, status.Slot)
			value = now[r].Marshal()
		}
		puts = append(puts, store.Put{Kind: kindAnchored, Key: r.String(), Value: value})
	}
	live := map[sign.Hash]bool{}
	for _, hash := range s.units {
		live[hash] = true
	}
	for _, ps := range s.past {
		for _, p := range ps {
			live[p.Record] = true
		}
	}
	for r, in := range s.anchored {
		if live[r] {
			now[r] = in
		} else {
			puts = append(puts, store.Put{Kind: kindAnchored, Key: r.String()})
		}
	}
	if err := s.store.Write(ctx, puts...); err != nil {
		return err
	}
	s.anchored, s.batch = now, batch{}
	return nil
}

// anchors has the chain keep the root of this peer's records until ctx ends: those of all its units, once they were audited in a window.
func (s *Service) anchors(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.anchorAll(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("audit records were not anchored; it is tried again", "err", err)
		}
		wait := beaconPoll
		if window, _, err := s.cfg.Sight.Window(); err == nil {
			wait = max(wait, s.cfg.Until((window + 1).First(s.cfg.Genesis.AuditSlots)))
		}
		select {
		case <-ctx.Done():
		case <-s.audited:
		case <-time.After(wait): // failures are retried
		}
	}
}

// errNothing says that nothing is left to anchor.
var errNothing = errors.New("no record is to be anchored")

// anchorAll completes the batch that is under way, then anchors further records.
func (s *Service) anchorAll(ctx context.Context) error {
	for {
		err := s.anchorBatch(ctx, s.cfg.Shelf.underWay().Tx)
		if errors.Is(err, errNothing) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// anchorBatch anchors one batch, the one under way if there is one.
func (s *Service) anchorBatch(ctx context.Context, tx chain.Prepared) error {
	var found chain.TxStatus // of a transaction of which the ledger forgot when it can land, and not its memo
	l := settle.Landing{
		Chain: s.cfg.Anchor, Every: s.cfg.AnchorPoll,
		Wait: func(why string) { s.cfg.Log.Warn("the anchor of audit records waits", "reason", why) },
		Sign: func(ctx context.Context, wait func(error)) (chain.Prepared, error) {
			b := batch{}
			if b.Records = s.cfg.Shelf.draw(); len(b.Records) == 0 {
				return chain.Prepared{}, errNothing
			}
			tx, err := s.cfg.Anchor.SignMemo(ctx, b.anchor().Memo())
			if err != nil {
				wait(err)
				return chain.Prepared{}, nil
			}
			b.Tx = tx
			return tx, s.cfg.Shelf.signed(ctx, b)
		},
		Gone: func(ctx context.Context, tx chain.Prepared, forgotten bool) error {
			if !forgotten {
				return chain.ErrNotFound
			}
			_, slot, err := s.cfg.Anchor.Memo(ctx, tx.ID)
			switch {
			case err == nil:
				found = chain.TxStatus{State: chain.Finalized, Slot: slot}
			case !errors.Is(err, chain.ErrNotFound):
				return err
			}
			return nil
		},
	}
	tx, status, err := l.Run(ctx, tx)
	if err != nil {
		return err
	}
	if status.State != chain.Finalized {
		status = found
	}
	if status.State != chain.Finalized {
		s.cfg.Log.Warn("nobody remembers whether these audit records were anchored: they are not anchored again", "records", len(s.cfg.Shelf.underWay().Records), "tx", tx.ID)
		tx.ID = ""
	}
	return s.cfg.Shelf.landed(ctx, tx.ID, status)
}
