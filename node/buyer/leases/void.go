package leases

import (
	"bytes"
	"context"
	"time"

	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// Void ends a lease that costs nothing, since its money was not on chain in time. It tries until the journal has that,
// or ctx ends.
func (l *Lease) Void(ctx context.Context, reason string) error {
	for logged := false; ; logged = true {
		again, err := l.voidOnce(ctx)
		if again {
			return nil
		}
		if err == nil {
			break
		}
		if !logged && ctx.Err() == nil {
			l.book.cfg.Log.Error("a void lease was not journalled; trying again until it is", "lease", l.ID, "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(journalRetry):
		}
	}
	if !l.Done() {
		_ = l.Stop(ctx, reason)
		l.book.cfg.Tasks.Go(func() { l.Release(ctx, reason) })
	}
	return nil
}

// voidOnce notes that a lease is void once the journal has it. It reports in again that this was noted before. A change
// of the record meanwhile is written again, since the order of the two writes is undefined.
func (l *Lease) voidOnce(ctx context.Context) (again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.voiding = true
	for written := (store.Put{}); !l.rec.Void; {
		p, err := l.put()
		if err != nil {
			return false, err
		}
		if bytes.Equal(p.Value, written.Value) {
			l.rec.Void = true
			return false, nil
		}
		l.mu.Unlock()
		var b journal.Batch
		b.Add(p)
		err = b.Commit(ctx, l.book.cfg.Store)
		l.mu.Lock()
		if written = p; err != nil {
			return false, err
		}
	}
	return true, nil
}
