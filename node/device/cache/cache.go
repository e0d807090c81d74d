// Package cache keeps the devices of idle GPUs open from one audit to the next, so their datasets stay in memory:
// filling one takes seconds, and an idle GPU's memory is not needed. A program that starts on a unit gets its memory
// first. If the unit answers an audit at that moment, the program waits for its end: an audit that broke off would
// count against the provider, and a buyer could have it break off at will.
//
//	           window                 a program starts, after the audit
//	closed ────────────▶ open, filled ────────────────▶ taken, until the unit is idle again
//	                          ▲ │ window: filled already
//	                          └─┘
package cache

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
)

// maxWait bounds how long a program waits for an audit of its units: an audit fills a dataset, and has two attempts of
// some seconds.
const maxWait = time.Minute

// Cache is the devices of a peer's idle GPUs.
type Cache struct {
	log *slog.Logger

	mu    sync.Mutex
	open  map[market.UnitID]*cached
	taken map[market.UnitID]bool // by a program, since the unit was idle last
}

// New returns a cache without devices.
func New(log *slog.Logger) *Cache {
	return &Cache{log: log, open: map[market.UnitID]*cached{}, taken: map[market.UnitID]bool{}}
}

// Idle sets the units that are idle now, and closes the devices of all others.
func (k *Cache) Idle(units []market.Unit) {
	is := map[market.UnitID]bool{}
	for _, u := range units {
		is[u.ID] = true
	}
	k.mu.Lock()
	var out []market.UnitID
	for id := range k.open {
		if !is[id] {
			out = append(out, id)
		}
	}
	for id := range is {
		delete(k.taken, id)
	}
	k.mu.Unlock()
	k.drop(out)
}

// Take returns a unit's device, and opens it if it is not open. It is in use until it is closed. Take returns an error
// if a program has begun on the unit.
func (k *Cache) Take(
	ctx context.Context, u market.Unit, open func() (device.Device, error),
) (device.Device, error) {
	k.mu.Lock()
	d := k.open[u.ID]
	if d != nil {
		d.users++
	}
	k.mu.Unlock()
	if d != nil {
		return d, nil
	}
	x, err := open()
	if err != nil {
		return nil, err
	}
	d = &cached{Device: x, unit: u.ID, of: k, users: 1, idle: make(chan struct{})}
	k.mu.Lock()
	taken := k.taken[u.ID] || ctx.Err() != nil
	if !taken {
		k.open[u.ID] = d
	}
	k.mu.Unlock()
	if taken {
		return nil, errors.Join(errors.New("in use by a program"), x.Close())
	}
	return d, nil
}

// Evict frees the memory of units for programs that begin on them. It waits until no audit uses it, for a minute at
// most. It returns the error of ctx.
func (k *Cache) Evict(ctx context.Context, units []market.UnitID) error {
	k.mu.Lock()
	var busy []chan struct{}
	for _, id := range units {
		k.taken[id] = true
		if d := k.open[id]; d != nil && d.users > 0 {
			busy = append(busy, d.idle)
		}
	}
	k.mu.Unlock()
	if len(busy) > 0 {
		k.log.Info("a program waits for the audit of its units")
	}
	wait, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for _, idle := range busy {
		select {
		case <-idle:
		case <-wait.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	k.drop(units)
	return nil
}

// drop closes devices that are open.
func (k *Cache) drop(units []market.UnitID) {
	for _, id := range units {
		k.mu.Lock()
		d := k.open[id]
		delete(k.open, id)
		k.mu.Unlock()
		if d == nil {
			continue
		}
		if err := d.Device.Close(); err != nil {
			k.log.Warn("a device is not closed", "unit", id, "err", err)
		}
	}
}

// Close closes all devices.
func (k *Cache) Close() {
	k.mu.Lock()
	all := make([]market.UnitID, 0, len(k.open))
	for id := range k.open {
		all = append(all, id)
	}
	k.mu.Unlock()
	k.drop(all)
}

// cached is a device that stays open when it is closed, and is opened anew when it broke.
type cached struct {
	device.Device
	unit market.UnitID
	of   *Cache

	// Under the cache's mu:
	users int
	idle  chan struct{} // closed when there are no users left, and made again for the next
}

// Close keeps it.
func (d *cached) Close() error {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	if d.users--; d.users == 0 {
		close(d.idle)
		d.idle = make(chan struct{})
	}
	return nil
}

func (d *cached) seen(err error) error {
	if errors.Is(err, device.ErrClosed) {
		d.of.mu.Lock()
		own := d.of.open[d.unit] == d
		d.of.mu.Unlock()
		if own {
			d.of.drop([]market.UnitID{d.unit})
		}
	}
	return err
}

func (d *cached) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	out, err := d.Device.Multiply(ctx, seed, s)
	return out, d.seen(err)
}

func (d *cached) Fill(ctx context.Context, of device.Dataset) error {
	return d.seen(d.Device.Fill(ctx, of))
}

func (d *cached) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	out, err := d.Device.Commit(ctx, seed, s)
	return out, d.seen(err)
}

func (d *cached) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	out, err := d.Device.Walk(ctx, key, of, w)
	return out, d.seen(err)
}

func (d *cached) Ends(
	ctx context.Context, key uint64, of device.Dataset, w challenge.Walk, group uint32,
) ([]uint64, error) {
	out, err := d.Device.Ends(ctx, key, of, w, group)
	return out, d.seen(err)
}
