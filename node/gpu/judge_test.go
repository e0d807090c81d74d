package gpu

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// divided is a GPU in MIG mode and two slices of it.
func divided() []Device {
	parent := sample(0)
	parent.MIGMode = true
	devices := []Device{parent}
	for i := range 2 {
		s := parent
		s.MIGMode, s.UUID, s.Model, s.VRAMMiB = false, uuidM[:len(uuidM)-1]+string("ef"[i]), parent.Model+" MIG 3g.40gb", 40192
		s.MIG = &MIG{Parent: parent.UUID, Profile: "3g.40gb", GPUInstance: uint32(i + 1)}
		devices = append(devices, s)
	}
	return devices
}

func TestJudge(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		devices func() []Device
		want    []string // "" is sold
	}{
		"good":           {func() []Device { return []Device{sample(0), sample(1)} }, []string{"", ""}},
		"slices":         {divided, []string{"2 slices are sold instead", "", ""}},
		"without slices": {func() []Device { return divided()[:1] }, []string{"in MIG mode without slices"}},
		"no parent":      {func() []Device { return divided()[1:] }, []string{"is not in the inventory", "is not in the inventory"}},
		"parent sold whole": {func() []Device {
			d := divided()
			d[0].MIGMode = false
			return d
		}, []string{"", "not in MIG mode", "not in MIG mode"}},
		"slice elsewhere": {func() []Device {
			d := divided()
			d[1].PCI = "0000:77:00.0"
			return d
		}, []string{"slices are sold instead", "another PCI address", ""}},
		"parent with a fault": {func() []Device {
			d := divided()
			d[0].Health.Xid = &Xid{Count: 1, Last: 79, Fault: 79}
			return d
		}, []string{"Xid 79", "GPU of the slice is not sold: the driver reported Xid 79", "GPU of the slice is not sold"}},
		"parent refused before": {func() []Device {
			d := divided()
			d[0].Refused = "the kernel says no"
			return d
		}, []string{"the kernel says no", "the kernel says no", "the kernel says no"}},
		"one UUID twice": {func() []Device {
			d := []Device{sample(0), sample(1), sample(2)}
			d[1].UUID = d[0].UUID
			return d
		}, []string{"several devices have the UUID GPU", "several devices have", ""}},
		"one place twice": {func() []Device {
			d := []Device{sample(0), sample(1), sample(2)}
			d[1].PCI = d[0].PCI
			return d
		}, []string{"several devices have the PCI address", "several devices", ""}},
		"errors of programs": {func() []Device {
			d := sample(0)
			d.Health.Xid = &Xid{Count: 5, Last: 31}
			return []Device{d}
		}, []string{""}},
		"memory errors": {func() []Device {
			a, b := sample(0), sample(1)
			a.Health.ECC, b.Health.ECC = &ECC{Correctable: 9}, &ECC{Uncorrectable: 1}
			return []Device{a, b}
		}, []string{"", "1 uncorrectable"}},
		"one program at a time": {func() []Device {
			d := divided()
			d[0].ComputeMode = ExclusiveProcess
			return append(d, sample(1))
		}, []string{"sudo nvidia-smi -c DEFAULT", "GPU of the slice is not sold: in compute mode", "GPU of the slice is not sold", ""}},
		"no program": {func() []Device {
			d := sample(0)
			d.ComputeMode = Prohibited
			return []Device{d}
		}, []string{"in compute mode prohibited"}},
		"AMD": {func() []Device { return []Device{{Vendor: AMD, UUID: "AMD-1", PCI: "0000:01:00.0"}} }, []string{"listed, not sold yet"}},
	}
	for name, change := range map[string]struct {
		f    func(*Device)
		want string
	}{
		"no memory":       {func(d *Device) { d.VRAMMiB = 0 }, "no memory"},
		"too much memory": {func(d *Device) { d.VRAMMiB = 1 << 40 }, "an impossible size"},
		"no capability":   {func(d *Device) { d.Capability = "" }, "no compute capability"},
		"capability 0.0":  {func(d *Device) { d.Capability = "0.0" }, "no compute capability"},
		"no model":        {func(d *Device) { d.Model = "" }, "no model name"},
		"odd UUID":        {func(d *Device) { d.UUID = "GPU-1" }, "no proper UUID"},
		"slice's UUID":    {func(d *Device) { d.UUID = uuidM }, "no proper UUID"},
		"odd place":       {func(d *Device) { d.PCI = "../../etc" }, "no proper PCI"},
		"odd profile":     {func(d *Device) { d.UUID, d.MIG = uuidM, &MIG{Profile: "lots"} }, "no proper MIG profile"},
	} {
		cases[name] = struct {
			devices func() []Device
			want    []string
		}{func() []Device { d := sample(0); change.f(&d); return []Device{d} }, []string{change.want}}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			devices := c.devices()
			judge(devices)
			for i, d := range devices {
				if (d.Refused == "") != (c.want[i] == "") || !strings.Contains(d.Refused, c.want[i]) {
					t.Errorf("device %d: %q, want %q", i, d.Refused, c.want[i])
				}
			}
		})
	}
	old := divided()
	for i := range old[1:] { // drivers before 470
		old[i+1].UUID = "MIG-" + old[0].UUID + "/" + string("12"[i]) + "/0"
	}
	judge(old)
	if len((Inventory{Devices: old}).Sellable()) != 2 {
		t.Errorf("%+v", old)
	}
}

// Whatever the devices say: what is sold has a UUID of its own, a plausible description, and is never a GPU together
// with one of its slices.
func TestJudgeSafety(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "n")
		devices := make([]Device, n)
		uuids := []string{uuidA, uuidB, uuidM, uuidM[:len(uuidM)-1] + "1", "x"}
		for i := range devices {
			d := sample(rapid.IntRange(0, 3).Draw(t, "like"))
			d.UUID = rapid.SampledFrom(uuids).Draw(t, "uuid")
			d.MIGMode = rapid.Bool().Draw(t, "mode")
			d.VRAMMiB = rapid.SampledFrom([]uint64{0, 80000}).Draw(t, "vram")
			if rapid.Bool().Draw(t, "slice") {
				d.MIG = &MIG{Parent: rapid.SampledFrom(uuids).Draw(t, "parent"), Profile: "1g.10gb"}
			}
			devices[i] = d
		}
		judge(devices)
		sold := map[string]bool{}
		for _, d := range (Inventory{Devices: devices}).Sellable() {
			if sold[d.UUID] || !validUUID(d.UUID) || d.VRAMMiB == 0 || d.MIGMode && d.MIG == nil {
				t.Fatalf("sold: %+v", d)
			}
			sold[d.UUID] = true
		}
		for _, d := range (Inventory{Devices: devices}).Sellable() {
			if d.MIG != nil && sold[d.MIG.Parent] {
				t.Fatalf("a slice and its GPU are both sold: %+v", d)
			}
		}
	})
}
