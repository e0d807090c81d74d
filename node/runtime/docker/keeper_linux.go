package docker

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
)

const (
	// A container that cannot be removed is tried again after tidyFirst, then after twice as long each time, up to
	// tidyMost.
	tidyFirst = time.Second
	tidyMost  = time.Minute
	// floorPoll is the interval between checks of the free space of disks with measured mounts.
	floorPoll = 250 * time.Millisecond
)

// keeper has the executions of a peer's process and the tasks beside them: it watches each to its end, removes
// containers, and keeps room on the disks.
type keeper struct {
	engine *engine.Engine
	peer   string
	grace  time.Duration
	log    *slog.Logger

	stop  context.CancelFunc // ends tasks
	ctx   context.Context    // of tasks
	tasks sync.WaitGroup     // background work: removals, the sweep

	mine runtime.Table[*execution]
}

func newKeeper(e *engine.Engine, cfg Config) *keeper {
	k := &keeper{engine: e, peer: cfg.Peer, grace: cfg.Grace, log: cfg.Logger}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// begin starts the tasks that run until close.
func (k *keeper) begin() {
	k.tasks.Go(k.sweepLater)
	k.tasks.Go(k.keepFloor)
}

// close gives up all executions without ending them, and waits for the tasks.
func (k *keeper) close() {
	k.mine.Close((*execution).disown)
	k.stop()
	k.tasks.Wait()
}

func (k *keeper) find(h runtime.Handle) (*execution, error) { return k.mine.Find(Name, h) }

// add makes e one of this runtime's and begins to wait for its end.
func (k *keeper) add(e *execution) error {
	return k.mine.Add(e.dir, e.id, e, func() {
		k.tasks.Go(e.watch)
		if e.line.Connected() && len(e.state.Measured) > 0 {
			k.tasks.Go(e.watchDisk)
		}
		if e.line.Connected() && e.state.Sidecar != "" {
			k.tasks.Go(e.watchNet)
		}
	})
}

func (k *keeper) newExecution(id, dir string, owner *os.File) *execution {
	e := newExecution(id, dir, owner, k.engine, k.log)
	e.tidy = func() {
		_ = k.mine.While(func() {
			for _, c := range e.containers() {
				k.tasks.Go(func() { k.tidyUp(c) })
			}
		})
	}
	return e
}

// tidyUp removes a container, again and again if the engine is away, as when it was stopped and took the container with
// it. If it still exists when this runtime closes, Destroy or the next New removes it.
func (k *keeper) tidyUp(container string) {
	for wait := tidyFirst; k.engine.Remove(k.ctx, container) != nil; wait = min(2*wait, tidyMost) {
		select {
		case <-time.After(wait):
		case <-k.ctx.Done():
			return
		}
	}
}

// sweep removes ended containers of this peer and returns its running ones.
func (k *keeper) sweep(ctx context.Context) (running []engine.Container, err error) {
	found, err := k.engine.Own(ctx, k.peer)
	if err != nil {
		return nil, err
	}
	for _, c := range found {
		if k.taken(c.Dir) {
			continue
		}
		if c.Running {
			running = append(running, c)
			continue
		}
		k.tasks.Go(func() { _ = k.engine.Remove(k.ctx, c.ID) }) // the next New tries again
	}
	return running, nil
}

// taken reports whether a living process owns the execution of this directory.
func (k *keeper) taken(dir string) bool {
	if k.mine.Has(dir) {
		return true
	}
	return rundir.Taken(dir)
}

// sweepLater ends containers that were not recovered within the grace. Their guards end them, unless they are frozen or
// the peer died before it sent an order. It lists containers anew: the engine may since have finished a container that
// the peer's last process requested.
func (k *keeper) sweepLater() {
	select {
	case <-time.After(k.grace):
	case <-k.ctx.Done():
		return
	}
	left, err := k.sweep(k.ctx)
	if err != nil && k.ctx.Err() == nil {
		k.log.Warn("cannot list containers that were not recovered", "error", err)
	}
	for _, o := range left {
		if k.taken(o.Dir) {
			continue
		}
		if err := k.engine.End(k.ctx, o.ID); err != nil {
			k.log.Warn("cannot remove a container that was not recovered", "container", o.ID, "error", err)
		}
	}
}

// keepFloor ends, while a disk on which mounts are measured is nearly full, the execution that grows fastest there.
func (k *keeper) keepFloor() {
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-time.After(floorPoll):
		}
		if e := k.growsFastest(); e != nil {
			e.overDisk("this machine's disk is nearly full, and they grow fastest")
		}
	}
}

// growsFastest is the execution with the fastest growing measured files on a disk that is nearly full, or nil.
func (k *keeper) growsFastest() (worst *execution) {
	most := 0.0
	k.mine.Each(func(e *execution) {
		if len(e.state.Measured) == 0 || e.ended() {
			return
		}
		if speed := e.growth.Speed(); speed > most && disk.NearlyFull(e.state.Measured[0]) {
			worst, most = e, speed
		}
	})
	return worst
}
