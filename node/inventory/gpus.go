package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/service"
)

// GPUs are the devices that are sold, as they were when the peer started.
type GPUs struct {
	source gpu.Source // nil if no GPU is sold

	mu       sync.Mutex
	sold     map[market.UnitID]gpu.Device
	cpu      map[market.UnitID]bool
	forgiven map[string]string // the problem of a device when its operator took it back, by UUID
}

// NewGPUs returns the devices of a source, none of which is sold yet. source is optional; if nil, there are no devices.
func NewGPUs(source gpu.Source) *GPUs {
	return &GPUs{
		source: source, sold: map[market.UnitID]gpu.Device{}, cpu: map[market.UnitID]bool{},
		forgiven: map[string]string{},
	}
}

// Sold reports whether any GPU is sold.
func (g *GPUs) Sold() bool { return len(g.sold) > 0 }

// lots makes a lot of each class of devices that the operator sells.
func (g *GPUs) lots(ctx context.Context, owner sign.Key, c Provide, decimals uint8) ([]policy.Lot, error) {
	if g.source == nil {
		return nil, errors.New("this peer was started without an inventory of GPUs")
	}
	text := c.GPU.Devices
	if text == "" {
		text = "all"
	}
	selector, err := gpu.ParseSelector(text)
	if err != nil {
		return nil, fmt.Errorf("%w: provide.gpu.devices: %w", service.ErrConfig, err)
	}
	inv, err := g.source.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for GPUs: %w", err)
	}
	devices, err := selector.Select(inv)
	if err != nil {
		return nil, fmt.Errorf("provide.gpu.devices: %w", errors.Join(append([]error{err}, problems(inv)...)...))
	}
	byClass := map[market.Class][]gpu.Device{}
	for _, d := range devices {
		byClass[d.Class()] = append(byClass[d.Class()], d)
	}
	var lots []policy.Lot
	for _, class := range keys(byClass) {
		of := byClass[class][:c.Share.sold(class, len(byClass[class]))]
		if len(of) == 0 {
			continue
		}
		l, err := g.lot(owner, class, of, c.GPU)
		if err != nil {
			return nil, err
		}
		price := c.GPU.Price
		if own, ok := c.GPU.Prices[string(class)]; ok {
			price = own
		}
		if l.Price, l.Floor, err = c.prices(class, price, decimals); err != nil {
			return nil, err
		}
		lots = append(lots, l)
	}
	return lots, nil
}

func problems(inv gpu.Inventory) []error {
	var out []error
	for _, p := range inv.Problems {
		out = append(out, errors.New(p))
	}
	return out
}

// lot makes units of devices of one class. Each unit has the least resources of any device, since all have one price.
func (g *GPUs) lot(owner sign.Key, class market.Class, devices []gpu.Device, c GPU) (policy.Lot, error) {
	l := policy.Lot{Class: class, Simulated: devices[0].Simulated, Model: modelOf(devices[0])}
	l.PerUnit = market.Resources{
		MilliCPU: c.MilliCPU, MemoryMiB: c.MemoryMiB, DiskMiB: c.DiskMiB, VRAMMiB: vram(devices[0]),
	}
	l.Capability = capabilityOf(devices[0])
	for _, d := range devices {
		l.PerUnit.VRAMMiB, l.Capability = min(l.PerUnit.VRAMMiB, vram(d)), min(l.Capability, capabilityOf(d))
		if modelOf(d) != l.Model {
			l.Model = ""
		}
	}
	for _, d := range devices {
		u, err := market.NewUnit(owner, class, modelOf(d), d.UUID, 0, l.PerUnit)
		if err != nil {
			return l, err
		}
		u.Capability, u.Simulated = capabilityOf(d), d.Simulated
		l.Units = append(l.Units, u)
		g.sold[u.ID] = d
	}
	return l, nil
}

// modelOf returns a device's model for offers, which mark simulation in a separate field.
func modelOf(d gpu.Device) string {
	return market.CleanModel(strings.TrimSuffix(d.Model, " (simulated)"))
}

func vram(d gpu.Device) uint32 { return uint32(min(d.VRAMMiB, 1<<32-1)) }

// capabilityOf reads "9.0" as 90; any other text as 0.
func capabilityOf(d gpu.Device) market.Capability {
	major, minor, ok := strings.Cut(d.Capability, ".")
	a, err1 := strconv.ParseUint(major, 10, 8)
	b, err2 := strconv.ParseUint(minor, 10, 8)
	if !ok || err1 != nil || err2 != nil || b > 9 || a*10+b > uint64(market.MaxCapability) {
		return 0
	}
	return market.Capability(a*10 + b)
}

// judge returns the devices that cannot be sold now, with the reasons.
func (g *GPUs) judge(inv gpu.Inventory) map[market.UnitID]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	bad := map[market.UnitID]string{}
	for id, was := range g.sold {
		if reason := changed(was, inv); reason != "" && g.forgiven[was.UUID] != reason {
			bad[id] = reason
		}
	}
	return bad
}

// changed returns a difference between a device now and before, or "".
func changed(was gpu.Device, inv gpu.Inventory) string {
	at := slices.IndexFunc(inv.Devices, func(d gpu.Device) bool { return d.UUID == was.UUID })
	if at < 0 {
		reason := "no longer in the inventory"
		if len(inv.Problems) > 0 {
			reason += ": " + inv.Problems[0]
		}
		return reason
	}
	switch d := inv.Devices[at]; {
	case d.Refused != "":
		return d.Refused
	case d.Model != was.Model || d.Simulated != was.Simulated:
		return fmt.Sprintf("model changed: was %s, is %s", was.Model, d.Model)
	case d.VRAMMiB < was.VRAMMiB:
		return fmt.Sprintf("memory changed: was %d MiB, is %d MiB", was.VRAMMiB, d.VRAMMiB)
	case d.Capability != was.Capability:
		return fmt.Sprintf("compute capability changed: was %s, is %s", was.Capability, d.Capability)
	}
	return ""
}

// Readmit prepares to sell devices again on their operator's word, named by UUID: the present problem of their health
// no longer counts. A device that is missing, or is another one than before, is refused. Without a source, all are
// taken.
func (g *GPUs) Readmit(ctx context.Context, uuids []string) error {
	if g.source == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, gpuTimeout)
	defer cancel()
	inv, err := g.source.Inventory(ctx)
	if err != nil {
		return fmt.Errorf("looking for GPUs: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	forgive := map[string]string{}
	for _, was := range g.sold {
		if !slices.Contains(uuids, was.UUID) {
			continue
		}
		now := slices.IndexFunc(inv.Devices, func(d gpu.Device) bool { return d.UUID == was.UUID })
		if now >= 0 {
			forgive[was.UUID] = inv.Devices[now].Refused
			inv.Devices[now].Refused = ""
		}
		if reason := changed(was, inv); reason != "" {
			return fmt.Errorf("%s cannot be sold: %s", was.UUID, reason)
		}
	}
	for uuid, reason := range forgive {
		g.forgiven[uuid] = reason
	}
	return nil
}

// Devices names the GPUs among units, for a container engine and for people.
func (g *GPUs) Devices(units []market.UnitID) (ids, names []string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range units {
		d, ok := g.sold[id]
		if !ok {
			if !g.cpu[id] {
				return nil, nil, fmt.Errorf("unit %s: no longer in this machine", id.Short())
			}
			continue
		}
		names = append(names, d.Model)
		if d.Simulated {
			continue // there is nothing to give
		}
		request := d.Request()
		if request == "" {
			return nil, nil, fmt.Errorf("%s cannot be given to a container", d.Model)
		}
		ids = append(ids, request)
	}
	return ids, names, nil
}
