package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// Begin has a provider run a program, and follows it.
func (x *Programs) Begin(fx jobs.StartExecution) {
	f, already := x.followed(fx.Exec)
	if !already {
		x.cfg.Tasks.Go(func() { x.follow(f, true, fx.From) })
	}
}

// follow starts an execution, or finds it running, and reports its progress until its end. A start is from the first
// checkpoint in from that is stored here, if any.
func (x *Programs) follow(f *following, start bool, from []jobs.Checkpoint) {
	i, l := int(f.exec.Rank), x.Chain(f.exec.Lease)
	j := x.Snapshot()
	if l == nil { // its lease is gone, and the loss is posted
		return
	}
	var program *nodepb.Workload
	if start {
		w, code, err := x.workload(f.ctx, j, i, l)
		if err == nil {
			code, err = jobs.CodeInput, x.resume(f, l, w, from)
		}
		if err != nil {
			if f.ctx.Err() == nil { // else the rank was lost meanwhile
				x.Post(jobs.PeerFailed{Code: code, Reason: fmt.Sprintf("rank %d: %v", i, err)})
			}
			return
		}
		x.cfg.grantInputs(l.Peer, w)
		program = w
	}
	if away, _, unpaid := l.Outage(); away > 0 && !unpaid && x.back(i) {
		detail := fmt.Sprintf("this peer was away for %v; its program ran on", away)
		x.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Away, Rank: &i, Provider: l.Core.Provider.String(),
			Detail: detail})
	}
	if j.Cluster != nil {
		defer x.plans.Attached(f.ctx, i)()
	}
	defer x.probing(f.ctx, i, l, f.exec.Seq)()
	x.attend(f, l, x.follower(f.exec, l, j.Ranks[i], true), program)
}

// workload returns the program of rank i for its provider. An error comes with the code of the job's failure.
func (x *Programs) workload(
	ctx context.Context, j record.Job, i int, l *leases.Lease,
) (*nodepb.Workload, jobs.Code, error) {
	w, err := record.Workload(j, i)
	if err != nil {
		return nil, jobs.CodeInput, err
	}
	w.Fellows = fellows(j, i)
	if w.Sealed, err = x.cfg.Secrets.SealFor(ctx, j, l.Core.Provider, l.First); err != nil {
		return nil, jobs.CodePeer, fmt.Errorf("sealing the job's secrets to the provider: %w", err)
	}
	if j.Cluster != nil {
		if w.Cluster, err = x.plans.For(ctx, i); err != nil {
			return nil, jobs.CodePeer, fmt.Errorf("the cluster's plan: %w", err)
		}
	}
	return w, 0, nil
}

// attend keeps in touch with the provider of an execution until it has ended. It first has it run a program, unless
// that is nil.
func (x *Programs) attend(f *following, l *leases.Lease, e *executions.Follower, program *nodepb.Workload) {
	silent := false
	for {
		var err error
		if program != nil {
			err = x.cfg.Executions.Start(f.ctx, run.On(l, f.exec.Seq), program)
		}
		if err == nil {
			if silent {
				x.Post(jobs.ProviderHeard{Exec: f.exec})
				silent = false
			}
			var ex *nodepb.Execution
			if ex, err = e.Watch(f.ctx); err == nil {
				_ = x.exited(f, l, ex) // the loss of its lease is reported separately
				return
			}
		}
		no := executions.Final(err)
		var bad *stream.Malformed
		switch {
		case f.ctx.Err() != nil, l.LostReason() != "": // its loss is reported separately
			return
		case errors.As(err, &bad):
			reason := "the provider called the request malformed: " + bad.Reason
			x.Post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseRefused, Reason: reason})
			return
		case no != nil:
			reason := "the provider refused to run it: " + no.Reason
			x.Post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseRefused, Reason: reason})
			return
		}
		if !silent {
			silent = true
			x.Post(jobs.ProviderSilent{Exec: f.exec})
		}
		if run.Pause(f.ctx, executions.Redial) != nil {
			return
		}
	}
}

// exited reports the end of an execution. It reports false, and nothing to the machine, if the execution ended
// only because its lease did.
func (x *Programs) exited(f *following, l *leases.Lease, ex *nodepb.Execution) bool {
	x.mu.Lock()
	f.last = ex
	x.mu.Unlock()
	exit, refused := executions.ExitOf(ex)
	if exit.Broken { // its rank moves
		x.lastPack(f, l, ex)
	}
	if refused != "" {
		x.Post(jobs.ExecutionLost{Exec: f.exec, Cause: jobs.CauseBroken, Reason: refused})
		return true
	}
	if exit.Broken {
		cause, reason, known := lossOf(l)
		if known {
			return false
		}
		if cause != 0 {
			x.Post(jobs.ExecutionLost{Exec: f.exec, Cause: cause, Reason: reason})
			return true
		}
	}
	for _, o := range ex.Outputs {
		if size := o.GetBlob().GetSize(); exit.Reason == "" && size > uint64(x.cfg.MaxOutput) {
			exit.Reason = "output"
			exit.Detail = fmt.Sprintf("output %s has %d bytes, at most %d are taken", record.Clean(o.GetPath()), size,
				x.cfg.MaxOutput)
		}
	}
	x.Post(jobs.ExecutionExited{Exec: f.exec, Exit: executions.Sized(exit, l.Core.Units, l.Record().PerUnit)})
	return true
}

// line is the part of a lease that explains why its provider ended a program.
type line interface {
	LostReason() string
	Spent() bool
	Outage() (away, ahead time.Duration, unpaid bool)
}

// lossOf returns why a provider was right to end a program; 0 if it was not. known reports whether the loss of its
// lease is reported separately. A provider may end a program before this peer is back and knows that the lease is lost.
func lossOf(l line) (cause jobs.Cause, reason string, known bool) {
	away, ahead, unpaid := l.Outage()
	switch {
	case l.LostReason() != "":
		return 0, "", true
	case unpaid:
		text := "this peer was away for %v, longer than the %v that it had paid ahead: the provider ended the program"
		return jobs.CauseAbsent, fmt.Sprintf(text, away, ahead), false
	case l.Spent():
		return jobs.CauseExpired, "the lease is used up", false
	}
	return 0, "", false
}

// Gather fetches an execution's outputs.
func (x *Programs) Gather(fx jobs.GatherOutputs) {
	f := x.known(fx.Exec)
	var last *nodepb.Execution
	if f != nil {
		x.mu.Lock()
		last = f.last
		x.mu.Unlock()
	}
	if last == nil { // a restart repeats it
		return
	}
	x.cfg.Tasks.Go(func() {
		l := x.Chain(fx.Lease)
		x.lastPack(f, l, last)
		res, err := x.cfg.Executions.Gather(f.ctx, run.On(l, fx.Seq), l, last, x.Snapshot().Spec.Outputs)
		switch {
		case f.ctx.Err() != nil:
		case err != nil:
			reason := "this peer could not continue the job: " + err.Error()
			x.Post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: reason})
		case res.Lost != "":
			x.Post(jobs.ExecutionLost{Exec: fx.Exec, Cause: jobs.CauseBroken, Reason: res.Lost})
		default:
			x.Post(jobs.OutputsGathered{Exec: fx.Exec, Outputs: res.Outputs})
		}
	})
}

// observer is a job that observes one of its executions.
type observer struct {
	x        *Programs
	exec     jobs.Exec
	lease    *leases.Lease
	progress bool // the machine is notified of it
}

// follower follows an execution of rank r. The job's machine is notified of its progress if it asked for that.
func (x *Programs) follower(e jobs.Exec, l *leases.Lease, r record.Rank, progress bool) *executions.Follower {
	o := observer{x, e, l, progress}
	return x.cfg.Executions.Follower(run.On(l, r.Seq), l, x.Logs()[e.Rank], r.LogBase, o)
}

// Seen implements executions.Observer.
func (o observer) Seen(ex *nodepb.Execution) {
	x, i := o.x, int(o.exec.Rank)
	x.observer.Seen(i, ex)
	x.plans.Heard(i, ex)
	x.examine(i, o.lease, ex)
	x.packed(o.exec, o.lease, ex)
}

// Reached implements executions.Observer.
func (o observer) Reached(stage jobs.Stage, detail string) {
	if o.progress {
		o.x.Post(jobs.ExecutionSeen{Exec: o.exec, Stage: stage, Detail: detail})
	}
}

// grantInputs grants a provider access to the program and the inputs of its workload.
func (c *Config) grantInputs(to peer.ID, w *nodepb.Workload) {
	grant := func(bl *nodepb.Blob) {
		if id, err := work.CID(bl); err == nil && !bl.Remote {
			c.Files.Grant(to, id)
		}
	}
	if w.Module != nil {
		grant(w.Module)
	}
	for _, part := range w.ImageParts {
		grant(part)
	}
	for _, in := range w.Inputs {
		grant(in.Blob)
	}
}

// back reports whether a rank is taken up for the first time since this process began.
func (x *Programs) back(i int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := x.Resumed() && !x.returned[i]
	x.returned[i] = true
	return first
}
