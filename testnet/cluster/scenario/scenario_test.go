//go:build linux

package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/scenarios"
)

// Clusters one after the other, on one network of real peers, engines and images. MPI is tried by testnet/scenarios/torchrun.sh, or
// here with STARLING_CLUSTER=mpi: mpirun was seen to end early, well and without a word, one time of three.
func TestScenario(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_DOCKER") != "1" || os.Getenv("STARLING_NETNS") == "" {
		t.Skip("clusters are tried with STARLING_DOCKER=1 and STARLING_NETNS=1, as make test sets them")
	}
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		t.Skipf("%v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
	if err := Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "starling")
	if err := engine.Build(binary, "github.com/starling-network/starling/cmd/starling"); err != nil {
		t.Fatal(err)
	}
	parts := []string{"ray", "torchrun"}
	if only := os.Getenv("STARLING_CLUSTER"); only != "" {
		parts = strings.Split(only, ",")
	}
	rows, err := Run(t.Context(), scenarios.Options{Dir: filepath.Join(dir, "work"), Binary: binary, Say: t.Logf}, parts...)
	if errors.Is(err, ErrUnavailable) {
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
