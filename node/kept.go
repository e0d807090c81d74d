package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
)

// kept are the devices of idle GPUs, open from one window to the next, so that their datasets stay where the walk is: filling one takes
// seconds, and nobody else has the memory meanwhile. What is to run on a unit has its memory first.
//
//	           window                 a program starts
//	closed ────────────▶ open, filled ────────────────▶ taken, until the unit is idle again
//	                          ▲ │ window: filled already
//	                          └─┘
type kept struct {
	log *slog.Logger

	mu    sync.Mutex
	open  map[market.UnitID]*keptDevice
	taken map[market.UnitID]bool // by a program, since the unit was idle last
}

func newKept(log *slog.Logger) *kept {
	return &kept{log: log, open: map[market.UnitID]*keptDevice{}, taken: map[market.UnitID]bool{}}
}

// idle says which units are idle now: the others' devices are closed.
func (k *kept) idle(units []market.Unit) {
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

// take gives a unit's device, which open opens where it is not open. An error when a program has begun on the unit meanwhile.
func (k *kept) take(ctx context.Context, u market.Unit, open func() (device.Device, error)) (device.Device, error) {
	k.mu.Lock()
	d := k.open[u.ID]
	k.mu.Unlock()
	if d != nil {
		return d, nil
	}
	x, err := open()
	if err != nil {
		return nil, err
	}
	d = &keptDevice{Device: x, unit: u.ID, of: k}
	k.mu.Lock()
	taken := k.taken[u.ID] || ctx.Err() != nil
	if !taken {
		k.open[u.ID] = d
	}
	k.mu.Unlock()
	if taken {
		return nil, errors.Join(errors.New("a program has begun on it"), x.Close())
	}
	return d, nil
}

// vacate gives units' memory back, for what is to run on them.
func (k *kept) vacate(units []market.UnitID) {
	k.mu.Lock()
	for _, id := range units {
		k.taken[id] = true
	}
	k.mu.Unlock()
	k.drop(units)
}

// drop closes devices that are open.
func (k *kept) drop(units []market.UnitID) {
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

// close closes all.
func (k *kept) close() {
	k.mu.Lock()
	all := make([]market.UnitID, 0, len(k.open))
	for id := range k.open {
		all = append(all, id)
	}
	k.mu.Unlock()
	k.drop(all)
}

// keptDevice is a device that stays open when it is closed, and is opened anew when it broke.
type keptDevice struct {
	device.Device
	unit market.UnitID
	of   *kept
}

// Close keeps it.
func (*keptDevice) Close() error { return nil }

func (d *keptDevice) seen(err error) error {
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

func (d *keptDevice) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	out, err := d.Device.Multiply(ctx, seed, s)
	return out, d.seen(err)
}

func (d *keptDevice) Fill(ctx context.Context, of device.Dataset) error {
	return d.seen(d.Device.Fill(ctx, of))
}

func (d *keptDevice) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	out, err := d.Device.Commit(ctx, seed, s)
	return out, d.seen(err)
}

func (d *keptDevice) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	out, err := d.Device.Walk(ctx, key, of, w)
	return out, d.seen(err)
}

func (d *keptDevice) Ends(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk, group uint32) ([]uint64, error) {
	out, err := d.Device.Ends(ctx, key, of, w, group)
	return out, d.seen(err)
}

// answers opens what answers for a unit, or gives what is open: a processor's dataset is small and soon filled, and an idle peer
// need not keep it.
func (n *Node) answers(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error) {
	open := n.p.Hardware
	if open == nil {
		open = answering
	}
	if u.Class.Family() == classCPU {
		return open(ctx, u, asked)
	}
	d, err := n.kept.take(ctx, u, func() (device.Device, error) { return open(ctx, u, asked) })
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", u.Serial, err)
	}
	return d, nil
}
