package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// wakeLocked has a worker serve a machine, unless it is already served.
func (r *Runner[K, M, E, F]) wakeLocked(in *instance[K, M, E, F]) {
	if in.busy || r.over || r.ctx == nil {
		return
	}
	in.busy = true
	r.readyLocked(in)
}

// readyLocked queues a busy machine for the workers.
func (r *Runner[K, M, E, F]) readyLocked(in *instance[K, M, E, F]) {
	if r.ready = append(r.ready, in); r.workers < maxWorkers {
		r.workers++
		r.wg.Go(r.work)
	}
}

// work serves machines that are ready, in turn, until there are none.
func (r *Runner[K, M, E, F]) work() {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.workers-- }()
	for len(r.ready) > 0 && r.ctx.Err() == nil && !r.over {
		in := r.ready[0]
		r.ready[0] = nil
		r.ready = r.ready[1:]
		r.turnLocked(in)
	}
}

// serve serves a machine for one turn on the goroutine of a caller of Ask.
func (r *Runner[K, M, E, F]) serve(in *instance[K, M, E, F]) {
	defer r.wg.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turnLocked(in)
}

// turnLocked serves a busy machine for one turn, and queues it again if more came meanwhile.
func (r *Runner[K, M, E, F]) turnLocked(in *instance[K, M, E, F]) {
	r.tickLocked(in)
	if batch := in.take(); len(batch) > 0 {
		r.mu.Unlock()
		r.step(in, batch)
		r.mu.Lock()
		r.tickLocked(in)
	}
	switch {
	case r.over:
	case in.paused:
		time.AfterFunc(retryAfter, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			in.paused, in.busy = false, false
			r.wakeLocked(in)
		})
	case len(in.inbox) > 0:
		r.readyLocked(in)
	default:
		in.busy, in.inbox = false, nil
	}
}

// take removes the events of a turn from the inbox.
func (in *instance[K, M, E, F]) take() []item[E, F] {
	n := min(len(in.inbox), in.limit)
	batch := in.inbox[:n:n]
	in.inbox = in.inbox[n:]
	for _, it := range batch {
		if it.done != nil {
			in.asked--
		}
	}
	return batch
}

// tickLocked puts a due tick in the inbox, or sets the timer of an idle machine. Queued events precede the tick, so
// that on a busy peer a timely answer is not processed after its timeout.
func (r *Runner[K, M, E, F]) tickLocked(in *instance[K, M, E, F]) {
	if in.timer != nil {
		in.timer.Stop()
		in.timer = nil
	}
	if in.next.IsZero() || in.paused || in.dropped || r.over || slices.ContainsFunc(in.inbox, item[E, F].ticks) {
		return
	}
	wait := max(time.Until(in.next), time.Until(in.rest))
	if wait <= 0 {
		in.inbox = append(in.inbox, item[E, F]{ev: r.cfg.Tick, tick: true})
	} else if len(in.inbox) == 0 {
		in.timer = time.AfterFunc(wait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.wakeLocked(in)
		})
	}
}

// step takes a machine through the events of one turn: steps, one write, effects, answers.
func (r *Runner[K, M, E, F]) step(in *instance[K, M, E, F], batch []item[E, F]) {
	defer r.recovered()
	now, err := r.cfg.Clock()
	if err != nil {
		r.failed(in, batch, fmt.Errorf("%w: %w", errClock, err))
		return
	}
	var b journal.Batch
	next, outcomes, rest := in.m, make([]outcome[F], len(batch)), tickAfter
	for i, it := range batch {
		m, effects, err := stepSafely(next, now, it.ev)
		if err != nil {
			outcomes[i].err = err
			r.refused(in, it, err)
			if it.tick {
				rest = retryAfter
			}
			continue
		}
		r.shell.Record(&b, in.k, next, m, effects)
		next, outcomes[i].effects = m, effects
	}
	// Shutdown does not interrupt a write: either all of a turn takes effect, or nothing.
	if err := b.Commit(context.WithoutCancel(r.ctx), r.cfg.Store); err != nil {
		r.failed(in, batch, err)
		return
	}
	at := next.Next(now)
	r.mu.Lock()
	in.m, in.next, in.limit, in.rest = next, at, min(2*in.limit, maxBatch), time.Now().Add(rest)
	if in.changed != nil {
		close(in.changed)
		in.changed = nil
	}
	r.mu.Unlock()
	for i, it := range batch {
		for _, f := range outcomes[i].effects {
			if call := r.shell.Carry(in.k, f); call != nil {
				r.call(in, call)
			}
		}
		it.answer(outcomes[i])
	}
}

// stepSafely is Step, with a panic as a refusal: the old state is a value, which the panic has not changed.
func stepSafely[M Machine[M, E, F], E, F any](m M, now Now, ev E) (next M, effects []F, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
		}
	}()
	return m.Step(now, ev)
}

func (r *Runner[K, M, E, F]) refused(in *instance[K, M, E, F], it item[E, F], err error) {
	log := r.cfg.Log.Debug
	if errors.Is(err, ErrPanic) {
		log = r.cfg.Log.Error
	}
	log("event refused", "machine", r.cfg.Name, "key", in.k, "event", fmt.Sprintf("%T", it.ev), "err", err)
}

// call runs a call of an effect and posts its results. A call cut short by the runner's end has no result: Resume
// repeats it.
func (r *Runner[K, M, E, F]) call(in *instance[K, M, E, F], call func(context.Context) []E) {
	r.mu.Lock()
	in.calls++
	r.mu.Unlock()
	r.wg.Go(func() {
		defer r.recovered()
		select {
		case r.calls <- struct{}{}:
		case <-r.ctx.Done():
			return
		}
		events := call(r.ctx)
		<-r.calls
		r.mu.Lock()
		defer r.mu.Unlock()
		in.calls--
		if r.ctx.Err() != nil || len(events) == 0 {
			return
		}
		for _, ev := range events {
			in.inbox = append(in.inbox, item[E, F]{ev: ev})
		}
		r.wakeLocked(in)
	})
}

// failed handles a turn that was not journalled: the machine is as before. A tick is not kept, as it is due still.
func (r *Runner[K, M, E, F]) failed(in *instance[K, M, E, F], batch []item[E, F], err error) {
	broken := errors.Is(err, store.ErrBroken) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrCrashed)
	poison := errors.Is(err, store.ErrRecord)
	drop := poison && len(batch) == 1
	level := slog.LevelError
	if errors.Is(err, errClock) { // its owner reports it
		level = slog.LevelDebug
	}
	log := r.cfg.Log.With("machine", r.cfg.Name, "key", in.k)
	log.Log(r.ctx, level, "step not journalled", "events", len(batch), "dropped", drop, "err", err)
	var again []item[E, F]
	for _, it := range batch {
		switch {
		case broken:
			it.answer(outcome[F]{err: fmt.Errorf("%s %v: %w: %w", r.cfg.Name, in.k, ErrStopped, err)})
		case drop:
			it.answer(outcome[F]{err: fmt.Errorf("%s %v: %w", r.cfg.Name, in.k, err)})
		case poison && !it.tick || it.done == nil && !it.tick:
			again = append(again, it)
		case it.done != nil:
			it.answer(outcome[F]{err: fmt.Errorf("%s %v: %w: %w", r.cfg.Name, in.k, ErrRetry, err)})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in.inbox = append(again, in.inbox...)
	for _, it := range again {
		if it.done != nil {
			in.asked++
		}
	}
	switch {
	case broken:
		r.endLocked(err)
	case poison:
		in.limit, in.rest = max(1, len(batch)/2), time.Now().Add(retryAfter)
	default:
		in.paused = true
	}
}

// recovered is deferred: it ends the runner if a shell panicked. The journal has all that was promised by then.
func (r *Runner[K, M, E, F]) recovered() {
	if p := recover(); p != nil {
		err := fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
		r.mu.Lock()
		defer r.mu.Unlock()
		r.endLocked(err)
	}
}

func (r *Runner[K, M, E, F]) endLocked(err error) {
	if r.over = true; r.fatal == nil {
		r.fatal = fmt.Errorf("%s: %w", r.cfg.Name, err)
		close(r.broken)
	}
}
