package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/process"
	"golang.org/x/sys/unix"
)

const (
	// killPatience is how long a child has to end itself after SIGTERM before it gets SIGKILL.
	killPatience = 2 * time.Second
	// adoptedPoll is the polling interval for the death of a child of an earlier process, which this process cannot
	// wait for.
	adoptedPoll = 20 * time.Millisecond
)

// execution is a peer's process's view of a child.
type execution struct {
	id, dir string
	cmd     *exec.Cmd     // nil when an earlier process started the child
	over    chan struct{} // closed when exit is set
	gone    chan struct{} // closed when this runtime no longer owns it
	exit    runtime.Exit  // read after over

	owner    *os.File // locked until gone
	disowned sync.Once
	killing  atomic.Bool
	usage    atomic.Pointer[runtime.Stats] // last figures before the end; nil if there are none

	pausing sync.Mutex  // one pause or resume at a time, with the child's answer to it
	alarm   *time.Timer // resumes at the wall-time limit; guarded by pausing
}

func newExecution(id, dir string, owner *os.File) *execution {
	return &execution{id: id, dir: dir, owner: owner, over: make(chan struct{}), gone: make(chan struct{})}
}

// disown frees the owner lock.
func (e *execution) disown() {
	e.disowned.Do(func() {
		_ = e.owner.Close()
		close(e.gone)
	})
}

// takeOwnership takes the owner lock. It retries, since the child holds the lock for moments when it checks it.
func (e *execution) takeOwnership(ctx context.Context) error {
	for deadline := time.Now().Add(time.Second); ; {
		err := process.Lock(e.owner)
		if err == nil || !errors.Is(err, process.ErrLocked) {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("held by another process of this peer")
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *execution) wait(ctx context.Context) (runtime.Exit, error) {
	select {
	case <-e.over:
		return e.exit, nil
	default:
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

// watch waits for the child's death and settles how the execution ended. It owns the child's process until then, also
// after the runtime was closed, so that no zombie stays.
func (e *execution) watch() {
	if e.cmd != nil {
		_ = e.cmd.Wait() // the status file has the exit
	} else if err := e.awaitDeath(); err != nil {
		return
	}
	select {
	case <-e.gone:
		return
	default:
	}
	e.exit = e.settle()
	close(e.over)
}

var errDisowned = errors.New("no longer owned")

func (e *execution) awaitDeath() error {
	f, err := os.Open(filepath.Join(e.dir, aliveFile))
	if err != nil {
		return nil // it never lived
	}
	defer f.Close()
	t := time.NewTicker(adoptedPoll)
	defer t.Stop()
	for {
		alive, err := process.Held(f)
		if err != nil || !alive {
			return nil
		}
		select {
		case <-t.C:
		case <-e.gone:
			return errDisowned
		}
	}
}

// settle reads the child's last status, or writes one for it if it left none.
func (e *execution) settle() runtime.Exit {
	s, err := readStatus(e.dir)
	if err == nil && s.Phase == phaseEnded {
		return s.Exit
	}
	s.Exit = runtime.Exit{Code: runtime.CodeLost, Reason: runtime.ReasonLost, Started: time.Now(), Ended: time.Now()}
	switch {
	case e.killing.Load():
		s.Exit.Code, s.Exit.Reason = runtime.CodeKilled, runtime.ReasonKilled
	case outOfMemory(e.dir): // a table, say: it is no part of the linear memory
		s.Exit.Code, s.Exit.Reason = runtime.CodeKilled, runtime.ReasonOOM
	}
	if info, err := os.Stat(filepath.Join(e.dir, specFile)); err == nil {
		s.Exit.Started = info.ModTime()
	}
	if e.cmd != nil && e.cmd.ProcessState != nil {
		s.CPUMillis = uint64((e.cmd.ProcessState.UserTime() + e.cmd.ProcessState.SystemTime()).Milliseconds())
	}
	if last := e.usage.Load(); last != nil {
		s.CPUMillis, s.MemoryMiB = max(s.CPUMillis, last.CPUMillis), max(s.MemoryMiB, last.MemoryMiB)
	}
	s.Phase, s.Pid = phaseEnded, max(s.Pid, 1)
	_ = writeState(e.dir, statusFile, s) // where it cannot be written, a later process settles it again the same way
	return s.Exit
}

// kill ends the child and returns when its end is settled: SIGTERM, at which it writes its status, then SIGKILL.
func (e *execution) kill(ctx context.Context) error {
	if err := e.resume(); err != nil { // a stopped process does not take the first signal
		return fmt.Errorf("killing %s: %w", e.id, err)
	}
	e.killing.Store(true)
	for _, sig := range []os.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := e.signal(sig); err != nil {
			return fmt.Errorf("killing %s: %w", e.id, err)
		}
		t := time.NewTimer(killPatience)
		select {
		case <-e.over:
			t.Stop()
			return nil
		case <-e.gone:
			t.Stop()
			return runtime.ErrClosed
		case <-ctx.Done():
			t.Stop()
			_ = e.signal(unix.SIGKILL)
			return ctx.Err()
		case <-t.C:
		}
	}
	_, err := e.wait(ctx)
	return err
}

// signal signals only the child: it opens the process (a pidfd on Linux) before it checks by the lock that the process
// still is the child.
func (e *execution) signal(sig os.Signal) error {
	_, _ = e.stats()
	if e.cmd != nil {
		if err := e.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return nil
	}
	s, err := readStatus(e.dir)
	if err != nil || s.Phase == phaseEnded {
		return nil // dead or dying: watch will see it
	}
	p, err := os.FindProcess(s.Pid)
	if err != nil {
		return nil
	}
	defer func() { _ = p.Release() }()
	f, err := os.Open(filepath.Join(e.dir, aliveFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	if alive, err := process.Held(f); err != nil || !alive {
		return err
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// stats reads the usage from the kernel while the child runs, and later from its status. The kernel's figure may vanish
// before the status reports the end; until then the CPU time is at least that of the last call.
func (e *execution) stats() (runtime.Stats, error) {
	s, err := readStatus(e.dir)
	if err != nil {
		return runtime.Stats{}, err
	}
	now := runtime.Stats{CPUMillis: s.CPUMillis, MemoryMiB: s.MemoryMiB}
	if s.Phase == phaseEnded {
		return now, nil
	}
	if cpu, memory, err := process.Usage(s.Pid); err == nil {
		now = runtime.Stats{CPUMillis: max(cpu, s.CPUMillis), MemoryMiB: memory}
	}
	for {
		last := e.usage.Load()
		if last != nil {
			now.CPUMillis = max(now.CPUMillis, last.CPUMillis)
		}
		if e.usage.CompareAndSwap(last, &now) {
			return now, nil
		}
	}
}
