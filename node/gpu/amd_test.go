package gpu

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// instinct is /sys of a machine with a CPU's graphics of another vendor, an MI300X and an old card that says little.
func instinct(t *testing.T) string {
	t.Helper()
	return tree(t, map[string]string{
		"module/amdgpu/version":                               "6.10.5\n",
		"class/drm/version":                                   "drm 1.1.0 20060810",
		"class/drm/card0/device/vendor":                       "0x8086\n",
		"class/drm/card1/device/vendor":                       "0x1002\n",
		"class/drm/card1/device/device":                       "0x74a1\n",
		"class/drm/card1/device/uevent":                       "DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_SLOT_NAME=0000:0C:00.0\n",
		"class/drm/card1/device/unique_id":                    "3b1f2a4c5d6e7f80\n",
		"class/drm/card1/device/product_name":                 "AMD Instinct MI300X OAM\n",
		"class/drm/card1/device/mem_info_vram_total":          "206141652992\n",
		"class/drm/card1/device/mem_info_vram_used":           "298844160\n",
		"class/drm/card1/device/gpu_busy_percent":             "37\n",
		"class/drm/card1/device/hwmon/hwmon4/temp1_input":     "41000\n",
		"class/drm/card1/device/hwmon/hwmon4/power1_input":    "138000000\n",
		"class/drm/card1/device/hwmon/hwmon4/freq1_input":     "132000000\n",
		"class/drm/card1-DP-1/device/vendor":                  "0x1002\n",
		"class/drm/renderD128/device/vendor":                  "0x1002\n",
		"class/drm/card2/device/vendor":                       "0x1002\n",
		"class/drm/card2/device/device":                       "0x66a1\n",
		"class/drm/card2/device/uevent":                       "PCI_SLOT_NAME=0000:23:00.0\n",
		"class/drm/card2/device/mem_info_vram_total":          "many\n",
		"class/kfd/kfd/topology/nodes/0/properties":           "cpu_cores_count 64\ngfx_target_version 0\n",
		"class/kfd/kfd/topology/nodes/1/properties":           "simd_count 1216\ngfx_target_version 90402\nlocation_id 3072\ndomain 0\n",
		"class/kfd/kfd/topology/nodes/2/properties":           "gfx_target_version 90006\nlocation_id 8960\ndomain 0\n",
		"class/kfd/kfd/topology/nodes/3/properties":           "gfx_target_version 18446744073709551615\n",
		"class/drm/card1/device/hwmon/hwmon4/power1_crit":     "750000000\n",
		"class/drm/card2/device/hwmon/hwmon5/power1_average":  "22000000\n",
		"class/drm/card2/device/hwmon/hwmon5/temp1_input":     "-5000\n",
		"class/drm/card2/device/hwmon/hwmon5/unrelated_input": "1\n",
	})
}

func TestAMD(t *testing.T) {
	t.Parallel()
	a := &amd{sys: instinct(t)}
	inv, err := a.Inventory(t.Context())
	if err != nil || len(inv.Problems) > 0 || len(inv.Devices) != 2 || inv.Source != "amd-sysfs" || inv.Driver != "6.10.5" {
		t.Fatalf("%+v, %v", inv, err)
	}
	u32 := func(n uint32) *uint32 { return &n }
	u64 := func(n uint64) *uint64 { return &n }
	const refused = "AMD devices are listed, not sold yet"
	want := []Device{{
		Vendor: AMD, Index: 0, UUID: "AMD-3b1f2a4c5d6e7f80", Model: "AMD Instinct MI300X OAM", VRAMMiB: 196592, Capability: "gfx942",
		Driver: "6.10.5", PCI: "0000:0c:00.0", Refused: refused,
		Health: Health{TemperatureC: u32(41), UtilisationPercent: u32(37), MemoryUsedMiB: u64(285), PowerMilliwatts: u32(138000), ClockMHz: u32(132)},
	}, {
		Vendor: AMD, Index: 1, UUID: "AMD-0000:23:00.0", Model: "AMD GPU 66a1", Capability: "gfx906", Driver: "6.10.5", PCI: "0000:23:00.0",
		Refused: refused, Health: Health{PowerMilliwatts: u32(22000)},
	}}
	if !reflect.DeepEqual(inv.Devices, want) {
		t.Errorf("%+v\nwant %+v", inv.Devices, want)
	}
	if got := inv.Devices[0]; got.Class() != "gpu/mi300x" || got.Request() != "" || got.Sellable() {
		t.Errorf("%s, %q", got.Class(), got.Request())
	}
	m := &machine{nvidia: None{}, amd: a}
	health, err := m.Health(t.Context(), []string{"AMD-3b1f2a4c5d6e7f80", "AMD-none", uuidA})
	if err != nil || len(health) != 1 || *health["AMD-3b1f2a4c5d6e7f80"].TemperatureC != 41 {
		t.Errorf("%v, %v", health, err)
	}
	if inv, err := (&amd{sys: t.TempDir()}).Inventory(t.Context()); err != nil || len(inv.Devices)+len(inv.Problems) > 0 {
		t.Errorf("a machine without: %+v, %v", inv, err)
	}
}

// smi is a program that prints this.
func smi(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "amd-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAMDSMI(t *testing.T) {
	t.Parallel()
	const one = `{"gpu":0,"asic":{"market_name":"AMD Radeon Pro VII","vendor_id":"0x1002","target_graphics_version":"gfx906"},"bus":{"bdf":"0000:23:00.0"}}`
	for name, c := range map[string]struct{ script, model, problem string }{
		"a list":         {"echo '[" + one + "]'", "AMD Radeon Pro VII", ""},
		"since ROCm 6.4": {`echo '{"gpu_data":[` + one + `]}'`, "AMD Radeon Pro VII", ""},
		"fails":          {"exit 3", "AMD GPU 66a1", "exit status 3"},
		"garbage":        {"echo '<html>'", "AMD GPU 66a1", "invalid character"},
		"without end":    {"yes", "AMD GPU 66a1", "signal: killed"},
		"no names":       {`echo '[{"asic":{"market_name":"N/A","target_graphics_version":"N/A"},"bus":{"bdf":"0000:23:00.0"}}]'`, "AMD GPU 66a1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAMD(Config{SysRoot: instinct(t), AMDSMI: smi(t, c.script)})
			inv, err := a.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(inv.Problems, ""); (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
				t.Errorf("problems %q, want %q", got, c.problem)
			}
			if d := inv.Devices[1]; d.Model != c.model || d.Capability != "gfx906" {
				t.Errorf("%+v", d)
			}
		})
	}
	if got := findSMI(filepath.Join(t.TempDir(), "none")); got != "" {
		t.Error(got)
	}
}

func FuzzNode(f *testing.F) {
	f.Add([]byte("gfx_target_version 90402\nlocation_id 3072\ndomain 0\n"))
	f.Add([]byte("gfx_target_version 999999999\nlocation_id 65536"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pci, target, ok := parseNode(b)
		if ok && (!pciAddress.MatchString(pci) || !printable(target)) {
			t.Fatalf("%q, %q", pci, target)
		}
	})
}

func FuzzSMI(f *testing.F) {
	f.Add([]byte(`[{"asic":{"market_name":"AMD Instinct MI300X","target_graphics_version":"gfx942"},"bus":{"bdf":"0000:0c:00.0"}}]`))
	f.Add([]byte(`{"gpu_data":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		devices, err := parseSMI(b)
		if err != nil {
			return
		}
		for pci, d := range devices {
			if !pciAddress.MatchString(pci) || len(d.model) > maxText+len("...") || d.target != "" && !gfxTarget.MatchString(d.target) {
				t.Fatalf("%q: %+v", pci, d)
			}
		}
	})
}
