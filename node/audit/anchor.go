package audit

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/node/audit/shelf"
	"github.com/starling-network/starling/node/settle"
)

// anchors has the chain keep the root of this peer's records until ctx ends: those of all its units, once they were
// audited in a window.
func (s *Service) anchors(ctx context.Context) error {
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
	return nil
}

// errNothing means that there is no record left to anchor.
var errNothing = errors.New("no record is to be anchored")

// anchorAll completes the batch that is under way, then anchors further records.
func (s *Service) anchorAll(ctx context.Context) error {
	for {
		err := s.anchorBatch(ctx, s.cfg.Shelf.State().UnderWay().Tx)
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
			b := shelf.Batch{Records: s.cfg.Shelf.State().Draw()}
			if len(b.Records) == 0 {
				return chain.Prepared{}, errNothing
			}
			tx, err := s.cfg.Anchor.SignMemo(ctx, b.Anchor().Memo())
			if err != nil {
				wait(err)
				return chain.Prepared{}, nil
			}
			b.Tx = tx
			return tx, s.cfg.Shelf.Sign(ctx, b)
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
			"records", len(s.cfg.Shelf.State().UnderWay().Records), "tx", tx.ID)
		tx.ID = ""
	}
	return s.cfg.Shelf.Land(ctx, tx.ID, status.Slot)
}
