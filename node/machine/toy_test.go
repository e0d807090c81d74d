package machine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// ledger is a machine that owes amounts to a counterparty: it sends each under the next number until that is
// acknowledged.
type ledger struct {
	Version int            `json:"version"` // counts the changes that are journalled
	Amounts []int          `json:"amounts"` // by number
	Numbers map[string]int `json:"numbers"` // by request
	Open    map[int]bool   `json:"open"`    // numbers that are not acknowledged
	Note    string         `json:"note,omitempty"`

	again map[int]time.Time // when to send once more
	ticks int
}

type (
	event  any
	effect any
	// add is a request, with an id by which a repeated one is known.
	add struct {
		id string
		n  int
	}
	acked  struct{ number int }
	silent struct{ number int } // no answer
	resume struct{}
	tick   struct{}
	wake   struct{ at time.Time } // asks for a tick
	note   struct{ text string }
	bang   struct{} // Step panics
	misdo  struct{ where string }

	send struct{ number, amount int }
	told struct{ text string } // an effect that is done at once
	fail struct{ where string }
)

var (
	ledgers = journal.Define[string, ledger]("test ledger")
	errSum  = errors.New("amount is negative")
)

const resend = 3 * time.Second

func (l ledger) Step(now Now, ev event) (ledger, []effect, error) {
	next := l
	next.Amounts, next.Numbers, next.Open, next.again =
		slices.Clone(l.Amounts), clone(l.Numbers), clone(l.Open), clone(l.again)
	var out []effect
	sendOnce := func(number int) {
		delete(next.again, number)
		out = append(out, send{number, next.Amounts[number]})
	}
	switch ev := ev.(type) {
	case add:
		if ev.n < 0 {
			return l, nil, errSum
		}
		if _, known := l.Numbers[ev.id]; known {
			return l, nil, nil
		}
		number := len(l.Amounts)
		next.Version++
		next.Amounts, next.Numbers[ev.id], next.Open[number] = append(next.Amounts, ev.n), number, true
		sendOnce(number)
	case acked:
		if next.Open[ev.number] {
			next.Version++
			delete(next.Open, ev.number)
			delete(next.again, ev.number)
		}
	case silent:
		if next.Open[ev.number] {
			next.again[ev.number] = now.Time.Add(resend)
		}
	case resume:
		for _, number := range slices.Sorted(maps.Keys(next.Open)) {
			sendOnce(number)
		}
	case tick:
		next.ticks++
		for _, number := range slices.Sorted(maps.Keys(next.again)) {
			if number >= 0 && !now.Time.Before(next.again[number]) {
				sendOnce(number)
			}
		}
	case wake:
		next.again[-1] = ev.at
	case note:
		next.Version++
		next.Note = ev.text
		out = append(out, told(ev))
	case bang:
		next.Amounts[0]++ // of a clone
		panic("bang")
	case misdo:
		next.Version++
		out = append(out, fail(ev))
	}
	return next, out, nil
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

func (l ledger) Next(Now) time.Time {
	var first time.Time
	for _, at := range l.again {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

func (l ledger) Done() bool { return len(l.Open) == 0 }

// shell connects ledgers with a counterparty.
type shell struct {
	store journal.Store
	peer  *peer

	mu   sync.Mutex
	told []string
	slow time.Duration                               // how long carrying out a told effect takes
	call func(context.Context, string, send) []event // nil: the counterparty
}

func (s *shell) Load(ctx context.Context, add func(string, ledger)) error {
	return ledgers.List(ctx, s.store, "", func(k string, l ledger) error { add(k, l); return nil })
}

func (s *shell) Record(b *journal.Batch, k string, old, next ledger, effects []effect) {
	if slices.Contains(effects, effect(fail{"record"})) {
		panic("record")
	}
	if old.Version != next.Version {
		ledgers.Put(b, k, next)
	}
}

func (s *shell) Carry(k string, f effect) func(context.Context) []event {
	switch f := f.(type) {
	case told:
		time.Sleep(s.slow)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, f.text)
	case fail:
		if f.where == "carry" {
			panic("carry")
		}
		return func(context.Context) []event { panic("call") }
	case send:
		return func(ctx context.Context) []event {
			if s.call != nil {
				return s.call(ctx, k, f)
			}
			return []event{s.peer.take(k, f)}
		}
	}
	return nil
}

func (s *shell) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

// peer is a counterparty. It takes each number once, refuses another amount under the same number, and expects that
// all it gets was journalled before. Every third answer is lost.
type peer struct {
	t    *testing.T
	disk *store.Memory

	mu    sync.Mutex
	got   map[string]map[int]int
	count int
}

func (p *peer) take(k string, f send) event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kept ledger
	err := ledgers.List(context.Background(), p.disk, k, func(_ string, l ledger) error { kept = l; return nil })
	if err != nil || f.number >= len(kept.Amounts) || kept.Amounts[f.number] != f.amount {
		p.t.Errorf("%s: number %d was sent before it was journalled: %+v, %v", k, f.number, kept, err)
	}
	if p.got[k] == nil {
		p.got[k] = map[int]int{}
	}
	if had, again := p.got[k][f.number]; again && had != f.amount {
		p.t.Errorf("%s: number %d has the amounts %d and %d", k, f.number, had, f.amount)
	}
	p.got[k][f.number] = f.amount
	if p.count++; p.count%3 == 0 {
		return silent{f.number}
	}
	return acked{f.number}
}

// process is a runner at work.
type process struct {
	*Runner[string, ledger, event, effect]
	shell  *shell
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done is closed
}

func start(t testing.TB, s store.Store, sh *shell) *process {
	t.Helper()
	p := ready(t, s, sh)
	p.run()
	return p
}

// ready makes a process that does not run yet.
func ready(t testing.TB, s store.Store, sh *shell) *process {
	t.Helper()
	sh.store = s
	r, err := New(t.Context(), sh, Config[event]{
		Name: "ledger", Store: s, Resume: resume{}, Tick: tick{}, Log: slog.New(slog.DiscardHandler),
		Clock: func() (Now, error) { return Now{Time: time.Now()}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &process{Runner: r, shell: sh, done: make(chan struct{})}
}

func (p *process) run() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.err = p.Run(ctx)
	}()
}

// stop ends a process and returns Run's error.
func (p *process) stop() error {
	p.cancel()
	<-p.done
	return p.err
}

// disk is a store whose writes can be held up, or fail.
type disk struct {
	store.Store
	mu     sync.Mutex
	err    error
	held   chan struct{} // writes wait until it is closed; nil: they do not
	writes [][]string    // keys
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// hold holds up writes until the function that it returns is called.
func (d *disk) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make(chan struct{})
	d.held = held
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held = nil
		close(held)
	}
}

func (d *disk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.writes)
}

func (d *disk) Write(ctx context.Context, puts ...store.Put) error {
	var keys []string
	for _, p := range puts {
		keys = append(keys, p.Key)
		if strings.Contains(string(p.Value), `"poison"`) {
			return store.ErrRecord
		}
	}
	d.mu.Lock()
	d.writes = append(d.writes, keys)
	err, held := d.err, d.held
	d.mu.Unlock()
	if held != nil {
		<-held
	}
	if err != nil {
		return err
	}
	return d.Store.Write(ctx, puts...)
}
