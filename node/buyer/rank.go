package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// stopSlack is how much longer than its grace the end of a stopped program is waited for.
	stopSlack = 2 * time.Second
)

// due is a rank that is to run, and the lease that it runs on, a new one if it has none; no lease if it is done. An error says that it
// failed before a restart, or has no lease.
func (s *supervisor) due(ctx context.Context, i int) (Rank, *bought, error) {
	r := s.snapshot().Ranks[i]
	switch r.State {
	case RankDone:
		return r, nil, nil
	case RankFailed:
		return r, nil, r.failure(i)
	}
	l, err := s.leaseOf(ctx, i)
	return r, l, err
}

// parted takes in that a rank's lease was lost: an outcome, where there is no money or no time for another one.
func (s *supervisor) parted(ctx context.Context, i int, l *bought, res result) error {
	j := s.snapshot()
	switch {
	case l.spent() && j.Ranks[i].Unextended == "":
		return s.outOfMoney(i, l)
	case s.runOver():
		return failed(CodeTimeout, "%v (timeouts.run: %v); rank %d: %s", errRunOver, j.Spec.Timeouts.Run, i, res.lost)
	}
	return s.lost(ctx, i, res)
}

// rank runs one rank's execution of the current round: again on the same lease as restart.policy says, on another provider
// when one is lost.
func (s *supervisor) rank(ctx context.Context, i int) error {
	for {
		r, l, err := s.due(ctx, i)
		if err != nil || l == nil {
			return err
		}
		// A rank that was running goes on with the same execution; the provider knows it.
		adopted := r.State == RankRunning
		if away, _, unpaid := l.end().outage(); adopted && away > 0 && !unpaid && s.back(i) {
			s.trace.Add(Step{At: time.Now(), Kind: StepAway, Rank: &i, Provider: r.Provider.String(), Detail: fmt.Sprintf("this peer was away for %v; its program ran on", away)})
		}
		if !adopted {
			if r, err = s.launch(ctx, i, l, r); err != nil {
				return err
			}
		}
		res, err := s.attempt(ctx, i, l, r, adopted)
		if err != nil {
			// When it is the peer that stops, the program runs on for its next process; or for whoever supervises the job now.
			if ctx.Err() != nil && s.peer.Err() == nil && !errors.Is(context.Cause(ctx), errSuperseded) {
				s.finish(i, l, r)
			}
			return err
		}
		switch {
		case res.lost != "":
			err = s.parted(ctx, i, l, res)
		case !res.hopeless() && s.snapshot().Spec.Restart.Again(res.ok(), r.Retries):
			err = s.again(ctx, i, r, res)
		default:
			return s.exited(ctx, i, r, res)
		}
		if err != nil {
			return err
		}
	}
}

// back reports whether a rank is taken up for the first time since this process began.
func (s *supervisor) back(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.returned == nil {
		s.returned = map[int]bool{}
	}
	first := s.resumed && !s.returned[i]
	s.returned[i] = true
	return first
}

// launch waits until the rank's program may start again and journals that it is about to. A lease that is lost meanwhile is
// found out by the attempt.
func (s *supervisor) launch(ctx context.Context, i int, l *bought, r Rank) (Rank, error) {
	if wait := time.Until(r.After); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-l.lost:
		case <-t.C:
		}
	}
	base := s.ranklogs()[i].Len()
	err := s.save(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.State, k.Seq, k.LogBase, k.Exit, k.Reason, k.Begun, k.After = RankRunning, k.Seq+1, base, 0, "", time.Now(), time.Time{}
		k.Live = Live{}
	})
	return s.snapshot().Ranks[i], err
}

// attempt runs one execution of rank i to its end.
func (s *supervisor) attempt(ctx context.Context, i int, l *bought, r Rank, adopted bool) (result, error) {
	j := s.snapshot()
	w, err := workload(j, i)
	if err != nil {
		return result{}, failed(CodeInput, "rank %d: %v", i, err)
	}
	if w.Sealed, err = s.b.sealFor(ctx, j, l); err != nil {
		return result{}, failed(CodePeer, "rank %d: its secrets could not be sealed to the provider: %v", i, err)
	}
	e := s.execution(i, l, r)
	e.adopted = adopted
	defer s.probing(ctx, i, l, r.Seq)()
	return e.run(ctx, w)
}

// execution is rank i's run of its program as the buyer follows it.
func (s *supervisor) execution(i int, l *bought, r Rank) *execution {
	j := s.snapshot()
	return &execution{
		b: s.b, l: l,
		seq: r.Seq, log: s.ranklogs()[i], base: r.LogBase, begun: r.Begun, limits: j.Spec.Timeouts, outputs: j.Spec.Outputs,
		cure: j.Spec.Restart.Policy != job.RestartNever,
		started: func() {
			s.trace.Add(Step{At: time.Now(), Kind: StepStarted, Rank: &i, Provider: r.Provider.String()})
		},
		seen: func(ex *nodepb.Execution) {
			s.see(i, ex)
			s.heard(i, ex)
			s.examine(i, l, ex)
		},
	}
}

// see keeps what a provider says of a running program, for whoever looks. It reaches the journal with the job's next change.
func (s *supervisor) see(i int, ex *nodepb.Execution) {
	s.mu.Lock()
	changed := false
	if live := liveOf(ex); i < len(s.job.Ranks) && !live.equal(s.job.Ranks[i].Live) {
		ranks := slices.Clone(s.job.Ranks)
		ranks[i].Live = live
		s.job.Ranks, changed = ranks, true
	}
	s.mu.Unlock()
	if changed {
		s.trace.Poke()
	}
	s.bring(i, ex)
}

// again notes that a program ended and is started once more on the same lease.
func (s *supervisor) again(ctx context.Context, i int, r Rank, res result) error {
	spec := s.snapshot().Spec.Restart
	return s.againIn(ctx, i, r, res, spec.Wait(r.Retries+1), fmt.Sprintf("restart.policy %s", spec.Policy))
}

// againIn is again after a wait and for a reason.
func (s *supervisor) againIn(ctx context.Context, i int, r Rank, res result, wait time.Duration, why string) error {
	r.Exit, r.Reason, r.Detail = res.exit, res.reason, res.message
	spec := s.snapshot().Spec.Restart
	s.trace.Add(Step{At: time.Now(), Kind: StepExited, Rank: &i, Provider: r.Provider.String(), Detail: r.end()},
		Step{At: time.Now(), Kind: StepRestarted, Rank: &i, Provider: r.Provider.String(),
			Detail: fmt.Sprintf("%d of at most %d times, in %v (%s)", r.Retries+1, spec.Max, wait, why)})
	return s.keep(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.State, k.Retries, k.After = RankLeased, k.Retries+1, time.Now().Add(wait)
		k.Exit, k.Reason, k.Detail, k.Outputs = r.Exit, r.Reason, r.Detail, res.outputs
	})
}

// outOfMoney is the outcome of a job whose rank i used all of its lease: another
// one could only begin the same work again.
func (s *supervisor) outOfMoney(i int, l *bought) error {
	g, p := s.b.cfg.Genesis, s.snapshot().Spec.Payment
	return failed(CodePayment, "rank %d used up its lease of %v: the budget of %s pays no more at up to %s per unit-hour; raise payment.budget or lower payment.maxPrice",
		i, time.Duration(l.core.Slots()*g.SlotMillis)*time.Millisecond, g.FormatAmount(p.Budget), g.FormatAmount(market.Amount(p.MaxPrice)))
}

// exited notes how an execution ended.
func (s *supervisor) exited(ctx context.Context, i int, r Rank, res result) error {
	r.Exit, r.Reason, r.Detail, r.Outputs = res.exit, res.reason, res.message, res.outputs
	r.State = RankDone
	if !res.ok() {
		r.State = RankFailed
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepExited, Rank: &i, Provider: r.Provider.String(), Detail: r.end()})
	if err := s.keep(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.State, k.Exit, k.Reason, k.Detail, k.Outputs = r.State, r.Exit, r.Reason, r.Detail, r.Outputs
	}); err != nil {
		return err
	}
	if r.State == RankFailed {
		return r.failure(i)
	}
	return nil
}

// end says how the rank's execution ended.
func (r Rank) end() string {
	text := fmt.Sprintf("exit code %d", r.Exit)
	for _, more := range []struct{ sep, text string }{{", ", r.Reason}, {": ", r.Detail}} {
		if more.text != "" {
			text += more.sep + more.text
		}
	}
	return text
}

// remedy says what to ask for after an end at a limit of the rank's units.
func (r Rank) remedy() string {
	switch runtime.Reason(r.Reason) {
	case runtime.ReasonOOM:
		return "its units have too little memory: ask for more with resources.memory (--memory), or for more units; "
	case runtime.ReasonDisk:
		return "its units have too little disk: ask for more with resources.disk (--disk), or for more units; "
	}
	return ""
}

// failure is the outcome of a job whose rank i failed.
func (r Rank) failure(i int) error {
	again := ""
	if r.Retries > 0 {
		again = fmt.Sprintf(" after %d restarts", r.Retries)
	}
	switch r.Reason {
	case protocol.ReasonImage, protocol.ReasonCredentials:
		return failed(CodeInput, "rank %d: the image cannot be used: %s", i, r.Detail)
	case protocol.ReasonProgram:
		return failed(CodeProgram, "rank %d: %s", i, r.Detail)
	case string(runtime.ReasonTimeout):
		return failed(CodeTimeout, "rank %d: %s%s", i, r.end(), again)
	}
	return failed(CodeProgram, "rank %d ended with %s%s; %s`starling logs` shows what it said", i, r.end(), again, r.remedy())
}

// lost gives up the lease of a rank and reports whether it may have another.
func (s *supervisor) lost(ctx context.Context, i int, res result) error {
	s.mu.Lock()
	l := s.leases[i]
	s.leases[i] = nil
	s.mu.Unlock()
	if l != nil {
		away, ahead, unpaid := l.end().outage()
		if unpaid {
			res.lost = fmt.Sprintf("this peer was away for %v, longer than the %v that it had paid ahead: %s", away, ahead, res.lost)
		}
		if !res.late && !l.away() && !unpaid && !l.spent() { // the job's own limits, this peer's absence and its money are no fault of the provider's
			s.b.cfg.Reputation.Failed(l.core, l.loss(s.snapshot().Ranks[i].Begun))
		}
		s.b.giveUp(ctx, l, res.lost)
	}
	r := s.snapshot().Ranks[i]
	s.trace.Add(Step{At: time.Now(), Kind: StepLost, Rank: &i, Provider: r.Provider.String(), Detail: res.lost})
	if err := s.keep(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.State, k.Restarts, k.Reason, k.Next, k.Unextended = RankWaiting, k.Restarts+1, res.lost, nil, ""
		if !slices.Contains(j.Lost, r.Provider) {
			j.Lost = append(j.Lost, r.Provider)
		}
	}); err != nil {
		return err
	}
	if j := s.snapshot(); r.Restarts+1 > j.Spec.Restart.Max {
		code := CodeLost
		if res.late {
			code = CodeTimeout
		}
		return failed(code, "rank %d was lost %d times, restart.max is %d; the last: %s", i, r.Restarts+1, j.Spec.Restart.Max, res.lost)
	}
	return nil
}

// finish has a program end that the job no longer wants, within the time that timeouts.stop gives it, and takes over what it
// still says and leaves. The lease ends soon after, whatever came of it.
func (s *supervisor) finish(i int, l *bought, r Rank) {
	grace := s.snapshot().Spec.Timeouts.Grace()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), grace+stopSlack)
	defer cancel()
	for _, over := range []context.Context{l.ctx, s.peer} {
		stop := context.AfterFunc(over, cancel)
		defer stop()
	}
	log := s.b.cfg.Log.With("lease", l.id)
	if _, err := s.b.stopExecution(ctx, l, r.Seq, grace); err != nil {
		log.Debug("stopping an execution", "err", err)
		return
	}
	e := s.execution(i, l, r)
	e.asked = true
	ex, err := e.watch(ctx)
	if err != nil {
		log.Debug("waiting for the end of a stopped execution", "err", err)
		return
	}
	res, err := s.b.gather(ctx, l, ex, e.outputs, true)
	if err != nil || res.lost != "" {
		log.Debug("what a stopped execution left was not fetched", "err", err, "lost", res.lost)
		return
	}
	if err := s.save(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.Exit, k.Reason, k.Detail, k.Outputs = res.exit, res.reason, res.message, res.outputs
	}); err != nil {
		log.Warn("what a stopped execution left was not journalled", "err", err)
	}
}
