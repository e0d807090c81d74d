package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/link"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
)

const (
	// exitPatience is how long the processes of a container that is to end may take before its CPU limit is lifted.
	// Linux throttles a control group's processes on their way out as well: thousands that have been killed, as a fork
	// bomb leaves them, would not be gone for minutes, and keep the machine busy all the while.
	exitPatience = 250 * time.Millisecond
	// killPatience is how long a guard has after that to end the program and itself before the engine kills them.
	killPatience = 3 * time.Second
	// oomPatience is how much later the engine may learn that the kernel ended a program for its memory.
	oomPatience = time.Second
)

// execution is a peer's process's view of a container.
type execution struct {
	id, dir   string
	container string // how the engine finds it: the name, and once it is made its ID, which no later one can have
	engine    *engine.Engine
	logger    *slog.Logger
	over      chan struct{}    // closed when exit is set
	gone      chan struct{}    // closed when this runtime no longer owns it
	tidy      func()           // removes the container, beside
	exit      runtime.Exit     // read after over
	oomKills  uint64           // when this process took over the execution
	line      *link.Line       // to the guard
	net       *sidecar.Sidecar // nil if gone

	freezer freezer
	files   overlayFiles
	hurried sync.Once
	growth  disk.Growth

	mu      sync.Mutex
	state   rundir.State
	owner   *os.File // locked; nil when gone
	killing bool
	late    bool // the engine killed it, at its wall-time limit
	full    bool // it was ended for its writes
	paused  bool
	last    runtime.Stats
}

func newExecution(id, dir string, owner *os.File, e *engine.Engine, l *slog.Logger) *execution {
	over, gone := make(chan struct{}), make(chan struct{})
	return &execution{id: id, dir: dir, container: engine.ContainerName(dir), engine: e, logger: l, owner: owner,
		tidy: func() {}, over: over, gone: gone, line: link.New(over, gone), oomKills: oomKills()}
}

// oomKills is how many processes the kernel of this machine has ended for want of memory; 0 where it does not say.
func oomKills() (n uint64) {
	b, _ := os.ReadFile("/proc/vmstat")
	_, after, _ := bytes.Cut(b, []byte("\noom_kill "))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	n, _ = strconv.ParseUint(string(line), 10, 64)
	return n
}

// disown frees the owner lock and lets the guard know that its peer is gone.
func (e *execution) disown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owner == nil {
		return
	}
	_ = e.owner.Close()
	e.owner = nil
	close(e.gone)
	e.line.Close()
	if e.net != nil {
		_ = e.net.Close()
	}
}

// containers are those of this execution, as the engine finds them.
func (e *execution) containers() []string {
	if e.state.Sidecar == "" {
		return []string{e.container}
	}
	return []string{e.container, e.state.Sidecar}
}

func (e *execution) ended() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

func (e *execution) wait(ctx context.Context) (runtime.Exit, error) {
	if e.ended() {
		return e.exit, nil
	}
	select {
	case <-e.over:
		return e.exit, nil
	case <-e.gone:
		return runtime.Exit{}, runtime.ErrClosed
	case <-ctx.Done():
		return runtime.Exit{}, ctx.Err()
	}
}

// within reports whether the execution ended in this time.
func (e *execution) within(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	_, err := e.wait(ctx)
	return err == nil
}

// watch reads the guard's messages until it is gone, and determines how the execution ended.
func (e *execution) watch() {
	if e.line.Connected() && e.state.WallTime > 0 {
		alarm := time.AfterFunc(time.Until(e.state.Started.Add(e.state.WallTime)), e.timeUp)
		defer alarm.Stop()
	}
	e.line.Watch(e.hurry)
	select {
	case <-e.gone:
		e.line.Release()
		return
	default:
	}
	e.exit = e.settle()
	close(e.over)
	e.line.Release()
	if e.net != nil {
		e.net.End()
	}
	e.tidy()
}

// settle reads the guard's report, or writes one for it if it left none.
func (e *execution) settle() runtime.Exit {
	r, err := rundir.ReadReport(e.dir)
	if err != nil {
		r = e.postMortem()
	}
	over := r.Reason != runtime.ReasonDisk && r.Reason != runtime.ReasonKilled &&
		disk.Over(e.state.Measured, e.state.DiskBytes)
	if over {
		r.Code, r.Reason = runtime.CodeKilled, runtime.ReasonDisk
	} else if over = r.Reason == runtime.ReasonNone && r.Code != 0 && disk.Full(e.state.Volume); over {
		r.Reason = runtime.ReasonDisk
	}
	if err != nil || over {
		_ = rundir.WriteReport(e.dir, r) // where it cannot be written, a later process settles it again the same way
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = runtime.Stats{CPUMillis: max(r.CPUMillis, e.last.CPUMillis), MemoryMiB: r.MemoryMiB}
	return runtime.Exit{Code: r.Code, Reason: r.Reason, Started: r.Started, Ended: r.Ended}
}

// postMortem finds out why a guard died without a word.
func (e *execution) postMortem() guard.Report {
	why, code := runtime.ReasonLost, runtime.CodeLost
	ctx, cancel := context.WithTimeout(context.Background(), engine.EndPatience)
	defer cancel()
	e.hurry()          // does nothing if the execution has ended
	var over time.Time // since when it does not run
	for {
		info, err := e.engine.ContainerInspect(ctx, e.container)
		if err != nil || info.State == nil { // the engine is gone too, or the container
			break
		}
		if !info.State.Running {
			if over.IsZero() {
				over = time.Now()
			}
			if !info.State.OOMKilled && time.Since(over) < oomPatience {
				time.Sleep(engine.EndPoll)
				continue
			}
			if info.State.OOMKilled || engine.SandboxKilled(info) && oomKills() > e.oomKills {
				why, code = runtime.ReasonOOM, runtime.CodeKilled
			}
			break
		}
		select { // its processes are being ended by the kernel
		case <-time.After(engine.EndPoll):
			continue
		case <-ctx.Done():
		}
		_ = e.engine.ContainerKill(context.WithoutCancel(ctx), e.container, "SIGKILL")
		break
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if rundir.MarkedKilled(e.dir) || e.killing {
		why, code = runtime.ReasonKilled, runtime.CodeKilled
	} else if e.late {
		why, code = runtime.ReasonTimeout, runtime.CodeTimeout
	} else if e.full {
		why, code = runtime.ReasonDisk, runtime.CodeKilled
	}
	r := guard.Report{Code: code, Reason: why, Started: e.state.Started, Ended: time.Now(),
		CPUMillis: e.last.CPUMillis, MemoryMiB: e.last.MemoryMiB}
	if r.Started.IsZero() || r.Ended.Before(r.Started) {
		r.Started = r.Ended
	}
	return r
}

// kill ends the program and returns when its end is settled: through the guard, which writes its report, then by the
// engine.
func (e *execution) kill(ctx context.Context) error {
	if e.ended() {
		return nil
	}
	if err := e.resume(ctx); err != nil && !errors.Is(err, runtime.ErrEnded) {
		return fmt.Errorf("killing %s: %w", e.id, err)
	}
	e.mu.Lock()
	e.killing = true
	e.mu.Unlock()
	_ = rundir.MarkKilled(e.dir) // for a later process; this one remembers
	e.line.Send(guard.Request{Op: guard.OpKill, Reason: runtime.ReasonKilled})
	if err := e.force(ctx); err != nil {
		return fmt.Errorf("killing %s: %w", e.id, err)
	}
	_, err := e.wait(ctx)
	return err
}

// force ends a container whose guard was requested to end, or should end by itself.
func (e *execution) force(ctx context.Context) error {
	e.hurry()
	if e.within(ctx, killPatience) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := e.engine.ContainerKill(ctx, e.container, "SIGKILL")
	if err != nil && !engine.Absent(err) && !engine.Stopped(err) {
		return e.engine.Explain(err)
	}
	return nil
}

// hurry lifts the CPU limit of a container that is ending, unless it ends within exitPatience. It retries if the engine
// does not answer in time.
func (e *execution) hurry() {
	e.hurried.Do(func() {
		go func() {
			for after := exitPatience; !e.pause(after); after = time.Second {
				ctx, cancel := context.WithTimeout(context.Background(), engine.Patience)
				_, err := e.engine.ContainerUpdate(ctx, e.container, engine.Unlimited)
				if cancel(); err == nil || engine.Absent(err) || engine.Stopped(err) {
					return
				}
			}
		}()
	})
}

// pause waits, and reports whether the execution was over, or this runtime closed, before the time was.
func (e *execution) pause(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_, err := e.wait(ctx)
	return !errors.Is(err, context.DeadlineExceeded)
}

// timeUp ends the execution at the wall-time limit, in addition to the guard. A paused guard has no clock, and a guard
// among thousands of processes that share its CPU limit may not be scheduled.
func (e *execution) timeUp() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-e.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := e.resume(ctx) // when the guard runs again, it is late and ends the program at once
	if errors.Is(err, runtime.ErrEnded) || err == nil && e.within(ctx, exitPatience) {
		return
	}
	e.mu.Lock()
	e.late = true
	e.mu.Unlock()
	for err = e.force(ctx); err != nil && !errors.Is(err, runtime.ErrEnded) && ctx.Err() == nil; err = e.force(ctx) {
		e.logger.Warn("an execution does not end at its wall-time limit yet", "id", e.id, "error", err)
		e.pause(engine.EndPatience)
	}
}

func (e *execution) stats(ctx context.Context) (runtime.Stats, error) {
	e.mu.Lock()
	paused := e.paused
	e.mu.Unlock()
	if paused || e.ended() {
		return e.lastStats(), nil
	}
	answers, _, end, err := e.line.Begin(guard.Request{Op: guard.OpUsage})
	if err == nil {
		defer end()
		var a link.Answer
		if a, err = e.line.Next(ctx, answers); err == nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			if !e.ended() {
				e.last = runtime.Stats{CPUMillis: a.CPUMillis, MemoryMiB: a.MemoryMiB}
			}
			return e.last, nil
		}
	}
	if errors.Is(err, runtime.ErrEnded) {
		_, err = e.wait(ctx)
		return e.lastStats(), err
	}
	return runtime.Stats{}, err
}

func (e *execution) lastStats() runtime.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}
