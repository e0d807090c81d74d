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
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// granted is the command of a job that its guardians have given to this peer.
type granted struct {
	epoch  uint64
	grant  []byte     // of the epoch
	state  jobs.State // of the job, as its last supervisor left it or as this peer has it
	public *standing  // the last supervisor's news beside it; nil: none
	leases []*bought
}

// amend brings the part of a job up that its machine does not know. Where its money is its owner knows best.
func (g granted) amend(j *Job, mine bool) {
	d := j.Detached.clone()
	d.Epoch, d.Grant = g.epoch, g.grant
	if p := g.public; p != nil {
		j.Orders, j.Carry = p.Orders, p.Carry
		for i := range min(len(j.Ranks), len(p.Ranks)) {
			k, r := &j.Ranks[i], p.Ranks[i]
			k.Route, k.Units, k.Log, k.Exclusive = r.Route, r.Units, r.Log, r.Exclusive
		}
		if !mine {
			d.Escrow, d.Wages, d.Standbys = p.Detached.Escrow, p.Detached.Wages, p.Detached.Standbys
		}
	}
	j.Detached = d
}

// adopt takes in where another supervisor left the job, and its leases, which this peer pays for from now on.
func (d *command) adopt(ctx context.Context, g *granted, state *guardian.State, handed []guardian.Lease) error {
	s, b := d.s, d.b
	w, _, err := b.desk.runner.Get(s)
	if err == nil {
		g.state = w.State
		err = d.merge(g, state)
	}
	if err != nil {
		return err
	}
	if g.leases, err = s.rebuilt(handed); err != nil {
		return err
	}
	var puts []store.Put
	for _, l := range g.leases {
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
	if len(puts) > 0 {
		if err := b.cfg.Store.Write(ctx, puts...); err != nil {
			return fmt.Errorf("journalling the leases of job %s: %w", s.trace.Job, err)
		}
	}
	d.leave()
	b.mu.Lock()
	for _, l := range g.leases {
		b.leases[l.id] = l
	}
	b.mu.Unlock()
	s.mu.Lock()
	s.paid = slices.Clone(g.leases)
	clear(s.leases)
	s.mu.Unlock()
	for _, l := range g.leases {
		if l.payer.State() == meter.PayerSettled {
			close(l.settled)
		} else {
			l.watch(b)
		}
		if l.first == l.id && !l.alive() {
			l.dead("the lease was over when the buyer was back") // but its work may have ended well before
		}
	}
	b.pay.Forsake(s.trace.Job)
	return nil
}

// merge adopts another supervisor's state of the job, if it is later than this peer's.
func (d *command) merge(g *granted, state *guardian.State) error {
	if state == nil {
		return nil
	}
	j := d.s.snapshot()
	merged, public, err := acceptStanding(j, g.state, state.Bytes)
	switch {
	case err == nil && public != nil:
		g.state, g.public = merged, public
	case err != nil && (d.s.mine || g.state.Command.Epoch > 0): // it knows its job, and its leases are told one by one
		d.b.cfg.Log.Warn("what a job's guardians keep of it is of no use", "job", j.ID, "err", err)
	case err != nil:
		return fmt.Errorf("reading job %s as its guardians keep it: %w", j.ID, err)
	}
	return nil
}

// laterPayer compares how far two states of one lease are, as guardians do: by the last receipt, which its provider
// signed; then by the supervisor that signed the voucher, since guardians sign none of an earlier one after it; then by
// the voucher.
func laterPayer(x, y meter.Payer) int {
	v, w := cmp.Or(x.Voucher(), &verify.Voucher{}), cmp.Or(y.Voucher(), &verify.Voucher{})
	return cmp.Or(
		cmp.Compare(x.Last().Seq, y.Last().Seq), cmp.Compare(v.Supervision, w.Supervision), cmp.Compare(v.Seq, w.Seq))
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
		return laterPayer(p, q) > 0
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

// fetchBack brings what the guardians have of a job for its owner: the receipts, and its outputs and logs where they
// keep a standing of it.
func (d *command) fetchBack(ctx context.Context, g granted, files bool) error {
	s := d.s
	for _, l := range g.leases {
		if err := s.fetchReceipts(ctx, l); err != nil {
			return err
		}
	}
	if !files {
		return nil
	}
	s.mu.Lock()
	j := d.projectLocked(g.state)
	bases := make([]int64, len(j.Ranks))
	for i := range j.Ranks {
		bases[i] = d.baseLocked(g.state, i)
	}
	s.mu.Unlock()
	g.amend(&j, true)
	call, done := context.WithTimeout(ctx, fetchBackTime)
	defer done()
	for _, f := range keptOf(j) {
		if s.b.cfg.Blobs.Has(f.CID) {
			continue
		}
		if err := s.fetchFrom(call, j.Detached.Guardians, f); ctx.Err() != nil {
			return err
		} else if err != nil { // its money is not to wait for it
			detail := fmt.Sprintf("no guardian gave file %s of the job in %v", f.CID, fetchBackTime)
			s.trace.Add(Step{At: time.Now(), Kind: StepSupervised, Detail: detail})
		}
	}
	for i, r := range j.Ranks {
		if r.Log == nil {
			continue
		}
		c, err := cid.Parse(r.Log.CID)
		if err == nil {
			err = s.logs[i].Restore(s.b.cfg.Blobs, c, bases[i])
		}
		if err != nil {
			s.b.cfg.Log.Warn("a rank's log was not taken over", "job", j.ID, "rank", i, "err", err)
		}
	}
	return nil
}

// fetchReceipts brings the receipts of a lease from the guardians.
func (s *supervisor) fetchReceipts(ctx context.Context, l *bought) error {
	call, done := context.WithTimeout(ctx, assumeTime)
	defer done()
	receipts, err := s.guard.guardians().Receipts(call, l.core)
	if err != nil && !errors.Is(err, guardian.ErrMinority) {
		return err
	}
	var puts []store.Put
	for _, r := range receipts {
		puts = append(puts, store.Put{Kind: kindReceipt, Key: receiptKey(l.id, r.Seq), Value: r.Marshal()})
	}
	if len(puts) == 0 {
		return nil
	}
	if err := s.b.cfg.Store.Write(ctx, puts...); err != nil {
		return fmt.Errorf("journalling receipts: %w", err)
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
