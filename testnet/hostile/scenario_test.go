//go:build linux

package hostile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/natlab"
	"github.com/starling-network/starling/testnet/scenarios"
)

// The scenario in short. How long orders take is for who watches it: this machine does other things too.
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
	rows, err := Run(t.Context(), Options{Options: scenarios.Options{Dir: dir, Binary: binary, Say: t.Logf}, Quiet: 5 * time.Second, Attack: 15 * time.Second})
	if errors.Is(err, natlab.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		switch {
		case r.What == latency:
			t.Log(r.What, r.Got)
		case r.Err != nil:
			t.Errorf("%s: %s: %v", r.What, r.Got, r.Err)
		}
	}
}
