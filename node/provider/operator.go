package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/provider/policy"
)

// Errors of the operator's changes at run time.
var (
	// ErrNotSold means that this peer does not sell the class.
	ErrNotSold = errors.New("not sold here")
	// ErrFloor means that a price is under the configured floor.
	ErrFloor = errors.New("under the price floor")
	// ErrNotWithdrawn means that no withdrawn unit is named.
	ErrNotWithdrawn = errors.New("not among the units that are withdrawn")
)

// settings are the operator's settings at run time, as the journal keeps them.
type settings struct {
	Paused   bool                       `json:"paused,omitempty"`
	Draining bool                       `json:"draining,omitempty"` // paused for good: the peer is to be stopped
	Prices   map[market.Class]repricing `json:"prices,omitempty"`
}

// repricing is a price set at run time. It counts until the configuration has another one than it replaced.
type repricing struct {
	Price market.Price `json:"price"`
	Was   market.Price `json:"was"`
}

// settingsTable has the settings under one key.
var settingsTable = journal.Define[string, settings]("operator")

const settingsKey = "state"

// book changes the settings of the lease book. ledger.Ledger implements it.
type book interface {
	Book() lease.Book
	Change(f func(lease.Book) (lease.Book, error)) error
}

// Operator has the operator's settings at run time: pauses, prices, and withdrawn units.
type Operator struct {
	store   journal.Store
	lots    []Lot
	genesis market.Genesis
	log     *slog.Logger
	book    book
	changed func() // the offers may have changed

	turn chan struct{} // holds one token while no setting is being changed
	mu   sync.Mutex
	now  settings
	bad  map[market.UnitID]string // units withdrawn, with the fault of each
}

// newOperator reads the settings of an earlier process. The caller sets book and changed.
func newOperator(ctx context.Context, cfg Config) (*Operator, error) {
	o := &Operator{
		store: cfg.Store, lots: cfg.Lots, genesis: cfg.Genesis, log: cfg.Log,
		turn: make(chan struct{}, 1), bad: map[market.UnitID]string{},
	}
	o.turn <- struct{}{}
	err := settingsTable.List(ctx, cfg.Store, settingsKey, func(_ string, s settings) error {
		o.now = s
		return nil
	})
	return o, err
}

// settings returns the settings as they stand.
func (o *Operator) settings() settings {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// set journals a change of the settings, then applies it.
func (o *Operator) set(ctx context.Context, change func(*settings)) error {
	select {
	case <-o.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { o.turn <- struct{}{} }()
	next := o.settings()
	change(&next)
	if err := settingsTable.Write(ctx, o.store, settingsKey, next); err != nil {
		return fmt.Errorf("journalling the operator's settings: %w", err)
	}
	o.mu.Lock()
	o.now = next
	o.mu.Unlock()
	err := o.book.Change(func(b lease.Book) (lease.Book, error) {
		limits := b.Limits()
		limits.Asks = asks(o.lots, next)
		return b.WithLimits(limits)
	})
	o.changed()
	return err
}

// asks returns the prices under settings.
func asks(lots []Lot, s settings) map[market.Class]market.Price {
	out := map[market.Class]market.Price{}
	for _, l := range lots {
		price := l.Price
		if r, ok := s.Prices[l.Class]; ok && r.Was == l.Price {
			price = r.Price
		}
		out[l.Class] = max(price, l.Floor)
	}
	return out
}

// Paused reports whether the operator has paused the offers.
func (o *Operator) Paused() bool { return o.settings().Paused }

// Pause withdraws the offers and sells nothing new; leases continue. It is in force until Resume, even after a restart.
func (o *Operator) Pause(ctx context.Context) error {
	return o.set(ctx, func(s *settings) { s.Paused, s.Draining = true, false })
}

// Drain is Pause before the peer is stopped: Status shows how many leases are left.
func (o *Operator) Drain(ctx context.Context) error {
	return o.set(ctx, func(s *settings) { s.Paused, s.Draining = true, true })
}

// Resume sells again.
func (o *Operator) Resume(ctx context.Context) error {
	return o.set(ctx, func(s *settings) { s.Paused, s.Draining = false, false })
}

// SetPrice changes the price of a class, for future quotes and leases. It holds until the configuration sets another
// price. It returns ErrNotSold or ErrFloor.
func (o *Operator) SetPrice(ctx context.Context, c market.Class, price market.Price) error {
	l := policy.Of(o.lots, c)
	if len(l.Units) == 0 {
		var classes []string
		for _, c := range policy.Classes(o.lots) {
			classes = append(classes, string(c))
		}
		return fmt.Errorf("class %s: %w; sold are %s", c, ErrNotSold, strings.Join(classes, ", "))
	}
	if price < l.Floor {
		money := func(v market.Price) string { return o.genesis.FormatAmount(market.Amount(v)) }
		return fmt.Errorf("class %s at %s: %w of %s", c, money(price), ErrFloor, money(l.Floor))
	}
	if err := o.genesis.CheckPrice(price); err != nil {
		return err
	}
	return o.set(ctx, func(s *settings) {
		s.Prices = maps.Clone(s.Prices)
		if s.Prices == nil {
			s.Prices = map[market.Class]repricing{}
		}
		s.Prices[c] = repricing{Price: price, Was: l.Price}
	})
}

// Withdraw stops selling units, with the fault of each. Leases on them continue. They stay withdrawn until Readmit or
// the peer's restart, even if they look healthy meanwhile: a unit that failed needs an operator's check.
func (o *Operator) Withdraw(bad map[market.UnitID]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, reason := range bad {
		if _, known := o.bad[id]; known {
			continue
		}
		o.bad[id] = reason
		o.log.Warn("a unit is withdrawn from sale", "unit", id.Short(), "reason", reason)
	}
	o.withdraw()
}

// Readmit sells units again that were withdrawn, named by serial, which is a GPU's UUID; all or none. It returns
// ErrNotWithdrawn.
func (o *Operator) Readmit(serials []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	back := map[market.UnitID]bool{}
	for _, serial := range serials {
		found := false
		for _, u := range o.book.Book().Units() {
			if _, bad := o.bad[u.ID]; bad && u.Serial == serial {
				back[u.ID], found = true, true
			}
		}
		if !found {
			return fmt.Errorf("%.128q: %w", serial, ErrNotWithdrawn)
		}
	}
	for id := range back {
		delete(o.bad, id)
	}
	o.withdraw()
	return nil
}

// withdraw puts the withdrawn units into the book. o.mu is held.
func (o *Operator) withdraw() {
	bad := slices.Collect(maps.Keys(o.bad))
	_ = o.book.Change(func(b lease.Book) (lease.Book, error) { return b.WithWithdrawn(bad), nil })
	o.changed()
}

// withdrawn returns the withdrawn units, with the fault of each.
func (o *Operator) withdrawn() map[market.UnitID]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.bad)
}
