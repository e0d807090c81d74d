//go:build linux

package scenario

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/scenarios"
)

// The whole scenario, with real peers, engines and images.
func TestScenario(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_DOCKER") != "1" {
		t.Skip("tests of the container engine run with STARLING_DOCKER=1, as make test sets it")
	}
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		t.Skipf("%v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
	if err := engine.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "starling")
	if err := engine.Build(binary, "github.com/starling-network/starling/cmd/starling"); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Log("simulated GPUs are not shown: starling-nvml needs a C compiler")
	} else {
		cmd := exec.Command("go", "build", "-trimpath", "-tags", "nvml", "-o", filepath.Join(dir, "starling-nvml"), "github.com/starling-network/starling/cmd/starling-nvml")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building starling-nvml: %v\n%s", err, out)
		}
	}
	rows, err := Run(t.Context(), scenarios.Options{Dir: filepath.Join(dir, "work"), Binary: binary, Say: t.Logf})
	if errors.Is(err, engine.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Err != nil {
			t.Errorf("%s: %s: %v", r.What, r.Got, r.Err)
		}
	}
}

// Hostile tenants, with real peers, an engine and images.
func TestTenants(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_DOCKER") != "1" {
		t.Skip("tests of the container engine run with STARLING_DOCKER=1, as make test sets it")
	}
	if err := engine.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "starling")
	if err := engine.Build(binary, "github.com/starling-network/starling/cmd/starling"); err != nil {
		t.Fatal(err)
	}
	rows, err := RunTenants(t.Context(), scenarios.Options{Dir: filepath.Join(dir, "work"), Binary: binary, Say: t.Logf})
	if errors.Is(err, engine.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Err != nil {
			t.Errorf("%s: %s: %v", r.What, r.Got, r.Err)
		}
	}
}

// Containers with checkpoints, with real peers, engines and images.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_DOCKER") != "1" {
		t.Skip("tests of the container engine run with STARLING_DOCKER=1, as make test sets it")
	}
	if err := engine.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, program := range []string{"starling", "starling-guard"} {
		err := engine.Build(filepath.Join(dir, program), "github.com/starling-network/starling/cmd/"+program)
		if err != nil {
			t.Fatal(err)
		}
	}
	rows, err := RunCheckpoints(t.Context(), scenarios.Options{Dir: filepath.Join(dir, "work"),
		Binary: filepath.Join(dir, "starling"), Say: t.Logf})
	if errors.Is(err, engine.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Err != nil {
			t.Errorf("%s: %s: %v", r.What, r.Got, r.Err)
		}
	}
}
