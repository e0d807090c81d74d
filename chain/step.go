package chain

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
)

func (s *Settlement) prepared(now time.Time, ev PaymentPrepared) ([]Effect, error) {
	b := s.find(ev.Batch)
	if b == nil {
		return nil, nil
	}
	if b.State != Preparing {
		return nil, &InvalidTransition{Batch: b.No, From: b.State, To: BatchPrepared, Event: "PaymentPrepared"}
	}
	if err := checkPrepared(ev.Tx, len(b.Payouts)); err != nil {
		s.drop(ev.Batch)
		return []Effect{s.delay(now, err.Error())}, nil
	}
	b.Tx = ev.Tx
	b.Payouts = slices.Clone(b.Payouts[:ev.Tx.Count])
	b.State = BatchPrepared
	b.next = now.Add(s.params.PollEvery)
	s.backoff, s.retryAt = 0, time.Time{}
	effects := []Effect{s.persist(), Send{Batch: b.No, Tx: b.Tx}}
	return append(effects, s.plan(now)...), nil
}

func checkPrepared(tx Prepared, offered int) error {
	if tx.ID == "" || len(tx.ID) > maxTxID || len(tx.Raw) == 0 || len(tx.Raw) > MaxRaw || tx.Count < 1 || tx.Count > offered {
		return fmt.Errorf("prepared transaction of %d bytes with %d of %d payouts: %w", len(tx.Raw), tx.Count, offered, ErrMalformed)
	}
	return nil
}

func (s *Settlement) prepareFailed(now time.Time, ev PrepareFailed) ([]Effect, error) {
	b := s.find(ev.Batch)
	if b == nil {
		return nil, nil
	}
	if b.State != Preparing {
		return nil, &InvalidTransition{Batch: b.No, From: b.State, To: Preparing, Event: "PrepareFailed"}
	}
	s.drop(ev.Batch)
	return []Effect{s.delay(now, ev.Reason)}, nil
}

func (s *Settlement) sent(now time.Time, no uint32) ([]Effect, error) {
	b := s.find(no)
	if b == nil {
		return nil, nil
	}
	if b.State == Preparing {
		return nil, &InvalidTransition{Batch: no, From: b.State, To: BatchSent, Event: "PaymentSent"}
	}
	b.next = now.Add(s.params.PollEvery)
	b.Err, b.rejected = "", false
	var effects []Effect
	if b.State == BatchPrepared {
		b.State = BatchSent
		effects = append(effects, s.persist())
	}
	return append(effects, Poll{Batch: no, Tx: b.Tx}), nil
}

func (s *Settlement) sendFailed(now time.Time, ev SendFailed) ([]Effect, error) {
	b := s.find(ev.Batch)
	if b == nil {
		return nil, nil
	}
	if b.State == Preparing {
		return nil, &InvalidTransition{Batch: b.No, From: b.State, To: BatchSent, Event: "SendFailed"}
	}
	b.next = now.Add(s.params.PollEvery)
	b.Err, b.rejected = clip(ev.Reason), ev.Rejected
	s.reason = b.Err
	return []Effect{Waiting{Reason: b.Err, Until: b.next}, Poll{Batch: b.No, Tx: b.Tx}}, nil
}

func (s *Settlement) seen(now time.Time, ev StatusSeen) ([]Effect, error) {
	b := s.find(ev.Batch)
	if b == nil {
		return nil, nil
	}
	if b.State == Preparing {
		return nil, &InvalidTransition{Batch: b.No, From: b.State, To: BatchConfirmed, Event: "StatusSeen"}
	}
	b.next = now.Add(s.params.PollEvery)
	b.Slot = ev.Status.Slot
	if ev.Status.Err != "" {
		b.Err = clip(ev.Status.Err)
	}
	switch ev.Status.State {
	case Unknown, Pending:
		if b.State == BatchConfirmed { // forked away
			b.State = BatchSent
		}
		return nil, nil
	case Confirmed:
		b.State = BatchConfirmed
		return nil, nil
	case Finalized:
		return s.settle(now, *b), nil
	case Failed, Expired:
		return s.free(now, *b, ev.Status.State), nil
	}
	return nil, fmt.Errorf("status %d: %w", ev.Status.State, ErrMalformed)
}

// settle books the batch as paid for ever.
func (s *Settlement) settle(now time.Time, b Batch) []Effect {
	b.State, b.Err, b.Tx.Raw, b.next = BatchSettled, "", nil, time.Time{}
	for _, p := range b.Payouts {
		a := s.account(p.Lease)
		a.Paid += p.Amount
		a.Fails = 0
	}
	s.drop(b.No)
	kept := append(slices.Clone(s.history), b)
	s.history = kept[max(0, len(kept)-MaxBatches):]
	s.reason = ""
	effects := []Effect{s.persist(), Settled{Batch: b}}
	return append(effects, s.plan(now)...)
}

// free makes the batch's amounts due again: no block can hold the transaction, or a final one holds it without effect.
func (s *Settlement) free(now time.Time, b Batch, as TxState) []Effect {
	reason := b.Err
	if reason == "" {
		reason = "transaction " + as.String()
	}
	if as == Failed || b.rejected { // it was not just lost on the way
		for _, p := range b.Payouts {
			if a := s.account(p.Lease); a.Fails < 255 {
				a.Fails++
			}
		}
	}
	s.drop(b.No)
	return []Effect{s.persist(), s.delay(now, reason)}
}

func (s *Settlement) account(lease market.LeaseID) *Account {
	for i := range s.accounts {
		if s.accounts[i].Lease == lease {
			return &s.accounts[i]
		}
	}
	panic("chain: batch pays a lease without an account") // Unmarshal and plan hold this
}

// tick sends and polls what is in flight and due, then plans.
func (s *Settlement) tick(now time.Time) []Effect {
	var effects []Effect
	for i := range s.batches {
		b := &s.batches[i]
		if b.State == Preparing || now.Before(b.next) {
			continue
		}
		b.next = now.Add(s.params.PollEvery)
		if b.State == BatchConfirmed {
			effects = append(effects, Poll{Batch: b.No, Tx: b.Tx})
		} else {
			effects = append(effects, Send{Batch: b.No, Tx: b.Tx}) // which is answered, and then polled
		}
	}
	return append(effects, s.plan(now)...)
}
