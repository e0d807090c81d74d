//go:build cgo && nvml

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/starling-network/starling/node/gpu"
)

// health returns a GPU's current state. Unavailable values are nil.
func (d *driver) health(dev nvml.Device, uuid string) gpu.Health {
	h := gpu.Health{Xid: d.xids.of(uuid), Throttle: d.throttle(dev)}
	h.TemperatureC = known(ask(d, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
		return dev.GetTemperature(nvml.TEMPERATURE_GPU)
	}))
	h.PowerMilliwatts = known(ask(d, "nvmlDeviceGetPowerUsage", dev.GetPowerUsage))
	h.ClockMHz = known(ask(d, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) {
		return dev.GetClockInfo(nvml.CLOCK_SM)
	}))
	if u, ok := ask(d, "nvmlDeviceGetUtilizationRates", dev.GetUtilizationRates); ok {
		h.UtilisationPercent = &u.Gpu
	}
	if m, ok := ask(d, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo); ok {
		used := m.Used >> 20
		h.MemoryUsedMiB = &used
	}
	correctable, ok1 := d.ecc(dev, nvml.MEMORY_ERROR_TYPE_CORRECTED)
	uncorrectable, ok2 := d.ecc(dev, nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
	if ok1 && ok2 {
		h.ECC = &gpu.ECC{Correctable: correctable, Uncorrectable: uncorrectable}
	}
	return h
}

func known(v uint32, ok bool) *uint32 {
	if !ok {
		return nil
	}
	return &v
}

func (d *driver) ecc(dev nvml.Device, kind nvml.MemoryErrorType) (uint64, bool) {
	return ask(d, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return dev.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
	})
}

// reasons are the bits of NVML's clock event reasons that slow a device down. Idleness and clocks set by the owner do
// not count.
var reasons = []struct {
	bit  uint64
	text string
}{
	{nvml.ClocksThrottleReasonSwPowerCap, "power cap"},
	{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
	{nvml.ClocksThrottleReasonSyncBoost, "sync boost"},
	{nvml.ClocksThrottleReasonSwThermalSlowdown, "software thermal slowdown"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "hardware thermal slowdown"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
}

func (d *driver) throttle(dev nvml.Device) []string {
	bits, ok := ask(d, "nvmlDeviceGetCurrentClocksEventReasons", dev.GetCurrentClocksEventReasons)
	if !ok { // the name of it before driver 535
		bits, _ = ask(d, "nvmlDeviceGetCurrentClocksThrottleReasons", dev.GetCurrentClocksThrottleReasons)
	}
	var list []string
	for _, r := range reasons {
		if bits&r.bit != 0 {
			list = append(list, r.text)
		}
	}
	return list
}
