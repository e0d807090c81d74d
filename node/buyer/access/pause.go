package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
)

// set is Pause or Resume.
func (p *Programs) set(ctx context.Context, paused bool) (record.Job, error) {
	if err := p.pausing.Acquire(ctx, 1); err != nil {
		return p.Snapshot(), err
	}
	defer p.pausing.Release(1)
	j := p.Snapshot()
	if j.State != record.Running {
		return j, fmt.Errorf("%w: the job is %s", record.ErrNotRunning, j.State)
	}
	if err := p.pause(ctx, paused); err != nil {
		return j, err
	}
	err := p.freeze(ctx, paused)
	// If a provider refuses, the pause is undone. A silent provider receives the request when it is back.
	var no *stream.Refused
	if errors.As(err, &no) {
		back := context.WithoutCancel(ctx)
		if undone := p.pause(back, !paused); undone == nil {
			_ = p.freeze(back, !paused)
		}
	}
	return p.Snapshot(), err
}

// pause records that the programs are to be paused or resumed. The caller, or Seen, sends the request to the providers.
func (p *Programs) pause(ctx context.Context, paused bool) error {
	err := p.Request(ctx, func(req jobs.Req) error {
		_, err := p.Ask(context.WithoutCancel(ctx), run.Event{Ev: jobs.PauseRequested{Req: req, Pause: paused}})
		return err
	})
	if errors.Is(err, jobs.ErrNotRunning) {
		err = fmt.Errorf("%w: the job is %s", record.ErrNotRunning, p.Snapshot().State)
	}
	return err
}

// freeze requests it of all providers.
func (p *Programs) freeze(ctx context.Context, paused bool) error {
	n := len(p.Snapshot().Ranks)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			l, seq, err := p.Running(i)
			if err != nil { // it has not begun, or is done
				errs <- nil
				return
			}
			err = p.cfg.Executions.Pause(ctx, run.On(l, seq), paused)
			var no *stream.Refused
			if errors.As(err, &no) && (no.Code == stream.CodeBusy || no.Code == "execution") {
				err = nil // it receives the request when it runs, or has ended
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Seen processes the state of a rank's execution.
func (p *Programs) Seen(rank int, ex *nodepb.Execution) {
	p.See(rank, ex)
	p.bring(rank, ex)
}

// bring pauses or resumes an execution that differs from the job: it began after the user's request, or its provider or
// this peer was away then.
func (p *Programs) bring(i int, ex *nodepb.Execution) {
	if ex.State != nodepb.ExecState_EXEC_STATE_RUNNING || ex.Paused == p.Snapshot().Paused {
		return
	}
	p.cfg.Tasks.Go(func() {
		if p.pausing.Acquire(p.Context(), 1) != nil {
			return
		}
		defer p.pausing.Release(1)
		paused := p.Snapshot().Paused
		l, seq, err := p.Running(i)
		if err != nil || seq != ex.Seq || ex.Paused == paused {
			return
		}
		ctx, cancel := context.WithTimeout(l.Context(), freezeTime)
		defer cancel()
		if err := p.cfg.Executions.Pause(ctx, run.On(l, seq), paused); err != nil {
			p.cfg.Log.Warn("a program could not be paused or resumed", "lease", l.ID, "rank", i, "paused", paused,
				"err", err)
		}
	})
}

// freezeTime bounds the pause or resume of one rank.
const freezeTime = 10 * time.Second
