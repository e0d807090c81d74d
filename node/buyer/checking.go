package buyer

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/store"
)

// check checks the results of all ranks, as far as they are not checked.
func (d *driver) check() {
	d.s.mu.Lock()
	begun := d.checking
	d.checking = true
	d.s.mu.Unlock()
	if begun {
		return
	}
	d.b.wg.Go(func() { d.s.checkRanks(d.b.desk.ctx) })
}

// checkRanks checks the results of all ranks, and returns when that is over, or ctx has ended.
func (s *supervisor) checkRanks(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(verifyAtOnce)
	for i := range s.snapshot().Ranks {
		g.Go(func() error {
			for {
				err := s.verify(ctx, i)
				if err == nil || ctx.Err() != nil {
					return nil
				}
				s.b.cfg.Log.Error("checking a result failed; trying again", "job", s.trace.Job, "rank", i, "err", err)
				if pause(ctx, journalRetry) != nil {
					return nil
				}
			}
		})
	}
	_ = g.Wait() // nobody fails
}

// grant asks the job's machine for the money of a replica, once the costs of those that have ended are known to it.
func (d *driver) grant(ctx context.Context, i int, attempt uint32, most market.Amount) (market.Amount, error) {
	for _, v := range d.s.snapshot().Verified {
		for _, id := range v.Replicas {
			of, err := d.b.Job(id)
			if err == nil && of.State.Ended() && of.Replica != nil {
				d.post(jobs.ReplicaEnded{Rank: uint32(of.Replica.Rank), Attempt: of.Replica.Attempt, Owed: of.Owed})
			}
		}
	}
	effects, err := d.ask(ctx, event{ev: jobs.ReplicaWanted{Rank: uint32(i), Attempt: attempt, Most: most}})
	if err != nil {
		return 0, err
	}
	for _, f := range effects {
		switch f := f.(type) {
		case jobs.BuyReplica:
			return f.Budget, nil
		case jobs.RefuseReplica:
			return 0, fmt.Errorf("%w: %s", ErrRefused, f.Reason)
		}
	}
	return 0, fmt.Errorf("%w: no result is to be checked", ErrRefused)
}

// judge journals the verdict on a rank's result in one write: x with more, the right outputs where they are others, and
// why the job fails, if it does.
func (d *driver) judge(
	ctx context.Context, i int, x Verified, outputs []Output, disputed string, more []store.Put,
) error {
	note := func(j *Job) {
		x.Replicas = j.Verified[i].Replicas
		j.Verified[i] = x
	}
	ev := jobs.ResultJudged{Rank: uint32(i), Outputs: files(outputs), Disputed: disputed != "", Reason: disputed}
	_, err := d.ask(ctx, event{ev: ev, puts: more, amend: &amendment{change: note}})
	return err
}
