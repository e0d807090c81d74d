package wards

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/starling-network/starling/node/buyer/guardian"
)

const (
	// forgetAfter is how long after its end a job is still there, so that its owner can read it and its guardians are
	// paid.
	forgetAfter = 24 * time.Hour
	// unbackedFor is the maximum wait for a wage, wageLook the interval of checks for it.
	unbackedFor = time.Hour
	wageLook    = time.Second
	// readTimeout bounds a request to the other guardians for a job's standing.
	readTimeout = 3 * time.Second
)

// keeper does the work that time brings.
type keeper struct {
	*guard
	wards *register
	tasks *tasks
}

// watch attends to each ward for which there is something to do.
func (x *keeper) watch() {
	for _, w := range x.wards.all() {
		w.mu.Lock()
		if !w.busy && x.due(w) != nil {
			w.busy = x.tasks.start(func(ctx context.Context) {
				x.attend(ctx, w)
				w.mu.Lock()
				w.busy = false
				w.mu.Unlock()
			})
		}
		w.mu.Unlock()
	}
}

// due returns the next work for a ward; nil if there is none. w is locked.
func (x *keeper) due(w *guarded) func(context.Context, *guarded) error {
	now := time.Now()
	switch {
	case now.Sub(w.Until) > forgetAfter:
		return x.wards.forget
	case w.Dismissed:
		return nil
	}
	if !w.complete && now.Sub(w.tried) > x.timing.Silent {
		x.files.fetch(w)
	}
	mine := w.Supervisor(w.Epoch) == x.self
	switch {
	case !w.Unbacked.IsZero() && now.Sub(w.Unbacked) > unbackedFor:
		return x.wards.forget
	case !w.refreshed:
		return x.refresh
	case !w.Unbacked.IsZero() && w.state != nil && now.Sub(w.looked) > wageLook:
		return x.look
	case !w.Ready || w.Over:
		return nil
	case mine && !w.taken:
		return x.takeUp
	case !mine && w.starving.IsZero() && w.starved() && now.Sub(w.asked) > x.timing.Turn:
		return x.judge
	case !mine && w.failed() && x.turn(w, now):
		return x.takeOver
	}
	return nil
}

// turn reports whether it is this guardian's turn to request the job.
func (x *keeper) turn(w *guarded, now time.Time) bool {
	since := w.starving
	if since.IsZero() {
		since = w.heard.Add(x.timing.Silent)
	}
	return now.Sub(since) > time.Duration(w.Turn(x.self, w.Epoch))*x.timing.Turn &&
		now.Sub(w.asked) > x.timing.Turn && now.Sub(w.granted) > x.timing.Silent
}

func (x *keeper) attend(ctx context.Context, w *guarded) {
	w.mu.Lock()
	do, job := x.due(w), w.Job
	w.mu.Unlock()
	if do == nil {
		return
	}
	if err := do(ctx, w); err != nil && ctx.Err() == nil {
		x.cfg.Log.Warn("guarding a job", "job", job.Short(), "err", err)
	}
}

// look checks the chain for the wage, and fetches the job's files once it exists.
func (x *keeper) look(ctx context.Context, w *guarded) error {
	w.mu.Lock()
	v, st := w.Ward, w.state
	w.looked = time.Now()
	w.mu.Unlock()
	if err := x.cfg.Backed(ctx, v, st.Bytes); err != nil {
		x.cfg.Log.Debug("a wage is not on chain yet", "job", v.Job.Short(), "err", err)
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Dismissed {
		return nil
	}
	next := w.Ward
	next.Unbacked = time.Time{}
	if err := x.write(ctx, next); err != nil {
		return err
	}
	w.Ward = next
	x.files.fetch(w)
	return nil
}

// refresh requests the messages that this guardian missed from the others.
func (x *keeper) refresh(ctx context.Context, w *guarded) error {
	_, err := x.merge(ctx, w)
	w.mu.Lock()
	w.refreshed = true
	w.mu.Unlock()
	return err
}

// merge imports newer data of the other guardians, and returns the number that answered.
func (x *keeper) merge(ctx context.Context, w *guarded) (int, error) {
	w.mu.Lock()
	p := x.panel(w.Ward)
	w.mu.Unlock()
	defer p.Close()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	standing, err := p.Read(ctx)
	if err != nil && !errors.Is(err, guardian.ErrMinority) {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Dismissed {
		return 0, nil
	}
	if err := w.learn(ctx, standing.Epoch, standing.Grant); err != nil {
		return 0, err
	}
	if st := standing.SignedState(); st != nil {
		if err := w.keepState(ctx, *st); err != nil {
			return 0, err
		}
	}
	for id, k := range standing.SignedLeases() {
		old := w.leases[id]
		if _, _, err := w.checkLease(*k); err != nil || !k.Newer(old) || k.Follows(old) != nil {
			continue // a lease that this guardian would not have signed, or already has
		}
		if err := w.keepLease(ctx, *k); err != nil {
			return 0, err
		}
	}
	return standing.Answers, nil
}

// judge makes certain that a voucher is overdue, and that it is not this guardian that missed it.
func (x *keeper) judge(ctx context.Context, w *guarded) error {
	answers, err := x.merge(ctx, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = time.Now()
	if err == nil && answers >= int(w.Keys.Threshold) && w.starved() {
		w.starving = time.Now()
		x.cfg.Log.Warn("the supervisor of a job does not pay",
			"job", w.Job.Short(), "supervisor", w.Supervisor(w.Epoch).Short())
	}
	return err
}

// takeOver requests the job from the guardians.
func (x *keeper) takeOver(ctx context.Context, w *guarded) error {
	w.mu.Lock()
	w.asked = time.Now()
	p := x.panel(w.Ward)
	w.mu.Unlock()
	standing, err := p.Grant(ctx)
	p.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Dismissed {
		return nil
	}
	if standing.Epoch > 0 { // also where another one was faster
		if err := w.learn(ctx, standing.Epoch, standing.Grant); err != nil {
			return err
		}
	}
	return err
}

// takeUp resumes a job that this guardian supervises.
func (x *keeper) takeUp(ctx context.Context, w *guarded) error {
	_, merged := x.merge(ctx, w) // this guardian's data is enough
	w.mu.Lock()
	if w.Dismissed || w.Over || w.Supervisor(w.Epoch) != x.self {
		w.mu.Unlock()
		return nil
	}
	key, err := w.jobKey()
	if err != nil {
		w.mu.Unlock()
		return err
	}
	t := guardian.Taken{
		Charter: w.Charter, Key: key, File: slices.Clone(w.File), Files: slices.Clone(w.Files),
		Until: w.Until, Panel: x.panel(w.Ward),
	}
	if w.state != nil {
		st := w.state.State
		t.State = &st
	}
	for _, k := range w.leases {
		t.Leases = append(t.Leases, k.Lease)
	}
	w.taken, w.heard = true, time.Now()
	epoch := w.Epoch
	w.mu.Unlock()
	x.cfg.Log.Info("supervising a job", "job", t.Job.Short(), "epoch", epoch, "others", merged)
	if err := x.supervisor.TakeUp(ctx, t); err != nil {
		t.Panel.Close()
		w.mu.Lock()
		if w.Epoch == epoch {
			w.taken = false
		}
		w.mu.Unlock()
		return err
	}
	return nil
}
