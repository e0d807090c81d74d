//go:build cgo && nvml

package nvml

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/verify/exclusive"
)

// What happens to a device during an execution reaches the two snapshots through the driver's own interface: memory errors, Xid events,
// clocks and why they are lower, a device that falls off the bus. Both are signed, read again, and compared as a buyer does.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	m := machine(t, "dgxh100")
	events := make(chan nvml.EventData)
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			e, ok := <-events
			switch {
			case !ok:
				return e, nvml.ERROR_GPU_IS_LOST
			case e.EventType == 0:
				return e, nvml.ERROR_TIMEOUT
			}
			return e, nvml.SUCCESS
		}}, nvml.SUCCESS
	}
	d, err := open(m)
	if err != nil {
		t.Fatal(err)
	}
	d.xids = watch(d)
	defer func() { close(events); <-d.xids.done }()
	inv, err := d.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	provider, domain := sign.NewPrivate([32]byte{1}), sign.Domain{Network: "nvml"}
	var uuids []string
	for _, d := range inv.Devices {
		uuids = append(uuids, d.UUID)
	}
	snapshot := func(when exclusive.When) exclusive.Snapshot {
		t.Helper()
		now, err := d.Health(uuids)
		if err != nil {
			t.Fatal(err)
		}
		s := exclusive.Snapshot{When: when, Execution: 1, CPUs: 1, MemoryMiB: 1, CPUModel: "none"}
		for i, dev := range inv.Devices {
			if h, ok := now[dev.UUID]; ok {
				s.Devices = append(s.Devices, gpu.Reported(market.UnitID{byte(i)}, dev.UUID, dev.Model, h))
			}
		}
		sig, err := s.Sign(domain, provider)
		if err != nil {
			t.Fatal(err)
		}
		read, err := exclusive.UnmarshalSnapshot(s.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Verify(domain, provider.Key(), sig); err != nil {
			t.Fatal(err)
		}
		return read
	}
	before := snapshot(exclusive.Before)
	if len(before.Devices) != 8 || len(exclusive.Changes(before, snapshot(exclusive.After))) != 0 {
		t.Fatalf("%+v", before)
	}

	ecc := func(i int, kind nvml.MemoryErrorType, n uint64) {
		m.Devices[i].(*server.Device).GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			if k == kind {
				return n, nvml.SUCCESS
			}
			return 0, nvml.SUCCESS
		}
	}
	ecc(0, nvml.MEMORY_ERROR_TYPE_CORRECTED, 5)
	ecc(1, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, 2)
	for _, e := range []nvml.EventData{
		{Device: m.Devices[2], EventType: nvml.EventTypeXidCriticalError, EventData: 13}, // of the program
		{Device: m.Devices[3], EventType: nvml.EventTypeXidCriticalError, EventData: 79}, // fell off the bus
		{}, // the one before is counted
	} {
		events <- e
	}
	hot := m.Devices[4].(*server.Device)
	hot.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 210, nvml.SUCCESS }
	hot.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 91, nvml.SUCCESS }
	hot.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return nvml.ClocksThrottleReasonHwThermalSlowdown, nvml.SUCCESS }
	m.Devices[5].(*server.Device).GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	m.Devices[6].(*server.Device).GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}

	after := snapshot(exclusive.After)
	want := []exclusive.Change{
		{Unit: market.UnitID{0}, Text: "5 correctable memory errors"},
		{Unit: market.UnitID{1}, Text: "2 uncorrectable memory errors", Fault: true},
		{Unit: market.UnitID{2}, Text: "1 Xid errors, the last 13"},
		{Unit: market.UnitID{3}, Text: "1 Xid errors, of which 79 is a fault of the device", Fault: true},
		{Unit: market.UnitID{5}, Text: before.Devices[5].Model + " is gone", Fault: true},
		{Unit: market.UnitID{6}, Text: "driver no longer reports errors"},
	}
	if got := exclusive.Changes(before, after); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if d := after.Devices[4]; d.ClockMHz != 210 || d.TemperatureC != 91 || d.Throttle != "hardware thermal slowdown" {
		t.Errorf("%+v", d)
	}
}
