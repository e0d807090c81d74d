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
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// voucher signs a supervisor's payment, and keeps it.
func (w *guarded) voucher(
	ctx context.Context, from sign.Key, epoch uint64, pb *nodepb.GuardedLease,
) (*nodepb.GuardReply, error) {
	if err := w.Commands(from, epoch); err != nil {
		return nil, err
	}
	l, err := guardian.ParseLease(pb)
	if err != nil {
		return nil, malformed("%v", err)
	}
	if l.Epoch != epoch {
		return nil, malformed("lease of epoch %d under %d", l.Epoch, epoch)
	}
	k, v, err := w.checkLease(l)
	if err != nil {
		return nil, err
	}
	if err := k.Follows(w.leases[k.ID()]); err != nil {
		return nil, err
	}
	if err := w.keepLease(ctx, k); err != nil {
		return nil, err
	}
	if w.heard = time.Now(); !w.starved() {
		w.starving = time.Time{}
	}
	b := v.Marshal()
	sig, err := w.cfg.Key.Sign(w.domain.Preimage(sign.TagVoucher, b[:]))
	if err != nil {
		return nil, fmt.Errorf("signing a voucher: %w", err)
	}
	return signedReply(sig), nil
}

// checkLease checks a lease that a supervisor left, and its voucher.
func (w *guarded) checkLease(l guardian.SignedLease) (guardian.SignedLease, verify.Voucher, error) {
	if err := w.VerifyLease(w.domain, l); err != nil {
		return l, verify.Voucher{}, malformed("lease: %v", err)
	}
	now, err := w.slot()
	if err != nil {
		return l, verify.Voucher{}, guardian.Refuse(guardian.CodeClock, "%v", err)
	}
	if l, err = w.CheckLease(w.cfg.Genesis, l, w.leases[l.ID()]); err != nil {
		return l, verify.Voucher{}, err
	}
	v, err := w.CheckVoucher(w.cfg.Genesis, now, l)
	return l, v, err
}

// keepLease journals a lease, with the receipt that its payer holds.
func (w *guarded) keepLease(ctx context.Context, k guardian.SignedLease) error {
	old := w.leases[k.ID()]
	grown := k.Size()
	if old != nil {
		grown -= old.Size()
	}
	if old == nil && len(w.leases) >= guardian.MaxLeases || w.bytes+grown > maxKept {
		return guardian.Refuse(guardian.CodeFull,
			"the job has %d leases of %s", len(w.leases), stream.Size(int64(w.bytes)))
	}
	var b journal.Batch
	leases.Put(&b, leaseKey(w.Job, k.ID()), keptRecord{k.Lease, k.Word})
	counted := 0
	last := k.Last()
	if last.Seq > 0 && (old == nil || old.Last().Seq < last.Seq) && w.receipts < guardian.MaxReceipts {
		key, err := w.jobKey()
		if err != nil {
			return err
		}
		r, err := k.Receipt(w.domain, key)
		if err != nil {
			return err
		}
		receipts.Put(&b, receiptKey(w.Job, k.ID(), last.Seq), r.Marshal())
		counted = 1
	}
	if err := b.Commit(ctx, w.cfg.Store); err != nil {
		return fmt.Errorf("journalling a lease: %w", err)
	}
	w.leases[k.ID()] = &k
	w.bytes += grown
	w.receipts += counted
	return nil
}

// jobKey opens the job's key.
func (w *guarded) jobKey() (sign.Private, error) {
	if w.key == nil {
		seed, err := w.cfg.Unseal(guardian.SealedFor(w.tag, w.Job), w.Sealed)
		if err != nil || len(seed) != 32 {
			return sign.Private{}, fmt.Errorf("opening the key of job %s: %w",
				w.Job.Short(), errors.Join(err, sealed.ErrSealed))
		}
		key := sign.NewPrivate([32]byte(seed))
		clear(seed)
		w.key = &key
	}
	return *w.key, nil
}

// witness signs a transaction for the supervisor.
func (w *guarded) witness(
	ctx context.Context, from sign.Key, epoch uint64, message []byte,
) (*nodepb.GuardReply, error) {
	if err := w.Commands(from, epoch); err != nil {
		return nil, err
	}
	next, changed, err := w.Witness(w.cfg.Genesis, w.self, message)
	if err != nil {
		return nil, err
	}
	if changed {
		if err := w.write(ctx, next); err != nil {
			return nil, err
		}
		w.Ward = next
	}
	sig, err := w.cfg.Key.Sign(message)
	if err != nil {
		return nil, fmt.Errorf("signing a transaction: %w", err)
	}
	w.heard = time.Now()
	return signedReply(sig), nil
}

// grant signs that another peer, or this one, supervises the job, if the present supervisor failed.
func (w *guarded) grant(from sign.Key, g *nodepb.GuardRequest_Grant) (*nodepb.GuardReply, error) {
	if err := w.MayGrant(from, g.GetEpoch(), w.failed()); err != nil {
		return nil, err
	}
	b := verify.SupervisionGrant{
		Version: verify.GrantVersion, Job: w.Job, Epoch: g.Epoch, Supervisor: from, Guardians: w.Keys.Hash(),
		Slot: market.Slot(g.Slot),
	}.Marshal()
	sig, err := w.cfg.Key.Sign(w.domain.Preimage(sign.TagSupervision, b[:]))
	if err != nil {
		return nil, fmt.Errorf("signing a grant: %w", err)
	}
	if from != w.self && w.granted.IsZero() { // once in each silence, so that no peer can block the requests of others
		w.granted = time.Now()
	}
	out, err := w.read(nil)
	if err != nil {
		return nil, err
	}
	out.GetStanding().Signature = sig[:]
	return out, nil
}

// wage signs a fellow guardian's earnings.
func (w *guarded) wage(from sign.Key, voucher []byte) (*nodepb.GuardReply, error) {
	v, err := verify.UnmarshalVoucher(voucher)
	if err != nil {
		return nil, malformed("%v", err)
	}
	now, err := w.slot()
	if err != nil {
		return nil, guardian.Refuse(guardian.CodeClock, "%v", err)
	}
	if err := w.Wage(w.cfg.Genesis, now, from, v); err != nil {
		return nil, err
	}
	b := v.Marshal()
	sig, err := w.cfg.Key.Sign(w.domain.Preimage(sign.TagVoucher, b[:]))
	if err != nil {
		return nil, fmt.Errorf("signing a wage: %w", err)
	}
	return signedReply(sig), nil
}
