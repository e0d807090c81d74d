//go:build cgo && nvml

package nvml

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/starling-network/starling/node/gpu"
)

// Inventory lists the GPUs and their slices. A device that fails is listed as a problem and does not hide the others.
func (d *driver) Inventory() (gpu.Inventory, error) {
	inv := gpu.Inventory{Devices: []gpu.Device{}, Source: "nvml"}
	inv.Driver, _ = ask(d, "nvmlSystemGetDriverVersion", d.lib.SystemGetDriverVersion)
	cuda := ""
	if v, ok := ask(d, "nvmlSystemGetCudaDriverVersion", d.lib.SystemGetCudaDriverVersion); ok {
		cuda = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	count, err := must(d, "nvmlDeviceGetCount", d.lib.DeviceGetCount)
	if err != nil {
		return inv, err
	}
	for i := range min(count, gpu.MaxDevices) {
		dev, err := d.handle(i)
		if err == nil {
			err = d.device(&inv, i, dev, gpu.Device{Index: i, Driver: inv.Driver, CUDA: cuda})
		}
		if err != nil {
			inv.Problems = append(inv.Problems, fmt.Sprintf("GPU %d: %v", i, err))
		}
	}
	if problem := d.xids.problem(); problem != "" {
		inv.Problems = append(inv.Problems, problem)
	}
	return inv, nil
}

// Health returns the health of the given devices.
func (d *driver) Health(uuids []string) (map[string]gpu.Health, error) {
	// A slice has no handle by UUID in older drivers, and takes most of its health from its GPU: so all are gone
	// through.
	inv, err := d.Inventory()
	if err != nil {
		return nil, err
	}
	health := map[string]gpu.Health{}
	for _, uuid := range uuids {
		for _, dev := range inv.Devices {
			if dev.UUID == uuid {
				health[uuid] = dev.Health
			}
		}
	}
	return health, nil
}

func (d *driver) handle(i int) (nvml.Device, error) {
	return must(d, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) {
		return d.lib.DeviceGetHandleByIndex(i)
	})
}

// device adds one GPU, and its slices if any, to the inventory. common has the fields that all devices share.
func (d *driver) device(inv *gpu.Inventory, i int, dev nvml.Device, what gpu.Device) error {
	var err error
	if what.UUID, err = must(d, "nvmlDeviceGetUUID", dev.GetUUID); err != nil {
		return err
	}
	if what.Model, err = must(d, "nvmlDeviceGetName", dev.GetName); err != nil {
		return err
	}
	if pci, ok := ask(d, "nvmlDeviceGetPciInfo", dev.GetPciInfo); ok {
		what.PCI = cString(pci.BusId[:])
	}
	if memory, ok := ask(d, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo); ok {
		what.VRAMMiB = memory.Total >> 20
	}
	what.Capability, _ = ask(d, "nvmlDeviceGetCudaComputeCapability", func() (string, nvml.Return) {
		major, minor, ret := dev.GetCudaComputeCapability()
		return fmt.Sprintf("%d.%d", major, minor), ret
	})
	if arch, ok := ask(d, "nvmlDeviceGetArchitecture", dev.GetArchitecture); ok {
		what.Architecture = architecture(arch)
	}
	mig, _ := ask(d, "nvmlDeviceGetMigMode", func() (int, nvml.Return) {
		current, _, ret := dev.GetMigMode()
		return current, ret
	})
	what.MIGMode = mig == nvml.DEVICE_MIG_ENABLE
	if mode, ok := ask(d, "nvmlDeviceGetComputeMode", dev.GetComputeMode); ok {
		what.ComputeMode = map[nvml.ComputeMode]string{
			nvml.COMPUTEMODE_DEFAULT:           "",
			nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: gpu.ExclusiveProcess,
			nvml.COMPUTEMODE_PROHIBITED:        gpu.Prohibited,
		}[mode]
	}
	what.Health = d.health(dev, what.UUID)
	inv.Devices = append(inv.Devices, what)
	if what.MIGMode {
		return d.slices(inv, dev, what)
	}
	return nil
}

// slices adds the slices of a GPU in MIG mode.
func (d *driver) slices(inv *gpu.Inventory, dev nvml.Device, parent gpu.Device) error {
	most, err := must(d, "nvmlDeviceGetMaxMigDeviceCount", dev.GetMaxMigDeviceCount)
	if err != nil {
		return err
	}
	for i := range most {
		slice, ok := ask(d, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return dev.GetMigDeviceHandleByIndex(i)
		})
		if !ok {
			continue // not every place is taken
		}
		if len(inv.Devices) >= gpu.MaxDevices {
			return fmt.Errorf("more than %d devices, the others are not listed", gpu.MaxDevices)
		}
		s, err := d.slice(slice, parent)
		if err != nil {
			inv.Problems = append(inv.Problems, fmt.Sprintf("GPU %d, slice %d: %v", parent.Index, i, err))
			continue
		}
		inv.Devices = append(inv.Devices, s)
	}
	return nil
}

var profileInName = regexp.MustCompile(` MIG (\S+)$`)

// slice is one slice of a GPU. Fields that it lacks are its GPU's.
func (d *driver) slice(dev nvml.Device, parent gpu.Device) (gpu.Device, error) {
	s := parent
	s.MIGMode, s.MIG = false, &gpu.MIG{Parent: parent.UUID}
	s.Health.UtilisationPercent, s.Health.MemoryUsedMiB = nil, nil // of the whole GPU
	var err error
	if s.UUID, err = must(d, "nvmlDeviceGetUUID", dev.GetUUID); err != nil {
		return s, err
	}
	instance, err := must(d, "nvmlDeviceGetGpuInstanceId", dev.GetGpuInstanceId)
	if err != nil {
		return s, err
	}
	compute, err := must(d, "nvmlDeviceGetComputeInstanceId", dev.GetComputeInstanceId)
	if err != nil {
		return s, err
	}
	s.MIG.GPUInstance, s.MIG.ComputeInstance = uint32(instance), uint32(compute)
	s.VRAMMiB = 0
	if memory, ok := ask(d, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo); ok {
		used := memory.Used >> 20
		s.VRAMMiB, s.Health.MemoryUsedMiB = memory.Total>>20, &used
	}
	attributes, known := ask(d, "nvmlDeviceGetAttributes", dev.GetAttributes)
	if known && s.VRAMMiB == 0 {
		s.VRAMMiB = attributes.MemorySizeMB
	}
	name, _ := ask(d, "nvmlDeviceGetName", dev.GetName)
	if m := profileInName.FindStringSubmatch(name); m != nil {
		s.MIG.Profile = m[1]
	} else if known {
		s.MIG.Profile = profile(attributes)
	}
	s.Model = parent.Model + " MIG " + s.MIG.Profile
	return s, nil
}

// profile is NVIDIA's name of a slice, for drivers that do not say it: compute slices, slices and memory.
func profile(a nvml.DeviceAttributes) string {
	p := fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
	if a.ComputeInstanceSliceCount != a.GpuInstanceSliceCount {
		p = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, p)
	}
	return p
}

func architecture(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_KEPLER:
		return "kepler"
	case nvml.DEVICE_ARCH_MAXWELL:
		return "maxwell"
	case nvml.DEVICE_ARCH_PASCAL:
		return "pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "volta"
	case nvml.DEVICE_ARCH_TURING:
		return "turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "blackwell"
	case nvml.DEVICE_ARCH_RUBIN:
		return "rubin"
	}
	return ""
}

// cString is the text of a C array up to its first zero.
func cString(b []int8) string {
	var text bytes.Buffer
	for _, c := range b {
		if c == 0 {
			break
		}
		text.WriteByte(byte(c))
	}
	return text.String()
}
