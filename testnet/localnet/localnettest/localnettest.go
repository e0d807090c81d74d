// Package localnettest starts local Solana chains for tests, or skips the test if no runtime is installed.
package localnettest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/starling-network/starling/testnet/localnet"
)

// SlotMillis is a slot length that makes tests quick: final after 0.6 s, expired after 4 s.
const SlotMillis = 20

// Start starts a chain that ends with the test. If the runtime is not installed, it skips the test with the reason;
// with STARLING_LOCALNET=1 it installs the runtime, and a failed start fails the test.
func Start(t testing.TB, cfg localnet.Config) *localnet.Chain {
	t.Helper()
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		t.Skipf("%v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
	if cfg.SlotMillis == 0 {
		cfg.SlotMillis = SlotMillis
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := localnet.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("starting a local chain: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("stopping the local chain: %v", err)
		}
	})
	return c
}
