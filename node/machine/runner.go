package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Runner runs machines of one type. All methods may be called from many goroutines at once.
type Runner[K comparable, M Machine[M, E, F], E, F any] struct {
	cfg    Config[E]
	shell  Shell[K, M, E, F]
	calls  chan struct{} // has a token for each call under way
	broken chan struct{} // closed with the first fatal error
	ended  chan struct{} // closed when Run has returned

	mu      sync.Mutex      // guards the fields below and all instances
	ctx     context.Context // of Run; nil before
	over    bool            // nothing is started or accepted
	fatal   error           // Run returns it
	all     map[K]*instance[K, M, E, F]
	ready   []*instance[K, M, E, F] // have work, and no goroutine serves them
	workers int
	wg      sync.WaitGroup // turns of callers, workers and calls
}

// instance is a machine and its queue.
type instance[K comparable, M, E, F any] struct {
	k       K
	m       M // as journalled, plus volatile fields; changed only by the serving goroutine
	inbox   []item[E, F]
	asked   int       // of these, how many have a caller
	limit   int       // events of the next turn; fewer during the search for an unwritable record
	busy    bool      // a goroutine serves the machine, or it is ready or paused
	paused  bool      // it waits for another try after a failure
	dropped bool      // it takes no more events and gets no ticks
	calls   int       // under way
	next    time.Time // of its tick; zero: never
	rest    time.Time // no tick before: a tick that does not advance next must not repeat at once
	timer   *time.Timer
	changed chan struct{} // closed when m changes; nil without waiters
}

// item is an event in an inbox.
type item[E, F any] struct {
	ev   E
	tick bool              // from the timer
	done chan<- outcome[F] // has room for one; nil if there is no caller
}

func (it item[E, F]) ticks() bool { return it.tick }

func (it item[E, F]) answer(o outcome[F]) {
	if it.done != nil {
		it.done <- o
	}
}

// outcome is the answer to an event.
type outcome[F any] struct {
	effects []F
	err     error
}

// New loads the machines of an earlier process. It starts nothing.
func New[K comparable, M Machine[M, E, F], E, F any](
	ctx context.Context, shell Shell[K, M, E, F], cfg Config[E],
) (*Runner[K, M, E, F], error) {
	r := &Runner[K, M, E, F]{
		cfg: cfg, shell: shell, all: map[K]*instance[K, M, E, F]{},
		calls: make(chan struct{}, maxCalls), broken: make(chan struct{}), ended: make(chan struct{}),
	}
	err := shell.Load(ctx, func(k K, m M) {
		if r.Add(k, m); !m.Done() {
			r.all[k].inbox = []item[E, F]{{ev: cfg.Resume}}
		}
	})
	return r, err
}

// Run serves the machines until ctx ends, and returns after all goroutines that it started. It returns an error if the
// journal is broken or a shell panicked. It is called once. Events that came before Run are served then.
func (r *Runner[K, M, E, F]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer close(r.ended)
	r.mu.Lock()
	r.ctx = ctx
	for _, in := range r.all {
		r.wakeLocked(in)
	}
	r.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-r.broken:
	}
	cancel()
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range r.all {
		if in.timer != nil {
			in.timer.Stop()
		}
	}
	return r.fatal
}

// Add adds a machine and its first events, and reports whether it did: a machine of that key stays as it is. The
// journal has the new machine with the first step that Record notes.
func (r *Runner[K, M, E, F]) Add(k K, m M, first ...E) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[k] != nil {
		return false
	}
	in := &instance[K, M, E, F]{k: k, m: m, limit: maxBatch}
	r.all[k] = in
	for _, ev := range first {
		in.inbox = append(in.inbox, item[E, F]{ev: ev})
	}
	r.wakeLocked(in)
	return true
}

// Remove removes a machine that is Done, has no events and no calls under way, and returns its last state. It reports
// whether it did. The machine's records stay.
func (r *Runner[K, M, E, F]) Remove(k K) (m M, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.all[k]
	if in == nil || in.busy || in.calls > 0 || len(in.inbox) > 0 || !in.m.Done() {
		return m, false
	}
	r.dropLocked(in)
	return in.m, true
}

// Drop removes the machine of a key, if there is one, in any state. Its queued events are still served, but it accepts
// no others and gets no ticks. Another machine with the same records must not be added, because the order of their
// writes is undefined.
func (r *Runner[K, M, E, F]) Drop(k K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in := r.all[k]; in != nil {
		r.dropLocked(in)
	}
}

func (r *Runner[K, M, E, F]) dropLocked(in *instance[K, M, E, F]) {
	delete(r.all, in.k)
	in.dropped = true
	if in.timer != nil {
		in.timer.Stop()
		in.timer = nil
	}
	if in.changed != nil {
		close(in.changed)
		in.changed = nil
	}
}

// Keys returns the keys of the machines, in no order.
func (r *Runner[K, M, E, F]) Keys() []K {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.all))
}

// Ask sends an event, and returns its effects once they are durable. It waits for the journal, not for calls. It
// returns the machine's refusal, ErrUnknown, ErrBusy, ErrRetry or ErrStopped. If ctx ends first, the event may still
// take effect.
func (r *Runner[K, M, E, F]) Ask(ctx context.Context, k K, ev E) ([]F, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	done := make(chan outcome[F], 1)
	mine, err := r.enqueue(k, item[E, F]{ev: ev, done: done})
	if err != nil {
		return nil, err
	}
	if mine != nil {
		r.serve(mine)
	}
	select {
	case o := <-done:
		return o.effects, o.err
	default:
	}
	select {
	case o := <-done:
		return o.effects, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.ended: // an answer came before, or never comes
	}
	select {
	case o := <-done:
		return o.effects, o.err
	default:
		return nil, fmt.Errorf("%s %v: %w", r.cfg.Name, k, ErrStopped)
	}
}

// Post sends an event and does not wait. It returns ErrUnknown or ErrStopped. Requests of peers go through Ask: its
// inbox is bounded.
func (r *Runner[K, M, E, F]) Post(k K, ev E) error {
	_, err := r.enqueue(k, item[E, F]{ev: ev})
	return err
}

// enqueue adds an event to an inbox. If no goroutine serves the machine, a caller of Ask gets it, to serve for one
// turn.
func (r *Runner[K, M, E, F]) enqueue(k K, it item[E, F]) (mine *instance[K, M, E, F], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.all[k]
	switch {
	case r.over:
		return nil, fmt.Errorf("%s %v: %w", r.cfg.Name, k, ErrStopped)
	case in == nil:
		return nil, fmt.Errorf("%s %v: %w", r.cfg.Name, k, ErrUnknown)
	case it.done != nil && in.asked >= maxAsked:
		return nil, fmt.Errorf("%s %v: %w", r.cfg.Name, k, ErrBusy)
	}
	in.inbox = append(in.inbox, it)
	if it.done != nil {
		in.asked++
		if !in.busy && r.ctx != nil {
			in.busy = true
			r.wg.Add(1)
			return in, nil
		}
	}
	r.wakeLocked(in)
	return nil, nil
}

// Get returns a machine, and a channel that closes when it changes or is removed. It returns ErrUnknown.
func (r *Runner[K, M, E, F]) Get(k K) (m M, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.all[k]
	if in == nil {
		return m, nil, fmt.Errorf("%s %v: %w", r.cfg.Name, k, ErrUnknown)
	}
	if in.changed == nil {
		in.changed = make(chan struct{})
	}
	return in.m, in.changed, nil
}

// Until waits until wanted returns true for a machine, and returns it. It returns ErrUnknown.
func (r *Runner[K, M, E, F]) Until(ctx context.Context, k K, wanted func(M) bool) (M, error) {
	for {
		m, changed, err := r.Get(k)
		if err != nil || wanted(m) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-changed:
		}
	}
}
