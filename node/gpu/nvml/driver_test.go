//go:build cgo && nvml

package nvml

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/starling-network/starling/node/gpu"
)

// There is no NVIDIA library here, or there is no GPU: then the real Init fails, and nothing is called after it. On a
// machine with GPUs they are listed.
func TestRealLibrary(t *testing.T) {
	t.Parallel()
	d, err := open(nvml.New())
	if err != nil {
		t.Logf("no driver here: %v", err)
		return
	}
	inv, err := d.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", inv)
}

// A library that is not initialised must not be asked anything: the mock panics on every call but Init.
func TestNothingAfterFailedInit(t *testing.T) {
	t.Parallel()
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND:       "libnvidia-ml.so.1 was not found",
		nvml.ERROR_DRIVER_NOT_LOADED:       "kernel driver is not loaded",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "restart the machine",
		nvml.ERROR_UNKNOWN:                 "error 999",
	} {
		d, err := open(&mock.Interface{InitFunc: func() nvml.Return { return ret }})
		if d != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, %v; want %q", int(ret), d, err, want)
		}
	}
}

func machine(t *testing.T, name string) *server.Server {
	t.Helper()
	s, err := newMock(name, "test")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.make()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMocks(t *testing.T) {
	t.Parallel()
	for _, name := range gpu.Mocks {
		for _, suffix := range []string{"", gpu.MockMIG} {
			s, err := newMock(name+suffix, "one")
			if err != nil {
				t.Fatal(err)
			}
			inv, err := s.Inventory()
			if err != nil || len(inv.Problems) > 0 {
				t.Fatalf("%s: %v, %v", name, err, inv.Problems)
			}
			want := 8
			if suffix != "" {
				want = 11
			}
			if len(inv.Devices) != want {
				t.Errorf("%s%s: %d devices, want %d", name, suffix, len(inv.Devices), want)
			}
			for _, d := range inv.Devices {
				h := d.Health
				if d.VRAMMiB == 0 || d.Architecture == "" || d.CUDA == "" || d.Driver == "" || h.TemperatureC == nil ||
					h.PowerMilliwatts == nil || h.ClockMHz == nil || h.ECC == nil || h.Xid == nil || h.MemoryUsedMiB == nil {
					t.Errorf("%s: incomplete: %+v", name, d)
				}
				if strings.HasPrefix(d.Model, "Mock") {
					t.Errorf("%s: %s", name, d.Model)
				}
			}
			again, err := s.Inventory()
			if err != nil || !reflect.DeepEqual(again, inv) {
				t.Errorf("%s: the second inventory is another", name)
			}
			other, err := newMock(name+suffix, "two")
			if err != nil {
				t.Fatal(err)
			}
			others, err := other.Inventory()
			if err != nil || others.Devices[0].UUID == inv.Devices[0].UUID {
				t.Errorf("%s: two seeds give one UUID (%v)", name, err)
			}
		}
	}
	for _, bad := range []string{"", "dgxh101", "dgxh100:mag", ":mig"} {
		if s, err := newMock(bad, ""); err == nil {
			t.Errorf("%q: %v", bad, s)
		}
	}
}

func TestSlices(t *testing.T) {
	t.Parallel()
	d, err := open(machine(t, "dgxh100:mig"))
	if err != nil {
		t.Fatal(err)
	}
	inv, err := d.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	var profiles []string
	for _, dev := range inv.Devices {
		if dev.MIG == nil {
			continue
		}
		profiles = append(profiles, dev.MIG.Profile)
		if dev.MIG.Parent != inv.Devices[0].UUID || dev.MIGMode || dev.Health.UtilisationPercent != nil || *dev.Health.MemoryUsedMiB != 16 {
			t.Errorf("%+v", dev)
		}
	}
	if !inv.Devices[0].MIGMode || !slices.Equal(profiles, []string{"3g.40gb", "2g.20gb", "2g.20gb"}) {
		t.Errorf("%v", profiles)
	}
	health, err := d.Health([]string{inv.Devices[1].UUID, "MIG-none"})
	if err != nil || len(health) != 1 || !reflect.DeepEqual(health[inv.Devices[1].UUID], inv.Devices[1].Health) {
		t.Errorf("%v, %v", health, err)
	}
	if got := profile(nvml.DeviceAttributes{GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 1, MemorySizeMB: 19968}); got != "1c.3g.20gb" {
		t.Error(got)
	}
}

// A driver without a function is not asked for it, and a device that cannot be asked does not hide the others.
func TestOldAndBrokenDrivers(t *testing.T) {
	t.Parallel()
	m := machine(t, "dgxh100:mig")
	missing := []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetArchitecture"}
	m.LookupSymbolFunc = func(symbol string) error {
		if slices.Contains(missing, symbol) {
			return errors.New("undefined symbol")
		}
		return nil
	}
	lost := m.Devices[3].(*server.Device)
	lost.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	for _, dev := range m.Devices {
		dev.(*server.Device).GetMigModeFunc = nil // would panic
		dev.(*server.Device).GetArchitectureFunc = nil
		dev.(*server.Device).GetCurrentClocksEventReasonsFunc = nil
		dev.(*server.Device).GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
			return nvml.ClocksThrottleReasonGpuIdle | nvml.ClocksThrottleReasonSwPowerCap | nvml.ClocksThrottleReasonHwThermalSlowdown, nvml.SUCCESS
		}
		dev.(*server.Device).GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
	}
	d, err := open(m)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := d.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Devices) != 7 || len(inv.Problems) != 1 || !strings.Contains(inv.Problems[0], "GPU 3: nvmlDeviceGetUUID: the device fell off the bus") {
		t.Errorf("%d devices, %v", len(inv.Devices), inv.Problems)
	}
	first := inv.Devices[0]
	if first.MIGMode || first.Architecture != "" || first.Health.ECC != nil || !slices.Equal(first.Health.Throttle, []string{"power cap", "hardware thermal slowdown"}) {
		t.Errorf("%+v", first)
	}
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if _, err := d.Inventory(); err == nil {
		t.Error("no count and no error")
	}
}

// Xid errors are counted by device until the driver gives no more; errors of programs are no faults.
func TestXids(t *testing.T) {
	t.Parallel()
	m := machine(t, "dgxh100")
	events := make(chan nvml.EventData)
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			e, ok := <-events
			if !ok {
				return e, nvml.ERROR_GPU_IS_LOST
			}
			if e.EventType == 0 {
				return e, nvml.ERROR_TIMEOUT
			}
			return e, nvml.SUCCESS
		}}, nvml.SUCCESS
	}
	m.Devices[2].(*server.Device).GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0, nvml.SUCCESS }
	d, err := open(m)
	if err != nil {
		t.Fatal(err)
	}
	d.xids = watch(d)
	for _, e := range []nvml.EventData{
		{},
		{Device: m.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 31},
		{Device: m.Devices[1], EventType: 1, EventData: 48},
		{Device: m.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 79},
		{Device: m.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 13},
		{Device: m.Devices[0], EventType: nvml.EventTypeXidCriticalError, EventData: 43},
		{},
	} {
		events <- e
	}
	inv, err := d.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	got := inv.Devices[1].Health.Xid
	if got == nil || got.Count != 3 || got.Last != 13 || got.Fault != 79 || got.Seen().IsZero() {
		t.Errorf("%+v", got)
	}
	if got := inv.Devices[0].Health.Xid; got == nil || got.Count != 1 || got.Fault != 0 {
		t.Errorf("%+v", got)
	}
	if inv.Devices[2].Health.Xid != nil {
		t.Error("a device without events counts them")
	}
	close(events)
	<-d.xids.done
	if inv, err := d.Inventory(); err != nil || len(inv.Problems) != 1 || !strings.Contains(inv.Problems[0], "events stopped") {
		t.Errorf("%v, %v", inv.Problems, err)
	}
}

func TestMain_refuses(t *testing.T) {
	t.Parallel()
	var out, errOut strings.Builder
	for _, args := range [][]string{{"extra"}, {"--nothing"}} {
		if code := Main(args, strings.NewReader(""), &out, &errOut); code != 2 {
			t.Errorf("%v: %d", args, code)
		}
	}
	if code := Main([]string{"--mock", "none"}, strings.NewReader(`{"version":1,"id":1,"op":"inventory"}`+"\n"), &out, &errOut); code != 1 {
		t.Errorf("an unknown mock: %d", code)
	}
	if !strings.Contains(out.String(), "no mock is called") {
		t.Error(out.String())
	}
}
