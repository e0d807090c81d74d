package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/node/device/cuda/cudatest"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// TestMain makes this test binary starling-cuda, where it is started under that name: the real helper, with the PTX interpreter in the
// place of a GPU, whose UUID is the one that it was told to use.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != cuda.HelperName {
		os.Exit(m.Run())
	}
	err := engine.Serve(os.Stdin, os.Stdout, func() (engine.GPU, wire.Description, error) {
		about := wire.Description{Capability: 80, Driver: 12040, Name: "NVIDIA Interpreted"}
		digits := strings.ReplaceAll(strings.TrimPrefix(os.Getenv("CUDA_VISIBLE_DEVICES"), "GPU-"), "-", "")
		if _, err := hex.Decode(about.UUID[:], []byte(digits)); err != nil {
			return nil, about, err
		}
		g, err := cudatest.New(about.Capability, 1<<20)
		return g, about, err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// helperProgram is the path under which this binary is starling-cuda.
func helperProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), cuda.HelperName)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A GPU unit shows what it is to a committee: cuda.Open, a helper process for each of two cards and the kernels, run by the PTX
// interpreter, answer a prover; members judge, and the record is checked as a buyer checks it but for the class's floor, which no
// interpreter reaches.
func TestGPUAnswersCommittee(t *testing.T) {
	t.Parallel()
	asked := func(c Claim) (Asked, error) {
		return Asked{
			Shape: challenge.Shape{Rows: 128, Columns: 192, Depth: 128, Products: 2}, Walk: challenge.Walk{Cells: 3000, Work: 3, Walkers: 200, Steps: 8},
			ProductLimit: time.Hour, WalkLimit: time.Hour, SecondLimit: time.Hour, WholeLimit: 2 * time.Hour,
		}, nil
	}
	w := newWorld(7, time.Now)
	w.plan = asked
	var units []Unit
	for i := range 2 {
		d, err := cuda.Open(t.Context(), cuda.Config{UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", i+1), Helper: helperProgram(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		units = append(units, Unit{
			Claim:  Claim{ID: market.UnitID(sign.Sum([]byte{byte(i)})), Class: "gpu/h100", Resources: market.Resources{VRAMMiB: 81_559}},
			Device: d,
		})
	}
	results, err := w.prover().Audit(t.Context(), units)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("unit %d: %v", i, r.Err)
		}
		if err := errors.Join(r.Record.Check(audittest.Domain()), r.Record.CheckMembers(w.Bonded)); err != nil {
			t.Errorf("unit %d: %v", i, err)
		}
		var rule *audit.RuleError
		if err := r.Record.CheckClass(units[i].Class, units[i].Resources); !errors.As(err, &rule) || rule.Rule != audit.RuleShape {
			t.Errorf("unit %d is an H100: %v", i, err)
		}
	}
}
