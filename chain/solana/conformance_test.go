package solana_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

const lamports = 1_000_000_000

func newKey(t testing.TB) sign.Private {
	t.Helper()
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate(seed)
}

// open makes a funded ledger on the chain.
func open(t testing.TB, net *localnet.Chain, tokens market.Amount) *solana.Ledger {
	t.Helper()
	peer := newKey(t)
	if err := net.Fund(t.Context(), localnet.Wallet{Owner: peer, Tokens: tokens, Lamports: lamports}); err != nil {
		t.Fatal(err)
	}
	g := net.Genesis("test", 10)
	l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Genesis: g.Chain, Key: peer, Mint: g.Mint, Decimals: g.Decimals})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// step waits until the chain is some blocks further.
func step(l *solana.Ledger) func(context.Context) error {
	return func(ctx context.Context) error {
		from, err := l.Slot(ctx)
		if err != nil {
			return err
		}
		tick := time.NewTicker(5 * localnettest.SlotMillis * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
			if now, err := l.Slot(ctx); err != nil || now > from+3 {
				return err
			}
		}
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	chaintest.TestLedger(t, func(t *testing.T) chaintest.Harness {
		l := open(t, net, 1_000_000)
		return chaintest.Harness{Ledger: l, Step: step(l)}
	})
}
