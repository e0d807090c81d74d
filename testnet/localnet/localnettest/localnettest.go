// Package localnettest starts local Solana chains for tests, or skips the test where there is none to start.
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

// Start starts a chain that ends with the test. The test is skipped, with the reason, when the runtime is not
// installed; STARLING_LOCALNET=1 has it installed, and then a failure to start is a failure of the test.
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
