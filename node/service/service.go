// Package service runs a peer as a list of services.
//
// A service is one room of the peer: the market, the seller, the audits, the local API. A list is in order of
// dependence, so that a service uses only those before it:
//
//	Start  in order, before anything runs: streams, topics and listeners open
//	Run    all at the same time, each in a goroutine of its own, begun in order
//	stop   in reverse order, one after another: the context ends, Run returns, Close
//
// A service that fails to start, or that ends while the peer runs, ends the peer. A peer that lacks something, such
// as a light client or a free network, is a shorter list.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Service is one part of a peer. For other abilities it implements [Starter], [io.Closer], [Health], or an interface of
// the composing package; see [With].
type Service interface {
	// Name returns a short name for errors and health, unique within a list.
	Name() string
	// Run works until ctx ends, and returns after everything that it started has ended. It returns nil when ctx ended.
	// A service that returns earlier ends the peer.
	Run(ctx context.Context) error
}

// Starter is a service that opens streams, topics or listeners. Start is called once, before any service runs, and does
// not block. Its context ends with that of Run.
type Starter interface {
	Start(ctx context.Context) error
}

// Health is a service that can fail while it runs, for example without a connection to the chain.
type Health interface {
	// Health returns the service's problem, or nil if the service is in order. It takes at most a few seconds.
	Health() *Problem
}

// Problem is a fault of a service that runs, with its remedy.
type Problem struct {
	Service string // its name, which [List.Health] fills in
	Problem string
	Remedy  string // an instruction to the operator
}

// ErrConfig means that a section of the configuration cannot work; the error's text names the field.
var ErrConfig = errors.New("configuration")

var (
	// ErrEnded means that a service returned without an error while the peer was running.
	ErrEnded = errors.New("service ended by itself")
	// ErrStuck means that a service did not end in time when it was stopped.
	ErrStuck = errors.New("service did not stop")
	// ErrTwice means that two services of a list have the same name.
	ErrTwice = errors.New("two services have the same name")
)

// StopTimeout is how long a service may take to stop. Then those before it are stopped, and its goroutines are
// abandoned: the process is about to end.
const StopTimeout = time.Minute

// List is the services of a peer. Its zero value is an empty list.
type List struct{ services []Service }

// Add appends services, each of which uses only those before it.
func (l *List) Add(services ...Service) { l.services = append(l.services, services...) }

// With returns the services that implement T, in order.
func With[T any](l *List) (out []T) {
	for _, s := range l.services {
		if t, ok := s.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// Health returns the problems of the services that are out of order, in the order of the list.
func (l *List) Health() []Problem {
	out := []Problem{}
	for _, s := range l.services {
		if h, ok := s.(Health); ok {
			if p := h.Health(); p != nil {
				p.Service = s.Name()
				out = append(out, *p)
			}
		}
	}
	return out
}

// Close closes the services in reverse order. It is for a list that will not run.
func (l *List) Close() error {
	var errs []error
	for i := len(l.services) - 1; i >= 0; i-- {
		errs = append(errs, closeOne(l.services[i]))
	}
	return errors.Join(errs...)
}

// Loop returns a service that is a single function and nothing else.
func Loop(name string, run func(context.Context) error) Service { return loop{name, run} }

type loop struct {
	name string
	run  func(context.Context) error
}

// Name implements Service.
func (l loop) Name() string { return l.name }

// Run implements Service.
func (l loop) Run(ctx context.Context) error { return l.run(ctx) }

// Checked returns a service that is Name and Run of s, and a function that returns its health.
func Checked(s Service, health func() *Problem) Service { return checked{s, health} }

type checked struct {
	Service
	health func() *Problem
}

// Health implements Health.
func (c checked) Health() *Problem { return c.health() }

// Run starts the services and runs them until ctx ends or one of them ends. It returns after all have stopped, each
// within StopTimeout, with their errors under their names. It closes all services that have stopped or were not
// started.
func (l *List) Run(ctx context.Context) error {
	if err := l.unique(); err != nil {
		return errors.Join(err, l.Close())
	}
	all := make([]*running, len(l.services))
	for i, s := range l.services {
		all[i] = newRunning(context.WithoutCancel(ctx), s)
	}
	for _, r := range all {
		if err := r.start(); err != nil {
			return errors.Join(err, stopAll(all))
		}
	}
	ended := make(chan struct{}, len(all))
	for _, r := range all {
		r.run(ended)
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return stopAll(all)
}

// unique returns ErrTwice if two services have the same name.
func (l *List) unique() error {
	names := map[string]bool{}
	for _, s := range l.services {
		if names[s.Name()] {
			return fmt.Errorf("%w: %s", ErrTwice, s.Name())
		}
		names[s.Name()] = true
	}
	return nil
}

// running is a service of a list that runs.
type running struct {
	Service
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned; nil if it was not called
	early  bool          // Run returned before its context ended
	err    error         // of Run
}

func newRunning(ctx context.Context, s Service) *running {
	r := &running{Service: s}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

func (r *running) start() error {
	if s, ok := r.Service.(Starter); ok {
		if err := s.Start(r.ctx); err != nil {
			return fmt.Errorf("%s: starting: %w", r.Name(), err)
		}
	}
	return nil
}

// run calls Run in a goroutine, which sends to ended when it has returned.
func (r *running) run(ended chan<- struct{}) {
	r.done = make(chan struct{})
	go func() {
		r.err = r.Run(r.ctx)
		r.early = r.ctx.Err() == nil
		close(r.done)
		ended <- struct{}{}
	}()
}

// stop ends the service, and returns its error under its name.
func (r *running) stop() error {
	r.cancel()
	if r.done != nil {
		timer := time.NewTimer(StopTimeout)
		defer timer.Stop()
		select {
		case <-r.done:
		case <-timer.C:
			return fmt.Errorf("%s: %w within %v", r.Name(), ErrStuck, StopTimeout)
		}
	}
	err := r.err
	switch {
	case r.early && err == nil:
		err = ErrEnded
	case !r.early && errors.Is(err, context.Canceled):
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", r.Name(), err)
	}
	return errors.Join(err, closeOne(r.Service))
}

// closeOne closes a service that can be closed.
func closeOne(s Service) error {
	c, ok := s.(io.Closer)
	if !ok {
		return nil
	}
	if err := c.Close(); err != nil {
		return fmt.Errorf("%s: closing: %w", s.Name(), err)
	}
	return nil
}

// stopAll stops services in reverse order.
func stopAll(services []*running) error {
	var errs []error
	for i := len(services) - 1; i >= 0; i-- {
		errs = append(errs, services[i].stop())
	}
	return errors.Join(errs...)
}

// Door is a handler of other peers' requests. Close returns after those under way have ended.
type Door interface{ Close() }

// Behind returns s with a door, which is open from Start to Close.
func Behind(s Service, open func() (Door, error)) Service { return &behind{Service: s, open: open} }

type behind struct {
	Service
	open func() (Door, error)
	door Door // nil before Start
}

// Start implements Starter.
func (b *behind) Start(context.Context) (err error) {
	b.door, err = b.open()
	return err
}

// Close implements io.Closer.
func (b *behind) Close() error {
	if b.door != nil {
		b.door.Close()
	}
	return nil
}
