package buyer

import (
	"context"
	"errors"
	"sync"

	"github.com/starling-network/starling/node/buyer/access"
	"github.com/starling-network/starling/node/buyer/changes"
	"github.com/starling-network/starling/node/buyer/command"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/lines"
	"github.com/starling-network/starling/node/buyer/orders"
	"github.com/starling-network/starling/node/buyer/plans"
	"github.com/starling-network/starling/node/buyer/programs"
	"github.com/starling-network/starling/node/buyer/reduce"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/settling"
	"github.com/starling-network/starling/node/buyer/takeover"
	"github.com/starling-network/starling/node/job"
)

// supervisor is one job with the rooms that carry out the effects of its machine. It implements run.Parts.
type supervisor struct {
	*run.Job
	b        *Buyer
	orders   *orders.Orders
	programs *programs.Programs
	lines    lines.Lines
	plans    *plans.Plans
	access   *access.Programs
	changes  *changes.Changes
	account  settling.Account
	command  *command.Command   // nil for a job that has no guardians
	takeover *takeover.Takeover // likewise

	mu       sync.Mutex
	reducing context.CancelFunc // ends the reduce program; nil: none runs
}

// Changed implements run.Parts.
func (s *supervisor) Changed(st jobs.State) {
	s.programs.Changed(st)
	s.mu.Lock()
	if s.reducing != nil && st.Phase != jobs.Reducing {
		s.reducing()
		s.reducing = nil
	}
	s.mu.Unlock()
	s.plans.Changed(st)
	if s.command != nil {
		s.command.Follow(st)
	}
}

// Ended implements run.Parts.
func (s *supervisor) Ended() { retiring{s.b}.hasEnded() }

// Carry implements run.Parts.
func (s *supervisor) Carry(f jobs.Effect) {
	switch f := f.(type) {
	case jobs.PollProvider:
		s.programs.Poll(f)
	case jobs.CheckResults:
		s.b.wg.Go(func() { s.b.checks.CheckJob(s.Context(), s.Job) })
	case jobs.OrderGang:
		s.orders.Place(f)
	case jobs.CancelGang:
		s.orders.Cancel(f)
	case jobs.StartExecution:
		s.programs.Begin(f)
	case jobs.StopExecution:
		s.programs.Halt(f)
	case jobs.GatherOutputs:
		s.programs.Gather(f)
	case jobs.ReclaimExecution:
		s.programs.Reclaim(f)
	case jobs.EndLease:
		s.lines.End(f)
	case jobs.RenewLease:
		s.lines.Renew(f)
	case jobs.ReportFault:
		s.lines.Fault(f)
	case jobs.Reduce:
		s.reduce(f)
	case jobs.CloseAccount:
		s.account.Close()
	case jobs.EngageGuardians:
		s.command.Engage()
	case jobs.LeaveLeases:
		s.takeover.Leave()
	case jobs.AcquireCommand:
		s.takeover.Acquire()
	case jobs.DismissGuardians:
		s.command.Dismiss()
	}
}

// reduce runs the job's reduce program here.
func (s *supervisor) reduce(fx jobs.Reduce) {
	ctx, cancel := context.WithCancel(s.Commanded())
	s.mu.Lock()
	s.reducing = cancel
	s.mu.Unlock()
	s.b.wg.Go(func() {
		defer cancel()
		r := reduce.Reducer{Runtime: s.b.cfg.Runtimes[job.RuntimeWasm], Blobs: s.b.cfg.Blobs}
		c, err := r.Run(ctx, s.Snapshot(), s.b.runner.Dir(s.ID), s.Logs()[0])
		var own *reduce.Error
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &own):
			s.Post(jobs.ReduceFailed{Round: fx.Round, Code: own.Code, Reason: own.Reason})
		case err != nil:
			reason := "this peer could not continue the job: " + err.Error()
			s.Post(jobs.ReduceFailed{Round: fx.Round, Code: jobs.CodePeer, Reason: reason})
		default:
			s.Post(jobs.Reduced{Round: fx.Round, Carry: jobs.File{CID: c.CID, Bytes: c.Size, Tree: c.Tree}})
		}
	})
}
