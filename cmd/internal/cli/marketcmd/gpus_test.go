package marketcmd

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/gpu"
)

func TestGpusTable(t *testing.T) {
	t.Parallel()
	n := func(v uint32) *uint32 { return &v }
	h100 := gpu.Device{
		Vendor: gpu.NVIDIA, UUID: "GPU-a", Model: "NVIDIA H100 80GB HBM3 (simulated)", VRAMMiB: 81920, Capability: "9.0", Simulated: true,
		Health: gpu.Health{TemperatureC: n(34), UtilisationPercent: n(0), PowerMilliwatts: n(72_500), Throttle: []string{"power cap"},
			Xid: &gpu.Xid{Count: 2, Last: 31}, ECC: &gpu.ECC{Correctable: 3}},
	}
	slice := h100
	slice.UUID, slice.Model, slice.Health, slice.Index = "MIG-b", "NVIDIA H100 80GB HBM3 MIG 1g.10gb (simulated)", gpu.Health{}, 1
	slice.MIG = &gpu.MIG{Parent: "GPU-c", Profile: "1g.10gb", GPUInstance: 9}
	amd := gpu.Device{Vendor: gpu.AMD, Index: 0, UUID: "AMD-1", Model: "AMD Instinct MI300X", Refused: "AMD devices are listed, not sold yet"}
	var out strings.Builder
	table := &cli.Table{}
	gpusTable(table, gpu.Inventory{
		Devices: []gpu.Device{h100, slice, amd}, Driver: "550.54.15", Source: "nvml-mock dgxh100:mig", Problems: []string{"GPU 3: lost"},
	})
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `GPU    MODEL                                          CLASS                 VRAM       CAP  TEMP   USE  POWER  UUID   SOLD
0      NVIDIA H100 80GB HBM3 (simulated)              gpu/h100              81920 MiB  9.0  34 °C  0 %  73 W   GPU-a  yes; 2 Xid errors, the last 31; 3 corrected memory errors; slowed: power cap
1/9.0  NVIDIA H100 80GB HBM3 MIG 1g.10gb (simulated)  gpu/h100-mig-1g-10gb  81920 MiB  9.0  -      -    -      MIG-b  yes
0      AMD Instinct MI300X                            gpu/mi300x            -          -    -      -    -      AMD-1  no: AMD devices are listed, not sold yet

2 of 3 can be sold; listed by nvml-mock dgxh100:mig, driver 550.54.15
problem: GPU 3: lost
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	for problem, want := range map[string]string{"": "no GPU was found: ", "it broke": "problem: it broke"} {
		inv := gpu.Inventory{Source: "none"}
		if problem != "" {
			inv.Problems = []string{problem}
		}
		table, out := &cli.Table{}, strings.Builder{}
		gpusTable(table, inv)
		if err := table.Write(&out); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}
