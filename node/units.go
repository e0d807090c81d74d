package node

import (
	"fmt"
	"os"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// cpuUnits is the CPU inventory that an operator sells: as many units as
// configured, within what the machine has.
func cpuUnits(provider sign.Key, c Provide) ([]market.Unit, error) {
	m, err := readMachine()
	if err != nil {
		return nil, err
	}
	if need := uint64(c.Units) * uint64(c.Unit.MemoryMiB); m.memoryMiB > 0 && need > m.memoryMiB {
		return nil, fmt.Errorf("%w: provide: %d units of %d MiB are %d MiB, this machine has %d MiB", ErrConfig, c.Units, c.Unit.MemoryMiB, need, m.memoryMiB)
	}
	var out []market.Unit
	for i := range c.Units {
		out = append(out, market.Unit{
			ID: market.NewUnitID(provider, classCPU, m.id, i), Class: classCPU, Model: m.cpu, Serial: m.id, Index: i,
			Resources: market.Resources{MilliCPU: c.Unit.MilliCPU, MemoryMiB: c.Unit.MemoryMiB, DiskMiB: c.Unit.DiskMiB},
		})
	}
	return out, nil
}

// machine is what a Linux machine says about itself.
type machine struct {
	id        string
	cpu       string
	memoryMiB uint64 // 0: unknown
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
