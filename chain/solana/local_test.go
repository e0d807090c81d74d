package solana_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

func memo() []byte { return []byte("memo " + chaintest.RandomKey().Short()) }

// final waits until the transaction's state can change no more.
func final(t testing.TB, l *solana.Ledger, tx chain.Prepared) chain.TxStatus {
	t.Helper()
	for {
		status, err := l.Status(t.Context(), tx)
		if err != nil {
			t.Fatal(err)
		}
		if status.State.Final() {
			return status
		}
		if err := step(l)(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTroubles: each way in which a key cannot write or pay has its own error, which says what is missing.
func TestTroubles(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	g := net.Genesis("test", 10)

	t.Run("Allowance", func(t *testing.T) {
		t.Parallel()
		owner, peer := newKey(t), newKey(t)
		w := localnet.Wallet{Owner: owner, Delegate: peer.Key(), Tokens: 1_000, Allowance: 300, Lamports: lamports}
		if err := net.Fund(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Key: peer, Owner: owner.Key(), Mint: g.Mint, Decimals: g.Decimals})
		if err != nil {
			t.Fatal(err)
		}
		funds, err := l.Funds(t.Context())
		if err != nil || funds.Balance != 1_000 || funds.Spendable != 300 || funds.Lamports == 0 {
			t.Errorf("funds %+v, %v", funds, err)
		}
		if got, err := l.Balance(t.Context(), owner.Key()); err != nil || got != 1_000 {
			t.Errorf("owner holds %d, %v", got, err)
		}
	})
	t.Run("Fees", func(t *testing.T) {
		t.Parallel()
		owner := newKey(t)
		if err := net.Fund(t.Context(), localnet.Wallet{Owner: owner, Tokens: 100, Lamports: 890_881}); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Key: owner, Mint: g.Mint, Decimals: g.Decimals})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.SignMemo(t.Context(), memo()); !errors.Is(err, chain.ErrFees) || !strings.Contains(err.Error(), "holds 890881 lamports") {
			t.Errorf("no lamports for the fee: %v", err)
		}
	})
	t.Run("Mint", func(t *testing.T) {
		t.Parallel()
		for name, cfg := range map[string]solana.Config{
			"decimals":  {Mint: g.Mint, Decimals: 9},
			"no mint":   {Mint: chaintest.RandomKey(), Decimals: 6},
			"no token":  {Mint: newKey(t).Key(), Decimals: 6},
			"a program": {Mint: sign.Key{}, Decimals: 6},
		} {
			cfg.RPC, cfg.Key = []string{net.URL()}, newKey(t)
			l, err := solana.New(cfg)
			if cfg.Mint.IsZero() {
				if err == nil {
					t.Error("no mint at all was taken")
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.SignMemo(t.Context(), memo()); !errors.Is(err, chain.ErrMint) {
				t.Errorf("%s: %v, want ErrMint", name, err)
			}
		}
	})
	t.Run("OtherCluster", func(t *testing.T) {
		t.Parallel()
		l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Genesis: sign.Sum([]byte("other")), Key: newKey(t), Mint: g.Mint, Decimals: 6})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Slot(t.Context()); !errors.Is(err, chain.ErrDisagree) {
			t.Errorf("%v, want ErrDisagree", err)
		}
	})
	t.Run("OneEndpointDown", func(t *testing.T) {
		t.Parallel()
		peer := newKey(t)
		if err := net.Fund(t.Context(), localnet.Wallet{Owner: peer, Tokens: 100, Lamports: lamports}); err != nil {
			t.Fatal(err)
		}
		whole, err := solana.New(solana.Config{RPC: []string{net.URL()}, Key: peer, Mint: g.Mint, Decimals: 6})
		if err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.Config{RPC: []string{"http://127.0.0.1:1", net.URL()}, Key: peer, Mint: g.Mint, Decimals: 6})
		if err != nil {
			t.Fatal(err)
		}
		tx, err := l.SignMemo(t.Context(), memo())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		for range 20 { // final by one endpoint, and one alone is not believed
			if err := step(whole)(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Slot(t.Context()); !errors.Is(err, chain.ErrDown) { // nor is its slot
			t.Errorf("the slot, by one endpoint of two: %v", err)
		}
		if status, err := l.Status(t.Context(), tx); err != nil || status.State != chain.Confirmed {
			t.Errorf("%v, %v; want confirmed and no more", status.State, err)
		}
	})
}

// TestExpiryIsExact: the runtime takes a transaction up to its last valid block, and not after, at this slot length too.
// That nothing is paid twice rests on it.
func TestExpiryIsExact(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{SlotMillis: 100})
	l := open(t, net, 1_000)
	var txs []chain.Prepared
	for range 6 {
		tx, err := l.SignMemo(t.Context(), memo())
		if err != nil {
			t.Fatal(err)
		}
		txs = append(txs, tx)
	}
	start, err := l.Slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	sent := map[int]market.Slot{}
	for at, i := []market.Slot{100, 140, 147, 153, 158, 165}, 0; i < len(at); {
		<-tick.C
		now, err := l.Slot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now >= start+at[i] {
			sent[i] = now - start
			_ = l.Send(t.Context(), txs[i])
			i++
		}
	}
	for i, tx := range txs {
		status := final(t, l, tx)
		t.Logf("sent %d slots after it was signed: %v", sent[i], status.State)
		switch {
		case sent[i] <= 145 && status.State != chain.Finalized:
			t.Errorf("sent after %d slots: %v", sent[i], status.State)
		case sent[i] > 152 && status.State != chain.Expired:
			t.Errorf("sent after %d slots: %v", sent[i], status.State)
		case status.State == chain.Finalized && status.Slot > tx.Since+152:
			t.Errorf("landed %d slots after it was signed", status.Slot-tx.Since)
		}
	}
}

// TestRestartOfTheChain: a chain that comes back without its past is refused, not believed to have expired everything.
func TestRestartOfTheChain(t *testing.T) {
	t.Parallel()
	first, second := localnettest.Start(t, localnet.Config{}), localnettest.Start(t, localnet.Config{})
	l, err := solana.New(solana.Config{RPC: []string{second.URL()}, Key: newKey(t), Mint: first.Mint(), Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 { // until block 1 is final there too
		if err := step(l)(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tx := chain.Prepared{ID: chain.TxID(sign.Signature{1}.String()), LastValid: 1, Since: math.MaxUint64}
	if status, err := l.Status(t.Context(), tx); !errors.Is(err, chain.ErrMint) {
		t.Errorf("%v, %v; want ErrMint", status.State, err)
	}
}
