package onchain

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
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

// A free network has no stakes, and no committees.
func TestFreeNetworkHasNoStakes(t *testing.T) {
	t.Parallel()
	w := New(Config{Genesis: market.Genesis{Network: "free", Free: true}})
	if w.Registry() != nil || w.Staked() != nil {
		t.Errorf("registry %v, want none", w.Registry())
	}
	all, err := w.Stakes(t.Context(), []sign.Key{{1}})
	if len(all) != 0 || err != nil {
		t.Errorf("stakes %v, %v", all, err)
	}
	if _, err := w.Stake(t.Context(), sign.Key{1}); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("stake: %v", err)
	}
	if _, _, err := w.Bond(t.Context(), sign.Key{1}); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("bond: %v", err)
	}
	if _, err := w.Roster(t.Context(), 1); !errors.Is(err, ErrNoBonds) {
		t.Errorf("roster: %v", err)
	}
}
