package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// execs are the executions of a job that this process follows.
type execs struct {
	*driver
	following []*following // by rank; nil: nothing is followed. Under the supervisor's mu.
}

// following is an execution that this process follows.
type following struct {
	exec   jobs.Exec
	ctx    context.Context // ends when the job's machine is not interested in it any more
	cancel context.CancelFunc
	last   *nodepb.Execution // as it ended; under the supervisor's mu
}

// followed returns an execution as it is followed from now on, and reports whether it was before.
func (x *execs) followed(e jobs.Exec) (f *following, already bool) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if f := x.following[e.Rank]; f != nil {
		if f.exec == e {
			return f, true
		}
		f.cancel()
	}
	f = &following{exec: e}
	f.ctx, f.cancel = context.WithCancel(x.commandedLocked())
	x.following[e.Rank] = f
	return f, false
}

// begin has a provider run a program, and follows it.
func (x *execs) begin(fx jobs.StartExecution) {
	f, already := x.followed(fx.Exec)
	if !already {
		x.b.wg.Go(func() { x.follow(f, true) })
	}
}

// follow starts an execution, or finds it where it runs, and reports its progress until it has ended.
func (x *execs) follow(f *following, start bool) {
	i, l := int(f.exec.Rank), x.chains.chain(f.exec.Lease)
	j := x.s.snapshot()
	if l == nil { // its lease is gone, and the machine knows
		return
	}
	var program *nodepb.Workload
	if start {
		w, code, err := x.workload(f.ctx, j, i, l)
		if err != nil {
			if f.ctx.Err() == nil { // else the rank was lost meanwhile
				x.post(jobs.PeerFailed{Code: code, Reason: fmt.Sprintf("rank %d: %v", i, err)})
			}
			return
		}
		x.b.grantInputs(l.Peer, w)
		program = w
	}
	if away, _, unpaid := l.Outage(); away > 0 && !unpaid && x.s.back(i) {
		detail := fmt.Sprintf("this peer was away for %v; its program ran on", away)
		x.s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Away, Rank: &i, Provider: l.Core.Provider.String(),
			Detail: detail})
	}
	if j.Cluster != nil {
		defer x.s.plans.attached(f.ctx, i)()
	}
	defer x.s.probing(f.ctx, i, l, f.exec.Seq)()
	x.attend(f, l, x.follower(f.exec, l, j.Ranks[i], true), program)
}

// workload returns the program of rank i for its provider. An error comes with the code of the job's failure.
func (x *execs) workload(ctx context.Context, j Job, i int, l *leases.Lease) (*nodepb.Workload, jobs.Code, error) {
	w, err := record.Workload(j, i)
	if err != nil {
		return nil, jobs.CodeInput, err
	}
	if w.Sealed, err = x.b.secrets.SealFor(ctx, j, l.Core.Provider, l.First); err != nil {
		return nil, jobs.CodePeer, fmt.Errorf("its secrets could not be sealed to the provider: %w", err)
	}
	if j.Cluster != nil {
		p, err := x.s.plans.of(ctx, i)
		if err != nil {
			return nil, jobs.CodePeer, fmt.Errorf("the cluster's plan: %w", err)
		}
		w.Cluster = p.Proto()
	}
	return w, 0, nil
}

// attend keeps in touch with the provider of an execution until it has ended. It first has it run a program, unless
// that is nil.
func (x *execs) attend(f *following, l *leases.Lease, e *executions.Follower, program *nodepb.Workload) {
	silent := false
	for {
		var err error
		if program != nil {
			err = x.b.executions.Start(f.ctx, on(l, f.exec.Seq), program)
		}
		if err == nil {
			if silent {
				x.post(jobs.ProviderHeard{Exec: f.exec})
				silent = false
			}
			var ex *nodepb.Execution
			if ex, err = e.Watch(f.ctx); err == nil {
				_ = x.exited(f, l, ex) // its lease's loss is reported by itself
				return
			}
		}
		no := executions.Final(err)
		var bad *stream.Malformed
		switch {
		case f.ctx.Err() != nil, l.LostReason() != "": // its loss is reported by itself
			return
		case errors.As(err, &bad):
			reason := "the provider called the request malformed: " + bad.Reason
			x.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseRefused, Reason: reason})
			return
		case no != nil:
			reason := "the provider refused to run it: " + no.Reason
			x.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseRefused, Reason: reason})
			return
		}
		if !silent {
			silent = true
			x.post(jobs.ProviderSilent{Exec: f.exec})
		}
		if pause(f.ctx, executions.Redial) != nil {
			return
		}
	}
}

// exited reports the end of an execution. It reports false, and nothing to the machine, if the execution ended
// only because its lease did.
func (x *execs) exited(f *following, l *leases.Lease, ex *nodepb.Execution) bool {
	x.s.mu.Lock()
	f.last = ex
	x.s.mu.Unlock()
	exit, refused := executions.ExitOf(ex)
	if refused != "" {
		x.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseBroken, Reason: refused})
		return true
	}
	switch {
	case exit.Broken && l.LostReason() != "":
		return false
	case exit.Broken && l.Spent():
		x.post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseExpired, Reason: "the lease is used up"})
		return true
	}
	for _, o := range ex.Outputs {
		if size := o.GetBlob().GetSize(); exit.Reason == "" && size > uint64(x.b.cfg.MaxOutput) {
			exit.Reason = "output"
			exit.Detail = fmt.Sprintf("output %s has %d bytes, at most %d are taken", record.Clean(o.GetPath()), size,
				x.b.cfg.MaxOutput)
		}
	}
	x.post(jobs.ExecutionExited{Exec: f.exec, Exit: exit})
	return true
}

// gather fetches an execution's outputs.
func (x *execs) gather(fx jobs.GatherOutputs) {
	x.s.mu.Lock()
	f := x.following[fx.Rank]
	var last *nodepb.Execution
	if f != nil && f.exec == fx.Exec {
		last = f.last
	}
	x.s.mu.Unlock()
	if last == nil { // a restart comes to it again
		return
	}
	x.b.wg.Go(func() {
		l := x.chains.chain(fx.Lease)
		res, err := x.b.executions.Gather(f.ctx, on(l, fx.Seq), l, last, x.s.snapshot().Spec.Outputs)
		switch {
		case f.ctx.Err() != nil:
		case err != nil:
			reason := "this peer could not go on with the job: " + err.Error()
			x.post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: reason})
		case res.Lost != "":
			x.post(jobs.ExecutionLost{Exec: fx.Exec, Cause: jobs.CauseBroken, Reason: res.Lost})
		default:
			x.post(jobs.OutputsGathered{Exec: fx.Exec, Outputs: res.Outputs})
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

// halt asks a provider to end a program, until it was heard or the machine waits no longer. One that an
// earlier process started is followed from here on.
func (x *execs) halt(fx jobs.StopExecution) {
	f, already := x.followed(fx.Exec)
	if !already {
		x.b.wg.Go(func() { x.follow(f, false) })
	}
	x.b.wg.Go(func() {
		l := x.chains.chain(fx.Lease)
		if l == nil {
			return
		}
		ctx, cancel := context.WithTimeout(f.ctx, fx.Grace+stopSlack)
		defer cancel()
		for {
			err := x.b.executions.Stop(ctx, on(l, fx.Seq), fx.Grace)
			if err == nil || executions.Final(err) != nil {
				return
			}
			if pause(ctx, executions.Redial) != nil {
				x.b.cfg.Log.Debug("stopping an execution", "lease", l.ID, "err", err)
				return
			}
		}
	})
}

// reclaim asks the provider of a lease that is over whether the program had ended before.
func (x *execs) reclaim(fx jobs.ReclaimExecution) {
	f, _ := x.followed(fx.Exec)
	x.b.wg.Go(func() {
		l, j := x.chains.chain(fx.Lease), x.s.snapshot()
		if l == nil {
			x.post(jobs.ExecutionLost{Exec: fx.Exec, Cause: jobs.CauseAbsent, Reason: "its lease is not known"})
			return
		}
		ex, err := x.b.executions.Await(f.ctx, on(l, fx.Seq))
		if err == nil && ex.GetState().Ended() {
			ex, err = x.follower(fx.Exec, l, j.Ranks[fx.Rank], false).Follow(f.ctx) // the rest of its log
		}
		switch {
		case f.ctx.Err() != nil:
		case err != nil || !ex.GetState().Ended() || !x.exited(f, l, ex):
			cause, why := causeOf(l)
			x.post(jobs.ExecutionLost{Exec: fx.Exec, Cause: cause, Reason: why})
		}
	})
}

// stopSlack is how much longer than its grace the end of a stopped program is waited for.
const stopSlack = 2 * time.Second

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

// on names an execution for its provider.
func on(l *leases.Lease, seq uint64) executions.Execution {
	return executions.Execution{Peer: l.Peer, Lease: l.First, Seq: seq}
}

// observer is a job that observes one of its executions.
type observer struct {
	x        *execs
	exec     jobs.Exec
	lease    *leases.Lease
	progress bool // the machine is notified of it
}

// follower follows an execution of rank r. The job's machine is notified of its progress if it asked for that.
func (x *execs) follower(e jobs.Exec, l *leases.Lease, r Rank, progress bool) *executions.Follower {
	o := observer{x, e, l, progress}
	return x.b.executions.Follower(on(l, r.Seq), l, x.s.ranklogs()[e.Rank], r.LogBase, o)
}

// Seen implements executions.Observer.
func (o observer) Seen(ex *nodepb.Execution) {
	s, i := o.x.s, int(o.exec.Rank)
	s.see(i, ex)
	s.plans.heard(i, ex)
	s.examine(i, o.lease, ex)
}

// Reached implements executions.Observer.
func (o observer) Reached(stage jobs.Stage, detail string) {
	if o.progress {
		o.x.post(jobs.ExecutionSeen{Exec: o.exec, Stage: stage, Detail: detail})
	}
}

// see keeps a provider's report of a running program, to show it. It reaches the journal with the job's next change.
func (s *supervisor) see(i int, ex *nodepb.Execution) {
	s.mu.Lock()
	changed := false
	if live := record.LiveOf(ex); i < len(s.job.Ranks) && !live.Equal(s.job.Ranks[i].Live) {
		ranks := slices.Clone(s.job.Ranks)
		ranks[i].Live = live
		s.job.Ranks, changed = ranks, true
	}
	s.mu.Unlock()
	if changed {
		s.trace.Poke()
	}
	s.pauses.bring(i, ex)
}

// grantInputs lets a provider read the inputs of its workload.
func (b *Buyer) grantInputs(to peer.ID, w *nodepb.Workload) {
	grant := func(bl *nodepb.Blob) {
		if c, err := work.CID(bl); err == nil && !bl.Remote {
			b.cfg.Files.Grant(to, c)
		}
	}
	if w.Module != nil {
		grant(w.Module)
	}
	for _, in := range w.Inputs {
		grant(in.Blob)
	}
}
