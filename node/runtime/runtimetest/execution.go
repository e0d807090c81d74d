package runtimetest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// execution is one program running in a Fake, and its guest.Process.
type execution struct {
	spec   runtime.Spec
	limits runtime.Limits
	mounts mounts
	logs   map[runtime.Stream]*memoryLog
	out    map[runtime.Stream]io.Writer
	alone  *time.Timer   // guarded by machine.mu
	dying  chan struct{} // closed when it must end
	over   chan struct{} // closed when exit is set
	exit   runtime.Exit

	mu       sync.Mutex
	reason   runtime.Reason
	stopping bool
	stats    runtime.Stats
	rng      *rand.Rand
	clock    time.Time // the next reading when seeded
}

// killed is what a Process call panics with in a program that must end.
type killed struct{}

func newExecution(s runtime.Spec, m mounts) *execution {
	e := &execution{spec: s, limits: s.Limits.WithDefaults(), mounts: m, dying: make(chan struct{}), over: make(chan struct{}),
		rng: rand.New(rand.NewPCG(s.Seed, s.Seed)), clock: time.Unix(1_640_995_200, 0).UTC(),
		logs: map[runtime.Stream]*memoryLog{}, out: map[runtime.Stream]io.Writer{}}
	if s.Seed == 0 {
		e.rng = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	for _, stream := range []runtime.Stream{runtime.Stdout, runtime.Stderr} {
		l := &memoryLog{news: make(chan struct{})}
		e.logs[stream] = l
		e.out[stream] = runtime.NewLogWriter(l, int64(e.limits.LogMiB)<<20)
	}
	return e
}

func (e *execution) run(prog guest.Program) {
	e.exit.Started = time.Now()
	if e.limits.WallTime > 0 {
		t := time.AfterFunc(e.limits.WallTime, func() { e.kill(runtime.ReasonTimeout) })
		defer t.Stop()
	}
	code := func() (code int) {
		defer func() {
			switch r := recover(); r.(type) {
			case nil, killed:
			default:
				fmt.Fprintln(e.out[runtime.Stderr], "panic:", r)
				code = 2
			}
		}()
		return prog(e)
	}()
	e.mu.Lock()
	e.exit.Reason = e.reason
	e.mu.Unlock()
	switch e.exit.Reason {
	case runtime.ReasonNone:
		e.exit.Code = code
	case runtime.ReasonTimeout:
		e.exit.Code = runtime.CodeTimeout
	case runtime.ReasonLost:
		e.exit.Code = runtime.CodeLost
	case runtime.ReasonOOM:
		e.exit.Code = 2
	default:
		e.exit.Code = runtime.CodeKilled
	}
	e.exit.Ended = time.Now()
	e.mounts.close()
	close(e.over)
	for _, l := range e.logs {
		l.close()
	}
}

func (e *execution) ended() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

// kill makes the program end at its next call; the first reason stays.
func (e *execution) kill(r runtime.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.dying:
	default:
		e.reason = r
		close(e.dying)
	}
}

func (e *execution) askToStop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
}

// live ends the program here if it must end.
func (e *execution) live() {
	select {
	case <-e.dying:
		panic(killed{})
	default:
	}
}

// free is the room left on the writable mounts, in bytes; each file takes whole blocks, each directory one.
func (e *execution) free() int64 { return int64(e.limits.DiskMiB)<<20 - e.mounts.used() }

func (e *execution) Args() []string {
	e.live()
	return slices.Clone(e.spec.Args)
}

func (e *execution) Environ() []string {
	e.live()
	var env []string
	for k, v := range e.spec.Env {
		env = append(env, k+"="+v)
	}
	return env
}

func (e *execution) Stdout() io.Writer { return liveWriter{e, e.out[runtime.Stdout]} }
func (e *execution) Stderr() io.Writer { return liveWriter{e, e.out[runtime.Stderr]} }

// Burn lets a millisecond pass, so that a bubble's clock moves on.
func (e *execution) Burn() {
	e.live()
	select {
	case <-time.After(time.Millisecond):
	case <-e.dying:
		panic(killed{})
	}
	e.mu.Lock()
	e.stats.CPUMillis++
	e.mu.Unlock()
}

func (e *execution) Grow(mib int) {
	e.live()
	e.mu.Lock()
	over := uint64(e.stats.MemoryMiB)+uint64(mib) > uint64(e.limits.MemoryMiB)
	if !over {
		e.stats.MemoryMiB += uint32(mib)
	}
	e.mu.Unlock()
	if over {
		e.kill(runtime.ReasonOOM)
		panic(killed{})
	}
}

func (e *execution) Dial(addr string) error {
	e.live()
	return fmt.Errorf("dial %s: %w", addr, syscall.EACCES)
}

func (e *execution) Now() time.Time {
	e.live()
	if e.spec.Seed == 0 {
		return time.Now()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clock = e.clock.Add(time.Millisecond)
	return e.clock
}

func (e *execution) Random() uint64 {
	e.live()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rng.Uint64()
}

func (e *execution) OpenFile(name string, flag int, perm fs.FileMode) (guest.File, error) {
	e.live()
	if path.Clean(name) == runtime.StopFile {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.stopping && flag == os.O_RDONLY {
			return stopFile{strings.NewReader("")}, nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	m, rel, err := e.mounts.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if m.ReadOnly && flag != os.O_RDONLY {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	if flag&os.O_CREATE != 0 && e.free() < block {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	f, err := m.root.OpenFile(rel, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fakeFile{f, e}, nil
}

func (e *execution) Remove(name string) error {
	e.live()
	m, rel, err := e.mounts.resolve("remove", name)
	if err != nil {
		return err
	}
	if m.ReadOnly {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.EROFS}
	}
	return m.root.Remove(rel)
}

func (e *execution) ReadDir(name string) ([]string, error) {
	e.live()
	m, rel, err := e.mounts.resolve("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(m.root.FS(), rel)
	var names []string
	for _, d := range entries {
		names = append(names, d.Name())
	}
	return names, err
}

type liveWriter struct {
	e *execution
	w io.Writer
}

func (w liveWriter) Write(b []byte) (int, error) {
	w.e.live()
	return w.w.Write(b)
}

type fakeFile struct {
	*os.File
	e *execution
}

func (f *fakeFile) Read(b []byte) (int, error) {
	f.e.live()
	return f.File.Read(b)
}

func (f *fakeFile) Write(b []byte) (int, error) {
	f.e.live()
	if f.e.free() < int64(len(b)) {
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return f.File.Write(b)
}

type stopFile struct{ *strings.Reader }

func (stopFile) Write([]byte) (int, error) { return 0, syscall.EROFS }
func (stopFile) Close() error              { return nil }

// memoryLog is a log that can be followed.
type memoryLog struct {
	mu     sync.Mutex
	b      []byte
	closed bool
	news   chan struct{} // closed and replaced at every change
}

func (l *memoryLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, b...)
	close(l.news)
	l.news = make(chan struct{})
	return len(b), nil
}

func (l *memoryLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	close(l.news)
	l.news = make(chan struct{})
}

type logReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	log    *memoryLog
	at     int64
}

func (r *logReader) Read(p []byte) (int, error) {
	for {
		r.log.mu.Lock()
		n, closed, news := 0, r.log.closed, r.log.news
		if r.at < int64(len(r.log.b)) {
			n = copy(p, r.log.b[r.at:])
		}
		r.log.mu.Unlock()
		r.at += int64(n)
		switch {
		case n > 0:
			return n, nil
		case closed:
			return 0, io.EOF
		}
		select {
		case <-news:
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
}

func (r *logReader) Close() error {
	r.cancel()
	return nil
}
