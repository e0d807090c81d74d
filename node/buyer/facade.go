package buyer

import (
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/trace"
)

// stateOf is the state of a job as its user sees it.
func stateOf(st jobs.State) State {
	switch st.Phase {
	case jobs.Placing:
		if st.Gang > 0 {
			return Matching
		}
		return Queued
	case jobs.Working, jobs.Reducing, jobs.Stopping: // a program that is stopped still runs
		return Running
	case jobs.Settling:
		return Settling
	case jobs.Ended:
		return outcomeOf(st.Outcome.Result)
	}
	return ""
}

func outcomeOf(r jobs.Result) State {
	return map[jobs.Result]State{
		jobs.ResultSucceeded: Succeeded, jobs.ResultFailed: Failed, jobs.ResultStopped: Stopped,
	}[r]
}

// offered is what a lease's quote said.
type offered struct {
	route string
	units Units
}

// base is where the log of an execution begins in its rank's log.
type base struct {
	exec jobs.Exec
	at   int64
}

// projectLocked returns the job as its user sees it in a state of its machine. What the machine does not know stays as
// it is. s.mu is held.
func (s *supervisor) projectLocked(st jobs.State) Job {
	j := s.job.clone()
	j.State, j.Started, j.Ended, j.Round = stateOf(st), st.Started, st.Ended, int(st.Round)
	j.Spec.Timeouts.Run, j.Spec.Payment.Budget = st.Params.Run, st.Params.Budget
	j.Extended, j.Paused, j.Lost = int(st.Extended), st.Paused, st.Avoid
	j.Stopping = st.WantStop || st.Outcome.Result == jobs.ResultStopped
	if st.Carry.CID != "" {
		j.Carry = &Blob{CID: st.Carry.CID, Size: st.Carry.Bytes, Tree: st.Carry.Tree}
	}
	if st.Phase >= jobs.Settling {
		j.Outcome, j.Reason = outcomeOf(st.Outcome.Result), s.reasonOf(st)
		if j.Code = ""; st.Outcome.Code != 0 {
			j.Code = Code(st.Outcome.Code.String())
		}
	}
	if st.Account.Counted {
		j.Owed, j.Receipts = st.Account.Owed, int(st.Account.Receipts)
	}
	if st.Account.Released {
		j.Paid = st.Account.Paid
	}
	for i := range min(len(j.Ranks), len(st.Ranks)) {
		s.projectRankLocked(&j.Ranks[i], i, &st.Ranks[i])
	}
	return j
}

// projectRankLocked brings rank i up to the state of its machine. s.mu is held.
func (s *supervisor) projectRankLocked(k *Rank, i int, r *jobs.Rank) {
	if !r.Lease.IsZero() && r.Lease != k.Lease {
		if o, ok := s.offers[r.Lease]; ok {
			k.Route, k.Units = o.route, o.units
		}
		k.Lease = r.Lease
	}
	if x := (jobs.Exec{Rank: uint32(i), Lease: r.Lease, Seq: r.Seq}); r.State == jobs.RankRunning {
		if k.State != RankRunning || k.Seq != r.Seq || s.bases[i].exec != x {
			if k.Live = (Live{}); s.bases[i].exec != x {
				s.bases[i] = base{x, s.logs[i].Len()}
			}
		}
		k.LogBase = s.bases[i].at
	}
	k.State, k.Epoch, k.Provider, k.Seq = RankState(r.State.String()), r.Epoch, r.Provider, r.Seq
	k.Restarts, k.Retries, k.Begun, k.Unextended = int(r.Losses), int(r.Restarts), r.Begun, r.Unextended
	k.Exit, k.Detail = r.Exit.Code, r.Exit.Detail
	k.After = time.Time{}
	if r.State == jobs.RankLeased {
		k.After = r.NotBefore
	}
	if fresh := r.State == jobs.RankWaiting || r.State == jobs.RankLeased && r.Seq == 0; !fresh {
		k.Reason = r.Exit.Reason
	} else if s.reasons[i] != "" { // why the last lease was lost
		k.Reason = s.reasons[i]
	}
	k.Outputs = nil
	for _, f := range r.Outputs {
		k.Outputs = append(k.Outputs, Output{f.Path, Blob{CID: f.CID, Size: f.Bytes, Tree: f.Tree}})
	}
}

// reasonOf is why the job ended, with what its user can do where money was short.
func (s *supervisor) reasonOf(st jobs.State) string {
	o := st.Outcome
	if o.Code != jobs.CodePayment {
		return o.Reason
	}
	g, p := s.b.cfg.Genesis, s.job.Spec.Payment
	return o.Reason + "; raise payment.budget, which is " + g.FormatAmount(st.Params.Budget) +
		", or lower payment.maxPrice, which is " + g.FormatAmount(market.Amount(p.MaxPrice)) + " per unit-hour"
}

// noteLocked adds a line of the job's machine to its trace. s.mu is held.
func (s *supervisor) noteLocked(st jobs.State, n jobs.Note) {
	step := Step{At: time.Now(), Kind: trace.Kind(n.Kind), Detail: strings.TrimSuffix(n.Detail, ": ")}
	if i := n.Rank; i >= 0 && i < len(st.Ranks) {
		step.Rank, step.Provider = &i, st.Ranks[i].Provider.String()
		if n.Kind == jobs.NoteLost {
			s.reasons[i] = n.Detail
		}
	}
	s.trace.Add(step)
}

// changed takes in a state of the job's machine that is in the journal.
func (s *supervisor) changed(st jobs.State) {
	s.mu.Lock()
	before := s.job.State
	s.job, s.saved, s.phase = s.projectLocked(st), true, st.Phase
	for i := range s.leases {
		if s.leases[i] = nil; i < len(st.Ranks) && !st.Ranks[i].Lease.IsZero() && st.Phase < jobs.Settling {
			s.leases[i] = s.chainLocked(st.Ranks[i].Lease)
		}
	}
	for i, f := range s.following {
		if r := &st.Ranks[i]; f != nil && (r.State != jobs.RankRunning || f.exec.Lease != r.Lease || f.exec.Seq != r.Seq) {
			f.cancel()
			s.following[i] = nil
		}
	}
	if s.reducing != nil && st.Phase != jobs.Reducing {
		s.reducing()
		s.reducing = nil
	}
	j, told, upTo := s.job, s.deliveries[s.job.State], s.upTo
	delete(s.deliveries, s.job.State)
	s.mu.Unlock()
	s.trace.Written(upTo)
	s.b.hooks.Added(told...)
	s.trace.Poke()
	if st.Phase < jobs.Settling {
		return
	}
	for _, l := range s.ranklogs() { // who follows them need not wait until all is paid
		l.End()
	}
	if j.State != before {
		s.b.cfg.Log.Info("job's work is over", "job", j.ID, "state", j.State, "outcome", j.Outcome, "reason", j.Reason)
	}
	if st.Phase == jobs.Ended {
		s.trace.Retire()
		s.close()
		s.b.hasEnded()
	}
}

// close lets those go on who wait for the end of the job's run in this process.
func (s *supervisor) close() { s.closing.Do(func() { close(s.done) }) }
