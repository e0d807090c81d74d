package buyer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/cluster"
)

// Scale gives a cluster that runs another size. New members are ordered all or none, within the job's money; of a
// smaller one the highest ranks are ended, as gracefully as a stop. It returns when the cluster has that size, or has
// kept its own. ErrRefused for jobs that cannot be scaled, ErrNotRunning for a cluster that does not run; ErrFunds or
// ErrLimit where money forbids it.
func (b *Buyer) Scale(ctx context.Context, id string, n uint32) (Job, error) {
	return b.ScaleWithin(ctx, id, n, 0)
}

// ScaleWithin is Scale that gives the job another budget for it, not below the one it has; 0 leaves the budget to
// follow the size as it does. With the size that the cluster has, the budget alone is another. A cluster that keeps its
// size keeps its budget.
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
	if !s.driver.extending.TryLock() {
		return Job{}, fmt.Errorf("%w: the cluster is being scaled, or its job made longer; try again when that is done",
			ErrRefused)
	}
	done := make(chan error, 1)
	b.mu.Lock()
	if b.ctx == nil || b.closing {
		b.mu.Unlock()
		s.driver.extending.Unlock()
		return Job{}, fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	b.wg.Go(func() { // who asked may go away meanwhile
		defer s.driver.extending.Unlock()
		done <- s.driver.scale(int(n), budget)
	})
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return s.shown(), ctx.Err()
	case err := <-done:
		return s.shown(), err
	}
}

// makeRoom makes room for the state of n ranks.
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
	return nil
}

// ClusterToken returns the secret that a cluster's engine shares, see secrets.Keeper. It returns ErrNoJob, and
// ErrRefused for a plain job.
func (b *Buyer) ClusterToken(id string) (string, error) {
	j, err := b.Job(id)
	if err != nil {
		return "", err
	}
	if j.Spec.Cluster == nil {
		return "", fmt.Errorf("%w: job %s is no cluster", ErrRefused, j.ID)
	}
	return b.secrets.Token(j.ID), nil
}
