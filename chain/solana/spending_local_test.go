package solana_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

// What a key takes to set aside comes out of its allowance once: what is in its own account already, as what came back from an escrow is,
// is used first.
func TestAllowanceCountsWhatIsTaken(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	g := net.Genesis("test", 10)
	owner, peer := newKey(t), newKey(t)
	w := localnet.Wallet{Owner: owner, Delegate: peer.Key(), Tokens: 1_000, Allowance: 500, Lamports: lamports}
	if err := net.Fund(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Key: peer, Owner: owner.Key(), Mint: g.Mint, Decimals: g.Decimals})
	if err != nil {
		t.Fatal(err)
	}
	has := func(balance, own, spendable uint64) {
		t.Helper()
		f, err := l.Funds(t.Context())
		if err != nil || uint64(f.Balance) != balance || uint64(f.Own) != own || uint64(f.Spendable) != spendable {
			t.Errorf("%+v, %v, want %d, %d of its own, %d to spend", f, err, balance, own, spendable)
		}
	}
	has(1000, 0, 500)
	for range 4 { // each time all of it comes back
		if err := l.Provide(t.Context(), 300); err != nil {
			t.Fatal(err)
		}
		has(700, 300, 500)
	}
	if err := l.Provide(t.Context(), 450); err != nil {
		t.Fatal(err)
	}
	has(550, 450, 500)
	err = l.Provide(t.Context(), 501)
	if !errors.Is(err, chain.ErrAllowance) || !strings.Contains(err.Error(), "spend 0.00005 of it, 0.000051 more are needed") {
		t.Errorf("beyond the allowance: %v", err)
	}
	has(550, 450, 500)
}

// What accounts hold that orders name, as whoever looks sees it: spendable by their owner, and by the delegate what it is allowed.
func TestPurses(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	g := net.Genesis("test", 10)
	owner, peer, other := newKey(t), newKey(t), newKey(t)
	w := localnet.Wallet{Owner: owner, Delegate: peer.Key(), Tokens: 1_000, Allowance: 500, Lamports: lamports}
	if err := net.Fund(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Key: other, Mint: g.Mint, Decimals: g.Decimals})
	if err != nil {
		t.Fatal(err)
	}
	at := svm.TokenAccount(owner.Key(), g.Mint)
	p, err := l.Purses(t.Context(), []sign.Key{svm.TokenAccount(other.Key(), g.Mint), at, owner.Key(), g.Mint})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []market.Amount{0, 1000, 0, 0} {
		if got := p[i].Spendable(owner.Key()); got != want || p[i].Escrow != nil {
			t.Errorf("account %d: its owner can spend %d, want %d", i, got, want)
		}
	}
	if p[1].Spendable(peer.Key()) != 500 || p[1].Spendable(other.Key()) != 0 {
		t.Errorf("%+v", p[1])
	}
	if _, err := l.Purses(t.Context(), make([]sign.Key, escrow.MaxPurses+1)); err == nil {
		t.Error("more than one request takes")
	}
	if p, err := l.Purses(t.Context(), make([]sign.Key, escrow.MaxPurses)); err != nil || len(p) != escrow.MaxPurses {
		t.Errorf("as many as one request takes: %d, %v", len(p), err)
	}
}
