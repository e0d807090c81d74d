package pay

import (
	"context"
	"fmt"
	"sync"
)

// turns limits each job to one hire at a time. The hire's tranche takes the escrow's next number, which is sent to the
// provider before the hire is on chain.
type turns struct {
	mu   sync.Mutex
	busy map[string]turn // by job: a hire that is not on chain yet
}

// turn is the time of one hire.
type turn struct {
	name string
	over chan struct{}
}

// take waits until the job's previous hire is on chain, or can never land.
func (x *turns) take(ctx context.Context, name string) error {
	for {
		x.mu.Lock()
		t, busy := x.busy[jobOf(name)]
		if !busy {
			x.busy[jobOf(name)] = turn{name, make(chan struct{})}
		}
		x.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another hire of the job: %w", ctx.Err())
		case <-t.over:
		}
	}
}

// end ends the turn of a hire. It does nothing if the turn is another's.
func (x *turns) end(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.busy[jobOf(name)]; t.name == name {
		close(t.over)
		delete(x.busy, jobOf(name))
	}
}
