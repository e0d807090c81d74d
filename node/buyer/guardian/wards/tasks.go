package wards

import (
	"context"
	"sync"
)

// tasks are the goroutines beside Service.Run, which waits for them.
type tasks struct {
	mu  sync.Mutex
	ctx context.Context // of Run; nil before and after
	wg  sync.WaitGroup
}

// open allows tasks to start until ctx ends.
func (t *tasks) open(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx = ctx
}

// close waits for all tasks.
func (t *tasks) close() {
	t.mu.Lock()
	t.ctx = nil
	t.mu.Unlock()
	t.wg.Wait()
}

// start runs f, and reports whether it does: not before Run, and not when it ends.
func (t *tasks) start(f func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx := t.ctx
	if ctx == nil || ctx.Err() != nil {
		return false
	}
	t.wg.Go(func() { f(ctx) })
	return true
}
