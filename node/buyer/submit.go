package buyer

import (
	"context"
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
	warning, err := b.rooms.admission.Admit(ctx, &sub)
	if err != nil {
		return Job{}, err
	}
	once := sub.Once
	if once != "" && sub.Key != "" {
		once = sub.Key + "/" + once // one key cannot find out about another's jobs
	}
	var unknown error // of a job that was submitted before it does not matter
	sub.Spec.Image, unknown = b.rooms.admission.Pin(ctx, sub)
	if once == "" {
		return intake{b}.submit(ctx, sub, once, warning, unknown)
	}
	answer := b.submits.DoChan(once, func() (any, error) { // it is refused or begun, whether its submitter waits or not
		ctx := context.WithoutCancel(ctx)
		if j, ok, err := b.submitted(ctx, once); ok || err != nil {
			return j, err
		}
		return intake{b}.submit(ctx, sub, once, warning, unknown)
	})
	select {
	case a := <-answer:
		return a.Val.(Job), a.Err
	case <-ctx.Done():
		return Job{}, ctx.Err()
	}
}

// submitted is the job that was submitted under an idempotency key, if there is one.
func (b *Buyer) submitted(ctx context.Context, once string) (j Job, ok bool, err error) {
	id, err := record.Submissions.Get(ctx, b.cfg.Store, once)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return j, false, nil
	case err != nil:
		return j, false, err
	}
	b.mu.Lock()
	s := b.jobs[string(id)]
	b.mu.Unlock()
	if s != nil {
		return s.Snapshot(), true, nil
	}
	err = b.archive.Read(ctx, string(id), &j)
	if errors.Is(err, store.ErrNotFound) { // it was removed
		return j, false, nil
	}
	return j, err == nil, err
}

// intake is the buyer as it takes new jobs.
type intake struct{ *Buyer }

// submit takes the job of a submission. Unknown is the reason why the digest of its image is not known.
func (b intake) submit(ctx context.Context, sub Submission, once, warning string, unknown error) (Job, error) {
	if unknown != nil {
		return Job{}, unpinned(unknown)
	}
	j, err := record.New(sub, time.Now())
	if err != nil {
		return Job{}, err
	}
	j.Warning = warning
	if r := j.Spec.Rounds; r != nil && r.Carry != "" {
		// Before the first round a program finds its carry directory empty, not absent.
		c, err := b.rooms.admission.EmptyTree(ctx)
		if err != nil {
			return Job{}, err
		}
		j.Carry = &c
	}
	if j.Spec.Guardians > 0 {
		if j.Detached, err = b.rooms.voices.Detached(j.ID, j.Spec); err != nil {
			return Job{}, err
		}
	}
	return b.accept(ctx, j, sub.Values, once)
}

// unpinned is the refusal of a job whose image has no known digest.
func unpinned(err error) error { return fmt.Errorf("%w: %w: %w", ErrRefused, record.ErrImage, err) }

// accept takes a job if the limits allow it, journals it and starts it. It is listed from before the write on.
func (b intake) accept(ctx context.Context, j Job, v job.Values, once string) (Job, error) {
	if err := b.take(j); err != nil {
		return Job{}, err
	}
	defer b.taken(j.ID)
	s, err := b.newSupervisor(j)
	if err != nil {
		return Job{}, err
	}
	more, err := j.Entries(once)
	if err != nil {
		return Job{}, err
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
	if err := b.insert(s); err != nil {
		return Job{}, err
	}
	if err := b.runner.Begin(ctx, s.Job, run.Beginning{Params: p, Owner: true, Created: j.Created}, more); err != nil {
		b.withdraw(s)
		return Job{}, err
	}
	b.cfg.Log.Info("job accepted", "job", j.ID, "name", j.Spec.Name, "ranks", j.Spec.Count)
	return s.Snapshot(), nil
}

// take counts a new job against the limits, if they allow it and the peer runs. The caller calls taken when the job is
// journalled, or refused: the peer stops no sooner.
func (b intake) take(j Job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runner.Context() == nil || b.closing {
		return fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	if err := (spending(b)).room(); err != nil {
		return err
	}
	if err := (spending(b)).within(j.Spec, j.Key, j.Created); err != nil {
		return err
	}
	b.taking[j.ID] = j
	b.wg.Add(1)
	return nil
}

// taken ends the taking of a job.
func (b intake) taken(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.taking, id)
	b.wg.Done()
}

// insert adds a job that is about to be journalled. It returns an error if another job has its id.
func (b intake) insert(s *supervisor) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs[s.ID] != nil {
		return fmt.Errorf("job %s: id: it is another job's", s.ID)
	}
	delete(b.taking, s.ID)
	b.jobs[s.ID] = s
	return nil
}

// withdraw removes a job that was not journalled.
func (b intake) withdraw(s *supervisor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, s.ID)
}

// room reports whether one more job may run. b.mu is held.
func (b spending) room() error {
	running := len(b.taking)
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
