//go:build cgo && nvml

package nvml

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/starling-network/starling/node/gpu"
)

// mocks are NVIDIA's own, by the names that gpu.Mocks has.
var mocks = map[string]func() *server.Server{
	"dgxa100": func() *server.Server { return dgxa100.New() },
	"dgxh100": dgxh100.New,
	"dgxh200": dgxh200.New,
	"dgxb200": dgxb200.New,
}

// simulation is a simulated machine. NVIDIA's mocks record every call permanently, so each request gets a new mock;
// with the same seed all are equal.
type simulation struct {
	make func() (*server.Server, error)
	xids *xids
}

// newMock simulates a machine: "dgxh100", "dgxh100:mig".
func newMock(name, seed string) (*simulation, error) {
	model, divided := strings.CutSuffix(name, gpu.MockMIG)
	build, ok := mocks[model]
	if !ok {
		return nil, fmt.Errorf("no mock is called %.40q", name)
	}
	s := &simulation{make: func() (*server.Server, error) {
		m := build()
		complete(m, name, seed)
		if divided {
			return m, divide(m.Devices[0].(*server.Device), name, seed)
		}
		return m, nil
	}}
	d, err := s.open()
	if err != nil {
		return nil, err
	}
	s.xids = watch(d)
	return s, nil
}

func (s *simulation) open() (*driver, error) {
	m, err := s.make()
	if err != nil {
		return nil, err
	}
	d, err := open(m)
	if err != nil {
		return nil, err
	}
	d.xids = s.xids
	return d, nil
}

// Inventory is the driver's Inventory on a new mock.
func (s *simulation) Inventory() (gpu.Inventory, error) {
	d, err := s.open()
	if err != nil {
		return gpu.Inventory{}, err
	}
	return d.Inventory()
}

// Health is the driver's Health on a new mock.
func (s *simulation) Health(uuids []string) (map[string]gpu.Health, error) {
	d, err := s.open()
	if err != nil {
		return nil, err
	}
	return d.Health(uuids)
}

// complete adds functions that NVIDIA's mock lacks and that would panic: plausible constant health, PCI addresses, no
// events, and constant UUIDs.
func complete(m *server.Server, name, seed string) {
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			time.Sleep(time.Duration(ms) * time.Millisecond)
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}}, nvml.SUCCESS
	}
	for i, dev := range m.Devices {
		d := dev.(*server.Device)
		d.UUID = "GPU-" + uuid(name, seed, i, "")
		d.Config.Name = strings.TrimPrefix(d.Config.Name, "Mock ") // only one mock has it; the peer marks all
		d.MemoryInfo.Used = 512 << 20
		d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			p := nvml.PciInfo{PciDeviceId: d.Config.PciDeviceId, Bus: uint32(0x10 + i)}
			for at, c := range []byte(fmt.Sprintf("00000000:%02X:00.0", p.Bus)) {
				p.BusId[at] = int8(c)
			}
			return p, nvml.SUCCESS
		}
		d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return nvml.COMPUTEMODE_DEFAULT, nvml.SUCCESS }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
			return 34 + uint32(i), nvml.SUCCESS
		}
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.SUCCESS }
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 72_000 + 500*uint32(i), nvml.SUCCESS }
		d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 345, nvml.SUCCESS }
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.SUCCESS
		}
		d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) {
			return nvml.ClocksEventReasonGpuIdle, nvml.SUCCESS
		}
		d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) {
			return nvml.EventTypeXidCriticalError, nvml.SUCCESS
		}
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
}

// divide puts a GPU into MIG mode with three slices: of 3, 2 and 2 sevenths.
func divide(d *server.Device, name, seed string) error {
	if _, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		return fmt.Errorf("dividing a simulated GPU: %s", text(ret))
	}
	layout := []struct{ gpu, compute int }{
		{nvml.GPU_INSTANCE_PROFILE_3_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE},
		{nvml.GPU_INSTANCE_PROFILE_2_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE},
		{nvml.GPU_INSTANCE_PROFILE_2_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE},
	}
	slices := make([]nvml.Device, len(layout))
	for i, l := range layout {
		slice, ret := newSlice(d, l.gpu, l.compute, "MIG-"+uuid(name, seed, d.Index, fmt.Sprint(i)))
		if ret != nvml.SUCCESS {
			return fmt.Errorf("slice %d of a simulated GPU: %s", i, text(ret))
		}
		slices[i] = slice
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i < 0 || i >= len(slices) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return slices[i], nvml.SUCCESS
	}
	return nil
}

// newSlice makes a GPU instance and a compute instance in it, as nvidia-smi mig -cgi … -C does, and the device that
// they are together, which NVIDIA's mocks lack.
func newSlice(d *server.Device, gpuProfile, computeProfile int, uuid string) (nvml.Device, nvml.Return) {
	gi, ret := d.GetGpuInstanceProfileInfo(gpuProfile)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	instance, ret := d.CreateGpuInstance(&gi)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	ci, ret := instance.GetComputeInstanceProfileInfo(computeProfile, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	compute, ret := instance.CreateComputeInstance(&ci)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	giInfo, ret := instance.GetInfo()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	ciInfo, ret := compute.GetInfo()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	attributes := nvml.DeviceAttributes{
		MultiprocessorCount: ci.MultiprocessorCount, GpuInstanceSliceCount: gi.SliceCount,
		ComputeInstanceSliceCount: ci.SliceCount, MemorySizeMB: gi.MemorySizeMB,
	}
	return &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc: func() (string, nvml.Return) {
			return d.Config.Name + " MIG " + profile(attributes), nvml.SUCCESS
		},
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return int(giInfo.Id), nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return int(ciInfo.Id), nvml.SUCCESS },
		GetAttributesFunc:        func() (nvml.DeviceAttributes, nvml.Return) { return attributes, nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
			memory := nvml.Memory{Total: gi.MemorySizeMB << 20, Used: 16 << 20, Free: (gi.MemorySizeMB - 16) << 20}
			return memory, nvml.SUCCESS
		},
	}, nvml.SUCCESS
}

// uuid is the same for the same words, and another for others.
func uuid(name, seed string, index int, slice string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "starling simulated gpu\x00%s\x00%s\x00%d\x00%s", name, seed, index, slice))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: made by a rule of one's own
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
