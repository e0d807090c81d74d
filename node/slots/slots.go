// Package slots keeps a peer's view of the chain's current slot. Leases, receipts and vouchers count slots, so a peer
// needs the slot while the chain is out of reach: between two observations the clock advances at the network's nominal
// slot time. It never goes back, and its slots are journalled; so three bounds hold:
//
//   - the clock is at most Margin ahead of the newest final slot: it stops while the chain is halted or out of reach;
//   - an observation is refused when it is ahead of the last one by more than twice the time since then and Margin;
//   - an observation with a final slot older than one before it changes nothing.
package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// Margin is how far the clock may be ahead of the newest final slot, and an observation ahead of the time that passed.
const Margin = 5 * time.Minute

var (
	// ErrUnknown reports that the chain has not been seen yet, so that the slot is unknown and nothing may be leased.
	ErrUnknown = errors.New("the current slot is unknown: the chain has not answered yet")
	// ErrAhead reports that the chain's endpoints returned a slot that it cannot have reached.
	ErrAhead = errors.New("the chain's endpoints returned a slot that it cannot have reached yet")
	// ErrBehind reports that the chain's endpoints returned a final slot far below an earlier one.
	ErrBehind = errors.New("the chain's endpoints returned a final slot far below an earlier one")
)

// Source returns the chain's tip. chain.Ledger is one.
type Source interface {
	Tip(ctx context.Context) (chain.Tip, error)
}

// Clock interpolates the slot between observations of its source. It may be
// used by many goroutines.
type Clock struct {
	source Source
	slot   time.Duration
	every  time.Duration
	log    *slog.Logger

	mu    sync.Mutex
	seen  chain.Tip // at
	at    time.Time
	past  market.Slot // an observation was at most this
	since time.Time   // then; zero: never
	last  market.Slot // highest slot returned so far
	moved time.Time   // when the newest final slot was seen first
	fails int         // observations in a row that failed
	err   error       // of the last of them
}

// Name implements service.Service.
func (*Clock) Name() string { return "slots" }

// New returns a clock over source with a nominal slot time of slotMillis, which reads the source every period. It
// starts nothing.
func New(source Source, slotMillis uint64, every time.Duration, log *slog.Logger) *Clock {
	return &Clock{source: source, slot: time.Duration(slotMillis) * time.Millisecond, every: every, log: log}
}

// Reached gives a clock without observations a bound from an earlier process: the chain had not passed slot s at the
// time at. It bounds the first observation. A future time, which a wrong system clock wrote, is ignored.
func (c *Clock) Reached(s market.Slot, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() && !at.After(time.Now()) {
		c.past, c.since = s, at
	}
}

// Now returns the slot at the time now, or ErrUnknown.
func (c *Clock) Now(now time.Time) (market.Slot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0, ErrUnknown
	}
	s := c.seen.Confirmed
	if d := now.Sub(c.at); d > 0 {
		s += market.Slot(d / c.slot)
	}
	c.last = max(c.last, min(s, c.seen.Final+c.margin()))
	return c.last, nil
}

func (c *Clock) margin() market.Slot { return market.Slot(Margin / c.slot) }

// Until returns how long it takes from now until slot s begins at the nominal
// slot time; 0 when it has begun or nothing is known.
func (c *Clock) Until(now time.Time, s market.Slot) time.Duration {
	cur, err := c.Now(now)
	if err != nil || s <= cur {
		return 0
	}
	return time.Duration(s-cur) * c.slot
}

// Sync reads the source once.
func (c *Clock) Sync(ctx context.Context) error {
	start := time.Now()
	tip, err := c.source.Tip(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		// The answer was true somewhere between question and answer.
		err = c.observe(tip, start.Add(time.Since(start)/2))
	}
	if err != nil {
		c.err = err
		if c.fails++; c.fails == 1 {
			c.log.Warn("reading the chain's slot failed; using the nominal slot time for a while",
				"most", Margin, "err", err)
		}
		return fmt.Errorf("reading the chain's slot: %w", err)
	}
	if c.fails > 0 {
		c.log.Info("the chain returns its slot again", "missed", c.fails)
	}
	c.fails = 0
	return nil
}

// observe applies the source's tip at a time. c.mu is held.
func (c *Clock) observe(tip chain.Tip, at time.Time) error {
	tip.Final = min(tip.Final, tip.Confirmed)
	if !c.since.IsZero() {
		// The monotonic clock stands still while a machine sleeps, the other one may be set back.
		passed := max(at.Sub(c.since), at.Round(0).Sub(c.since.Round(0)), 0)
		if most := c.past + market.Slot(2*(passed/c.slot)) + c.margin(); tip.Confirmed > most {
			return fmt.Errorf("slot %d, %v after slot %d: %w",
				tip.Confirmed, passed.Round(time.Second), c.past, ErrAhead)
		}
	}
	switch {
	case tip.Final+c.margin() < c.seen.Final:
		return fmt.Errorf("slot %d, before it %d: %w", tip.Final, c.seen.Final, ErrBehind)
	case tip.Final < c.seen.Final: // another server, a few blocks behind
		return nil
	}
	if c.moved.IsZero() || tip.Final > c.seen.Final {
		c.moved = at
	}
	c.seen, c.at = tip, at
	c.past, c.since = tip.Confirmed, at
	return nil
}

// Reachable reports whether the source's last answer was a plausible slot.
func (c *Clock) Reachable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.at.IsZero() && c.fails == 0
}

// Run polls the source until ctx ends: every period, and every second until its first answer.
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
