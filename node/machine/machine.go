package machine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/journal"
)

var (
	// ErrUnknown means that the runner has no machine of this name. The event was not taken.
	ErrUnknown = errors.New("no such machine")
	// ErrBusy means that the inbox of the machine is full. The event was not taken.
	ErrBusy = errors.New("machine has too many requests")
	// ErrRetry means that the journal or the clock failed for now. The event was not taken, and may be sent again.
	ErrRetry = errors.New("machine is unavailable for now")
	// ErrStopped means that the runner has ended. It is unknown whether the event took effect; it may be sent again.
	ErrStopped = errors.New("machine is stopped")
	// ErrPanic means that the code of a machine or a shell panicked. A machine is as before the event.
	ErrPanic = errors.New("machine panicked")
)

// errClock means that the clock is not known.
var errClock = errors.New("reading the clock")

// Now is the time as machines see it: the wall clock for deadlines, the slot of the chain for leases.
type Now = lease.Now

// Machine is a state: an immutable value. E is the type of its events, and F of its effects.
type Machine[M, E, F any] interface {
	// Step returns the state after an event, and its effects. An error refuses the event: nothing has changed.
	Step(now Now, ev E) (M, []F, error)
	// Next returns the time of the machine's next tick; zero means never. It is called after each turn.
	Next(now Now) time.Time
	// Done reports whether the machine has no outstanding effect and needs no tick. Such a machine is not resumed after
	// a restart, and may be removed.
	Done() bool
}

// Shell connects the machines of a runner with the world. K is the type of their keys.
type Shell[K comparable, M, E, F any] interface {
	// Load calls add for each machine in the journal.
	Load(ctx context.Context, add func(K, M)) error
	// Record adds to the batch everything that must be durable before the effects of a step leave. It may sign with a
	// local key, and must not block otherwise.
	Record(b *journal.Batch, k K, old, next M, effects []F)
	// Carry carries out an effect at once, or returns a call to run on a goroutine of its own; the call's results are
	// posted to the machine. Carry may post events and add machines. It must not call Ask, or wait for a disk, the
	// network, or a lock held over either. A call may do all of these. After a restart an effect may repeat.
	Carry(k K, f F) (call func(context.Context) []E)
}

// Volatile is a part of the Shell of machines that have no journal: a restart forgets them.
type Volatile[K comparable, M, F any] struct{}

// Load adds no machine.
func (Volatile[K, M, F]) Load(context.Context, func(K, M)) error { return nil }

// Record records nothing.
func (Volatile[K, M, F]) Record(*journal.Batch, K, M, M, []F) {}

// Config is the surroundings of a Runner. All of it is required, but Store and Resume not for Volatile machines.
type Config[E any] struct {
	Name   string // of the kind of machine, for errors and logs
	Store  journal.Store
	Clock  func() (Now, error) // an error, such as of a slot that is not known yet, is tried again
	Resume E                   // first event of each machine after a restart: repeat the outstanding effects
	Tick   E                   // event of the timer
	Log    *slog.Logger
}

const (
	maxAsked   = 256         // asked events that may wait for one machine
	maxBatch   = 256         // events of one turn
	maxCalls   = 256         // calls under way, of all machines
	maxWorkers = 256         // turns under way: one group of writes gathers in the store while another is synced
	retryAfter = time.Second // between tries of a write that failed
	tickAfter  = time.Millisecond
)
