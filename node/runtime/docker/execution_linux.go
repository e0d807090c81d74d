package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

const (
	// exitPatience is how long the processes of a container that is to end may take before its CPU limit is lifted. Linux
	// throttles a control group's processes on their way out as well: thousands that have been killed, as a fork bomb leaves
	// them, would not be gone for minutes, and keep the machine busy all the while.
	exitPatience = 250 * time.Millisecond
	// killPatience is how long a guard has after that to end the program and itself before the engine kills them.
	killPatience = 3 * time.Second
	// endPatience is how long a container may take to be gone after its guard.
	endPatience = 10 * time.Second
	endPoll     = 50 * time.Millisecond
	oomPatience = time.Second // how much later the engine may learn that the kernel ended a program for its memory
	// A container that cannot be removed is tried again after tidyFirst, then after twice as long each time, up to tidyMost.
	tidyFirst = time.Second
	tidyMost  = time.Minute
)

// execution is a peer's process's view of a container.
type execution struct {
	id, dir   string
	container string // how the engine finds it: the name, and once it is made its ID, which no later one can have
	engine    *engine
	logger    *slog.Logger
	over      chan struct{} // closed when exit is set
	gone      chan struct{} // closed when this runtime no longer owns it
	tidy      func()        // removes the container, beside
	exit      runtime.Exit  // read after over
	net       *sidecar      // of an execution with an overlay; nil where it is gone

	freezer freezer
	files   overlayFiles
	hurried sync.Once
	growth  growth

	mu      sync.Mutex
	state   state
	owner   *os.File // locked; nil when gone
	conn    *guard.Conn
	killing bool
	late    bool // the engine killed it, at its wall-time limit
	full    bool // it was ended for its writes
	paused  bool
	last    runtime.Stats
	nextID  uint32
	pending map[uint32]*call // by ID of the request
}

// call waits for the answers to one request.
type call struct {
	answers chan answer // room for all there can be: one, or two of an attached program
	closed  bool
}

type answer struct {
	guard.Answer
	files []*os.File
}

func newExecution(id, dir string, owner *os.File, e *engine, l *slog.Logger) *execution {
	return &execution{id: id, dir: dir, container: containerName(dir), engine: e, logger: l, owner: owner, tidy: func() {},
		over: make(chan struct{}), gone: make(chan struct{}), pending: map[uint32]*call{}}
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
	if e.conn != nil {
		_ = e.conn.Close()
	}
	if e.net != nil {
		_ = e.net.conn.Close()
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
	if e.conn != nil && e.state.WallTime > 0 {
		alarm := time.AfterFunc(time.Until(e.state.Started.Add(e.state.WallTime)), e.timeUp)
		defer alarm.Stop()
	}
	for e.conn != nil {
		b, files, err := e.conn.Receive()
		if err != nil {
			break
		}
		if a, err := guard.DecodeAnswer(b); err != nil {
			guard.CloseFiles(files)
		} else if a.Ending {
			guard.CloseFiles(files)
			go e.hurry()
		} else {
			e.deliver(answer{a, files})
		}
	}
	select {
	case <-e.gone:
		e.dropCalls()
		return
	default:
	}
	e.exit = e.settle()
	close(e.over)
	e.dropCalls()
	if e.net != nil {
		e.net.end()
	}
	e.tidy()
}

func (e *execution) deliver(a answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.pending[a.ID]
	if c == nil || c.closed {
		guard.CloseFiles(a.files)
		return
	}
	select {
	case c.answers <- a:
	default: // more than there can be
		guard.CloseFiles(a.files)
	}
}

// dropCalls wakes all callers that wait for an answer that will not come.
func (e *execution) dropCalls() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.pending {
		if !c.closed {
			c.closed = true
			close(c.answers)
		}
	}
}

// send sends the guard a request without an answer. The end of the connection shows that a guard is gone.
func (e *execution) send(req guard.Request) {
	e.mu.Lock()
	conn := e.conn
	e.mu.Unlock()
	if conn != nil {
		_ = conn.Send(req)
	}
}

// begin sends a request and returns where its answers come. end must be called.
func (e *execution) begin(req guard.Request, files ...*os.File) (answers <-chan answer, id uint32, end func(), err error) {
	if e.ended() {
		return nil, 0, nil, runtime.ErrEnded
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owner == nil || e.conn == nil {
		return nil, 0, nil, runtime.ErrClosed
	}
	e.nextID++
	req.ID = e.nextID
	c := &call{answers: make(chan answer, 2)}
	if err := e.conn.Send(req, files...); err != nil {
		return nil, 0, nil, fmt.Errorf("%w: asking its guard: %w", runtime.ErrEnded, err)
	}
	e.pending[req.ID] = c
	return c.answers, req.ID, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.pending, req.ID)
		if !c.closed {
			c.closed = true
			close(c.answers)
		}
		for a := range c.answers {
			guard.CloseFiles(a.files)
		}
	}, nil
}

// settle reads the guard's report, or writes one for it if it left none.
func (e *execution) settle() runtime.Exit {
	r, err := readReport(e.dir)
	if err != nil {
		r = e.postMortem()
	}
	over := r.Reason != runtime.ReasonDisk && r.Reason != runtime.ReasonKilled && e.overAtEnd()
	if over {
		r.Code, r.Reason = runtime.CodeKilled, runtime.ReasonDisk
	} else if over = r.Reason == runtime.ReasonNone && r.Code != 0 && e.fullAtEnd(); over {
		r.Reason = runtime.ReasonDisk
	}
	if err != nil || over {
		_ = writeFile(e.dir, reportFile, r) // where it cannot be written, a later process settles it again the same way
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = runtime.Stats{CPUMillis: max(r.CPUMillis, e.last.CPUMillis), MemoryMiB: r.MemoryMiB}
	return runtime.Exit{Code: r.Code, Reason: r.Reason, Started: r.Started, Ended: r.Ended}
}

// postMortem finds out why a guard died without a word.
func (e *execution) postMortem() guard.Report {
	why, code := runtime.ReasonLost, runtime.CodeLost
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	go e.hurry() // does nothing if it is over by then
	for again := true; ; {
		info, err := e.engine.ContainerInspect(ctx, e.container)
		if err != nil || info.State == nil { // the engine is gone too, or the container
			break
		}
		if !info.State.Running {
			if info.State.OOMKilled {
				why, code = runtime.ReasonOOM, runtime.CodeKilled
			} else if again {
				again = false
				time.Sleep(oomPatience)
				continue
			}
			break
		}
		select { // its processes are being ended by the kernel
		case <-time.After(endPoll):
			continue
		case <-ctx.Done():
		}
		_ = e.engine.ContainerKill(context.WithoutCancel(ctx), e.container, "SIGKILL")
		break
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := os.Stat(filepath.Join(e.dir, killedFile)); err == nil || e.killing {
		why, code = runtime.ReasonKilled, runtime.CodeKilled
	} else if e.late {
		why, code = runtime.ReasonTimeout, runtime.CodeTimeout
	} else if e.full {
		why, code = runtime.ReasonDisk, runtime.CodeKilled
	}
	r := guard.Report{Code: code, Reason: why, Started: e.state.Started, Ended: time.Now(), CPUMillis: e.last.CPUMillis, MemoryMiB: e.last.MemoryMiB}
	if r.Started.IsZero() || r.Ended.Before(r.Started) {
		r.Started = r.Ended
	}
	return r
}

// kill ends the program and returns when its end is settled: through the guard, which writes its report, then by the engine.
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
	_ = os.WriteFile(filepath.Join(e.dir, killedFile), nil, 0o600) // for a later process; this one remembers
	e.send(guard.Request{Op: guard.OpKill, Reason: runtime.ReasonKilled})
	if err := e.force(ctx); err != nil {
		return fmt.Errorf("killing %s: %w", e.id, err)
	}
	_, err := e.wait(ctx)
	return err
}

// force ends a container with a guard that had the request to end, or should end by itself.
func (e *execution) force(ctx context.Context) error {
	e.hurry()
	if e.within(ctx, killPatience) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.engine.ContainerKill(ctx, e.container, "SIGKILL"); err != nil && !absent(err) && !stopped(err) {
		return e.engine.explain(err)
	}
	return nil
}

// hurry lifts the CPU limit of a container that is to end, unless it is over within exitPatience.
func (e *execution) hurry() {
	e.hurried.Do(func() {
		select {
		case <-e.over:
		case <-e.gone:
		case <-time.After(exitPatience):
			ctx, cancel := context.WithTimeout(context.Background(), enginePatience)
			defer cancel()
			e.engine.unlimit(ctx, e.container)
		}
	})
}

// timeUp is the peer's word at the wall-time limit, beside the guard's: a guard that is paused has no clock, and one among
// thousands of processes that share its CPU limit may not come to its turn.
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
	if err == nil && !e.within(ctx, exitPatience) {
		e.mu.Lock()
		e.late = true
		e.mu.Unlock()
		err = e.force(ctx)
	}
	if err != nil && !errors.Is(err, runtime.ErrEnded) && ctx.Err() == nil {
		e.logger.Warn("cannot end an execution at its wall-time limit", "id", e.id, "error", err)
	}
}

// stopped says that the engine did not do something because the container does not run, or its first process does not any more.
func stopped(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "is not running") || strings.Contains(err.Error(), "is zombie"))
}

func (e *execution) stats(ctx context.Context) (runtime.Stats, error) {
	e.mu.Lock()
	paused := e.paused
	e.mu.Unlock()
	if paused || e.ended() {
		return e.lastStats(), nil
	}
	answers, _, end, err := e.begin(guard.Request{Op: guard.OpUsage})
	if err == nil {
		defer end()
		var a answer
		if a, err = e.next(ctx, answers); err == nil {
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

// end takes a container away that may run, or be paused: not every OCI runtime ends one that is.
func (r *Runtime) end(ctx context.Context, id string) error {
	_ = r.engine.ContainerUnpause(ctx, id)
	r.engine.unlimit(ctx, id)
	return r.remove(ctx, id)
}

// remove takes a container away from the engine.
func (r *Runtime) remove(ctx context.Context, id string) error {
	for {
		err := r.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, absent(err):
			return nil
		case strings.Contains(err.Error(), "already in progress"): // by the task beside
			select {
			case <-time.After(endPoll):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return r.engine.explain(err)
	}
}
