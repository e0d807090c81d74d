package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// fakeMagic begins the file of a program of the Fake.
const fakeMagic = "starling fake program "

// FakeModule is the content of a module file that the Fake runs as the program of that name, so that modules can
// travel through a simulated network as files do.
func FakeModule(name string) []byte { return []byte(fakeMagic + name + "\n") }

// Fake is a Runtime inside this process. Its programs are Go functions and all its waiting is on package time, so that
// whole networks of peers can run in a testing/synctest bubble. It keeps the contract: limits, mounts, logs, restarts.
// It cannot stop a program that never calls its Process.
type Fake struct {
	// Speed, if set, is the current speed of computations in a program's place, operations a second.
	Speed func() float64
	// NoOverlay is optional: the reason why no execution can be given an overlay.
	NoOverlay string

	name  string
	m     *machine
	owned map[string]bool // by Dir; guarded by m.mu
	done  bool
}

// machine is the part that outlives a peer's process.
type machine struct {
	mu       sync.Mutex
	programs map[string]guest.Program
	running  map[string]*execution // by Dir
	begun    int
	grace    time.Duration
}

// FakeGrace is the time that an execution of the Fake runs without its peer.
const FakeGrace = 30 * time.Second

// NewFake returns a Fake with this name and these programs.
func NewFake(name string, programs map[string]guest.Program) *Fake {
	m := &machine{programs: programs, running: map[string]*execution{}, grace: FakeGrace}
	return &Fake{name: name, m: m, owned: map[string]bool{}}
}

// Restart is the death and return of the peer: this Fake is closed, its executions run on alone for FakeGrace, and the
// Fake returned can recover them.
func (f *Fake) Restart() *Fake {
	_ = f.Close()
	return &Fake{Speed: f.Speed, NoOverlay: f.NoOverlay, name: f.name, m: f.m, owned: map[string]bool{}}
}

// Close leaves the executions alone, as the death of the peer does.
func (f *Fake) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.done = true
	for dir := range f.owned {
		if e := f.m.running[dir]; e != nil {
			e.alone = time.AfterFunc(f.m.grace, func() { e.kill(runtime.ReasonLost) })
		}
	}
	clear(f.owned)
	return nil
}

// Running counts the executions that have not ended, on this machine.
func (f *Fake) Running() int {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := 0
	for _, e := range f.m.running {
		if !e.ended() {
			n++
		}
	}
	return n
}

// Began counts the executions that ever began, on this machine.
func (f *Fake) Began() int {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.m.begun
}

// Name is the name given to NewFake.
func (f *Fake) Name() string { return f.name }

// Start runs the program that the module file names.
func (f *Fake) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	h := runtime.Handle{Runtime: f.name, ID: s.ID, Dir: s.Dir}
	if err := s.Check(); err != nil {
		return h, err
	}
	if err := ctx.Err(); err != nil {
		return h, err
	}
	if s.Overlay != nil {
		if err := f.CanOverlay(ctx); err != nil {
			return h, err
		}
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.done {
		return h, runtime.ErrClosed
	}
	if entries, err := os.ReadDir(s.Dir); f.m.running[s.Dir] != nil || err == nil && len(entries) > 0 {
		return h, fmt.Errorf("%w in %s", runtime.ErrExists, s.Dir)
	}
	prog, err := f.m.load(s.Module)
	if err != nil {
		return h, err
	}
	mounts, err := openMounts(s.Mounts)
	if err != nil {
		return h, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		mounts.close()
		return h, fmt.Errorf("creating execution directory: %w", err)
	}
	e := newExecution(s, mounts)
	if free := e.free(); free < 0 {
		mounts.close()
		_ = os.Remove(s.Dir)
		return h, fmt.Errorf("%w: its files are %d bytes over the disk limit already", runtime.ErrBadMount, -free)
	}
	f.m.running[s.Dir] = e
	f.owned[s.Dir] = true
	f.m.begun++
	go e.run(prog)
	return h, nil
}

func (m *machine) load(path string) (guest.Program, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrBadModule, err)
	}
	name, ok := strings.CutPrefix(string(bytes.TrimSpace(b)), fakeMagic)
	if prog := m.programs[name]; ok && prog != nil {
		return prog, nil
	}
	return nil, fmt.Errorf("%w: %s names no program of this fake", runtime.ErrBadModule, filepath.Base(path))
}

func (f *Fake) find(h runtime.Handle) (*execution, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	if h.Runtime != f.name {
		return nil, fmt.Errorf("%w: made by %q", runtime.ErrBadHandle, h.Runtime)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.done {
		return nil, runtime.ErrClosed
	}
	if e := f.m.running[h.Dir]; e != nil && f.owned[h.Dir] && e.spec.ID == h.ID {
		return e, nil
	}
	return nil, fmt.Errorf("%w: %s", runtime.ErrNotFound, h.ID)
}

// Wait waits for the program's end.
func (f *Fake) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	e, err := f.find(h)
	if err != nil {
		return runtime.Exit{}, err
	}
	select {
	case <-e.over:
		return e.exit, nil
	case <-ctx.Done():
		return runtime.Exit{}, ctx.Err()
	}
}

// Stop makes runtime.StopFile appear and kills the program after grace, at its next call of its Process.
func (f *Fake) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	e, err := f.find(h)
	if err != nil {
		return err
	}
	e.resume()
	if grace > 0 && e.spec.Seed == 0 {
		e.askToStop()
		t := time.AfterFunc(grace, func() { e.kill(runtime.ReasonKilled) })
		defer t.Stop()
	} else {
		e.kill(runtime.ReasonKilled)
	}
	select {
	case <-e.over:
		return nil
	case <-ctx.Done():
		e.kill(runtime.ReasonKilled)
		return ctx.Err()
	}
}

// Destroy kills the program, waits for its end and removes its directory.
func (f *Fake) Destroy(ctx context.Context, h runtime.Handle) error {
	f.m.mu.Lock()
	e := f.m.running[h.Dir]
	f.m.mu.Unlock()
	if err := h.Check(); err != nil {
		return err
	}
	if h.Runtime != f.name {
		return fmt.Errorf("%w: made by %q", runtime.ErrBadHandle, h.Runtime)
	}
	if e == nil || e.spec.ID != h.ID {
		return nil
	}
	e.kill(runtime.ReasonKilled)
	select {
	case <-e.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	delete(f.m.running, h.Dir)
	delete(f.owned, h.Dir)
	if err := os.RemoveAll(h.Dir); err != nil {
		return fmt.Errorf("removing execution directory: %w", err)
	}
	return nil
}

// Recover takes over an execution of the Fake that this one is the restart of.
func (f *Fake) Recover(_ context.Context, h runtime.Handle) error {
	if err := h.Check(); err != nil {
		return err
	}
	if h.Runtime != f.name {
		return fmt.Errorf("%w: made by %q", runtime.ErrBadHandle, h.Runtime)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.done {
		return runtime.ErrClosed
	}
	e := f.m.running[h.Dir]
	if e == nil || e.spec.ID != h.ID {
		return fmt.Errorf("%w: %s", runtime.ErrNotFound, h.ID)
	}
	e.resume()
	if e.alone != nil {
		e.alone.Stop()
		e.alone = nil
	}
	f.owned[h.Dir] = true
	return nil
}

// Stats are those the program reported through its Process.
func (f *Fake) Stats(_ context.Context, h runtime.Handle) (runtime.Stats, error) {
	e, err := f.find(h)
	if err != nil {
		return runtime.Stats{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats, nil
}

// Logs follows a stream.
func (f *Fake) Logs(ctx context.Context, h runtime.Handle, stream runtime.Stream, offset int64) (io.ReadCloser, error) {
	e, err := f.find(h)
	if err != nil {
		return nil, err
	}
	l := e.logs[stream]
	if l == nil || offset < 0 {
		return nil, fmt.Errorf("reading log: no offset %d in stream %q", offset, stream)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &logReader{ctx: ctx, cancel: cancel, log: l, at: offset}, nil
}

// Pause makes the program wait at its next call of its Process.
func (f *Fake) Pause(_ context.Context, h runtime.Handle) error {
	e, err := f.running(h)
	if err == nil {
		e.pause()
	}
	return err
}

// Resume continues it.
func (f *Fake) Resume(_ context.Context, h runtime.Handle) error {
	e, err := f.running(h)
	if err == nil {
		e.resume()
	}
	return err
}

// running finds an execution that has not ended.
func (f *Fake) running(h runtime.Handle) (*execution, error) {
	e, err := f.find(h)
	if err == nil && e.ended() {
		return nil, runtime.ErrEnded
	}
	return e, err
}

// Attach runs one of the Fake's programs, named by its first argument, in an execution.
func (f *Fake) Attach(ctx context.Context, h runtime.Handle, p runtime.Process) (int, error) {
	e, err := f.running(h)
	if err != nil {
		return 0, err
	}
	var prog guest.Program
	if len(p.Args) > 0 {
		prog = f.m.programs[p.Args[0]]
	}
	if prog == nil {
		return 0, fmt.Errorf("attaching: no program %q", p.Args)
	}
	a := &process{e: e, args: p.Args[1:], env: environ(e.spec.Env, e.spec.SecretEnv, p.Env), cancelled: ctx.Done(),
		in: p.Stdin, out: p.Stdout, err: p.Stderr, sizes: p.Size}
	if a.in == nil {
		a.in = strings.NewReader("")
	}
	if a.out == nil {
		a.out = io.Discard
	}
	if p.TTY {
		a.err = a.out
	}
	if a.err == nil {
		a.err = io.Discard
	}
	ended := make(chan int, 1)
	go func() { ended <- a.run(prog) }()
	select {
	case code := <-ended:
		return code, ctx.Err()
	case <-ctx.Done(): // a program that reads its caller's input ends at its next call
		return 0, ctx.Err()
	case <-e.dying:
		return runtime.CodeKilled, nil
	}
}

var (
	_ runtime.Pauser   = (*Fake)(nil)
	_ runtime.Attacher = (*Fake)(nil)
	_ runtime.Dialer   = (*Fake)(nil)
	_ runtime.Gauger   = (*Fake)(nil)
	_ runtime.Runtime  = (*Fake)(nil)
	_ runtime.Logger   = (*Fake)(nil)

	_ runtime.Networker = (*Fake)(nil)
)
