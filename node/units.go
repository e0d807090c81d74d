package node

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/provider"
)

// lots are what an operator sells, within what the machine has; none when nothing is sold.
func (n *Node) lots(ctx context.Context) ([]provider.Lot, error) {
	c := n.p.Config.Provide
	if !c.Enabled {
		return nil, nil
	}
	m, err := readMachine()
	if err != nil {
		return nil, err
	}
	var lots []provider.Lot
	cpu, err := cpuUnits(n.p.Key.Key(), c, m)
	if err != nil {
		return nil, err
	}
	if len(cpu) > 0 {
		l := provider.Lot{Class: classCPU, Units: cpu, PerUnit: cpu[0].Resources, Model: cpu[0].Model}
		if l.Price, l.Floor, err = c.prices(l.Class, c.Price, n.p.Genesis.Decimals); err != nil {
			return nil, err
		}
		lots = append(lots, l)
		for _, u := range cpu {
			n.gpus.cpu[u.ID] = true
		}
	}
	if c.GPU.Price != "" {
		more, err := n.gpus.lots(ctx, n.p.Key.Key(), c, n.p.Genesis.Decimals)
		if err != nil && len(lots) == 0 {
			return nil, err
		}
		if err != nil { // what runs on the rest goes on, and the operator is told
			n.p.Log.Error("no GPU is sold", "err", err)
		}
		lots = append(lots, more...)
		if len(more) > 0 && n.p.Runtimes[job.RuntimeDocker] == nil {
			n.p.Log.Warn("GPUs are offered and no container engine is here: nobody can use them before one is; see docker in the configuration")
		}
	}
	if len(lots) == 0 {
		return nil, fmt.Errorf("%w: provide: nothing is left to sell; units, share and gpu decide what is", ErrConfig)
	}
	return lots, c.fits(lots, m)
}

// cpuUnits is the CPU inventory that an operator sells: as many units as
// configured, within its share of what the machine has.
func cpuUnits(owner sign.Key, c Provide, m machine) ([]market.Unit, error) {
	var out []market.Unit
	for i := range c.Share.sold(classCPU, int(c.Units)) {
		u, err := market.NewUnit(owner, classCPU, market.CleanModel(m.cpu), m.id, uint32(i),
			market.Resources{MilliCPU: c.Unit.MilliCPU, MemoryMiB: c.Unit.MemoryMiB, DiskMiB: c.Unit.DiskMiB})
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// fits refuses lots that need more memory than the machine has, or more of it and of its processors than its operator's share.
func (p Provide) fits(lots []provider.Lot, m machine) error {
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
	switch has := m.memoryMiB * percent(p.Share.Memory) / 100; {
	case n > maxUnits:
		return fmt.Errorf("%w: provide: %d units, at most %d", ErrConfig, n, maxUnits)
	case m.memoryMiB > 0 && memory > m.memoryMiB:
		return fmt.Errorf("%w: provide: %d units with %d MiB in all, this machine has %d MiB", ErrConfig, n, memory, m.memoryMiB)
	case m.memoryMiB > 0 && memory > has:
		return fmt.Errorf("%w: provide: %d units with %d MiB in all, share.memory of %d%% is %d MiB", ErrConfig, n, memory, p.Share.Memory, has)
	case p.Share.CPU > 0 && cpu > m.milliCPU*uint64(p.Share.CPU)/100:
		return fmt.Errorf("%w: provide: %d units with %d milli-CPU in all, share.cpu of %d%% is %d", ErrConfig, n, cpu, p.Share.CPU, m.milliCPU*uint64(p.Share.CPU)/100)
	}
	return nil
}

// machine is what a Linux machine says about itself.
type machine struct {
	id        string
	cpu       string
	memoryMiB uint64 // 0: unknown
	milliCPU  uint64
}

// readMachine reads /etc/machine-id and /proc. A container without a machine id
// goes by its host name.
func readMachine() (machine, error) {
	var m machine
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
			m.memoryMiB = n >> 10
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
