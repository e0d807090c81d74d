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

func one(to sign.Key, amount market.Amount) chain.Payment {
	return chain.Payment{Payouts: []chain.Payout{{To: to, Amount: amount}}, Memo: []byte("memo " + chaintest.RandomKey().Short())}
}

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

func pay(t testing.TB, l *solana.Ledger, p chain.Payment) chain.TxStatus {
	t.Helper()
	tx, err := l.Prepare(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Send(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	return final(t, l, tx)
}

// TestTroubles: each way in which the payer cannot pay has its own error, which says what is missing.
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
		if status := pay(t, l, one(chaintest.RandomKey(), 200)); status.State != chain.Finalized {
			t.Fatalf("within the allowance: %v", status)
		}
		funds, err := l.Funds(t.Context())
		if err != nil || funds.Balance != 800 || funds.Spendable != 100 || funds.Lamports == 0 {
			t.Errorf("funds %+v, %v", funds, err)
		}
		_, err = l.Prepare(t.Context(), one(chaintest.RandomKey(), 101))
		if !errors.Is(err, chain.ErrAllowance) || !strings.Contains(err.Error(), "spend 0.0001, 0.000101 needed") {
			t.Errorf("beyond the allowance: %v", err)
		}
		_, err = l.Prepare(t.Context(), one(chaintest.RandomKey(), 801))
		if !errors.Is(err, chain.ErrAllowance) || !strings.Contains(err.Error(), "holds 0.0008") {
			t.Errorf("beyond the balance: %v", err)
		}
	})
	t.Run("SpentTwiceInFlight", func(t *testing.T) {
		t.Parallel()
		l, w := open(t, net, true, 100)
		first, err := l.Prepare(t.Context(), one(chaintest.RandomKey(), 80))
		if err != nil {
			t.Fatal(err)
		}
		second, err := l.Prepare(t.Context(), one(chaintest.RandomKey(), 80))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if status := final(t, l, first); status.State != chain.Finalized {
			t.Fatalf("first: %v", status)
		}
		if err := l.Send(t.Context(), second); !errors.Is(err, chain.ErrRejected) || !errors.Is(err, chain.ErrAllowance) {
			t.Errorf("second: %v, want ErrRejected and ErrAllowance", err)
		}
		if got, err := l.Balance(t.Context(), w.Owner.Key()); err != nil || got != 20 {
			t.Errorf("owner holds %d, %v", got, err)
		}
	})
	t.Run("Fees", func(t *testing.T) {
		t.Parallel()
		owner := newKey(t)
		if err := net.Fund(t.Context(), localnet.Wallet{Owner: owner, Tokens: 100, Lamports: 900_000}); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.Config{RPC: []string{net.URL()}, Key: owner, Mint: g.Mint, Decimals: g.Decimals})
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Prepare(t.Context(), one(chaintest.RandomKey(), 1))
		if !errors.Is(err, chain.ErrFees) || !strings.Contains(err.Error(), "1 new token accounts") {
			t.Errorf("no lamports for a new account: %v", err)
		}
		if _, err := l.Prepare(t.Context(), one(owner.Key(), 1)); err != nil {
			t.Errorf("the fee alone is there: %v", err)
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
			if _, err := l.Prepare(t.Context(), one(chaintest.RandomKey(), 1)); !errors.Is(err, chain.ErrMint) {
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
		tx, err := l.Prepare(t.Context(), one(chaintest.RandomKey(), 1))
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
// Settlement rests on it.
func TestExpiryIsExact(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{SlotMillis: 100})
	l, _ := open(t, net, false, 1_000)
	var txs []chain.Prepared
	for range 6 {
		tx, err := l.Prepare(t.Context(), one(chaintest.RandomKey(), 1))
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

// BenchmarkPayouts settles 240 leases of 240 providers, to the end of finality, and reports what a payout costs.
func BenchmarkPayouts(b *testing.B) {
	net := localnettest.Start(b, localnet.Config{SlotMillis: 100})
	for name, fresh := range map[string]bool{"new-accounts": true, "known-accounts": false} {
		b.Run(name, func(b *testing.B) {
			var paid, bytes, transactions int
			var fees uint64
			raw := map[chain.TxID]int{}
			for b.Loop() {
				b.StopTimer()
				l, w := open(b, net, true, 1_000_000)
				var owed []chain.Owed
				for i := range 240 {
					owed = append(owed, chain.Owed{Lease: market.LeaseID(chaintest.RandomKey()), To: chaintest.RandomKey(), Cumulative: market.Amount(i + 1)})
				}
				if !fresh {
					var grants []localnet.Wallet
					for i := range owed {
						k := newKey(b)
						owed[i].To = k.Key()
						grants = append(grants, localnet.Wallet{Owner: k, Tokens: 1})
					}
					if err := net.Fund(b.Context(), grants...); err != nil {
						b.Fatal(err)
					}
				}
				before, err := l.Funds(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				s := chain.New(sign.Hash(w.Owner.Key()), chain.DefaultParams())
				ev := chain.Event(chain.AmountsOwed{Owed: owed, Root: sign.Sum([]byte("x")), Receipts: 1_000})
				b.StartTimer()
				for {
					if s, _, err = chain.Drive(b.Context(), l, func([]byte) error { return nil }, s, time.Now(), ev); err != nil {
						b.Fatal(err)
					}
					for _, batch := range s.InFlight() {
						raw[batch.Tx.ID] = len(batch.Tx.Raw)
					}
					if ev = (chain.Ticked{}); s.Done() {
						break
					}
					if err := step(l)(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				after, err := l.Funds(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				fees += before.Lamports - after.Lamports
				for _, batch := range s.History() {
					paid += len(batch.Payouts)
					bytes += raw[batch.Tx.ID]
					transactions++
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(paid)/b.Elapsed().Seconds(), "payouts/s")
			b.ReportMetric(float64(fees)/float64(paid), "lamports/payout")
			b.ReportMetric(float64(paid)/float64(transactions), "payouts/tx")
			b.ReportMetric(float64(bytes)/float64(paid), "bytes/payout")
		})
	}
}
