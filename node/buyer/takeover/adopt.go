package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/voice"
	"github.com/starling-network/starling/node/journal"
)

// Granted is the command of a job that its guardians have given to this peer.
type Granted struct {
	Epoch uint64
	Grant []byte // of the epoch

	state  jobs.State       // of the job, as its last supervisor left it or as this peer has it
	public *record.Standing // the last supervisor's news beside it; nil: none
	leases []*leases.Lease
}

// amend updates the part of a job outside its machine. An owner keeps its own record of its money.
func (g Granted) amend(j *record.Job, mine bool) {
	if g.public != nil {
		g.public.Amend(j, mine)
	}
	d := j.Detached.Clone()
	d.Epoch, d.Grant = g.Epoch, g.Grant
	j.Detached = d
}

// Adopt applies another supervisor's standing and leases of the job. This peer pays for the leases from now on.
func (d *Takeover) Adopt(ctx context.Context, g *Granted, state *guardian.State, handed []guardian.Lease) error {
	now, err := d.State()
	if err == nil {
		g.state = now
		err = d.merge(g, state)
	}
	if err != nil {
		return err
	}
	theirs := make([]leases.Handed, len(handed))
	for i, h := range handed {
		theirs[i] = leases.Handed{Signed: h.Signed, Escrow: h.Escrow, Record: h.Record, Payer: h.Payer}
	}
	v := d.voice.Voice()
	if g.leases, err = d.cfg.Leases.Merge(d.ID, v, v.Keys(), d.Leases(), theirs); err != nil {
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
	if err := writes.Commit(ctx, d.cfg.Store); err != nil {
		return fmt.Errorf("journalling the leases of job %s: %w", d.ID, err)
	}
	d.Leave()
	d.cfg.Leases.Replace(g.leases)
	d.Replace(g.leases)
	for _, l := range g.leases {
		d.cfg.Leases.Resume(l)
	}
	d.cfg.Deposits.Forsake(d.ID)
	return nil
}

// merge adopts another supervisor's state of the job, if it is later than this peer's.
func (d *Takeover) merge(g *Granted, state *guardian.State) error {
	if state == nil {
		return nil
	}
	j := d.Snapshot()
	merged, public, err := record.AcceptStanding(j, g.state, state.Bytes)
	switch {
	case err == nil && public != nil:
		g.state, g.public = merged, public
	case err != nil && (d.Mine || g.state.Command.Epoch > 0): // its own record suffices, and leases arrive one by one
		d.cfg.Log.Warn("the standing that a job's guardians hold is not usable", "job", j.ID, "err", err)
	case err != nil:
		return fmt.Errorf("reading job %s as its guardians keep it: %w", j.ID, err)
	}
	return nil
}

// fetchBack fetches a job's data from its guardians for the owner: the receipts, and with a standing also outputs and
// logs.
func (d *Takeover) fetchBack(ctx context.Context, g Granted, files bool) error {
	for _, l := range g.leases {
		if err := d.fetchReceipts(ctx, l); err != nil {
			return err
		}
	}
	if !files {
		return nil
	}
	j, bases := d.Project(g.state)
	g.amend(&j, true)
	call, done := context.WithTimeout(ctx, fetchBackTime)
	defer done()
	for _, f := range voice.Kept(j) {
		if d.cfg.Blobs.Has(f.CID) || f.Spare {
			continue
		}
		if err := d.fetchFrom(call, j.Detached.Guardians, f); ctx.Err() != nil {
			return err
		} else if err != nil { // its money is not to wait for it
			detail := fmt.Sprintf("no guardian gave file %s of the job in %v", f.CID, fetchBackTime)
			d.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Supervised, Detail: detail})
		}
	}
	logs := d.Logs()
	for i, r := range j.Ranks {
		if r.Log == nil {
			continue
		}
		c, err := cid.Parse(r.Log.CID)
		if err == nil {
			err = logs[i].Restore(d.cfg.Blobs, c, bases[i])
		}
		if err != nil {
			d.cfg.Log.Warn("a rank's log was not taken over", "job", j.ID, "rank", i, "err", err)
		}
	}
	return nil
}

// fetchReceipts brings the receipts of a lease from the guardians.
func (d *Takeover) fetchReceipts(ctx context.Context, l *leases.Lease) error {
	call, done := context.WithTimeout(ctx, assumeTime)
	defer done()
	receipts, err := d.panel().Receipts(call, l.Core)
	if err != nil && !errors.Is(err, guardian.ErrMinority) {
		return err
	}
	var writes journal.Batch
	for _, r := range receipts {
		writes.Add(leases.PutReceipt(l.ID, r))
	}
	if err := writes.Commit(ctx, d.cfg.Store); err != nil {
		return fmt.Errorf("journalling receipts: %w", err)
	}
	return nil
}

// fetchBackTime bounds an owner's wait for files that its guardians have reported.
const fetchBackTime = time.Hour

// fetchFrom fetches a file from the first guardian that has it.
func (d *Takeover) fetchFrom(ctx context.Context, guardians []record.Guardian, f guardian.File) error {
	for {
		var failed error
		for _, m := range guardians {
			id, err := d.cfg.Host.Remember(m.Key, m.Addrs)
			if err == nil {
				call, done := context.WithTimeout(ctx, d.cfg.LostAfter)
				err = d.cfg.Files.Fetch(call, id, f.CID, f.Size)
				done()
			}
			if err == nil {
				return nil
			}
			failed = errors.Join(failed, err)
		}
		d.cfg.Log.Warn("fetching a file of a job from its guardians failed; retrying", "job", d.ID, "file", f.CID,
			"err", failed)
		if run.Pause(ctx, retry) != nil {
			return ctx.Err()
		}
	}
}

// Leave ends the work on the job's executions and leases: another peer supervises it, or this one begins anew.
func (d *Takeover) Leave() {
	d.programs.Leave()
	for _, l := range d.Leases() {
		l.Leave()
	}
}
