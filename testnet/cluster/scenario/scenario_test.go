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

// Clusters one after the other, on one network of real peers, engines and images: STARLING_CLUSTER=ray, torchrun, mpi or dask, or several
// with commas between them, as testnet/scenarios/ray.sh, dask.sh and torchrun.sh show. make test sets it.
func TestScenario(t *testing.T) {
	t.Parallel()
	only := os.Getenv("STARLING_CLUSTER")
	if only == "" || os.Getenv("STARLING_DOCKER") != "1" || os.Getenv("STARLING_NETNS") == "" {
		t.Skip("clusters are tried with STARLING_CLUSTER=ray,torchrun STARLING_DOCKER=1 STARLING_NETNS=1, and by testnet/scenarios/ray.sh, dask.sh and torchrun.sh")
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
	rows, err := Run(t.Context(), scenarios.Options{Dir: filepath.Join(dir, "work"), Binary: binary, Say: t.Logf}, strings.Split(only, ",")...)
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
