package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/child"
)

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// information is what driver 550 writes.
func information(d Device) string {
	return "Model: \t\t " + d.Model + "\nIRQ:   \t\t 164\nGPU UUID: \t " + d.UUID + "\nVideo BIOS: \t 96.00.74.00.01\nBus Type: \t PCIe\n" +
		"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t " + d.PCI + "\nDevice Minor: \t " + string(rune('0'+d.Index)) +
		"\nGPU Firmware: \t 550.54.15\nGPU Excluded:\t No\n"
}

// proc is /proc of a machine with these devices.
func proc(t *testing.T, devices ...Device) string {
	t.Helper()
	files := map[string]string{
		"driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 12.2.0\n",
	}
	for _, d := range devices {
		files["driver/nvidia/gpus/"+d.PCI+"/information"] = information(d)
	}
	return tree(t, files)
}

// sys is /sys of a machine with these devices on its PCI bus.
func sys(t *testing.T, vendor string, devices ...Device) string {
	t.Helper()
	files := map[string]string{"bus/pci/devices/0000:00:00.0/vendor": "0x8086\n"}
	for _, d := range devices {
		files["bus/pci/devices/"+d.PCI+"/vendor"] = vendor + "\n"
	}
	return tree(t, files)
}

func TestKernelGPUs(t *testing.T) {
	t.Parallel()
	gpus, found, err := kernelGPUs(proc(t, sample(0), sample(1)))
	want := []kernelGPU{{sample(0).Model, sample(0).UUID, sample(0).PCI, false}, {sample(1).Model, sample(1).UUID, sample(1).PCI, false}}
	if err != nil || !found || !reflect.DeepEqual(gpus, want) {
		t.Errorf("%+v, %v, %v", gpus, found, err)
	}
	if got := kernelDriver(proc(t)); got != "550.54.15" {
		t.Error(got)
	}
	open := tree(t, map[string]string{"driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"})
	if got := kernelDriver(open); got != "570.86.15" {
		t.Error(got)
	}
	if gpus, found, err := kernelGPUs(t.TempDir()); gpus != nil || found || err != nil {
		t.Errorf("a machine without a driver: %v, %v, %v", gpus, found, err)
	}
	g := parseInformation([]byte("Model: \t NVIDIA H100\nGPU UUID: \t GPU-????????-????-????-????-????????????\nBus Location: \t 0000:01:00.0\nGPU Excluded:\t Yes"))
	if g.UUID != "" || !g.Excluded {
		t.Errorf("%+v", g)
	}
	files := map[string]string{}
	for i := range MaxDevices + 1 {
		files[filepath.Join("driver/nvidia/gpus", strings.Repeat("0", 1+i), "information")] = ""
		if i == 200 { // names cannot be longer
			break
		}
	}
	if _, _, err := kernelGPUs(tree(t, files)); err != nil {
		t.Error(err)
	}
	broken := tree(t, map[string]string{"driver/nvidia/gpus/0000:01:00.0/other": ""})
	if _, found, err := kernelGPUs(broken); err == nil || !found {
		t.Error("an entry without information is no error")
	}
}

func FuzzInformation(f *testing.F) {
	f.Add([]byte(information(sample(0))))
	f.Add([]byte("GPU UUID: GPU-????\nBus Location: 00000000:0A:00.0\nGPU Excluded: Yes"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g := parseInformation(b)
		excluded := "No"
		if g.Excluded {
			excluded = "Yes"
		}
		again := parseInformation([]byte("Model: " + g.Model + "\nGPU UUID: " + g.UUID + "\nBus Location: " + g.PCI + "\nGPU Excluded: " + excluded + "\n"))
		if again != g {
			t.Fatalf("%+v is read as %+v", g, again)
		}
	})
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := sample(0), sample(1)
	change := func(d Device, f func(*Device)) Device { f(&d); return d }
	unknown := change(a, func(d *Device) { d.UUID = "GPU-????????-????-????-????-????????????" })
	cases := []struct {
		name         string
		nvml, kernel []Device
		sys          string
		want         []string // for each of nvml; "" is sold
	}{
		{"agree", []Device{a, b}, []Device{a, b}, sys(t, vendorNVIDIA, a, b), []string{"", ""}},
		{"no bus to look at", []Device{a, b}, []Device{a, b}, t.TempDir(), []string{"", ""}},
		{"the kernel does not know the UUID yet", []Device{a}, []Device{unknown}, sys(t, vendorNVIDIA, a), []string{""}},
		{"one more in NVML", []Device{a, b}, []Device{a}, sys(t, vendorNVIDIA, a), []string{"", "no device there"}},
		{"another UUID", []Device{a}, []Device{change(a, func(d *Device) { d.UUID = b.UUID })}, t.TempDir(), []string{"the kernel driver " + b.UUID}},
		{"another model", []Device{a}, []Device{change(a, func(d *Device) { d.Model = "Tesla T4" })}, t.TempDir(), []string{`the kernel driver "Tesla T4"`}},
		{"another place", []Device{a}, []Device{change(a, func(d *Device) { d.PCI = "0000:99:00.0" })}, t.TempDir(), []string{"no device there"}},
		{"not on the bus", []Device{a}, []Device{a}, sys(t, vendorNVIDIA, b), []string{"no PCI function"}},
		{"of another vendor", []Device{a}, []Device{a}, sys(t, "0x1af4", a), []string{"vendor 0x1af4"}},
		{"no list of the kernel", []Device{a}, nil, sys(t, vendorNVIDIA, a), []string{"device is not confirmed"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if c.kernel != nil {
				root = proc(t, c.kernel...)
			}
			kernel, found, err := kernelGPUs(root)
			if err != nil {
				t.Fatal(err)
			}
			got := append([]Device{}, c.nvml...)
			compare(got, kernel, found, c.sys)
			judge(got)
			for i, d := range got {
				if (d.Refused == "") != (c.want[i] == "") || !strings.Contains(d.Refused, c.want[i]) {
					t.Errorf("device %d: %q, want %q", i, d.Refused, c.want[i])
				}
			}
		})
	}
}

// The inventory of a whole machine, with the helper in each of its states.
func TestMachine(t *testing.T) {
	t.Parallel()
	both := []Device{sample(0), sample(1)}
	cases := []struct {
		name, mode    string // no mode: no helper
		kernel        []Device
		devices, sold int
		problem       string
		refused       string
		source        string
	}{
		{"good", "good", both, 2, 2, "", "", "nvml"},
		{"one is hidden from NVML", "good", append([]Device{sample(2)}, both...), 3, 2, "", "but not in NVML's", "nvml"},
		{"no helper", "", both, 2, 0, "make build", "starling-nvml was not found", "nvml"},
		{"no helper and no driver", "", nil, 0, 0, "", "", "none"},
		{"no driver", "no-library", nil, 0, 0, "", "", "none"},
		{"no library", "no-library", both, 2, 0, "install the driver's packages", "NVML does not work", "nvml"},
		{"crash", "segfault", both, 2, 0, "NVML helper crashed: exit status 2:", "the NVML helper failed", "nvml"},
		{"an empty answer", "empty", both, 2, 0, "without an inventory", "the NVML helper failed", "nvml"},
		{"crash where no driver is", "segfault", nil, 0, 0, "NVML helper crashed", "", "nvml"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{ProcRoot: t.TempDir(), SysRoot: t.TempDir()}
			if c.kernel != nil {
				cfg.ProcRoot = proc(t, c.kernel...)
			}
			n := &nvidia{cfg: cfg, missing: ErrNoHelper}
			if c.mode != "" {
				n.helper, n.missing = startHelper(t, c.mode), nil
			}
			m := &machine{nvidia: n, amd: &amd{sys: cfg.SysRoot}}
			inv, err := m.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(inv.Devices) != c.devices || len(inv.Sellable()) != c.sold || inv.Source != c.source {
				t.Errorf("%d devices, %d sold, source %s: %+v", len(inv.Devices), len(inv.Sellable()), inv.Source, inv)
			}
			if got := strings.Join(inv.Problems, "\n"); (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
				t.Errorf("problems %q, want %q", got, c.problem)
			}
			for _, d := range inv.Devices {
				if d.Refused != "" && !strings.Contains(d.Refused, c.refused) {
					t.Errorf("refused %q, want %q", d.Refused, c.refused)
				}
			}
			if c.kernel != nil && inv.Driver != "550.54.15" {
				t.Errorf("driver %q", inv.Driver)
			}
		})
	}
}

func TestFindHelper(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "x"})
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "a"), dir} {
		if got, err := child.Find(path, HelperName, ErrNoHelper); !errors.Is(err, ErrNoHelper) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := child.Find(filepath.Join(dir, "a"), HelperName, ErrNoHelper); err != nil || got != filepath.Join(dir, "a") {
		t.Errorf("%s, %v", got, err)
	}
}
