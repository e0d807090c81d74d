package hardware

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/testnet/scenarios"
	"github.com/starling-network/starling/verify/audit"
)

const uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"

// interpreter builds starling-cuda with the PTX interpreter in the driver's place, and gives where starling would lie beside it.
func interpreter(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, cuda.HelperName),
		"github.com/starling-network/starling/node/device/cuda/cudatest/interpreter").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "starling")
}

func run(t *testing.T, cfg Config) (Report, []scenarios.Row, error) {
	t.Helper()
	dir := t.TempDir()
	cfg.UUID, cfg.Small, cfg.Dir, cfg.Say, cfg.Out = uuid, true, dir, t.Logf, filepath.Join(dir, "out", "gpu.json")
	rows, err := Run(t.Context(), cfg)
	raw, readErr := os.ReadFile(cfg.Out)
	var r Report
	if readErr == nil {
		readErr = json.Unmarshal(raw, &r)
	}
	if readErr != nil {
		t.Fatal(readErr)
	}
	return r, rows, err
}

// All that is measured of a GPU, in small, over the PTX interpreter; the report says that it is of no GPU, and no table gets a row.
func TestRun(t *testing.T) {
	table := filepath.Join(t.TempDir(), "BENCHMARKS.md")
	if err := os.WriteFile(table, []byte(tableBegin+"\n"+tableNone+tableEnd+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, rows, err := run(t, Config{Starling: interpreter(t), Benchmarks: table})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Err != nil {
			t.Errorf("%s: %v", row.What, row.Err)
		}
	}
	if len(r.Failed) > 0 || r.GPU || !strings.Contains(r.Note, "interpreter, not a GPU") || !strings.Contains(r.Model, "interpreter") {
		t.Errorf("%v, %t, %q, %q", r.Failed, r.GPU, r.Note, r.Model)
	}
	if len(rows) != 11 || len(r.SelfTest) < 6 || len(r.Curve) != 3 || len(r.Compared) != 3 || len(r.Faults) != 4 ||
		r.Two == nil || r.Probes == nil || r.Beside == nil || r.Beside.During <= 0 || !strings.Contains(r.Job.How, "NOT by starling run") {
		t.Errorf("%d rows: %+v", len(rows), r)
	}
	if b, err := os.ReadFile(table); err != nil || !strings.Contains(string(b), tableNone) {
		t.Errorf("%v: %s", err, b)
	}
}

// A device that computes something else than the definition fails, and so does a run that measured nothing.
func TestRunFails(t *testing.T) {
	faults := t.TempDir()
	if err := os.WriteFile(filepath.Join(faults, uuid), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STARLING_TEST_CUDA", faults)
	r, rows, err := run(t, Config{Starling: interpreter(t)})
	if err != nil || len(r.Failed) < 2 {
		t.Errorf("a device that is wrong: %v, %v", r.Failed, err)
	}
	wrong := false
	for _, row := range rows {
		wrong = wrong || errors.Is(row.Err, errDiffers)
	}
	if !wrong {
		t.Errorf("nothing says that it differs: %v", r.Failed)
	}
	if r, _, err := run(t, Config{Starling: filepath.Join(t.TempDir(), "starling")}); !errors.Is(err, errNothing) || len(r.Failed) != 1 {
		t.Errorf("without a helper: %v, %v", err, r.Failed)
	}
}

// A card's row replaces its earlier one and leaves those of others; what gpu.sh writes into is where it looks for it.
func TestNote(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table.md")
	if err := os.WriteFile(path, []byte("before\n"+tableBegin+"\n"+tableNone+tableEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	card := func(model string, seconds float64) *Report {
		r := &Report{
			GPU: true, Model: model, Class: "gpu/h200", VRAMMiB: 143_771, Driver: "550.54",
			Products: &Products{Seconds: []float64{seconds}, Operations: 600e12 / seconds},
			Curve:    []Point{{MiB: 133_000, Fill: 10, Walk: 0.1, Reads: 30e9}}, Compared: []Compare{{"walkers", 1024, 0}},
		}
		return r
	}
	for _, r := range []*Report{card("NVIDIA H200", 2), card("NVIDIA A100-SXM4-80GB", 1), card("NVIDIA H200", 1)} {
		if err := r.note(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	text := string(b)
	if err != nil || !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, "\nafter\n") || strings.Contains(text, tableNone) ||
		strings.Count(text, "| card |") != 1 || strings.Count(text, "H200") != 1 || strings.Count(text, "A100") != 1 || !strings.Contains(text, "600·10¹²") {
		t.Errorf("%v\n%s", err, text)
	}
	known, _ := audit.KnownAs("gpu/h200")
	r := card("NVIDIA H200", 1)
	if f := r.floors(); f.OperationsNow != known.Operations || !f.Holds || f.Operations != 400e12 || f.Reads != 24e9 {
		t.Errorf("%+v", f)
	}
	r.Curve[0].Reads = float64(known.Reads) - 1
	if r.floors().Holds {
		t.Error("a card below its floor holds it")
	}
	b, err = os.ReadFile("../../verify/BENCHMARKS.md")
	if err != nil || strings.Count(string(b), tableBegin+"\n") != 1 || strings.Count(string(b), tableEnd+"\n") != 1 {
		t.Errorf("%v: verify/BENCHMARKS.md has no table of measured cards", err)
	}
}
