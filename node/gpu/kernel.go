package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/child"
)

// maxKernelFile is the most that is read of one file of /proc or /sys.
const maxKernelFile = 16 << 10

// kernelGPU is a GPU as NVIDIA's kernel driver lists it.
type kernelGPU struct {
	Model    string
	UUID     string // empty while the driver has not read it from the device
	PCI      string
	Excluded bool // by the driver's own settings
}

// kernelGPUs reads /proc/driver/nvidia/gpus. found is false when this machine has no NVIDIA kernel driver, or none with
// a visible list.
func kernelGPUs(procRoot string) (gpus []kernelGPU, found bool, err error) {
	root := filepath.Join(procRoot, "driver", "nvidia", "gpus")
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the kernel driver's list: %w", err)
	}
	if len(entries) > MaxDevices {
		return nil, true, fmt.Errorf("reading the kernel driver's list: %d devices, at most %d are read",
			len(entries), MaxDevices)
	}
	for _, e := range entries {
		b, err := readBounded(filepath.Join(root, e.Name(), "information"))
		if err != nil {
			return nil, true, fmt.Errorf("reading the kernel driver's list: %w", err)
		}
		g := parseInformation(b)
		if g.PCI == "" {
			g.PCI = normalPCI(child.Tidy(e.Name(), maxText))
		}
		gpus = append(gpus, g)
	}
	return gpus, true, nil
}

// parseInformation parses an information file: lines of "Name: \t value". Unknown names are left out.
func parseInformation(b []byte) kernelGPU {
	var g kernelGPU
	for l := range bytes.Lines(b) {
		name, value, ok := strings.Cut(string(l), ":")
		if !ok {
			continue
		}
		value = child.Tidy(value, maxText)
		switch strings.TrimSpace(name) {
		case "Model":
			g.Model = value
		case "GPU UUID":
			if !strings.Contains(value, "?") { // the driver's way to say: not known yet
				g.UUID = value
			}
		case "Bus Location":
			if pci := normalPCI(value); pciAddress.MatchString(pci) {
				g.PCI = pci
			}
		case "GPU Excluded":
			g.Excluded = value == "Yes"
		}
	}
	return g
}

// kernelDriver is the version of NVIDIA's kernel driver, or "".
func kernelDriver(procRoot string) string {
	b, err := readBounded(filepath.Join(procRoot, "driver", "nvidia", "version"))
	if err != nil {
		return ""
	}
	// NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
	first, _, _ := strings.Cut(string(b), "\n")
	for _, word := range strings.Fields(first) {
		if strings.Count(word, ".") >= 1 && strings.Trim(word, "0123456789.") == "" {
			return child.Tidy(word, maxText)
		}
	}
	return ""
}

// pciVendor returns the vendor of the PCI function at an address, "0x10de"; "" if there is none.
func pciVendor(sysRoot, address string) string {
	b, err := readBounded(filepath.Join(sysRoot, "bus", "pci", "devices", address, "vendor"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

const vendorNVIDIA = "0x10de"

// compare refuses devices for which NVML and the kernel disagree. Slices are refused with their GPU.
func compare(devices []Device, kernel []kernelGPU, found bool, sysRoot string) {
	_, err := os.Stat(filepath.Join(sysRoot, "bus", "pci", "devices"))
	hasPCI := err == nil
	for i := range devices {
		d := &devices[i]
		if d.MIG != nil {
			continue
		}
		if !found {
			d.refuse("listed by NVML, but the kernel driver's list /proc/driver/nvidia/gpus is missing, " +
				"so the device is not confirmed")
			continue
		}
		d.refuse(disagreement(*d, kernel))
		if hasPCI && pciAddress.MatchString(d.PCI) {
			switch vendor := pciVendor(sysRoot, d.PCI); vendor {
			case vendorNVIDIA:
			case "":
				d.refuse("there is no PCI function at " + d.PCI)
			default:
				d.refuse(fmt.Sprintf("the PCI function at %s is of vendor %s, not NVIDIA",
					d.PCI, child.Tidy(vendor, maxText)))
			}
		}
	}
}

// disagreement is the kernel's different description of a device, or "".
func disagreement(d Device, kernel []kernelGPU) string {
	at := slices.IndexFunc(kernel, func(g kernelGPU) bool { return g.PCI == d.PCI })
	if at < 0 {
		return fmt.Sprintf("PCI address: NVML has %s, the kernel driver has no device there", d.PCI)
	}
	switch g := kernel[at]; {
	case g.UUID != "" && g.UUID != d.UUID:
		return fmt.Sprintf("UUID: NVML has %s, the kernel driver %s", d.UUID, g.UUID)
	case g.Model != d.Model:
		return fmt.Sprintf("model: NVML has %q, the kernel driver %q", d.Model, g.Model)
	case g.Excluded:
		return "excluded by the kernel driver"
	}
	return ""
}

// unlisted returns devices that the kernel has and NVML does not list, for display.
func unlisted(devices []Device, kernel []kernelGPU, reason string) []Device {
	var more []Device
	for i, g := range kernel {
		if slices.ContainsFunc(devices, func(d Device) bool { return d.PCI == g.PCI }) {
			continue
		}
		d := Device{Vendor: NVIDIA, Index: i, UUID: g.UUID, Model: g.Model, PCI: g.PCI, Refused: reason}
		if g.Excluded {
			d.Refused = "excluded by the kernel driver"
		}
		more = append(more, d)
	}
	return more
}

// readBounded reads a small file of the kernel.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKernelFile))
}
