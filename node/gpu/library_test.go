package gpu

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/child"
)

// library builds the C library of testdata, which stands where NVIDIA's would, and returns its folder.
func library(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "testdata/libnvidia-ml.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// The real helper through cgo, with a library that is old, has no driver, crashes in C or hangs in C.
func TestRealHelperOnLibrary(t *testing.T) {
	t.Parallel()
	path, dir := realHelper(t), library(t)
	device := sample(0)
	device.Model = "Tesla V100-SXM2-16GB"
	root, bus := proc(t, device), sys(t, vendorNVIDIA, device)
	for mode, c := range map[string]struct {
		sold    int
		problem string
	}{
		"old":       {1, ""},
		"exclusive": {0, ""},
		"no-driver": {0, "NVML: initialising: the kernel driver is not loaded"},
		"mismatch":  {0, "restart the machine after a driver update"},
		"crash":     {0, "NVML helper crashed: exit status 2: SIGSEGV: segmentation violation"},
		"hang":      {0, "NVML helper hangs: no answer within"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := startedBy(child.Config{Path: path, Env: []string{"LD_LIBRARY_PATH=" + dir, "STARLING_TEST_NVML=" + mode}, Backoff: atOnce})
			if mode == "hang" {
				h.timeout = time.Second
			}
			n := &nvidia{helper: h, cfg: Config{ProcRoot: root, SysRoot: bus}}
			defer n.Close()
			for range 2 {
				inv, err := n.Inventory(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(inv.Devices) != 1 || len(inv.Sellable()) != c.sold {
					t.Errorf("%+v", inv)
				}
				if got := strings.Join(inv.Problems, "\n"); (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
					t.Errorf("problems %q, want %q", got, c.problem)
				}
				if mode == "exclusive" && !strings.Contains(inv.Devices[0].Refused, "in compute mode exclusive-process") {
					t.Errorf("%+v", inv.Devices)
				}
				if c.sold == 0 || len(inv.Devices) == 0 {
					continue
				}
				d := inv.Devices[0]
				h := d.Health
				if d.Class() != "gpu/v100" || d.VRAMMiB != 16160 || d.Capability != "7.0" || inv.Driver != "390.157" || d.CUDA != "" || d.MIGMode ||
					h.TemperatureC == nil || *h.TemperatureC != 44 || h.PowerMilliwatts != nil || h.Xid != nil || h.ECC != nil || len(h.Throttle) > 0 {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}
