package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
)

// TakeUp goes on with a job that this peer guards and supervises from now on.
func (b *Buyer) TakeUp(ctx context.Context, t guardian.Taken) error {
	var f charterFile
	if err := json.Unmarshal(t.File, &f); err != nil {
		return fmt.Errorf("reading a job that is guarded: %w", err)
	}
	if !record.IsID(f.ID) {
		return fmt.Errorf("reading a job that is guarded: %q is no id", record.Clean(f.ID))
	}
	if err := f.Spec.Check(); err != nil {
		return fmt.Errorf("reading a job that is guarded: %w", err)
	}
	b.mu.Lock()
	run := b.desk.ctx
	if run == nil || b.closing {
		b.mu.Unlock()
		return errors.New("the peer is starting or stopping")
	}
	b.wg.Add(1)
	defer b.wg.Done()
	s, err := b.guardedJob(ctx, t, f)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	d := s.driver.guards
	// All that is under way of an earlier command comes first.
	effects, err := d.ask(ctx, event{})
	if err != nil {
		return err
	}
	g := granted{}
	g.epoch, g.grant = t.Panel.Epoch()
	switch st := effects[0].(changed).state; {
	case st.Command.Lost:
	case st.Command.Epoch >= g.epoch: // it was taken up
		t.Panel.Close()
		return nil
	default: // nobody said that another peer supervised meanwhile
		if _, err := d.ask(ctx, event{ev: jobs.CommandLost{Epoch: g.epoch - 1}}); err != nil {
			return err
		}
	}
	if err := s.guard.guardedBy(s.snapshot().Detached, t.Panel); err != nil {
		return err
	}
	if err := d.adopt(ctx, &g, t.State, t.Leases); err != nil {
		return err
	}
	b.wg.Go(func() {
		if err := d.supervise(run, g); err != nil && run.Err() == nil {
			b.cfg.Log.Info("a job that is guarded is another peer's", "job", s.trace.Job, "err", err)
			d.leave()
		}
	})
	return nil
}

// guardedJob is a guarded job as this peer has it, or a new one, which is journalled. b.mu is held.
func (b *Buyer) guardedJob(ctx context.Context, t guardian.Taken, f charterFile) (*supervisor, error) {
	j := Job{ID: f.ID, Spec: publicSpec(f.Spec), State: Queued, Created: f.Created, Ranks: make([]Rank, f.Spec.Count)}
	j.Detached = &Detached{Owner: t.Owner, Key: t.Buyer, Terms: t.Job, Engaged: true,
		Guardians: guardiansOf(t.Panel.Members())}
	p, err := j.Params(b.cfg.Genesis, b.cfg.LostAfter)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if old := b.jobs[j.ID]; old != nil && !old.has(t.Job) || b.archive.Has(j.ID) {
		j.ID = record.IDOf(t.Job) // whoever knows a job's id can have this peer guard another one of that id
	}
	if old := b.jobs[j.ID]; old != nil {
		if !old.has(t.Job) {
			return nil, fmt.Errorf("a job %s that is guarded has the id of another one", j.ID)
		}
		return old, nil
	}
	for i := range j.Ranks {
		j.Ranks[i].State = RankWaiting
	}
	if j.Detached.Box, err = b.secrets.SealKey(j.ID, t.Key.Seed()); err != nil {
		return nil, err
	}
	s, err := b.newSupervisor(j, trace.New(b.cfg.Store, j.ID))
	if err != nil {
		return nil, err
	}
	g := beginning{params: p, created: f.Created}
	if t.State != nil { // the job is not begun anew where its standing cannot be read
		own, _ := g.state(jobs.Now{Time: time.Now()})
		if _, _, err := record.AcceptStanding(s.job, own, t.State.Bytes); err != nil {
			return nil, fmt.Errorf("reading job %s as its guardians keep it: %w", j.ID, err)
		}
	}
	if err := b.begin(ctx, s, g, nil); err != nil {
		return nil, err
	}
	b.jobs[j.ID] = s
	return s, nil
}

// Yield is told that another peer supervises a job.
func (b *Buyer) Yield(terms sign.Hash, epoch uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !s.mine && s.has(terms) {
			s.driver.post(jobs.CommandLost{Epoch: epoch})
		}
	}
}

// has reports whether the job is the one of these terms.
func (s *supervisor) has(terms sign.Hash) bool {
	d := s.snapshot().Detached
	return d != nil && d.Terms == terms
}
