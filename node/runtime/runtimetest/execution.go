package runtimetest

import (
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// execution is one run of a program in a Fake, with its attached programs.
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
	resumed  chan struct{}                      // closed at the end of the pause; nil while not paused
	ports    map[uint16]chan io.ReadWriteCloser // listened on
	reason   runtime.Reason
	stopping bool
	net      *fakeNet // of one with an overlay
	stats    runtime.Stats
	rng      *rand.Rand
	clock    time.Time // the next reading when seeded
}

// killed is the panic value of a Process call in a program that must end.
type killed struct{}

func newExecution(s runtime.Spec, m mounts) *execution {
	e := &execution{
		spec: s, limits: s.Limits.WithDefaults(), mounts: m, dying: make(chan struct{}), over: make(chan struct{}),
		rng: rand.New(rand.NewPCG(s.Seed, s.Seed)), clock: time.Unix(1_640_995_200, 0).UTC(),
		ports: map[uint16]chan io.ReadWriteCloser{},
		logs:  map[runtime.Stream]*memoryLog{}, out: map[runtime.Stream]io.Writer{},
	}
	if s.Overlay != nil {
		e.net = &fakeNet{files: s.Overlay.AllFiles(), mtu: s.Overlay.MTU}
	}
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
	code := (&process{e: e, args: e.spec.Args, env: environ(e.spec.Env, e.spec.SecretEnv), in: strings.NewReader(""),
		out: e.out[runtime.Stdout], err: e.out[runtime.Stderr]}).run(prog)
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
	e.closeNet()
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

// pause makes every program of the execution wait at its next call.
func (e *execution) pause() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resumed == nil {
		e.resumed = make(chan struct{})
	}
}

func (e *execution) resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resumed != nil {
		close(e.resumed)
		e.resumed = nil
	}
}

func (e *execution) askToStop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
}

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
