package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/command"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/takeover"
	"github.com/starling-network/starling/node/buyer/voice"
)

// TakeUp resumes a job that this peer guards and supervises from now on.
func (b *Buyer) TakeUp(ctx context.Context, t takeover.Taken) error {
	var f command.File
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
	work := b.runner.Context()
	if work == nil || b.closing {
		b.mu.Unlock()
		return errors.New("the peer is starting or stopping")
	}
	b.wg.Add(1)
	b.mu.Unlock()
	defer b.wg.Done()
	s, err := guarding{b}.guardedJob(ctx, t, f)
	if err != nil {
		return err
	}
	// All that is under way of an earlier command comes first.
	effects, err := s.Ask(ctx, run.Event{})
	if err != nil {
		return err
	}
	g := takeover.Granted{}
	g.Epoch, g.Grant = t.Panel.Epoch()
	switch st := effects[0].(run.Changed).State; {
	case st.Command.Lost:
	case st.Command.Epoch >= g.Epoch: // it was taken up
		t.Panel.Close()
		return nil
	default: // no peer reported another supervisor
		if _, err := s.Ask(ctx, run.Event{Ev: jobs.CommandLost{Epoch: g.Epoch - 1}}); err != nil {
			return err
		}
	}
	if err := s.command.Voice().Engage(s.Snapshot().Detached, t.Panel); err != nil {
		return err
	}
	if err := s.takeover.Adopt(ctx, &g, t.State, t.Leases); err != nil {
		return err
	}
	b.wg.Go(func() {
		if err := s.takeover.Supervise(work, g); err != nil && work.Err() == nil {
			b.cfg.Log.Info("a job that is guarded is another peer's", "job", s.ID, "err", err)
			s.takeover.Leave()
		}
	})
	return nil
}

// guarding is the buyer as it supervises jobs of other peers.
type guarding struct{ *Buyer }

// guardedJob is a guarded job as this peer has it, or a new one, which is journalled.
func (b guarding) guardedJob(ctx context.Context, t takeover.Taken, f command.File) (*supervisor, error) {
	select {
	case b.takeUp <- struct{}{}: // two jobs can have one id
		defer func() { <-b.takeUp }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	j := Job{ID: f.ID, Spec: command.Public(f.Spec), State: Queued, Created: f.Created}
	j.Ranks = make([]Rank, f.Spec.Count)
	j.Detached = &Detached{Owner: t.Owner, Key: t.Buyer, Terms: t.Job, Engaged: true,
		Guardians: voice.GuardiansOf(t.Panel.Members())}
	p, err := j.Params(b.cfg.Genesis, b.cfg.LostAfter)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	b.mu.Lock()
	id, old := b.named(j.ID, t.Job)
	b.mu.Unlock()
	if old != nil {
		return old, nil
	}
	for i := range j.Ranks {
		j.Ranks[i].State = RankWaiting
	}
	if j.ID = id; id == "" {
		return nil, fmt.Errorf("guarded job %s: id: %s is another job's", f.ID, record.IDOf(t.Job))
	}
	if j.Detached.Box, err = b.secrets.SealKey(j.ID, t.Key.Seed()); err != nil {
		return nil, err
	}
	s, err := b.newSupervisor(j)
	if err != nil {
		return nil, err
	}
	g := run.Beginning{Params: p, Created: f.Created}
	if t.State != nil { // the job is not begun anew where its standing cannot be read
		own, _ := g.State(jobs.Now{Time: time.Now()})
		if _, _, err := record.AcceptStanding(s.Peek(), own, t.State.Bytes); err != nil {
			return nil, fmt.Errorf("reading job %s as its guardians keep it: %w", j.ID, err)
		}
	}
	if err := intake(b).insert(s); err != nil {
		return nil, err
	}
	if err := b.runner.Begin(ctx, s.Job, g, nil); err != nil {
		intake(b).withdraw(s)
		return nil, err
	}
	return s, nil
}

// named returns the id under which this peer supervises a guarded job, and the job if it is there. The id is empty if
// none is free. b.mu is held.
func (b guarding) named(id string, terms sign.Hash) (string, *supervisor) {
	if old := b.jobs[id]; old != nil && !old.has(terms) || b.archive.Has(id) {
		id = record.IDOf(terms) // any peer with a job's id can have this peer guard another job of that id
	}
	old := b.jobs[id]
	if old != nil && !old.has(terms) {
		return "", nil
	}
	return id, old
}

// Yield stops the supervision of a job that another peer supervises.
func (b *Buyer) Yield(terms sign.Hash, epoch uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !s.Mine && s.has(terms) {
			s.Post(jobs.CommandLost{Epoch: epoch})
		}
	}
}

// has reports whether the job is the one of these terms.
func (s *supervisor) has(terms sign.Hash) bool {
	d := s.Snapshot().Detached
	return d != nil && d.Terms == terms
}
