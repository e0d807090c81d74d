package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// maxBatch bounds an anchor; further records come in the next.
const maxBatch = 1024

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
	err := anchoredTable.List(ctx, s.store, "", func(record sign.Hash, form []byte) (err error) {
		s.anchored[record] = chain.Inclusion{}
		if len(form) > 0 {
			s.anchored[record], err = chain.UnmarshalInclusion(form)
		}
		if err != nil {
			return fmt.Errorf("reading the anchor of record %s: %w", record, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.batch, err = batchTable.Get(ctx, s.store, batchKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
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
	if err := batchTable.Write(ctx, s.store, batchKey, b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batch = b
	return nil
}

// underWay is the batch with a transaction that may land.
func (s *Shelf) underWay() batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batch
}

// landed records the anchor of each record of the batch, and forgets records that can no longer be requested. The zero
// ID stands for a transaction that no endpoint remembers.
func (s *Shelf) landed(ctx context.Context, tx chain.TxID, status chain.TxStatus) error {
	back, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer back()
	s.mu.Lock()
	b, now := s.batch, map[sign.Hash]chain.Inclusion{}
	var w journal.Batch
	batchTable.Delete(&w, batchKey)
	anchor := b.anchor()
	for i, r := range b.Records {
		var form []byte
		if now[r] = (chain.Inclusion{}); tx != "" {
			now[r] = chain.Include(anchor, b.Records, i, tx, status.Slot)
			form = now[r].Marshal()
		}
		anchoredTable.Put(&w, r, form)
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
			anchoredTable.Delete(&w, r)
		}
	}
	s.mu.Unlock()
	if err := w.Commit(ctx, s.store); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.anchored, s.batch = now, batch{}
	return nil
}

// anchors has the chain keep the root of this peer's records until ctx ends: those of all its units, once they were
// audited in a window.
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

// errNothing means that there is no record left to anchor.
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
	var found chain.TxStatus // of a transaction that the ledger has without its expiry and memo
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
		s.cfg.Log.Warn("audit records of a transaction that no endpoint remembers: not anchored again",
			"records", len(s.cfg.Shelf.underWay().Records), "tx", tx.ID)
		tx.ID = ""
	}
	return s.cfg.Shelf.landed(ctx, tx.ID, status)
}
