package buyer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

const (
	// bondTimeout bounds finding out what the providers who could run a replica have at stake.
	bondTimeout = 5 * time.Second
	// bondsAtOnce is how many are asked for at a time.
	bondsAtOnce = 8
)

// Replica says whose result a job computes again. It is a job like any other: its order, its leases and its money.
type Replica struct {
	Job     string          `json:"job"`
	Rank    int             `json:"rank"`
	Count   int             `json:"count"`   // of that job's ranks, as its program knows it
	Attempt uint32          `json:"attempt"` // from 1
	Seed    sign.Hash       `json:"seed"`    // of the draw of who is asked first
	Not     []replica.Party `json:"not"`     // who is not asked
}

// determined makes a workload one whose result depends on nothing but itself: the clock and the randomness that its
// program sees follow from the job and the rank, and its limits are those that the job asks for, whatever more a
// provider has. A replica's is the same to the byte.
func determined(j Job, rank int, w *nodepb.Workload) {
	id, count := j.ID, len(j.Ranks)
	if r := j.Replica; r != nil {
		id, rank, count = r.Job, r.Rank, r.Count
	}
	w.Env[EnvJob], w.Env[EnvRank], w.Env[EnvCount] = id, strconv.Itoa(rank), strconv.Itoa(count)
	w.Env[EnvRound] = "0" // there is one, also when it is over
	h := sign.Sum([]byte("starling/job/seed/v1"), []byte(id), binary.LittleEndian.AppendUint32(nil, uint32(rank)))
	w.Seed = max(binary.LittleEndian.Uint64(h[:8]), 1)
	per := j.Spec.Resources
	w.MemoryMib, w.DiskMib = per.PerUnit.MemoryMiB*per.Units, per.PerUnit.DiskMiB*per.Units
}

// replicaOf is the spec of a job that does rank i of j once more.
func replicaOf(j Job, i int) (job.Job, error) {
	spec := j.Spec
	spec.Count, spec.Webhooks, spec.Restart.Max = 1, nil, 0
	spec.Inputs = append([]job.Input(nil), spec.Inputs...)
	for k := range spec.Inputs {
		spec.Inputs[k].Source = spec.Inputs[k].For(i)
	}
	blobs := map[string]job.Blob{}
	for _, source := range spec.Sources() {
		b, ok := j.Spec.Blobs[source]
		if !ok {
			return spec, fmt.Errorf("its input %s is not there any more", source)
		}
		blobs[source] = b
	}
	spec.Blobs = blobs
	single := spec
	single.Verify = job.VerifyNone
	cost, err := single.MaxCost()
	spec.Payment.Budget = min(cost, spec.Payment.Budget)
	return spec, err
}

// bond is who answers for a provider, and with how much: the wallet behind its stake, or the one that it is paid to.
func (b *Buyer) bond(ctx context.Context, p, payout sign.Key) (owner sign.Key, stake market.Amount) {
	if b.cfg.Bond != nil {
		owner, stake, err := b.cfg.Bond(ctx, p)
		switch {
		case err == nil && !owner.IsZero():
			return owner, stake
		case err != nil && !errors.Is(err, chain.ErrNotFound):
			b.cfg.Log.Info("what a provider has at stake is not known; it counts as nothing", "provider", p, "err", err)
		}
	}
	return payout, 0
}

// draw puts those who could run a replica into the order of the draw, in place of the best first.
func (b *Buyer) draw(ctx context.Context, r Replica, res match.Result) match.Result {
	ctx, cancel := context.WithTimeout(ctx, bondTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []replica.Candidate
	by := map[sign.Key]match.Scored{}
	var g errgroup.Group
	g.SetLimit(bondsAtOnce)
	for _, s := range res.Ranked {
		p, payout := s.Candidate.Offer.Provider, s.Candidate.Offer.Payout
		if s.Candidate.Quote != nil {
			payout = s.Candidate.Quote.Payout
		}
		if _, twice := by[p]; twice {
			continue
		}
		by[p] = s
		g.Go(func() error {
			owner, stake := b.bond(ctx, p, payout)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, replica.Candidate{Provider: p, Owner: owner, Staked: stake > 0})
			return nil
		})
	}
	_ = g.Wait() // nobody fails
	res.Ranked, res.Newcomers = nil, nil
	for _, p := range replica.Pick(r.Seed, r.Attempt, all, r.Not) {
		res.Ranked = append(res.Ranked, by[p])
	}
	return res
}

// check checks the results of all ranks, as far as they are not checked.
func (d *driver) check() {
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
