package localnet_test

import (
	"testing"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

// TestEscrowGenesis: the program is deployed once, through the real loader; each network has an account of its own, under
// the terms that were asked for.
func TestEscrowGenesis(t *testing.T) {
	t.Parallel()
	c := localnettest.Start(t, localnet.Config{SlotMillis: 100, Terms: func(p *account.Params) { p.MarginSlots = 7 }})
	began := time.Now()
	g, err := c.EscrowGenesis(t.Context(), "one", 10)
	if err != nil {
		t.Fatal(err)
	}
	first := time.Since(began)
	other, err := c.EscrowGenesis(t.Context(), "two", 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("first network after %v, second after %v more", first, time.Since(began)-first)
	if g.Validate() != nil || other.Validate() != nil || g.Program != other.Program || g.Escrow == other.Escrow || g.Mint != c.Mint() {
		t.Errorf("%+v, %+v", g, other)
	}
	l, err := solana.NewReader([]string{c.URL()}, g)
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.Network(t.Context())
	if err != nil || n.Params.MarginSlots != 7 || n.Params.Network != "one" || n.Params.Mints[0].FeeBps != 200 {
		t.Errorf("%+v, %v", n, err)
	}
}
