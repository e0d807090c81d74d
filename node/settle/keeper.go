// Package settle keeps the machines of chain/escrow going: it journals, signs, sends and looks, one effect at a time, and tells what came
// of it.
package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// ErrUnkept says that there is no machine of that name.
var ErrUnkept = errors.New("no settlement is kept under this name")

// saveRetry is how soon a journal that fails is tried again.
const saveRetry = time.Second

// Machine is a machine of chain/escrow that can be kept: escrow.Deposit, escrow.Hire or escrow.Claims.
type Machine[M any] interface {
	escrow.Machine[M]
	// Next is when it wants its next Ticked; zero: nothing to wait for.
	Next() time.Time
}

// KeeperConfig is what a Keeper needs.
type KeeperConfig[M Machine[M]] struct {
	Kind    string // of its journal records
	Ledger  escrow.Ledger
	Store   store.Store
	Restore func(ctx context.Context, state []byte) (M, error) // from the journal
	Over    func(M) bool                                       // nothing more will happen
	// Others are who sign a machine's transactions beside the ledger's key, such as its job's guardians; nil: nobody. They may be
	// remote: their answers are waited for, by this machine alone.
	Others func(name string, m M) []sign.Signer
	// Told is told what is meant for people and for the loops, in order; after a crash some of it comes again. It must not wait
	// for the machine.
	Told     func(name string, e escrow.Effect)
	Observer Observer // likewise
	Program  sign.Key // whose calls the observer is told
	Log      *slog.Logger
}

// Keeper keeps the machines of one kind going, each in a goroutine of its own: it journals, then signs, sends and looks.
// New starts nothing; Run does. What is added and told before is carried out then.
type Keeper[M Machine[M]] struct {
	cfg KeeperConfig[M]

	mu   sync.Mutex
	ctx  context.Context // of Run; nil before
	kept map[string]*kept[M]
	wg   sync.WaitGroup
	// closed: nothing is started any more.
	closed bool
}

// told is one event on its way to a machine.
type told struct {
	ev   escrow.Event
	done chan error // room for one: it is in the journal, or why it never will be; nil when nobody asks
}

// kept is one machine.
type kept[M Machine[M]] struct {
	name   string
	ledger escrow.Ledger

	mu    sync.Mutex
	m     M      // as the journal has it
	state []byte // likewise; nil before the first write
	inbox []told
	// running: a goroutine keeps it.
	running bool
	// begun: it had its first tick in this process, and told again what nobody may have heard before the last one ended.
	begun bool
	poke  chan struct{} // holds one token when the inbox has something
	moved chan struct{} // closed, and replaced, when m changes
}

// NewKeeper reads the machines of an earlier process.
func NewKeeper[M Machine[M]](ctx context.Context, cfg KeeperConfig[M]) (*Keeper[M], error) {
	k := &Keeper[M]{cfg: cfg, kept: map[string]*kept[M]{}}
	err := cfg.Store.List(ctx, cfg.Kind, "", func(name string, state []byte) error {
		m, err := cfg.Restore(ctx, state)
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", cfg.Kind, name, err)
		}
		k.kept[name] = k.newKept(name, m, state)
		return nil
	})
	return k, err
}

func (k *Keeper[M]) newKept(name string, m M, state []byte) *kept[M] {
	l := &observed{Ledger: k.cfg.Ledger, name: name, program: k.cfg.Program, to: k.cfg.Observer, made: map[chain.TxID]Landed{}, told: map[chain.TxID]bool{}}
	return &kept[M]{name: name, ledger: l, m: m, state: state, poke: make(chan struct{}, 1), moved: make(chan struct{})}
}

// Run keeps the machines going until ctx ends; what is under way goes on in the next process.
func (k *Keeper[M]) Run(ctx context.Context) {
	k.mu.Lock()
	k.ctx = ctx
	for _, c := range k.kept {
		k.startLocked(c)
	}
	k.mu.Unlock()
	<-ctx.Done()
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.wg.Wait()
}

// startLocked starts the goroutine of a machine, once, unless it is over, had its tick, and nobody told it anything. k.mu is held.
func (k *Keeper[M]) startLocked(c *kept[M]) {
	if k.ctx == nil || k.closed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running || c.begun && k.cfg.Over(c.m) && len(c.inbox) == 0 {
		return
	}
	c.running, c.begun = true, true
	run := k.ctx
	k.wg.Go(func() { k.keep(run, c) })
}

// Add keeps a new machine; one of that name that is kept already stays. It is in the journal with the first event that it keeps.
func (k *Keeper[M]) Add(name string, m M) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept[name] == nil {
		c := k.newKept(name, m, nil)
		k.kept[name] = c
		k.startLocked(c)
	}
}

// Drop stops keeping a machine that is over, had its tick and has nothing in its inbox, and reports whether it did. Its journal record
// stays, for the caller to delete; back keeps the machine on.
func (k *Keeper[M]) Drop(name string) (back func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.kept[name]
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running || !c.begun || len(c.inbox) > 0 || !k.cfg.Over(c.m) {
		return nil, false
	}
	delete(k.kept, name)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.kept[name] = c
		k.startLocked(c)
	}, true
}

// Names lists the machines, in no order.
func (k *Keeper[M]) Names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]string, 0, len(k.kept))
	for name := range k.kept {
		out = append(out, name)
	}
	return out
}

// find is a machine. k.mu is held.
func (k *Keeper[M]) find(name string) (*kept[M], error) {
	if c := k.kept[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%s %s: %w", k.cfg.Kind, name, ErrUnkept)
}

// Get returns a machine as the journal has it, and a channel that closes when it changes. ErrUnkept.
func (k *Keeper[M]) Get(name string) (M, <-chan struct{}, error) {
	k.mu.Lock()
	c, err := k.find(name)
	k.mu.Unlock()
	if err != nil {
		var none M
		return none, nil, err
	}
	m, moved := c.now()
	return m, moved, nil
}

func (c *kept[M]) now() (M, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m, c.moved
}

// Post tells a machine of an event and does not wait. ErrUnkept.
func (k *Keeper[M]) Post(name string, ev escrow.Event) error { return k.post(name, told{ev: ev}) }

// Tell is Post that returns when the event is in the journal, or with what the machine has against it.
func (k *Keeper[M]) Tell(ctx context.Context, name string, ev escrow.Event) error {
	t := told{ev, make(chan error, 1)}
	if err := k.post(name, t); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-t.done:
		return err
	}
}

func (k *Keeper[M]) post(name string, t told) error {
	k.mu.Lock()
	defer k.mu.Unlock() // a machine that is dropped meanwhile would never answer
	c, err := k.find(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.inbox = append(c.inbox, t)
	c.mu.Unlock()
	select {
	case c.poke <- struct{}{}:
	default:
	}
	k.startLocked(c) // it may be over, and answers all the same
	return nil
}

// Until waits until a machine is as wanted and returns it. ErrUnkept.
func (k *Keeper[M]) Until(ctx context.Context, name string, wanted func(M) bool) (M, error) {
	for {
		m, moved, err := k.Get(name)
		if err != nil || wanted(m) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-moved:
		}
	}
}

// keep takes one machine to its end, or to where ctx ends.
func (k *Keeper[M]) keep(ctx context.Context, c *kept[M]) {
	next := told{ev: escrow.Ticked{}}
	for {
		err := k.step(ctx, c, next)
		if ctx.Err() != nil {
			return
		}
		m, _ := c.now()
		if err != nil {
			k.cfg.Log.Error("settling failed; trying again", "kind", k.cfg.Kind, "name", c.name, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(saveRetry):
			}
		} else if k.cfg.Over(m) && c.leave() {
			return
		}
		at := m.Next()
		if next = c.take(ctx, time.Until(at), err == nil && at.IsZero()); next.ev == nil {
			return
		}
	}
}

// leave ends the keeping of a machine, unless something is in the inbox.
func (c *kept[M]) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = len(c.inbox) > 0
	return !c.running
}

// take waits for the next event, or for the time to tick; it has none when ctx ends.
func (c *kept[M]) take(ctx context.Context, wait time.Duration, forEver bool) told {
	var tick <-chan time.Time
	if !forEver {
		t := time.NewTimer(max(wait, time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	for {
		c.mu.Lock()
		if len(c.inbox) > 0 {
			t := c.inbox[0]
			c.inbox = c.inbox[1:]
			c.mu.Unlock()
			return t
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return told{}
		case <-tick:
			return told{ev: escrow.Ticked{}}
		case <-c.poke:
		}
	}
}

// step tells the machine one event and carries out all that follows. Only an error of the journal is one: then the machine is
// again what the journal has, and the event waits for its next turn.
func (k *Keeper[M]) step(ctx context.Context, c *kept[M], t told) error {
	answer := func(err error) {
		if t.done != nil {
			t.done <- err
			t.done = nil
		}
	}
	var unsaved error
	m, _ := c.now()
	save := func(next M, state []byte) error {
		if unsaved = k.cfg.Store.Write(ctx, store.Put{Kind: k.cfg.Kind, Key: c.name, Value: state}); unsaved != nil {
			return unsaved
		}
		c.set(next, state)
		answer(nil)
		return nil
	}
	var others []sign.Signer
	if k.cfg.Others != nil {
		others = k.cfg.Others(c.name, m)
	}
	m, notes, err := escrow.Drive(ctx, c.ledger, save, m, time.Now(), t.ev, others...)
	for _, e := range notes {
		k.cfg.Told(c.name, e)
	}
	switch {
	case unsaved != nil && t.done == nil && ctx.Err() == nil:
		return k.again(ctx, c, t, unsaved)
	case unsaved != nil:
		answer(unsaved)
		return k.again(ctx, c, told{}, unsaved)
	case err != nil:
		answer(err)
		k.cfg.Log.Debug("an event is refused", "kind", k.cfg.Kind, "name", c.name, "err", err)
		return nil
	}
	c.set(m, nil) // what is not kept, such as when to look again
	answer(nil)
	return nil
}

// set changes the machine, and its state in the journal if that is another too.
func (c *kept[M]) set(m M, state []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m = m; state != nil {
		c.state = state
	}
	close(c.moved)
	c.moved = make(chan struct{})
}

// again takes a machine back to what the journal has, and keeps an event that nobody waits for.
func (k *Keeper[M]) again(ctx context.Context, c *kept[M], t told, why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, tick := t.ev.(escrow.Ticked); t.ev != nil && !tick {
		c.inbox = append([]told{t}, c.inbox...)
	}
	if c.state != nil {
		m, err := k.cfg.Restore(ctx, c.state)
		if err != nil {
			return errors.Join(why, err)
		}
		c.m = m
		if len(c.inbox) == 0 || c.inbox[0] != (told{ev: escrow.Ticked{}}) { // it says when to tick next only once it was ticked
			c.inbox = append([]told{{ev: escrow.Ticked{}}}, c.inbox...)
		}
	}
	return why
}
