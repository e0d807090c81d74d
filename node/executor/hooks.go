package executor

import (
	"context"
	"log/slog"
	"slices"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// A Hook implements one or more of the interfaces of this file. The package comment has their order and the rules for
// errors and crashes.
type Hook any

// Admission checks a workload before it is accepted.
type Admission interface {
	// Admit refuses a workload with workload.ErrWorkload, which has a text for the buyer. It may call Note. buyer is
	// the key that signed the lease.
	Admit(e *Execution, buyer sign.Key) error
}

// Restoring reads a hook's note of an execution of an earlier process.
type Restoring interface {
	// Restore is called for every execution in the journal, ended ones too. An error keeps the peer from starting.
	Restore(e *Execution) error
}

// Prestart prepares a resource of a program.
type Prestart interface {
	// Prestart completes the launch. ctx ends with the time that the workload has for fetching its files.
	Prestart(ctx context.Context, e *Execution, l *Launch) error
}

// Poststart acts on a program that was started.
type Poststart interface {
	// Poststart must not wait for the end of the program; Execution.Go starts work that lasts as long.
	Poststart(ctx context.Context, e *Execution) error
}

// Recovery takes up the resource of a program of an earlier process.
type Recovery interface {
	// Recover must not wait for the end of the program. It retries in the background; the program runs on.
	Recover(e *Execution)
}

// Exit releases a resource, and takes part in the result of an execution.
type Exit interface {
	// Exited may change the result. r.Exit is nil if the program did not run or is lost.
	Exited(ctx context.Context, e *Execution, r *Result) error
}

// Stop releases a resource after the end is journalled.
type Stop interface {
	// Stop removes everything of the current attempt.
	Stop(e *Execution) error
}

// Forgetting removes the rest of an execution.
type Forgetting interface {
	// Forget adds the removal of the hook's own records to a batch. done, which may be nil, is called after its commit.
	Forget(e *Execution, b *journal.Batch) (done func())
}

// Description adds data to the state of an execution for its buyer.
type Description interface {
	// Describe changes a copy of the state.
	Describe(e *Execution, s *nodepb.Execution)
}

// Launch is a program that is to be started. Prestart hooks complete it.
type Launch struct {
	Runtime runtime.Runtime
	Spec    runtime.Spec
	Auth    *runtime.RegistryAuth // of the image's registry; nil without credentials
}

// Result is the outcome of an execution.
type Result struct {
	State   nodepb.ExecState // EXITED or FAILED
	Code    int
	Reason  string
	Message string // for the buyer
	Outputs []*nodepb.Output
	Exit    *runtime.Exit // from the runtime; nil if the program did not run or is lost
}

// Lost reports whether the program ended without a result: its outputs are incomplete.
func (r *Result) Lost() bool { return r.Exit == nil || r.Exit.Reason == runtime.ReasonLost }

// hooks are the hooks of an executor, in order.
type hooks []Hook

func (hs hooks) admit(e *Execution, buyer sign.Key) error {
	for _, h := range hs {
		if h, ok := h.(Admission); ok {
			if err := h.Admit(e, buyer); err != nil {
				return err
			}
		}
	}
	return nil
}

func (hs hooks) restore(e *Execution) error {
	for _, h := range hs {
		if h, ok := h.(Restoring); ok {
			if err := h.Restore(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (hs hooks) prestart(ctx context.Context, e *Execution, l *Launch) error {
	for _, h := range hs {
		if h, ok := h.(Prestart); ok {
			if err := h.Prestart(ctx, e, l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (hs hooks) poststart(ctx context.Context, e *Execution) error {
	for _, h := range hs {
		if h, ok := h.(Poststart); ok {
			if err := h.Poststart(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (hs hooks) recover(e *Execution) {
	for _, h := range hs {
		if h, ok := h.(Recovery); ok {
			h.Recover(e)
		}
	}
}

// exited returns the result after all hooks. The first error of one fails the execution.
func (hs hooks) exited(ctx context.Context, e *Execution, r Result, log *slog.Logger) Result {
	for _, h := range slices.Backward(hs) {
		h, ok := h.(Exit)
		if !ok {
			continue
		}
		err := h.Exited(ctx, e, &r)
		if err == nil {
			continue
		}
		log.Warn("a hook at the end of an execution failed", "lease", e.Lease, "seq", e.Seq, "err", err)
		if r.State != nodepb.ExecState_EXEC_STATE_FAILED {
			r.State, r.Outputs = nodepb.ExecState_EXEC_STATE_FAILED, nil
			r.Reason, r.Message = reasonOutput, BuyersText(err, notStored)
		}
	}
	return r
}

func (hs hooks) stop(e *Execution, log *slog.Logger) {
	for _, h := range slices.Backward(hs) {
		if h, ok := h.(Stop); ok {
			if err := h.Stop(e); err != nil {
				log.Warn("a resource of an ended execution is not released", "lease", e.Lease, "seq", e.Seq, "err", err)
			}
		}
	}
}

func (hs hooks) forget(e *Execution, b *journal.Batch) (done []func()) {
	for _, h := range slices.Backward(hs) {
		if h, ok := h.(Forgetting); ok {
			if f := h.Forget(e, b); f != nil {
				done = append(done, f)
			}
		}
	}
	return done
}

func (hs hooks) describe(e *Execution, s *nodepb.Execution) {
	for _, h := range hs {
		if h, ok := h.(Description); ok {
			h.Describe(e, s)
		}
	}
}
