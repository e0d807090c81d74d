//go:build linux

package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/natlab"
	"github.com/starling-network/starling/testnet/scenarios"
)

// The whole scenario, with real peers.
func TestScenario(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_NETNS") == "" {
		t.Skip("set STARLING_NETNS=1 to make network namespaces, as `make test` does")
	}
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		t.Skipf("%v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "starling")
	if err := engine.Build(binary, "github.com/starling-network/starling/cmd/starling"); err != nil {
		t.Fatal(err)
	}
	rows, err := Run(t.Context(), scenarios.Options{Dir: dir, Binary: binary, Say: t.Logf})
	if errors.Is(err, natlab.ErrUnavailable) {
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
