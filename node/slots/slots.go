// Package slots keeps a peer's view of the chain's current slot. Leases,
// receipts and vouchers count slots, and a peer must be able to say which slot
// it is while the chain is out of reach: between two observations the clock
// goes on at the network's nominal slot time, and it never goes back.
package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
)

// ErrUnknown says that the chain has not been seen yet, so that no slot can be
// told and nothing may be leased.
var ErrUnknown = errors.New("the current slot is unknown: the chain has not answered yet")

// Source tells the current slot of the chain. chain.Ledger is one.
type Source interface {
	Slot(ctx context.Context) (market.Slot, error)
}

// Clock interpolates the slot between observations of its source. It may be
// used by many goroutines.
type Clock struct {
	source Source
	slot   time.Duration
	every  time.Duration
	log    *slog.Logger

	mu    sync.Mutex
	seen  market.Slot // at
	at    time.Time
	last  market.Slot // highest slot told so far
	fails int
}

// New returns a clock over source whose nominal slot time is slotMillis and
// which asks the source every period. It starts nothing.
func New(source Source, slotMillis uint64, every time.Duration, log *slog.Logger) *Clock {
	return &Clock{source: source, slot: time.Duration(slotMillis) * time.Millisecond, every: every, log: log}
}

// Now returns the slot at the time now, or ErrUnknown.
func (c *Clock) Now(now time.Time) (market.Slot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0, ErrUnknown
	}
	s := c.seen
	if d := now.Sub(c.at); d > 0 {
		s += market.Slot(d / c.slot)
	}
	c.last = max(c.last, s)
	return c.last, nil
}

// Until returns how long it takes from now until slot s begins at the nominal
// slot time; 0 when it has begun or nothing is known.
func (c *Clock) Until(now time.Time, s market.Slot) time.Duration {
	cur, err := c.Now(now)
	if err != nil || s <= cur {
		return 0
	}
	return time.Duration(s-cur) * c.slot
}

// Sync asks the source once.
func (c *Clock) Sync(ctx context.Context) error {
	start := time.Now()
	s, err := c.source.Slot(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if c.fails++; c.fails == 1 {
			c.log.Warn("chain does not answer; going on by the nominal slot time", "err", err)
		}
		return fmt.Errorf("asking the chain for its slot: %w", err)
	}
	if c.fails > 0 {
		c.log.Info("chain answers again", "missed", c.fails)
	}
	c.fails = 0
	// The answer was true somewhere between question and answer.
	now := time.Now()
	c.seen, c.at = s, start.Add(now.Sub(start)/2)
	return nil
}

// Reachable says whether the source answered when it was last asked.
func (c *Clock) Reachable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.at.IsZero() && c.fails == 0
}

// Run asks the source until ctx ends: at every period, and every second while
// the source has never answered.
func (c *Clock) Run(ctx context.Context) error {
	for {
		tctx, cancel := context.WithTimeout(ctx, c.every)
		_ = c.Sync(tctx) // counted and logged there
		cancel()
		wait := c.every
		if _, err := c.Now(time.Now()); err != nil {
			wait = min(wait, time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}
