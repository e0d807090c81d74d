// Package inventory is the hardware that a peer sells: the section of its operator about it, units and lots of them,
// and the GPUs among them, which are watched while they are sold.
package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/service"
)

// CPU is the class of a machine's own processor and memory.
const CPU market.Class = "cpu"

// Need is the network and machine that lots are made for.
type Need struct {
	Owner      sign.Key
	Decimals   uint8  // of the token
	Containers bool   // a container engine is here
	DiskSlots  uint64 // the longest lease of disk
	Log        *slog.Logger
}

// Lots returns the lots of an operator, within the machine's size. There are none if selling is disabled.
func (g *GPUs) Lots(ctx context.Context, c Provide, need Need) ([]policy.Lot, error) {
	if !c.Enabled {
		return nil, nil
	}
	m, err := ReadMachine()
	if err != nil {
		return nil, err
	}
	var lots []policy.Lot
	cpu, err := cpuUnits(need.Owner, c, m)
	if err != nil {
		return nil, err
	}
	if len(cpu) > 0 {
		l := policy.Lot{Class: CPU, Units: cpu, PerUnit: cpu[0].Resources, Model: cpu[0].Model}
		if l.Price, l.Floor, err = c.prices(l.Class, c.Price, need.Decimals); err != nil {
			return nil, err
		}
		lots = append(lots, l)
		for _, u := range cpu {
			g.cpu[u.ID] = true
		}
	}
	if c.Disk.GiB > 0 {
		l, err := diskLot(need, c, m)
		if err != nil {
			return nil, err
		}
		lots = append(lots, l)
		for _, u := range l.Units {
			g.cpu[u.ID] = true
		}
	}
	if c.GPU.Price != "" {
		more, err := g.lots(ctx, need.Owner, c, need.Decimals)
		if err != nil && len(lots) == 0 {
			return nil, err
		}
		if err != nil { // the rest is sold, and the operator is warned
			need.Log.Error("no GPU is sold", "err", err)
		}
		lots = append(lots, more...)
		if len(more) > 0 && !need.Containers {
			need.Log.Warn("GPUs are offered without a container engine: no buyer can use them; " +
				"see docker in the configuration")
		}
	}
	if len(lots) == 0 {
		return nil, fmt.Errorf("%w: provide: no units to sell: check units, share and gpu", service.ErrConfig)
	}
	return lots, c.fits(lots, m)
}

// cpuUnits returns an operator's units of CPU class: as many as configured, within its share of the machine.
func cpuUnits(owner sign.Key, c Provide, m Machine) ([]market.Unit, error) {
	var out []market.Unit
	for i := range c.Share.sold(CPU, int(c.Units)) {
		u, err := market.NewUnit(owner, CPU, market.CleanModel(m.cpu), m.id, uint32(i),
			market.Resources{MilliCPU: c.Unit.MilliCPU, MemoryMiB: c.Unit.MemoryMiB, DiskMiB: c.Unit.DiskMiB})
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// diskLot returns the lot of an operator's disk.
func diskLot(need Need, c Provide, m Machine) (policy.Lot, error) {
	l := policy.Lot{
		Class: market.Disk, PerUnit: market.Resources{DiskMiB: market.DiskUnitMiB}, MaxSlots: need.DiskSlots,
	}
	for i := range c.Disk.units() {
		u, err := market.NewUnit(need.Owner, l.Class, "", m.id, uint32(i), l.PerUnit)
		if err != nil {
			return l, err
		}
		l.Units = append(l.Units, u)
	}
	var err error
	l.Price, l.Floor, err = c.prices(l.Class, c.Disk.Price, need.Decimals)
	return l, err
}

// fits refuses lots that need more memory than the machine has, or more of it and of its processors than its
// operator's share.
func (p Provide) fits(lots []policy.Lot, m Machine) error {
	var cpu, memory, n uint64
	for _, l := range lots {
		u := uint64(len(l.Units))
		n, cpu, memory = n+u, cpu+u*uint64(l.PerUnit.MilliCPU), memory+u*uint64(l.PerUnit.MemoryMiB)
	}
	percent := func(share uint32) uint64 {
		if share == 0 {
			return 100
		}
		return uint64(share)
	}
	switch has := m.MemoryMiB * percent(p.Share.Memory) / 100; {
	case n > maxUnits:
		return fmt.Errorf("%w: provide: %d units, at most %d", service.ErrConfig, n, maxUnits)
	case m.MemoryMiB > 0 && memory > m.MemoryMiB:
		return fmt.Errorf("%w: provide: %d units with %d MiB in all, this machine has %d MiB", service.ErrConfig, n,
			memory, m.MemoryMiB)
	case m.MemoryMiB > 0 && memory > has:
		return fmt.Errorf("%w: provide: %d units with %d MiB in all, share.memory of %d%% is %d MiB", service.ErrConfig,
			n, memory, p.Share.Memory, has)
	case p.Share.CPU > 0 && cpu > m.milliCPU*uint64(p.Share.CPU)/100:
		return fmt.Errorf("%w: provide: %d units with %d milli-CPU in all, share.cpu of %d%% is %d", service.ErrConfig,
			n, cpu, p.Share.CPU, m.milliCPU*uint64(p.Share.CPU)/100)
	}
	return nil
}

// Machine is the size and identity of this Linux machine.
type Machine struct {
	MemoryMiB uint64 // 0 means unknown
	id        string
	cpu       string
	milliCPU  uint64
}

// ReadMachine reads /etc/machine-id and /proc. A container without a machine ID uses its host name.
func ReadMachine() (Machine, error) {
	var m Machine
	if b, err := os.ReadFile("/etc/machine-id"); err == nil {
		m.id = strings.TrimSpace(string(b))
	}
	if m.id == "" {
		host, err := os.Hostname()
		if err != nil {
			return m, fmt.Errorf("finding this machine's id: %w", err)
		}
		m.id = host
	}
	if len(m.id) > 128 {
		m.id = m.id[:128]
	}
	m.milliCPU = 1000 * uint64(runtime.NumCPU())
	m.cpu = field("/proc/cpuinfo", "model name")
	if kb := field("/proc/meminfo", "MemTotal"); kb != "" {
		var n uint64
		if _, err := fmt.Sscanf(kb, "%d kB", &n); err == nil {
			m.MemoryMiB = n >> 10
		}
	}
	return m, nil
}

// field returns the first "name: value" of a /proc file, or "".
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
