package onchain

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/service"
)

// A peer whose genesis has other windows of audits than the program slashes by does not run.
func TestCheckAudits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		genesis uint64
		chain   uint32
		refused bool
	}{{0, 0, false}, {9000, 9000, false}, {9000, 0, false}, {0, 9000, true}, {9000, 4500, true}} {
		w := New(Config{Genesis: market.Genesis{AuditSlots: c.genesis}, Log: slog.New(slog.DiscardHandler)})
		if err := w.checkAudits(account.Params{AuditSlots: c.chain}); errors.Is(err, service.ErrConfig) != c.refused {
			t.Errorf("genesis %d, chain %d: %v", c.genesis, c.chain, err)
		}
	}
}
