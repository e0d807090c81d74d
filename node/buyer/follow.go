package buyer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

// following is an execution that this process follows.
type following struct {
	exec   jobs.Exec
	ctx    context.Context // ends when the job's machine is not interested in it any more
	cancel context.CancelFunc
	last   *nodepb.Execution // as it ended; under the supervisor's mu
}

// post reports events to the job's machine. A runner that is stopping takes none: the next process finds out anew.
func (s *supervisor) post(events ...jobs.Event) {
	for _, ev := range events {
		s.report(event{ev: ev})
	}
}

func (s *supervisor) report(ev event) { _ = s.b.desk.runner.Post(s, ev) }

// followed returns the execution that is followed, and whether it was already. start begins with a context.
func (s *supervisor) followed(x jobs.Exec) (f *following, already bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.following[x.Rank]; f != nil {
		if f.exec == x {
			return f, true
		}
		f.cancel()
	}
	f = &following{exec: x}
	f.ctx, f.cancel = context.WithCancel(s.b.desk.ctx)
	s.following[x.Rank] = f
	return f, false
}

// startExecution has a provider run a program, and follows it.
func (s *supervisor) startExecution(fx jobs.StartExecution) {
	f, already := s.followed(fx.Exec)
	if !already {
		s.b.wg.Go(func() { s.followExecution(f, true) })
	}
}

// followExecution starts an execution, or finds it where it runs, and reports its progress until it has ended.
func (s *supervisor) followExecution(f *following, start bool) {
	i, l := int(f.exec.Rank), s.chain(f.exec.Lease)
	j := s.snapshot()
	if l == nil { // it is lost, and so the machine is told
		return
	}
	var req *nodepb.ExecRequest
	if start {
		w, err := workload(j, i)
		if err != nil {
			s.post(jobs.PeerFailed{Code: jobs.CodeInput, Reason: fmt.Sprintf("rank %d: %v", i, err)})
			return
		}
		if w.Sealed, err = s.b.sealFor(f.ctx, j, l); err != nil {
			if f.ctx.Err() == nil {
				reason := fmt.Sprintf("rank %d: its secrets could not be sealed to the provider: %v", i, err)
				s.post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: reason})
			}
			return
		}
		s.b.grantInputs(l.peer, w)
		req = &nodepb.ExecRequest{
			Lease: l.first[:], Seq: f.exec.Seq, Op: &nodepb.ExecRequest_Start_{Start: &nodepb.ExecRequest_Start{Workload: w}},
		}
	}
	if away, _, unpaid := l.end().outage(); away > 0 && !unpaid && s.back(i) {
		detail := fmt.Sprintf("this peer was away for %v; its program ran on", away)
		s.trace.Add(Step{At: time.Now(), Kind: StepAway, Rank: &i, Provider: l.core.Provider.String(), Detail: detail})
	}
	e := s.execution(i, l, j.Ranks[i])
	e.saw = func(stage jobs.Stage, detail string) {
		s.post(jobs.ExecutionSeen{Exec: f.exec, Stage: stage, Detail: detail})
	}
	defer s.probing(f.ctx, i, l, f.exec.Seq)()
	s.attend(f, e, req)
}

// attend keeps in touch with the provider of an execution until it has ended.
func (s *supervisor) attend(f *following, e *execution, req *nodepb.ExecRequest) {
	silent := false
	for {
		var err error
		if req != nil {
			err = s.b.start(f.ctx, e.l, req)
		}
		if err == nil {
			if silent {
				s.post(jobs.ProviderHeard{Exec: f.exec})
				silent = false
			}
			var ex *nodepb.Execution
			if ex, err = e.watch(f.ctx); err == nil {
				_ = s.exitedExecution(f, e, ex) // its lease's loss is reported by itself
				return
			}
		}
		var no *stream.Refused
		var bad *stream.Malformed
		switch {
		case f.ctx.Err() != nil, e.l.lostReason() != "": // its loss is reported by itself
			return
		case errors.As(err, &bad):
			reason := "the provider called the request malformed: " + bad.Reason
			s.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseRefused, Reason: reason})
			return
		case errors.As(err, &no) && no.Code != stream.CodeBusy && no.Code != stream.CodeClosing:
			reason := "the provider refused to run it: " + no.Reason
			s.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseRefused, Reason: reason})
			return
		}
		if !silent {
			silent = true
			s.post(jobs.ProviderSilent{Exec: f.exec})
		}
		if pause(f.ctx, redial) != nil {
			return
		}
	}
}

// exitedExecution reports the end of an execution. It reports false, and nothing to the machine, if the execution ended
// only because its lease did.
func (s *supervisor) exitedExecution(f *following, e *execution, ex *nodepb.Execution) bool {
	s.mu.Lock()
	f.last = ex
	s.mu.Unlock()
	exit := exitOf(ex)
	if ex.State == nodepb.ExecState_EXEC_STATE_FAILED && ex.Reason == protocol.ReasonStart {
		reason := "the provider could not run it: " + clip(ex.Message)
		s.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseBroken, Reason: reason})
		return true
	}
	switch {
	case exit.Broken && e.l.lostReason() != "":
		return false
	case exit.Broken && e.l.spent():
		s.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseExpired, Reason: "the lease is used up"})
		return true
	}
	for _, o := range ex.Outputs {
		if size := o.GetBlob().GetSize(); exit.Reason == "" && size > uint64(s.b.cfg.MaxOutput) {
			exit.Reason = "output"
			exit.Detail = fmt.Sprintf("output %s has %d bytes, at most %d are taken", clip(o.GetPath()), size, s.b.cfg.MaxOutput)
		}
	}
	s.post(jobs.ExecutionExited{Exec: f.exec, Exit: exit})
	return true
}

// exitOf returns the end of an execution as its provider reports it.
func exitOf(ex *nodepb.Execution) jobs.Exit {
	r := runtime.Reason(ex.Reason)
	e := jobs.Exit{Code: int(ex.ExitCode), Reason: clip(ex.Reason), Detail: clip(ex.Message)}
	switch ex.Reason {
	case protocol.ReasonImage, protocol.ReasonProgram, protocol.ReasonCredentials:
		e.Hopeless = true
	}
	e.Broken = r == runtime.ReasonLost || r == runtime.ReasonKilled
	if ex.State == nodepb.ExecState_EXEC_STATE_FAILED && e.Reason == "" {
		e.Reason = "failed"
	}
	return e
}

// gatherOutputs fetches what an execution left.
func (s *supervisor) gatherOutputs(fx jobs.GatherOutputs) {
	s.mu.Lock()
	f := s.following[fx.Rank]
	var last *nodepb.Execution
	if f != nil && f.exec == fx.Exec {
		last = f.last
	}
	s.mu.Unlock()
	if last == nil { // a restart comes to it again
		return
	}
	s.b.wg.Go(func() {
		l := s.chain(fx.Lease)
		res, err := s.b.gather(f.ctx, l, last, s.snapshot().Spec.Outputs, true)
		switch {
		case f.ctx.Err() != nil:
		case err != nil:
			s.post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: "this peer could not go on with the job: " + err.Error()})
		case res.lost != "":
			s.post(jobs.ExecutionLost{Exec: fx.Exec, Cause: jobs.CauseBroken, Reason: res.lost})
		default:
			s.post(jobs.OutputsGathered{Exec: fx.Exec, Outputs: files(res.outputs)})
		}
	})
}

// files are outputs as the job's machine knows them.
func files(outputs []Output) (out []jobs.File) {
	for _, o := range outputs {
		out = append(out, jobs.File{Path: o.Path, CID: o.CID, Bytes: o.Size, Tree: o.Tree})
	}
	return out
}

// haltExecution asks a provider to end a program, until it was heard or the machine waits no longer. One that an
// earlier process started is followed from here on.
func (s *supervisor) haltExecution(fx jobs.StopExecution) {
	f, already := s.followed(fx.Exec)
	if !already {
		s.b.wg.Go(func() { s.followExecution(f, false) })
	}
	s.b.wg.Go(func() {
		l := s.chain(fx.Lease)
		if l == nil {
			return
		}
		ctx, cancel := context.WithTimeout(f.ctx, fx.Grace+stopSlack)
		defer cancel()
		for {
			_, err := s.b.stopExecution(ctx, l, fx.Seq, fx.Grace)
			var no *stream.Refused
			if err == nil || errors.As(err, &no) && no.Code != stream.CodeBusy && no.Code != stream.CodeClosing {
				return
			}
			if pause(ctx, redial) != nil {
				s.b.cfg.Log.Debug("stopping an execution", "lease", l.id, "err", err)
				return
			}
		}
	})
}

// reclaimExecution asks the provider of a lease that is over whether the program had ended before.
func (s *supervisor) reclaimExecution(fx jobs.ReclaimExecution) {
	f, _ := s.followed(fx.Exec)
	s.b.wg.Go(func() {
		l, j := s.chain(fx.Lease), s.snapshot()
		if l == nil {
			s.post(jobs.ExecutionLost{Exec: fx.Exec, Cause: jobs.CauseAbsent, Reason: "its lease is not known"})
			return
		}
		e := s.execution(int(fx.Rank), l, j.Ranks[fx.Rank])
		e.saw = func(jobs.Stage, string) {}
		ex, err := e.status(f.ctx)
		if err == nil && ex.GetState().Ended() {
			ex, err = e.follow(f.ctx) // the rest of its log
		}
		switch {
		case f.ctx.Err() != nil:
		case err != nil || !ex.GetState().Ended() || !s.exitedExecution(f, e, ex):
			cause, why := l.cause()
			s.post(jobs.ExecutionLost{Exec: fx.Exec, Cause: cause, Reason: why})
		}
	})
}

// reduceRound runs the job's reduce program here.
func (s *supervisor) reduceRound(fx jobs.Reduce) {
	ctx, cancel := context.WithCancel(s.b.desk.ctx)
	s.mu.Lock()
	s.reducing = cancel
	s.mu.Unlock()
	s.b.wg.Go(func() {
		defer cancel()
		c, err := s.reduce(ctx, s.snapshot())
		var out *outcome
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &out) && out.code == CodeProgram:
			s.post(jobs.ReduceFailed{Round: fx.Round, Code: jobs.CodeProgram, Reason: out.reason})
		case errors.As(err, &out):
			s.post(jobs.ReduceFailed{Round: fx.Round, Code: jobs.CodeInput, Reason: out.reason})
		case err != nil:
			reason := "this peer could not go on with the job: " + err.Error()
			s.post(jobs.ReduceFailed{Round: fx.Round, Code: jobs.CodePeer, Reason: reason})
		default:
			s.post(jobs.Reduced{Round: fx.Round, Carry: jobs.File{CID: c.CID, Bytes: c.Size, Tree: c.Tree}})
		}
	})
}

// chain returns a lease of the job that is the first of its line; nil: there is none.
func (s *supervisor) chain(id market.LeaseID) *bought {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chainLocked(id)
}

func (s *supervisor) chainLocked(id market.LeaseID) *bought {
	for _, l := range s.paid {
		if l.id == id {
			return l
		}
	}
	return nil
}
