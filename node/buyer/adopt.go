package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
)

// granted is the command of a job that its guardians have given to this peer.
type granted struct {
	epoch  uint64
	grant  []byte           // of the epoch
	state  jobs.State       // of the job, as its last supervisor left it or as this peer has it
	public *record.Standing // the last supervisor's news beside it; nil: none
	leases []*leases.Lease
}

// amend brings the part of a job up that its machine does not know. Where its money is its owner knows best.
func (g granted) amend(j *Job, mine bool) {
	if g.public != nil {
		g.public.Amend(j, mine)
	}
	d := j.Detached.Clone()
	d.Epoch, d.Grant = g.epoch, g.grant
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
	theirs := make([]leases.Handed, len(handed))
	for i, h := range handed {
		theirs[i] = leases.Handed{Signed: h.Signed, Escrow: h.Escrow, Record: h.Record, Payer: h.Payer}
	}
	s.mu.Lock()
	mine := slices.Clone(s.paid)
	s.mu.Unlock()
	if g.leases, err = b.leases.Merge(s.trace.Job, s.as, s.as.keys(), mine, theirs); err != nil {
		return err
	}
	var writes journal.Batch
	for _, l := range g.leases {
		puts, err := l.Takeover()
		if err != nil {
			return err
		}
		writes.Add(puts...)
	}
	if err := writes.Commit(ctx, b.cfg.Store); err != nil {
		return fmt.Errorf("journalling the leases of job %s: %w", s.trace.Job, err)
	}
	d.leave()
	b.leases.Replace(g.leases)
	s.mu.Lock()
	s.paid = slices.Clone(g.leases)
	clear(s.leases)
	s.mu.Unlock()
	for _, l := range g.leases {
		b.leases.Resume(l)
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
	merged, public, err := record.AcceptStanding(j, g.state, state.Bytes)
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
			s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Supervised, Detail: detail})
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
func (s *supervisor) fetchReceipts(ctx context.Context, l *leases.Lease) error {
	call, done := context.WithTimeout(ctx, assumeTime)
	defer done()
	receipts, err := s.guard.guardians().Receipts(call, l.Core)
	if err != nil && !errors.Is(err, guardian.ErrMinority) {
		return err
	}
	var writes journal.Batch
	for _, r := range receipts {
		writes.Add(leases.PutReceipt(l.ID, r))
	}
	if err := writes.Commit(ctx, s.b.cfg.Store); err != nil {
		return fmt.Errorf("journalling receipts: %w", err)
	}
	return nil
}

// fetchBackTime is how long an owner waits for files that its guardians say they have.
const fetchBackTime = time.Hour

// fetchFrom brings a file from the first guardian that has it.
func (s *supervisor) fetchFrom(ctx context.Context, guardians []record.Guardian, f guardian.File) error {
	for {
		var failed error
		for _, m := range guardians {
			id, err := s.b.cfg.Host.Remember(m.Key, m.Addrs)
			if err == nil {
				call, done := context.WithTimeout(ctx, s.b.cfg.LostAfter)
				err = s.b.cfg.Files.Fetch(call, id, f.CID, f.Size)
				done()
			}
			if err == nil {
				return nil
			}
			failed = errors.Join(failed, err)
		}
		s.b.cfg.Log.Warn("no guardian gives a file of a job; asking again", "job", s.trace.Job, "file", f.CID,
			"err", failed)
		if pause(ctx, grantRetry) != nil {
			return ctx.Err()
		}
	}
}
