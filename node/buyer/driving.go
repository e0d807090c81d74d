package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/reduce"
	"github.com/starling-network/starling/node/job"
)

// post reports events to the job's machine. A runner that is stopping takes none: the next process finds out anew.
func (d *driver) post(events ...jobs.Event) {
	for _, ev := range events {
		d.report(event{ev: ev})
	}
}

func (d *driver) report(ev event) { _ = d.b.desk.runner.Post(d.s, ev) }

// reduceRound runs the job's reduce program here.
func (d *driver) reduceRound(fx jobs.Reduce) {
	ctx, cancel := context.WithCancel(d.commanded())
	d.s.mu.Lock()
	d.reducing = cancel
	d.s.mu.Unlock()
	d.b.wg.Go(func() {
		defer cancel()
		r := reduce.Reducer{Runtime: d.b.cfg.Runtimes[job.RuntimeWasm], Blobs: d.b.cfg.Blobs}
		c, err := r.Run(ctx, d.s.snapshot(), d.b.jobDir(d.s.trace.Job), d.s.ranklogs()[0])
		var own *reduce.Error
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &own):
			d.post(jobs.ReduceFailed{Round: fx.Round, Code: own.Code, Reason: own.Reason})
		case err != nil:
			reason := "this peer could not go on with the job: " + err.Error()
			d.post(jobs.ReduceFailed{Round: fx.Round, Code: jobs.CodePeer, Reason: reason})
		default:
			d.post(jobs.Reduced{Round: fx.Round, Carry: jobs.File{CID: c.CID, Bytes: c.Size, Tree: c.Tree}})
		}
	})
}

// ask sends an event to the job's machine, and returns its effects once they are journalled.
func (d *driver) ask(ctx context.Context, ev event) ([]any, error) {
	d.s.mu.Lock()
	closed := d.s.closed
	d.s.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("journalling job %s: %w: it has ended", d.s.trace.Job, ErrNotRunning)
	}
	return d.b.desk.runner.Ask(ctx, d.s, ev)
}

// request sends a request of the API under a number, and waits for its answer.
func (d *driver) request(ctx context.Context, send func(jobs.Req) error) error {
	answer := make(chan error, 1)
	d.s.mu.Lock()
	d.asked++
	req := d.asked
	d.waiting[req] = answer
	d.s.mu.Unlock()
	defer func() {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		delete(d.waiting, req)
	}()
	if err := send(req); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.s.done:
	case err := <-answer:
		return err
	}
	select {
	case err := <-answer:
		return err
	default:
		return fmt.Errorf("%w: the job has ended, or this peer stops", ErrNotRunning)
	}
}

// answer passes an answer on to who waits for it.
func (d *driver) answer(a jobs.Answer) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if c := d.waiting[a.Req]; c != nil {
		c <- a.Err // each request is answered once
		delete(d.waiting, a.Req)
	}
}

// commanded is the context of work under the present command: it ends when another peer supervises the job.
func (d *driver) commanded() context.Context {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.commandedLocked()
}

// commandedLocked is commanded for a caller that holds the supervisor's mu.
func (d *driver) commandedLocked() context.Context {
	if d.mandate == nil {
		d.mandate, d.revoke = context.WithCancel(d.b.desk.ctx)
	}
	return d.mandate
}

// leave ends the work on the job's executions and leases: another peer supervises it, or this one begins anew.
func (d *command) leave() {
	d.s.mu.Lock()
	if d.mandate != nil {
		d.revoke()
		d.mandate, d.revoke = nil, nil
	}
	clear(d.execs.following)
	leases := slices.Clone(d.s.paid)
	d.s.mu.Unlock()
	for _, l := range leases {
		l.Leave()
	}
}

// pause returns after d, or with the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// jitter spreads retries, so that two buyers that blocked each other do not meet again.
func jitter(d time.Duration) time.Duration {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(uint16(b[0])<<8|uint16(b[1]))/(1<<16)
}
