package gpu

import (
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
)

// Vendor is the maker of a device.
type Vendor string

// The vendors that are known.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
)

// Device is one GPU, or one MIG slice of one.
type Device struct {
	Vendor Vendor `json:"vendor"`
	// Index is the driver's number of the GPU, of the parent for a slice. It can change when the machine restarts.
	Index int `json:"index"`
	// UUID names the device for good: "GPU-…" or "MIG-…" of NVIDIA, "AMD-…" made of AMD's unique id.
	UUID    string `json:"uuid"`
	Model   string `json:"model"`
	VRAMMiB uint64 `json:"vramMiB"`
	// Capability is NVIDIA's compute capability, "9.0", or AMD's target, "gfx942".
	Capability   string `json:"capability,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Driver       string `json:"driver,omitempty"`
	// CUDA is the newest CUDA version that the driver runs, "12.4".
	CUDA string `json:"cuda,omitempty"`
	// PCI is the device's address: "0000:01:00.0"; a slice has its parent's.
	PCI string `json:"pci,omitempty"`
	// ComputeMode is empty where programs may share the GPU, ExclusiveProcess or Prohibited.
	ComputeMode string `json:"computeMode,omitempty"`
	// MIGMode reports that the GPU is divided, or would be: then only its slices can be sold.
	MIGMode bool `json:"migMode,omitempty"`
	// MIG is set for a slice.
	MIG    *MIG   `json:"mig,omitempty"`
	Health Health `json:"health"`
	// Simulated reports that there is no hardware behind the device.
	Simulated bool `json:"simulated,omitempty"`
	// Refused is the reason why the device is not sold; empty if it can be sold.
	Refused string `json:"refused,omitempty"`
}

// The compute modes in which a GPU cannot be sold (nvidia-smi -c).
const (
	ExclusiveProcess = "exclusive-process" // one program at a time
	Prohibited       = "prohibited"        // none
)

// MIG describes a device that is a slice of another.
type MIG struct {
	Parent          string `json:"parent"`  // UUID of the whole GPU
	Profile         string `json:"profile"` // "1g.10gb"
	GPUInstance     uint32 `json:"gpuInstance"`
	ComputeInstance uint32 `json:"computeInstance"`
}

// Health is a device's state at one moment. Values that the driver does not report are nil.
type Health struct {
	TemperatureC       *uint32 `json:"temperatureC,omitempty"`
	UtilisationPercent *uint32 `json:"utilisationPercent,omitempty"`
	MemoryUsedMiB      *uint64 `json:"memoryUsedMiB,omitempty"`
	PowerMilliwatts    *uint32 `json:"powerMilliwatts,omitempty"`
	ClockMHz           *uint32 `json:"clockMHz,omitempty"`
	ECC                *ECC    `json:"ecc,omitempty"`
	// nil if the driver has no such events
	Xid *Xid `json:"xid,omitempty"`
	// Throttle are the reasons why the clock is lower than it could be: "power cap", "hardware thermal slowdown".
	Throttle []string `json:"throttle,omitempty"`
}

// ECC counts memory errors since the driver was loaded.
type ECC struct {
	Correctable   uint64 `json:"correctable"`
	Uncorrectable uint64 `json:"uncorrectable"`
}

// Xid counts the Xid errors that NVIDIA's driver reports.
type Xid struct {
	Count uint64 `json:"count"`
	Last  uint64 `json:"last,omitempty"` // its number; 0 when there was none
	At    int64  `json:"at,omitempty"`   // of the last one, Unix seconds
	// Fault is the last number that means a fault of the device and not of a program on it; 0 when there was none.
	Fault uint64 `json:"fault,omitempty"`
}

// Seen is when the last error came; the zero time when there was none.
func (x Xid) Seen() time.Time {
	if x.At == 0 {
		return time.Time{}
	}
	return time.Unix(x.At, 0)
}

// Class is the market class that the device trades in: "gpu/h100", "gpu/h100-mig-1g-10gb".
func (d Device) Class() market.Class { return market.Class(ClassPrefix + ModelClass(d.Model)) }

// Sellable reports whether nothing speaks against selling the device.
func (d Device) Sellable() bool { return d.Refused == "" }

// Request is the name by which a container engine gives this device to a container: NVIDIA's UUID. It is empty for a
// device that cannot be given: one without hardware, or of a vendor that is not sold.
func (d Device) Request() string {
	if d.Vendor != NVIDIA || d.Simulated {
		return ""
	}
	return d.UUID
}

// Inventory is the devices found in a machine.
type Inventory struct {
	Devices []Device `json:"devices"`
	// Driver is the version of NVIDIA's driver, else of AMD's; empty if there is neither.
	Driver string `json:"driver,omitempty"`
	// Source is the source of the list: "nvml", "nvml-mock dgxh100", "amd-sysfs", "nvml+amd-sysfs", "none".
	Source string `json:"source"`
	// Problems are sentences about errors of the search, with remedies.
	Problems []string `json:"problems,omitempty"`
}

// Sellable are the devices that can be sold.
func (inv Inventory) Sellable() []Device {
	return slices.DeleteFunc(slices.Clone(inv.Devices), func(d Device) bool { return !d.Sellable() })
}

// simulatedMark ends the model of a device without hardware, so that no place can show it without saying so.
const simulatedMark = " (simulated)"

// markSimulated marks every device as simulated.
func (inv *Inventory) markSimulated() {
	for i := range inv.Devices {
		d := &inv.Devices[i]
		d.Simulated = true
		d.Model = strings.TrimSuffix(d.Model, simulatedMark) + simulatedMark
	}
}
