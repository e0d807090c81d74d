package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of an inventory. Larger ones from the helper and the kernel are not accepted.
const (
	// MaxDevices is the most devices of one machine, slices included.
	MaxDevices = 256
	// maxText is the longest name, version or UUID.
	maxText = 128
	// maxProblems is the number of reported problems.
	maxProblems = 32
	// maxProblem is the longest of them, in bytes.
	maxProblem = 1024
)

var (
	// MIG-GPU-…/1/0 is how drivers before 470 named slices.
	nvidiaUUID = regexp.MustCompile(
		`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^MIG-GPU-[0-9a-f-]{36}/\d{1,2}/\d{1,2}$`)
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	migProfile = regexp.MustCompile(`^([1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(\+[a-z.]{1,8})*(-[a-z]{1,8})?$`)
)

func validUUID(text string) bool { return nvidiaUUID.MatchString(text) }

// normalPCI writes a PCI address one way: NVML's domains have eight digits and capitals, the kernel's four.
func normalPCI(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	domain, rest, ok := strings.Cut(text, ":")
	if !ok || strings.Trim(domain, "0123456789abcdef") != "" {
		return text // no address
	}
	for len(domain) > 4 && domain[0] == '0' {
		domain = domain[1:]
	}
	return domain + ":" + rest
}

// userXids are errors that are caused by a program on the device, such as a wrong address or a kill. See NVIDIA's "Xid
// errors"; NVIDIA's Kubernetes device plugin ignores the same ones.
var userXids = []uint64{13, 31, 43, 45, 68, 109}

// IsFault reports whether an Xid number means a fault of the device or its driver.
func IsFault(xid uint64) bool { return !slices.Contains(userXids, xid) }

// judge sets the reasons why devices are not sold, from their descriptions and from each other's. A reason given before
// stays.
func judge(devices []Device) {
	uuids, places, sliced := map[string]int{}, map[string]int{}, map[string]int{}
	for _, d := range devices {
		uuids[d.UUID]++
		if d.MIG != nil {
			sliced[d.MIG.Parent]++
		} else if d.PCI != "" {
			places[d.PCI]++
		}
	}
	for i := range devices {
		d := &devices[i]
		d.refuse(implausible(*d))
		if uuids[d.UUID] > 1 {
			d.refuse("several devices have the UUID " + d.UUID)
		}
		if d.MIG == nil && places[d.PCI] > 1 {
			d.refuse("several devices have the PCI address " + d.PCI)
		}
		d.refuse(unwell(d.Health))
		d.refuse(unshared(*d))
		if d.MIG == nil && d.MIGMode {
			reason := "in MIG mode without slices: make some with nvidia-smi mig -cgi … -C, or end MIG mode"
			if n := sliced[d.UUID]; n > 0 {
				reason = fmt.Sprintf("in MIG mode: %d slices are sold instead", n)
			}
			d.refuse(reason)
		}
		if d.Vendor == AMD {
			d.refuse("AMD devices are listed, not sold yet")
		}
	}
	refuseOrphans(devices)
}

// refuseOrphans refuses slices of a GPU that is missing, is not in MIG mode, or is itself refused.
func refuseOrphans(devices []Device) {
	for i := range devices {
		d := &devices[i]
		if d.MIG == nil {
			continue
		}
		at := slices.IndexFunc(devices, func(p Device) bool { return p.MIG == nil && p.UUID == d.MIG.Parent })
		switch {
		case at < 0:
			d.refuse("GPU " + d.MIG.Parent + " is not in the inventory")
		case !devices[at].MIGMode:
			d.refuse("GPU of the slice is not in MIG mode")
		case devices[at].PCI != d.PCI:
			d.refuse("GPU of the slice has another PCI address: " + devices[at].PCI)
		case !strings.HasPrefix(devices[at].Refused, "in MIG mode"):
			d.refuse("GPU of the slice is not sold: " + devices[at].Refused)
		}
	}
}

// refuse gives the first reason why a device is not sold.
func (d *Device) refuse(reason string) {
	if d.Refused == "" {
		d.Refused = reason
	}
}

// implausible is the error in a device's description, or "".
func implausible(d Device) string {
	if d.Vendor == AMD {
		return ""
	}
	_, capable := parseCapability(d.Capability)
	switch {
	case !validUUID(d.UUID) || strings.HasPrefix(d.UUID, "MIG-") != (d.MIG != nil):
		return "the driver gives no proper UUID"
	case d.Model == "" || ModelClass(d.Model) == unknownModel:
		return "the driver gives no model name"
	case d.VRAMMiB == 0:
		return "the driver reports no memory"
	case d.VRAMMiB > maxVRAMMiB:
		return fmt.Sprintf("the driver reports %d MiB of memory, an impossible size", d.VRAMMiB)
	case !capable:
		return "the driver gives no compute capability"
	case !pciAddress.MatchString(d.PCI):
		return "the driver gives no proper PCI address"
	case d.MIG != nil && !migProfile.MatchString(d.MIG.Profile):
		return "the driver gives no proper MIG profile"
	}
	return ""
}

// unwell is the reason against selling a device in this state of health, or "".
func unwell(h Health) string {
	switch {
	case h.Xid != nil && h.Xid.Fault != 0:
		return fmt.Sprintf("the driver reported Xid %d, a fault: "+
			"check the kernel's log, reset the device and restart the peer", h.Xid.Fault)
	case h.ECC != nil && h.ECC.Uncorrectable > 0:
		return fmt.Sprintf("%d uncorrectable memory errors since the driver was loaded: "+
			"reset the device with nvidia-smi -r", h.ECC.Uncorrectable)
	}
	return ""
}

// unshared is the problem of a compute mode that does not let several programs use the GPU, or "": audits and probes
// run beside other programs on it.
func unshared(d Device) string {
	switch d.ComputeMode {
	case "":
		return ""
	case ExclusiveProcess:
		return "in compute mode exclusive-process, where one program at a time can use it, " +
			"and audits run in parallel with a buyer's: sudo nvidia-smi -c DEFAULT"
	}
	return fmt.Sprintf("in compute mode %s: sudo nvidia-smi -c DEFAULT", d.ComputeMode)
}

// printable reports whether text is short printable ASCII.
func printable(text string) bool {
	if len(text) > maxText {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
