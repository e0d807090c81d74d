package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/results"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// Submit journals a job and starts it. If a job was submitted with the same Once before, it returns that job. It
// returns ErrRefused, ErrFunds or ErrLimit if the job is not accepted.
func (b *Buyer) Submit(ctx context.Context, sub Submission) (Job, error) {
	sub.Spec = b.rooms.admission.Local(sub.Spec, sub.Key)
	warning, err := b.rooms.admission.Admit(ctx, sub)
	if err != nil {
		return Job{}, err
	}
	once := sub.Once
	if once != "" && sub.Key != "" {
		once = sub.Key + "/" + once // one key cannot find out about another's jobs
	}
	spec := sub.Spec
	var unknown error // of a job that was submitted before it does not matter
	spec.Image, unknown = b.rooms.admission.Pin(ctx, sub)
	b.mu.Lock()
	defer b.mu.Unlock()
	if j, ok, err := b.submitted(ctx, once); ok || err != nil {
		return j, err
	}
	if unknown != nil {
		return Job{}, fmt.Errorf("%w: spec.image: %w", ErrRefused, unknown)
	}
	if b.runner.Context() == nil || b.closing {
		return Job{}, fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	if err := (spending{b}).room(); err != nil {
		return Job{}, err
	}
	if err := (spending{b}).within(spec, sub.Key, time.Now()); err != nil {
		return Job{}, err
	}
	j := Job{ID: record.NewID(), Spec: spec, Key: sub.Key, Rerun: sub.Rerun, Warning: warning, State: Queued,
		Created: time.Now(), Ranks: make([]Rank, spec.Count)}
	for i := range j.Ranks {
		j.Ranks[i].State = RankWaiting
	}
	if j.Replica = sub.Replica; spec.Verify == job.VerifyReplicate {
		_, _ = rand.Read(j.Nonce[:]) // never fails
		if j.Replica == nil {
			j.Verified = make([]Verified, spec.Count)
		}
	}
	if spec.Rounds != nil && spec.Rounds.Carry != "" {
		// Before the first round a program finds its carry directory empty, not absent.
		c, err := b.rooms.admission.EmptyTree(ctx)
		if err != nil {
			return Job{}, err
		}
		j.Carry = &c
	}
	if j.Cluster, err = record.NewCluster(j.ID, spec); err != nil {
		return Job{}, err
	}
	if spec.Guardians > 0 {
		if j.Detached, err = b.rooms.voices.Detached(j.ID, spec); err != nil {
			return Job{}, err
		}
	}
	return b.accept(ctx, j, sub.Values, once)
}

// submitted is the job that was submitted under an idempotency key, if there is one. b.mu is held.
func (b *Buyer) submitted(ctx context.Context, once string) (j Job, ok bool, err error) {
	if once == "" {
		return j, false, nil
	}
	id, err := record.Submissions.Get(ctx, b.cfg.Store, once)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return j, false, nil
	case err != nil:
		return j, false, err
	case b.jobs[string(id)] != nil:
		return b.jobs[string(id)].Snapshot(), true, nil
	}
	err = b.archive.Read(ctx, string(id), &j)
	if errors.Is(err, store.ErrNotFound) { // it was removed
		return j, false, nil
	}
	return j, err == nil, err
}

// accept journals a job that is taken and starts it. b.mu is held.
func (b *Buyer) accept(ctx context.Context, j Job, v job.Values, once string) (Job, error) {
	s, err := b.newSupervisor(j)
	if err != nil {
		return Job{}, err
	}
	var more []store.Put
	if once != "" {
		more = append(more, record.Submissions.Encode(once, []byte(j.ID)))
	}
	if j.Spec.NeedsValues() {
		p, err := b.secrets.Seal(j.ID, v)
		if err != nil {
			return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		more = append(more, p)
	}
	p, err := j.Params(b.cfg.Genesis, b.cfg.LostAfter)
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := b.runner.Begin(ctx, s.Job, run.Beginning{Params: p, Owner: true, Created: j.Created}, more); err != nil {
		return Job{}, err
	}
	b.jobs[j.ID] = s
	b.cfg.Log.Info("job accepted", "job", j.ID, "name", j.Spec.Name, "ranks", j.Spec.Count)
	return s.Snapshot(), nil
}

// room reports whether one more job may run. b.mu is held.
func (b spending) room() error {
	running := 0
	for _, s := range b.jobs {
		// A job that only waits for the chain holds no leases.
		if j := s.Peek(); b.owned(j) && j.State != Settling && !j.State.Ended() {
			running++
		}
	}
	if running >= b.cfg.MaxJobs {
		return fmt.Errorf("%w: %w: %d jobs run already, buy.maxJobs is %d", ErrRefused, results.ErrRoom, running,
			b.cfg.MaxJobs)
	}
	return nil
}

// Rerun submits the job once more, with changes. Its files are still here; its secrets are taken over.
func (b *Buyer) Rerun(ctx context.Context, id string, c job.Changes, once, key string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	old := s.Snapshot()
	spec, err := old.Spec.With(c)
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	v, err := b.secrets.Values(ctx, old)
	if err != nil {
		return Job{}, err
	}
	return b.Submit(ctx, Submission{Spec: spec, Values: v, Once: once, Key: key, Rerun: old.ID})
}
