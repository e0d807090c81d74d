package settle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
)

// Machine is a machine of chain/escrow: deposit.Deposit, deposit.Hire or claims.Claims.
type Machine[M any] interface {
	escrow.Machine[M]
	// Next returns the time of its next Ticked; zero means never.
	Next() time.Time
}

// ErrUnknown means that there is no machine of a name.
var ErrUnknown = machine.ErrUnknown

// Record is a machine in the journal.
type Record struct {
	State json.RawMessage `json:"state"` // as chain/escrow encodes it
}

// Table has the records of machines by their names.
type Table = journal.Table[string, Record]

// Define returns the table of a kind of machine. It is called once for each kind, by package variables.
func Define(kind string) Table { return journal.Define[string, Record](kind) }

// Owner is the room whose machines a Keeper runs.
type Owner[M any] interface {
	// Restore decodes a machine's journalled state.
	Restore(ctx context.Context, state []byte) (M, error)
	// Over reports whether nothing more will happen to a machine.
	Over(m M) bool
	// Notify receives all effects that the Keeper does not carry out, for each machine in order and one at a time.
	// Effects may repeat after a crash. It must not wait for the machine.
	Notify(name string, e escrow.Effect)
	Observer
}

// Cosigned is an Owner whose transactions have further signers.
type Cosigned interface {
	// Others returns the signers of a machine's transactions beside the ledger's key, such as its job's guardians.
	// They may be remote: only this machine waits for them.
	Others(name string) []sign.Signer
}

// KeeperConfig is the surroundings of a Keeper.
type KeeperConfig[M Machine[M]] struct {
	Table   Table
	Ledger  escrow.Ledger
	Store   journal.Store
	Owner   Owner[M] // it may be Cosigned
	Program sign.Key // the owner gets its calls
	Log     *slog.Logger
}

// Keeper runs the machines of one kind. All of its methods may be called from many goroutines at once.
type Keeper[M Machine[M]] struct {
	cfg    KeeperConfig[M]
	runner *machine.Runner[string, kept[M], escrow.Event, escrow.Effect]

	mu     sync.Mutex
	queues map[string]*queue
}

// kept is a machine and its state in a Keeper.
type kept[M Machine[M]] struct {
	m     M
	over  func(M) bool
	begun bool // it had its first tick in this process, and repeated the effects that may not have been delivered
}

// Step implements machine.Machine.
func (k kept[M]) Step(now machine.Now, ev escrow.Event) (kept[M], []escrow.Effect, error) {
	m, effects, err := k.m.Step(now.Time, ev)
	return kept[M]{m, k.over, true}, effects, err
}

// Next implements machine.Machine.
func (k kept[M]) Next(machine.Now) time.Time {
	if k.over(k.m) {
		return time.Time{}
	}
	return k.m.Next()
}

// Done implements machine.Machine.
func (k kept[M]) Done() bool { return k.begun && k.over(k.m) }

// NewKeeper reads the machines of an earlier process. It starts nothing.
func NewKeeper[M Machine[M]](ctx context.Context, cfg KeeperConfig[M]) (*Keeper[M], error) {
	k := &Keeper[M]{cfg: cfg, queues: map[string]*queue{}}
	var err error
	k.runner, err = machine.New(ctx, shell[M]{k}, machine.Config[escrow.Event]{
		Name: cfg.Table.Kind(), Store: cfg.Store, Resume: escrow.Ticked{}, Tick: escrow.Ticked{}, Log: cfg.Log,
		Clock: func() (machine.Now, error) { return machine.Now{Time: time.Now()}, nil },
	})
	return k, err
}

// Run runs the machines until ctx ends, and returns after all that it started. The next process resumes unfinished
// work.
func (k *Keeper[M]) Run(ctx context.Context) {
	err := k.runner.Run(ctx)
	switch {
	case errors.Is(err, machine.ErrPanic): // a fault of the program: no work may continue without its settlement
		panic(err)
	case err != nil:
		k.cfg.Log.Error("settling ends until the peer is started again", "err", err)
		<-ctx.Done()
	}
	k.mu.Lock()
	queues := maps.Clone(k.queues)
	k.mu.Unlock()
	for name, q := range queues { // the runner, which adds to them, has ended
		k.carry(ctx, name, q)
	}
}

// Add adds a machine, unless there is one of that name. The journal has it with the first event that changes it.
func (k *Keeper[M]) Add(name string, m M) {
	k.runner.Add(name, kept[M]{m: m, over: k.cfg.Owner.Over}, escrow.Ticked{})
}

// Drop removes a machine that has ended and has no work, and reports whether it did. Its journal record stays, for the
// caller to delete; back adds the machine again.
func (k *Keeper[M]) Drop(name string) (back func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, ok := k.runner.Remove(name)
	if !ok {
		return nil, false
	}
	delete(k.queues, name)
	return func() { k.runner.Add(name, m) }, true
}

// Names lists the machines, in no order.
func (k *Keeper[M]) Names() []string { return k.runner.Keys() }

// Get returns a machine, and a channel that closes when it changes. It returns ErrUnknown.
func (k *Keeper[M]) Get(name string) (M, <-chan struct{}, error) {
	m, changed, err := k.runner.Get(name)
	return m.m, changed, err
}

// Post sends an event to a machine and does not wait. It returns ErrUnknown.
func (k *Keeper[M]) Post(name string, ev escrow.Event) error { return k.runner.Post(name, ev) }

// Ask sends an event to a machine, and returns once the step is in the journal, or an error.
func (k *Keeper[M]) Ask(ctx context.Context, name string, ev escrow.Event) error {
	_, err := k.runner.Ask(ctx, name, ev)
	return err
}

// Until waits until wanted returns true for a machine, and returns it. It returns ErrUnknown.
func (k *Keeper[M]) Until(ctx context.Context, name string, wanted func(M) bool) (M, error) {
	m, err := k.runner.Until(ctx, name, func(m kept[M]) bool { return wanted(m.m) })
	return m.m, err
}

// shell connects a Keeper's machines with the journal and the chain.
type shell[M Machine[M]] struct{ k *Keeper[M] }

// Load implements machine.Shell.
func (s shell[M]) Load(ctx context.Context, add func(string, kept[M])) error {
	cfg := s.k.cfg
	return cfg.Table.List(ctx, cfg.Store, "", func(name string, r Record) error {
		m, err := cfg.Owner.Restore(ctx, r.State)
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", cfg.Table.Kind(), name, err)
		}
		add(name, kept[M]{m: m, over: cfg.Owner.Over})
		return nil
	})
}

// Record implements machine.Shell.
func (s shell[M]) Record(b *journal.Batch, name string, _, _ kept[M], effects []escrow.Effect) {
	for _, f := range effects {
		if p, ok := f.(escrow.Persist); ok {
			s.k.cfg.Table.Put(b, name, Record{State: p.State})
		}
	}
}

// Carry implements machine.Shell.
func (s shell[M]) Carry(name string, f escrow.Effect) func(context.Context) []escrow.Event {
	if _, done := f.(escrow.Persist); done {
		return nil
	}
	q := s.k.queue(name)
	if !q.add(f) {
		return nil
	}
	return func(ctx context.Context) []escrow.Event {
		s.k.carry(ctx, name, q)
		return nil
	}
}
