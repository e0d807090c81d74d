package node

import (
	"bytes"
	"context"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/verify/exclusive"
)

// health is how the hardware of units does now. A CPU's part is what the machine is.
func (n *Node) health(ctx context.Context, units []market.UnitID) (exclusive.Snapshot, error) {
	m, err := readMachine()
	if err != nil {
		return exclusive.Snapshot{}, err
	}
	s := exclusive.Snapshot{CPUs: uint32(runtime.NumCPU()), MemoryMiB: uint32(min(m.memoryMiB, math.MaxUint32)), CPUModel: gpu.Plain(m.cpu)}
	if s.At, err = n.slots.Now(time.Now()); err != nil {
		return s, err
	}
	s.Devices, err = n.gpus.health(ctx, units)
	return s, err
}

// health is that of the GPUs among units, in the order of a snapshot.
func (g *gpus) health(ctx context.Context, units []market.UnitID) ([]exclusive.Device, error) {
	g.mu.Lock()
	var out []exclusive.Device
	var uuids []string
	for _, id := range units {
		if d, ok := g.sold[id]; ok {
			out = append(out, exclusive.Device{Unit: id, UUID: d.UUID, Model: d.Model})
			uuids = append(uuids, d.UUID)
		}
	}
	g.mu.Unlock()
	if len(out) == 0 {
		return nil, nil
	}
	now, err := g.source.Health(ctx, uuids)
	if err != nil {
		return nil, err
	}
	for i, uuid := range uuids {
		if h, ok := now[uuid]; ok {
			out[i] = gpu.Told(out[i].Unit, uuid, out[i].Model, h)
		} else {
			out[i].UUID = "" // it is gone
		}
	}
	out = slices.DeleteFunc(out, func(d exclusive.Device) bool { return d.UUID == "" })
	out = out[:min(len(out), exclusive.MaxDevices)]
	slices.SortFunc(out, func(x, y exclusive.Device) int { return bytes.Compare(x.Unit[:], y.Unit[:]) })
	return out, nil
}
