package buyer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// Scale gives a cluster that runs another size. New members are ordered all or none, within the job's money; of a smaller one
// the highest ranks are ended, as gracefully as a stop. It returns when the cluster has that size, or has kept its own. ErrRefused
// for what cannot be scaled, ErrNotRunning for a cluster that does not run; ErrFunds or ErrLimit where money forbids it.
func (b *Buyer) Scale(ctx context.Context, id string, n uint32) (Job, error) {
	return b.ScaleWithin(ctx, id, n, 0)
}

// ScaleWithin is Scale that gives the job another budget for it, not below the one it has; 0 leaves the budget to follow the size as
// it does. With the size that the cluster has, the budget alone is another. A cluster that keeps its size keeps its budget.
func (b *Buyer) ScaleWithin(ctx context.Context, id string, n uint32, budget market.Amount) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	if s.snapshot().Cluster == nil {
		return Job{}, fmt.Errorf("%w: job %s is no cluster", ErrRefused, s.snapshot().ID)
	}
	if n < 1 || n > cluster.MaxMembers {
		return Job{}, fmt.Errorf("%w: a cluster has 1 to %d members, not %d", ErrRefused, cluster.MaxMembers, n)
	}
	if !s.extending.TryLock() {
		return Job{}, fmt.Errorf("%w: the cluster is being scaled, or its job made longer; try again when that is done", ErrRefused)
	}
	done := make(chan error, 1)
	b.mu.Lock()
	if b.ctx == nil || b.closing {
		b.mu.Unlock()
		s.extending.Unlock()
		return Job{}, fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	b.wg.Go(func() { // who asked may go away meanwhile
		defer s.extending.Unlock()
		if s.driver != nil {
			done <- s.driver.scale(int(n), budget)
			return
		}
		done <- s.scale(int(n), budget)
	})
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return s.shown(), ctx.Err()
	case err := <-done:
		return s.shown(), err
	}
}

// scale brings the cluster to n members. s.extending is held.
func (s *supervisor) scale(n int, budget market.Amount) error {
	c, ctx, err := s.manned()
	if err != nil {
		return err
	}
	j := s.snapshot()
	format := s.b.cfg.Genesis.FormatAmount
	switch has := j.Spec.Payment.Budget; {
	case n == len(j.Ranks) && budget == 0:
		return nil
	case n < len(j.Ranks) && budget > 0:
		return fmt.Errorf("%w: a smaller cluster needs no more money; leave the budget out", ErrRefused)
	case budget > 0 && budget < has:
		return fmt.Errorf("%w: a budget of %s is less than the cluster has, %s", ErrRefused, format(budget), format(has))
	case n == len(j.Ranks):
		return s.grow(ctx, c, n, budget)
	}
	if err := c.engine.CheckScale(j.Spec.Cluster.Options, j.Cluster.Begun, uint32(n)); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	began, from := time.Now(), len(j.Ranks)
	if n > from {
		err = s.grow(ctx, c, n, budget)
	} else {
		err = s.leave(ctx, c, n)
	}
	if err != nil {
		return err
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepScaled, Took: time.Since(began), Detail: fmt.Sprintf("from %d to %d members", from, n)})
	s.trace.Poke()
	return nil
}

// takeUpTime is how long a cluster that runs is waited for until this peer, which was restarted, has taken it up.
const takeUpTime = 30 * time.Second

// manned is who runs the cluster, and until when: a job that is said to run may be on its way there after a restart.
func (s *supervisor) manned() (*crew, context.Context, error) {
	over := time.NewTimer(takeUpTime)
	defer over.Stop()
	for {
		bell := s.rung()
		s.mu.Lock()
		c, ctx, j := s.crew, s.working, s.job
		s.mu.Unlock()
		switch {
		case j.State != Running || j.Stopping:
			return nil, nil, fmt.Errorf("%w: the cluster is %s", ErrNotRunning, j.State)
		case c != nil:
			return c, ctx, nil
		}
		select {
		case <-bell:
		case <-s.done:
			return nil, nil, fmt.Errorf("%w: the cluster has ended, or this peer stops", ErrNotRunning)
		case <-over.C:
			return nil, nil, fmt.Errorf("%w: this peer is still taking the cluster up; try again", ErrNotRunning)
		}
	}
}

// grow orders the members that are missing, all or none. A budget that is not 0 is the job's from then on.
func (s *supervisor) grow(ctx context.Context, c *crew, n int, budget market.Amount) error {
	b, j := s.b, s.snapshot()
	from := len(j.Ranks)
	spec, err := j.size(n)
	if err != nil {
		return err
	}
	if budget > 0 {
		if spec, err = spec.With(job.Changes{Budget: &budget}); err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	need, err := mostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := b.pay.afford(ctx, j.ID, need, spec.Count); err != nil {
		return err
	}
	if err := s.makeRoom(n); err != nil {
		return err
	}
	var ranks []uint32
	b.mu.Lock() // no other job is taken in between on the same limits
	err = b.withinMore(s, spec, time.Now())
	if err == nil {
		err = s.save(ctx, func(k *Job) {
			k.Cluster.Before, k.Spec = j.Spec.Payment.Budget, spec
			for i := from; i < n; i++ {
				r := Rank{State: RankJoining}
				if i < len(k.Cluster.Epochs) {
					r.Epoch = k.Cluster.Epochs[i]
				}
				k.Ranks = append(k.Ranks, r)
				ranks = append(ranks, uint32(i))
			}
		})
	}
	b.mu.Unlock()
	if err == nil && len(ranks) > 0 {
		err = s.lease(ctx, ranks)
	}
	if err != nil {
		var o *outcome
		if errors.As(err, &o) && o.code == CodePayment {
			err = fmt.Errorf("%w: more members cost more; scale it with a higher budget (--budget)", err)
		}
		now := s.snapshot().Ranks
		if s.peer.Err() == nil && len(now) > from && now[from].State == RankJoining { // else the next process sees to it
			if undone := s.shrink(s.peer, from); undone != nil {
				return undone
			}
		}
		return fmt.Errorf("%w: the cluster keeps its %d members: %w", ErrRefused, from, err)
	}
	for i := from; i < n; i++ {
		c.join(i)
	}
	return nil
}

// makeRoom has a place for what this peer keeps of each of n ranks.
func (s *supervisor) makeRoom(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := slices.Clone(s.logs)
	for i := len(logs); i < n; i++ {
		l, err := ranklog.Open(filepath.Join(s.b.jobDir(s.job.ID), fmt.Sprintf("rank-%d.log", i)))
		if err != nil {
			return err
		}
		logs = append(logs, l)
	}
	s.logs = logs
	for len(s.leases) < n {
		s.leases, s.asking, s.told = append(s.leases, nil), append(s.asking, false), append(s.told, told{})
	}
	return nil
}

// leave takes the highest ranks away.
func (s *supervisor) leave(ctx context.Context, c *crew, n int) error {
	j := s.snapshot()
	var ranks []int
	for i := n; i < len(j.Ranks); i++ {
		if len(j.Ranks[i].Next) > 0 {
			return fmt.Errorf("%w: the provider of rank %d is still being asked for more time; try again when it has answered", ErrRefused, i)
		}
		ranks = append(ranks, i)
	}
	if _, err := j.size(n); err != nil {
		return err
	}
	// From here on it happens, also when the peer is restarted in between.
	if err := s.save(ctx, func(k *Job) { k.Cluster.Target = uint32(n) }); err != nil {
		return err
	}
	if err := c.leave(ctx, ranks); err != nil {
		return err
	}
	return s.shrink(ctx, n)
}

// shrink forgets the ranks from n on, whose programs have ended or never began, and ends their leases.
func (s *supervisor) shrink(ctx context.Context, n int) error {
	was := s.snapshot()
	spec, err := was.size(n)
	if err != nil {
		return err
	}
	if before := was.Cluster.Before; before > 0 && len(was.Ranks) > n && was.Ranks[n].State == RankJoining { // they never joined
		spec.Payment.Budget = before
	}
	var gone []*bought
	if err := s.keep(ctx, func(j *Job) {
		c := j.Cluster
		for i := n; i < len(j.Ranks); i++ {
			for len(c.Epochs) <= i {
				c.Epochs = append(c.Epochs, 0)
			}
			c.Epochs[i] = j.Ranks[i].Epoch
		}
		j.Ranks, j.Spec, c.Target = slices.Clip(j.Ranks[:n]), spec, 0
		j.replan()
	}); err != nil {
		return err
	}
	s.mu.Lock()
	for _, l := range s.leases[n:] {
		if l != nil {
			gone = append(gone, l)
		}
	}
	s.leases, s.asking, s.told = s.leases[:n:n], s.asking[:n:n], s.told[:n:n]
	s.mu.Unlock()
	for _, l := range gone {
		s.b.wg.Go(func() { s.b.end(ctx, l, errLeft.Error()) })
	}
	return nil
}
