package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// capability is NVIDIA's compute capability.
type capability struct{ major, minor uint64 }

func (c capability) String() string { return fmt.Sprintf("%d.%d", c.major, c.minor) }

func (c capability) less(o capability) bool {
	return c.major < o.major || c.major == o.major && c.minor < o.minor
}

// parseCapability reads "9.0" or "9".
func parseCapability(text string) (c capability, ok bool) {
	major, minor, dotted := strings.Cut(text, ".")
	if !dotted {
		minor = "0"
	}
	if !isNumber(major) || !isNumber(minor) {
		return c, false
	}
	var err1, err2 error
	c.major, err1 = strconv.ParseUint(major, 10, 8)
	c.minor, err2 = strconv.ParseUint(minor, 10, 8)
	return c, err1 == nil && err2 == nil && c.major > 0 && c.major < 100 && c.minor < 100
}

// Matches reports whether the selector selects a device, regardless of its count.
func (s Selector) Matches(d Device) bool {
	if s.Devices != nil {
		return slices.ContainsFunc(s.Devices, d.isCalled)
	}
	if s.Model != "" && s.Model != ModelClass(d.Model) || d.VRAMMiB < s.MinVRAMMiB {
		return false
	}
	if s.MinCapability == "" {
		return true
	}
	want, ok := parseCapability(s.MinCapability)
	have, known := parseCapability(d.Capability)
	return ok && known && !have.less(want)
}

// isCalled reports whether an element of device= means this device. An index means the whole GPU.
func (d Device) isCalled(id string) bool {
	n, err := strconv.Atoi(id)
	return id == d.UUID || err == nil && n == d.Index && d.MIG == nil
}

// Select returns the devices of an inventory that a provider sells under the selector: sellable devices in the
// inventory's order, Count of them or all, or the devices in Devices. If there are fewer, it returns ErrNotHere with
// the refused devices and their reasons.
func (s Selector) Select(inv Inventory) ([]Device, error) {
	var chosen []Device
	var refused []string
	for _, d := range inv.Devices {
		switch {
		case !s.Matches(d):
		case !d.Sellable():
			refused = append(refused, fmt.Sprintf("%s: %s", d.UUID, d.Refused))
		case s.All || s.Devices != nil || len(chosen) < int(s.Count):
			chosen = append(chosen, d)
		}
	}
	for _, id := range s.Devices {
		if !slices.ContainsFunc(inv.Devices, func(d Device) bool { return d.isCalled(id) }) {
			return nil, fmt.Errorf("%w: %s is not in this machine", ErrNotHere, id)
		}
	}
	if len(chosen) > 0 && len(chosen) >= int(s.Count) && (s.Devices == nil || len(refused) == 0) {
		return chosen, nil
	}
	err := fmt.Errorf("%w: of %s there are %d", ErrNotHere, s, len(chosen))
	if len(refused) > 0 {
		err = fmt.Errorf("%w; not sold: %s", err, strings.Join(refused, "; "))
	}
	return nil, err
}
