package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/gpu"
)

// machineOf is a source whose devices a test changes.
type machineOf struct {
	gpu.None
	mu    sync.Mutex
	inv   gpu.Inventory
	err   error
	looks int // at the health
}

func (m *machineOf) Inventory(context.Context) (gpu.Inventory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	inv := m.inv
	inv.Devices = slices.Clone(inv.Devices)
	return inv, m.err
}

func (m *machineOf) change(do func(devices []gpu.Device)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do(m.inv.Devices)
}

func testDevice(n int, model string, vram uint64, capability string) gpu.Device {
	return gpu.Device{Vendor: gpu.NVIDIA, Index: n, UUID: "GPU-" + strings.Repeat(string(rune('a'+n)), 8), Model: model, VRAMMiB: vram, Capability: capability}
}

func testMachine() *machineOf {
	return &machineOf{inv: gpu.Inventory{Devices: []gpu.Device{
		testDevice(0, "NVIDIA H100 80GB HBM3", 81559, "9.0"), testDevice(1, "NVIDIA H100 80GB HBM3", 81079, "9.0"),
		testDevice(2, "NVIDIA L4", 23034, "8.9"), testDevice(3, "NVIDIA L4", 23034, "8.9"),
	}}}
}

func gpuConfig() Provide {
	c := Default()
	c.GPU = GPU{Price: "1.00", Prices: map[string]string{"gpu/h100": "2.50"}, MilliCPU: 4000, MemoryMiB: 8192, DiskMiB: 10000}
	return c
}

func TestGPULots(t *testing.T) {
	t.Parallel()
	owner := sign.NewPrivate([32]byte{7}).Key()
	g := NewGPUs(testMachine())
	lots, err := g.lots(t.Context(), owner, gpuConfig(), 6)
	if err != nil || len(lots) != 2 {
		t.Fatal(lots, err)
	}
	h, l := lots[0], lots[1]
	if h.Class != "gpu/h100" || len(h.Units) != 2 || h.PerUnit != (market.Resources{MilliCPU: 4000, MemoryMiB: 8192, DiskMiB: 10000, VRAMMiB: 81079}) ||
		h.Model != "NVIDIA H100 80GB HBM3" || h.Capability != 90 || h.Price != 2_500_000 || h.Units[0].Serial != "GPU-aaaaaaaa" {
		t.Errorf("%+v", h)
	}
	if l.Class != "gpu/l4" || len(l.Units) != 2 || l.Model != "NVIDIA L4" || l.Capability != 89 || l.Price != 1_000_000 || l.Hardware() != "NVIDIA L4" {
		t.Errorf("%+v", l)
	}
	ids, names, err := g.Devices([]market.UnitID{l.Units[1].ID, h.Units[0].ID})
	if err != nil || !slices.Equal(ids, []string{"GPU-dddddddd", "GPU-aaaaaaaa"}) || names[0] != "NVIDIA L4" {
		t.Error(ids, names, err)
	}
	if _, _, err := g.Devices([]market.UnitID{{1}}); err == nil {
		t.Error("a unit that is not here gives no device and no error")
	}
	for _, c := range []struct {
		change func(*Provide, *machineOf)
		units  map[market.Class]int
		want   string
	}{
		{func(c *Provide, _ *machineOf) { c.GPU.Devices = "device=0,3" }, map[market.Class]int{"gpu/h100": 1, "gpu/l4": 1}, ""},
		{func(c *Provide, _ *machineOf) { c.GPU.Devices = "l4:2" }, map[market.Class]int{"gpu/l4": 2}, ""},
		{func(c *Provide, _ *machineOf) { c.Share.Keep = map[string]uint32{"gpu": 1} }, map[market.Class]int{"gpu/h100": 1, "gpu/l4": 1}, ""},
		{func(c *Provide, _ *machineOf) { c.Share.Units, c.Share.Keep = 50, map[string]uint32{"gpu/l4": 1} }, map[market.Class]int{"gpu/h100": 1}, ""},
		{func(_ *Provide, m *machineOf) { m.inv.Devices[1].Refused = "it is broken" }, map[market.Class]int{"gpu/h100": 1, "gpu/l4": 2}, ""},
		{func(c *Provide, m *machineOf) { c.GPU.Devices, m.inv.Devices[1].Refused = "device=1", "it is broken" }, nil, "it is broken"},
		{func(c *Provide, _ *machineOf) { c.GPU.Devices = "device=9" }, nil, "not in this machine"},
		{func(c *Provide, _ *machineOf) { c.GPU.Devices = "h100:x" }, nil, "provide.gpu.devices"},
		{func(c *Provide, _ *machineOf) { c.GPU.Price = "x" }, nil, "price of class gpu/l4"},
		{func(c *Provide, _ *machineOf) { c.Floor = map[string]string{"gpu": "1.01"} }, nil, "want at least the floor of 1.01"},
		{func(_ *Provide, m *machineOf) { m.err = errors.New("no driver") }, nil, "no driver"},
		{func(_ *Provide, m *machineOf) { m.inv = gpu.Inventory{Problems: []string{"starling-nvml is missing"}} }, nil, "starling-nvml is missing"},
	} {
		cfg, m := gpuConfig(), testMachine()
		c.change(&cfg, m)
		lots, err := NewGPUs(m).lots(t.Context(), owner, cfg, 6)
		units := map[market.Class]int{}
		for _, l := range lots {
			units[l.Class] = len(l.Units)
		}
		if c.want == "" && (err != nil || !maps.Equal(units, c.units)) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, %v; want %v, %q", units, err, c.units, c.want)
		}
	}
}

// Simulated devices stay marked on their way to offers, and no container is given one.
func TestSimulatedGPULots(t *testing.T) {
	t.Parallel()
	m := testMachine()
	for i := range m.inv.Devices {
		m.inv.Devices[i].Simulated = true
		m.inv.Devices[i].Model += " (simulated)"
	}
	g := NewGPUs(m)
	lots, err := g.lots(t.Context(), sign.NewPrivate([32]byte{7}).Key(), gpuConfig(), 6)
	if err != nil || !lots[1].Simulated || lots[1].Model != "NVIDIA L4" || lots[1].Hardware() != "NVIDIA L4 (simulated)" || !lots[1].Units[0].Simulated {
		t.Fatalf("%+v, %v", lots, err)
	}
	ids, names, err := g.Devices([]market.UnitID{lots[1].Units[0].ID})
	if err != nil || len(ids) != 0 || names[0] != "NVIDIA L4 (simulated)" {
		t.Error(ids, names, err)
	}
}

// A device that is gone, is not what it was or is ill is withdrawn within a minute, and comes back on its operator's
// word.
func TestGPUWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := testMachine()
		g := NewGPUs(m)
		lots, err := g.lots(t.Context(), sign.NewPrivate([32]byte{7}).Key(), gpuConfig(), 6)
		if err != nil {
			t.Fatal(err)
		}
		names := map[market.UnitID]string{}
		for _, l := range lots {
			for _, u := range l.Units {
				names[u.ID] = u.Serial
			}
		}
		got := map[string]string{}
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := NewWatch(g, func(bad map[market.UnitID]string) {
				mu.Lock()
				defer mu.Unlock()
				for id, reason := range bad {
					got[names[id]] = reason
				}
			}).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		want := func(expect map[string]string) {
			t.Helper()
			time.Sleep(gpuEvery + time.Second)
			mu.Lock()
			defer mu.Unlock()
			if !maps.Equal(got, expect) {
				t.Errorf("withdrawn %v, want %v", got, expect)
			}
			clear(got)
		}
		want(map[string]string{})
		m.change(func(d []gpu.Device) { d[0].Refused = "the driver reported Xid 79, a fault" })
		want(map[string]string{"GPU-aaaaaaaa": "the driver reported Xid 79, a fault"})
		m.change(func(d []gpu.Device) { d[1].VRAMMiB = 40000; d[2].UUID = "GPU-other"; d[3].Model = "NVIDIA T4" })
		want(map[string]string{
			"GPU-aaaaaaaa": "the driver reported Xid 79, a fault", "GPU-bbbbbbbb": "memory changed: was 81079 MiB, is 40000 MiB",
			"GPU-cccccccc": "no longer in the inventory", "GPU-dddddddd": "model changed: was NVIDIA L4, is NVIDIA T4",
		})
		if err := g.Readmit(t.Context(), []string{"GPU-cccccccc"}); err == nil || !strings.Contains(err.Error(), "no longer in the inventory") {
			t.Error(err)
		}
		m.change(func(d []gpu.Device) { d[1].VRAMMiB = 95830; d[2].UUID = "GPU-cccccccc"; d[3].Model = "NVIDIA L4" })
		if err := g.Readmit(t.Context(), []string{"GPU-aaaaaaaa"}); err != nil {
			t.Error(err)
		}
		want(map[string]string{})
		m.change(func(d []gpu.Device) { d[0].Refused = "2 uncorrectable memory errors" })
		want(map[string]string{"GPU-aaaaaaaa": "2 uncorrectable memory errors"})
		m.mu.Lock()
		m.err = errors.New("no answer")
		m.mu.Unlock()
		time.Sleep(gpuEvery)
		mu.Lock()
		if len(got) != 4 || !strings.Contains(got["GPU-bbbbbbbb"], "the inventory does not answer: no answer") {
			t.Errorf("withdrawn %v", got)
		}
		mu.Unlock()
		cancel()
		wg.Wait()
	})
}

func TestCapabilityOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]market.Capability{"9.0": 90, "12.1": 121, "8.9": 89, "": 0, "gfx942": 0, "9": 0, "9.10": 0, "200.0": 0, "-1.0": 0} {
		if got := capabilityOf(gpu.Device{Capability: text}); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}
