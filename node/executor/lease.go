package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// CPUMillis returns the processor time that a lease's executions have used.
func (x *Executor) CPUMillis(ctx context.Context, l market.LeaseID) uint64 {
	var sum uint64
	for _, e := range x.Under(l) {
		s, h, _ := e.Snapshot()
		if rt := e.Runtime(); !s.State.Ended() && h != nil && rt != nil {
			if st, err := rt.Stats(ctx, *h); err == nil {
				sum += st.CPUMillis
				continue
			}
		}
		sum += s.CpuMillis
	}
	return sum
}

// Digest returns the output of a lease's final receipt: the result of its last execution; zero if there is none.
func (x *Executor) Digest(l market.LeaseID) (d sign.Hash) {
	for _, e := range x.Under(l) {
		if s, _, _ := e.Snapshot(); s.State == nodepb.ExecState_EXEC_STATE_EXITED {
			d = workload.Digest(e.Work, s)
		}
	}
	return d
}

// End lets nothing more begin under a lease, stops its programs with a grace, and returns when none runs.
func (x *Executor) End(ctx context.Context, l market.LeaseID, grace time.Duration) error {
	if err := x.settled(ctx, l); err != nil {
		return err
	}
	x.closed[l] = true
	x.mu.Unlock()
	for _, e := range x.Under(l) {
		if err := x.Stop(ctx, e, grace); err != nil && x.ctx.Err() == nil {
			x.cfg.Log.Warn("stopping an execution failed", "lease", l, "err", err)
		}
	}
	return x.idle(ctx, l)
}

// idle returns when nothing runs under a lease.
func (x *Executor) idle(ctx context.Context, l market.LeaseID) error {
	for _, e := range x.Under(l) {
		for s, _, wake := e.Snapshot(); !s.State.Ended(); s, _, wake = e.Snapshot() {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-wake:
			}
		}
	}
	return nil
}

// Terms returns the job and the guardians of a lease that has executions here. ok is false if it has none.
func (x *Executor) Terms(l market.LeaseID) (job, guardians sign.Hash, ok bool) {
	for _, e := range x.Under(l) {
		return e.rec.Job, e.rec.Guardian, true
	}
	return sign.Hash{}, sign.Hash{}, false
}

// HandTo transfers the command of a lease's executions to a peer under a supervision epoch. A peer with a higher epoch
// keeps the command. An epoch belongs to one peer.
func (x *Executor) HandTo(ctx context.Context, l market.LeaseID, to peer.ID, epoch uint64) error {
	for _, e := range x.Under(l) {
		if err := handTo(ctx, e, to, epoch); err != nil {
			return err
		}
	}
	return nil
}

func handTo(ctx context.Context, e *Execution, to peer.ID, epoch uint64) error {
	e.mu.Lock()
	was, at := e.rec.Buyer, e.rec.Epoch
	if was == to && at == epoch {
		e.mu.Unlock()
		return nil
	}
	if epoch <= at {
		e.mu.Unlock()
		return stream.Refuse(string(market.ReasonSupervision),
			fmt.Sprintf("supervision epoch: got %[2]d, want at least %[1]d", at, epoch))
	}
	e.rec.Buyer, e.rec.Epoch = to, epoch
	e.mu.Unlock()
	if err := e.Persist(ctx); err != nil {
		e.mu.Lock()
		if e.rec.Epoch == epoch { // the request can be repeated
			e.rec.Buyer, e.rec.Epoch = was, at
		}
		e.mu.Unlock()
		return err
	}
	e.Update(func(*nodepb.Execution) { e.grantLocked() })
	e.Changed()
	return nil
}

// Forget removes the rest of a lease's ended executions from disk and journal.
func (x *Executor) Forget(ctx context.Context, l market.LeaseID) error {
	for _, e := range x.Under(l) {
		if !e.Ended() {
			continue
		}
		if err := x.forget(ctx, e); err != nil {
			return fmt.Errorf("removing an execution: %w", err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.closed, l)
	return nil
}

func (x *Executor) forget(ctx context.Context, e *Execution) error {
	if rt := e.Runtime(); e.handle != nil && rt != nil {
		if err := rt.Destroy(ctx, *e.handle); err != nil {
			return err
		}
	}
	if err := (workload.Stage{Dir: e.dir}).Remove(); err != nil {
		return err
	}
	var b journal.Batch
	table.Delete(&b, e.Key)
	done := x.hooks.forget(e, &b)
	if err := b.Commit(ctx, x.cfg.Store); err != nil {
		return err
	}
	x.mu.Lock()
	delete(x.all, e.Key)
	x.mu.Unlock()
	for _, f := range done {
		f()
	}
	return nil
}
