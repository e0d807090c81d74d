package guardian

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
)

const (
	// forgetAfter is how long after its end a job is still there, so that its owner can read it and its guardians are
	// paid.
	forgetAfter = 24 * time.Hour
	// unbackedFor is for how long a wage is waited for, wageLook how often it is looked for.
	unbackedFor = time.Hour
	wageLook    = time.Second
	// readTimeout bounds asking the other guardians how a job stands.
	readTimeout = 3 * time.Second
)

func (s *Service) slot() (market.Slot, error) { return s.cfg.Slots.Now(time.Now()) }

// watch attends to each ward for which there is something to do.
func (s *Service) watch() {
	for _, w := range s.all() {
		w.mu.Lock()
		if !w.busy && s.due(w) != nil {
			w.busy = s.start(func(ctx context.Context) {
				s.attend(ctx, w)
				w.mu.Lock()
				w.busy = false
				w.mu.Unlock()
			})
		}
		w.mu.Unlock()
	}
}

// due is the next work for a ward; nil if there is none. w is locked.
func (s *Service) due(w *ward) func(context.Context, *ward) error {
	now := time.Now()
	switch {
	case now.Sub(w.Until) > forgetAfter:
		return s.forget
	case w.Dismissed:
		return nil
	}
	if !w.complete && now.Sub(w.tried) > s.timing.Silent {
		s.fetch(w)
	}
	mine := w.Supervisor(w.Epoch) == s.self
	switch {
	case !w.Unbacked.IsZero() && now.Sub(w.Unbacked) > unbackedFor:
		return s.forget
	case !w.refreshed:
		return s.refresh
	case !w.Unbacked.IsZero() && w.state != nil && now.Sub(w.looked) > wageLook:
		return s.look
	case !w.Ready || w.Over:
		return nil
	case mine && !w.taken:
		return s.takeUp
	case !mine && w.starving.IsZero() && s.starved(w) && now.Sub(w.asked) > s.timing.Turn:
		return s.judge
	case !mine && s.failed(w) && s.turn(w, now):
		return s.takeOver
	}
	return nil
}

// turn reports whether it is this guardian's turn to ask for the job.
func (s *Service) turn(w *ward, now time.Time) bool {
	since := w.starving
	if since.IsZero() {
		since = w.heard.Add(s.timing.Silent)
	}
	return now.Sub(since) > time.Duration(w.turn(s.self, w.Epoch))*s.timing.Turn &&
		now.Sub(w.asked) > s.timing.Turn && now.Sub(w.granted) > s.timing.Silent
}

func (s *Service) attend(ctx context.Context, w *ward) {
	w.mu.Lock()
	do, job := s.due(w), w.Job
	w.mu.Unlock()
	if do == nil {
		return
	}
	if err := do(ctx, w); err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("guarding a job", "job", job.Short(), "err", err)
	}
}

// starved reports whether a voucher is overdue. w is locked.
func (s *Service) starved(w *ward) bool {
	now, err := s.slot()
	if err != nil || w.Over {
		return false
	}
	silent := s.cfg.Genesis.SlotsIn(s.timing.Silent)
	for _, k := range w.leases {
		if k.starved(now, silent) {
			return true
		}
	}
	return false
}

// waiting is the number of guarded jobs without wages on chain.
func (s *Service) waiting() (n int) {
	for _, w := range s.all() {
		w.mu.Lock()
		if !w.Dismissed && !w.Unbacked.IsZero() {
			n++
		}
		w.mu.Unlock()
	}
	return n
}

// look asks the chain for the wage, and fetches the job's files once it is there.
func (s *Service) look(ctx context.Context, w *ward) error {
	w.mu.Lock()
	v, st := w.Ward, w.state
	w.looked = time.Now()
	w.mu.Unlock()
	if err := s.cfg.Backed(ctx, v, st.Bytes); err != nil {
		s.cfg.Log.Debug("a wage is not on chain yet", "job", v.Job.Short(), "err", err)
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Dismissed {
		return nil
	}
	next := w.Ward
	next.Unbacked = time.Time{}
	if err := s.write(ctx, next); err != nil {
		return err
	}
	w.Ward = next
	s.fetch(w)
	return nil
}

// refresh requests the messages that this guardian missed from the others.
func (s *Service) refresh(ctx context.Context, w *ward) error {
	_, err := s.merge(ctx, w)
	w.mu.Lock()
	w.refreshed = true
	w.mu.Unlock()
	return err
}

// merge imports newer data of the other guardians, and returns the number that answered.
func (s *Service) merge(ctx context.Context, w *ward) (int, error) {
	w.mu.Lock()
	p := s.panel(w.Ward)
	w.mu.Unlock()
	defer p.Close()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	standing, err := p.Read(ctx)
	if err != nil && !errors.Is(err, ErrMinority) {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Dismissed {
		return 0, nil
	}
	if err := s.learn(ctx, w, standing.Epoch, standing.Grant); err != nil {
		return 0, err
	}
	if standing.state != nil {
		if err := s.keepState(ctx, w, *standing.state); err != nil {
			return 0, err
		}
	}
	for id, k := range standing.leases {
		old := w.leases[id]
		if _, _, err := s.checkLease(w, k.Lease, k.Word); err != nil || !k.newer(old) || k.follows(old) != nil {
			continue // one that this guardian would not have signed, or knows
		}
		if err := s.keepLease(ctx, w, *k); err != nil {
			return 0, err
		}
	}
	return standing.Answers, nil
}

// judge makes certain that a voucher is overdue, and that it is not this guardian that missed it.
func (s *Service) judge(ctx context.Context, w *ward) error {
	answers, err := s.merge(ctx, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = time.Now()
	if err == nil && answers >= int(w.Keys.Threshold) && s.starved(w) {
		w.starving = time.Now()
		s.cfg.Log.Warn("the supervisor of a job does not pay",
			"job", w.Job.Short(), "supervisor", w.Supervisor(w.Epoch).Short())
	}
	return err
}

// takeOver asks the guardians for the job.
func (s *Service) takeOver(ctx context.Context, w *ward) error {
	w.mu.Lock()
	w.asked = time.Now()
	p := s.panel(w.Ward)
	w.mu.Unlock()
	standing, err := p.Grant(ctx)
	p.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Dismissed {
		return nil
	}
	if standing.Epoch > 0 { // also where another one was faster
		if err := s.learn(ctx, w, standing.Epoch, standing.Grant); err != nil {
			return err
		}
	}
	return err
}

// takeUp goes on with a job that this guardian supervises.
func (s *Service) takeUp(ctx context.Context, w *ward) error {
	_, merged := s.merge(ctx, w) // this guardian's data is enough
	w.mu.Lock()
	if w.Dismissed || w.Over || w.Supervisor(w.Epoch) != s.self {
		w.mu.Unlock()
		return nil
	}
	key, err := s.open(w)
	if err != nil {
		w.mu.Unlock()
		return err
	}
	t := Taken{
		Charter: w.Charter, Key: key, File: slices.Clone(w.File), Files: slices.Clone(w.Files),
		Until: w.Until, Panel: s.panel(w.Ward),
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
	s.cfg.Log.Info("supervising a job", "job", t.Job.Short(), "epoch", epoch, "others", merged)
	if err := s.cfg.TakeUp(ctx, t); err != nil {
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
