package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
)

// Requests are the requests of the API to a job that wait for the answer of its machine.
type Requests struct {
	done <-chan struct{} // the job's

	mu      sync.Mutex
	asked   jobs.Req // last number
	waiting map[jobs.Req]chan<- error
}

// Request sends a request under a new number, and waits for its answer. It returns ErrNotRunning if the job ends
// before.
func (r *Requests) Request(ctx context.Context, send func(jobs.Req) error) error {
	answer := make(chan error, 1)
	r.mu.Lock()
	r.asked++
	req := r.asked
	r.waiting[req] = answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, req)
	}()
	if err := send(req); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
	case err := <-answer:
		return err
	}
	select {
	case err := <-answer:
		return err
	default:
		return fmt.Errorf("%w: the job has ended, or this peer stops", record.ErrNotRunning)
	}
}

// answer passes an answer on to the caller that waits for it.
func (r *Requests) answer(a jobs.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.waiting[a.Req]; c != nil {
		c <- a.Err // each request is answered once
		delete(r.waiting, a.Req)
	}
}
