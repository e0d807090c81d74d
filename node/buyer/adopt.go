package buyer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

// adopt goes on from where another supervisor left the job.
func (s *supervisor) adopt(ctx context.Context, state *guardian.State, handed []guardian.Lease) error {
	j, err := s.merged(state)
	if err != nil {
		return err
	}
	leases, err := s.rebuilt(handed)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if int(l.core.Rank) >= len(j.Ranks) || l.core.Successor() {
			continue
		}
		k := &j.Ranks[l.core.Rank]
		if l.core.RankEpoch > k.Epoch && (l.payer.State() == meter.PayerPaying || l.rec.Active) {
			k.Epoch, k.Lease, k.Provider, k.State, k.Seq, k.Next, k.Unextended = l.core.RankEpoch, l.id, l.core.Provider, RankLeased, 0, nil, ""
		}
	}
	j.Detached.Epoch, j.Detached.Grant = s.guard.proof()
	var puts []store.Put
	for _, l := range leases {
		if l.payer.State() == meter.PayerPaying {
			l.rec.Active = true // it was asked for its first voucher
		}
		rec, err := l.record()
		if err != nil {
			return err
		}
		payer, err := l.payer.Marshal()
		if err != nil {
			return err
		}
		puts = append(puts, rec, store.Put{Kind: kindPayer, Key: l.id.String(), Value: payer})
	}
	if err := s.save(ctx, func(k *Job) { *k = j }, puts...); err != nil {
		return err
	}
	b := s.b
	b.mu.Lock()
	for _, l := range leases {
		if old := b.leases[l.id]; old != nil {
			old.leave()
		}
		b.leases[l.id] = l
	}
	b.mu.Unlock()
	s.mu.Lock()
	s.paid = leases
	clear(s.leases)
	s.seat()
	s.mu.Unlock()
	for _, l := range leases {
		if l.payer.State() == meter.PayerSettled {
			close(l.settled)
		} else {
			l.watch(b)
		}
	}
	return nil
}

// merged is the job with what another supervisor made of it, if that is later than what this peer knows.
func (s *supervisor) merged(state *guardian.State) (Job, error) {
	j := s.snapshot()
	if state == nil {
		return j, nil
	}
	owned := s.b.owned(j)
	theirs, news, err := acceptStanding(j, s.saved, state.Bytes)
	if err != nil && (owned || s.saved) { // it knows its job, and its leases are told one by one
		s.b.cfg.Log.Warn("what a job's guardians keep of it is of no use", "job", j.ID, "err", err)
		return j, nil
	}
	if err != nil {
		return j, fmt.Errorf("reading job %s as its guardians keep it: %w", j.ID, err)
	}
	if !news {
		return j, nil
	}
	d, mine := theirs.Detached, j
	j.State, j.Outcome, j.Code, j.Reason = theirs.State, theirs.Outcome, theirs.Code, clip(theirs.Reason)
	j.Started, j.Round, j.Carry, j.Ranks, j.Lost, j.Orders = theirs.Started, theirs.Round, theirs.Carry, theirs.Ranks, theirs.Lost, theirs.Orders
	if j.State.Ended() { // what is owed is still to be settled
		j.State, j.Outcome = Settling, theirs.State
	}
	for i := range j.Ranks {
		k, was := &j.Ranks[i], mine.Ranks[i]
		if k.Lease == was.Lease && k.Seq == was.Seq {
			k.LogBase = was.LogBase
		} else {
			k.LogBase = s.logs[i].Len()
		}
	}
	if owned { // where its money is it knows best
		return j, nil
	}
	j.Spec = theirs.Spec
	j.Paused, j.Stopping, j.Extended = theirs.Paused, theirs.Stopping, theirs.Extended
	own := j.Detached.clone()
	own.Escrow, own.Wages, own.Standbys = d.Escrow, d.Wages, d.Standbys
	j.Detached = own
	return j, nil
}

// rebuilt makes the job's leases anew, under the epoch of now: each as it is known best, here or by the guardians.
func (s *supervisor) rebuilt(handed []guardian.Lease) ([]*bought, error) {
	b := s.b
	type version struct {
		rec   leaseRecord
		payer []byte
	}
	best := map[market.LeaseID]version{}
	s.mu.Lock()
	mine := slices.Clone(s.paid)
	s.mu.Unlock()
	for _, l := range mine {
		l.mu.Lock()
		state, err := l.payer.Marshal()
		best[l.id] = version{l.rec, state}
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	newer := func(t meter.Terms, x, y []byte) bool { // x than y
		p, err := meter.RestorePayer(t, x)
		q, no := meter.RestorePayer(t, y)
		if err != nil || no != nil {
			return err == nil
		}
		seq := func(p meter.Payer) uint64 {
			if v := p.Voucher(); v != nil {
				return v.Seq
			}
			return 0
		}
		return cmp.Or(cmp.Compare(p.Last().Seq, q.Last().Seq), cmp.Compare(seq(p), seq(q))) > 0
	}
	build := func(rec leaseRecord, state []byte) (*bought, error) {
		signed, err := market.UnmarshalLease(rec.Lease)
		if err != nil {
			return nil, err
		}
		l, err := b.openLease(signed, s.as.keys(), rec, s.as)
		if err != nil {
			return nil, err
		}
		l.payer, err = meter.RestorePayer(l.terms(), state)
		return l, err
	}
	for _, h := range handed {
		rec, err := b.recordOf(h)
		rec.Job, rec.Lease, rec.Keys, rec.Escrow = s.trace.Job, h.Signed.Marshal(), s.as.keys().Marshal(), h.Escrow
		var l *bought
		if err == nil {
			l, err = build(rec, h.Payer)
		}
		if err != nil { // the others are worth as much as before
			b.cfg.Log.Warn("a lease as a job's guardians keep it is of no use", "job", s.trace.Job, "lease", h.ID(), "err", err)
			continue
		}
		if old, ok := best[l.id]; !ok || newer(l.terms(), h.Payer, old.payer) {
			best[l.id] = version{rec, h.Payer}
		}
	}
	var out []*bought
	for _, v := range best {
		if root := v.rec.Root; !root.IsZero() {
			if first, ok := best[root]; !ok || !first.rec.Root.IsZero() {
				b.cfg.Log.Warn("a lease as a job's guardians keep it makes none longer that is known", "job", s.trace.Job, "lease", root)
				continue
			}
		}
		l, err := build(v.rec, v.payer)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, b.linkAll(out)
}

// fetchBack brings what the guardians have of a job for its owner: the receipts, and once its work is over its outputs and logs.
func (s *supervisor) fetchBack(ctx context.Context, st guardian.Standing) error {
	panel := s.guard.guardians()
	for _, l := range s.bought() {
		call, done := context.WithTimeout(ctx, assumeTime)
		receipts, err := panel.Receipts(call, l.core)
		done()
		if err != nil && !errors.Is(err, guardian.ErrMinority) {
			return err
		}
		var puts []store.Put
		for _, r := range receipts {
			puts = append(puts, store.Put{Kind: kindReceipt, Key: receiptKey(l.id, r.Seq), Value: r.Marshal()})
		}
		if len(puts) > 0 {
			if err := s.b.cfg.Store.Write(ctx, puts...); err != nil {
				return fmt.Errorf("journalling receipts: %w", err)
			}
		}
	}
	if st.State == nil {
		return nil
	}
	j := s.snapshot()
	named, err := s.standing(false)
	if err != nil {
		return err
	}
	call, done := context.WithTimeout(ctx, fetchBackTime)
	defer done()
	for _, f := range named.Files {
		if s.b.cfg.Blobs.Has(f.CID) {
			continue
		}
		if err := s.fetchFrom(call, j.Detached.Guardians, f); ctx.Err() != nil {
			return err
		} else if err != nil { // its money is not to wait for it
			s.trace.Add(Step{At: time.Now(), Kind: StepSupervised, Detail: fmt.Sprintf("no guardian gave file %s of the job in %v", f.CID, fetchBackTime)})
		}
	}
	for i, r := range j.Ranks {
		if r.Log == nil {
			continue
		}
		c, err := cid.Parse(r.Log.CID)
		if err == nil {
			err = s.logs[i].Restore(s.b.cfg.Blobs, c, r.LogBase)
		}
		if err != nil {
			s.b.cfg.Log.Warn("a rank's log was not taken over", "job", j.ID, "rank", i, "err", err)
		}
	}
	return nil
}

// fetchBackTime is how long an owner waits for files that its guardians say they have.
const fetchBackTime = time.Hour

// fetchFrom brings a file from the first guardian that has it.
func (s *supervisor) fetchFrom(ctx context.Context, guardians []guardian.Member, f guardian.File) error {
	for {
		var failed error
		for _, m := range guardians {
			id, err := exchange.Remember(s.b.cfg.Host, m.Key, m.Addrs)
			if err == nil {
				call, done := context.WithTimeout(ctx, s.b.cfg.LostAfter)
				err = s.b.cfg.Fetch(call, id, f.CID, f.Size)
				done()
			}
			if err == nil {
				return nil
			}
			failed = errors.Join(failed, err)
		}
		s.b.cfg.Log.Warn("no guardian gives a file of a job; asking again", "job", s.trace.Job, "file", f.CID, "err", failed)
		if pause(ctx, grantRetry) != nil {
			return ctx.Err()
		}
	}
}
