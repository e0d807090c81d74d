package testnet_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

// TestRewards: on a network of real peers an epoch's audits are counted, confirmed and paid without anybody doing anything but
// bonding stake.
func TestRewards(t *testing.T) {
	t.Parallel()
	needChain(t)
	net := localnettest.Start(t, localnet.Config{SlotMillis: testnet.SlotMillis, Terms: func(p *program.Params) {
		p.Votes.VotingSlots, p.Votes.EpochSlots = 100, 300 // one window
	}})
	n := start(t, testnet.Options{Providers: 4, Units: 1, Escrow: true, Audit: testnet.MinAudit, Chain: net})
	var peers []sign.Private
	for _, p := range n.Peers {
		b, err := os.ReadFile(filepath.Join(p.Home, node.FileIdentity))
		if err != nil {
			t.Fatal(err)
		}
		k, err := sign.ParseKeypair(b)
		if err != nil {
			t.Fatal(err)
		}
		const stake = 20_000_000
		if err := net.FundKey(t.Context(), k.Key(), stake, 10_000_000_000); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.ConfigOf([]string{net.URL()}, n.Genesis, k))
		if err != nil {
			t.Fatal(err)
		}
		at := program.ProviderAddress(n.Genesis.Program, n.Genesis.Escrow, k.Key())
		vault := program.StakeAddress(n.Genesis.Program, at)
		for _, call := range []program.Call{
			program.Register{Payer: k.Key(), Owner: k.Key(), Peer: k.Key(), Network: n.Genesis.Escrow, Provider: at, Vault: vault, Mint: n.Genesis.Mint, Payout: k.Key()},
			program.Stake{Authority: k.Key(), Source: program.TokenAccount(k.Key(), n.Genesis.Mint), Provider: at, Vault: vault, Mint: n.Genesis.Mint, Amount: stake},
			program.Bond{Owner: k.Key(), Network: n.Genesis.Escrow, Provider: at, Amount: stake},
		} {
			if _, err := l.Run(t.Context(), []program.Instruction{call.Instruction(n.Genesis.Program)}); err != nil {
				t.Fatal(err)
			}
		}
		peers = append(peers, k)
	}
	l, err := solana.NewReader([]string{net.URL()}, n.Genesis)
	if err != nil {
		t.Fatal(err)
	}
	account, err := l.Network(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var paid program.Payout
	for end, done := time.Now().Add(7*time.Minute), false; !done; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("no epoch was paid to the last unit")
		}
		done = func() bool {
			now, err := l.Slot(t.Context())
			if err != nil {
				return false
			}
			last, ok := rewards.Last(account.Params.Votes, now)
			for e := uint64(0); ok && e <= last; e++ {
				p, _, err := l.Payout(t.Context(), 0, e)
				if err != nil && !errors.Is(err, chain.ErrNotFound) {
					t.Fatal(err)
				}
				if err == nil && p.Claims == p.Count && p.Paid == p.Sum {
					paid = p
					return true
				}
			}
			return false
		}()
	}
	var got uint64
	for _, k := range peers {
		has, err := l.Balance(t.Context(), k.Key())
		if err != nil {
			t.Fatal(err)
		}
		got += uint64(has)
	}
	if paid.Sum > account.Params.Votes.Allowance(paid.Epoch) || got < paid.Sum {
		t.Errorf("%d of %d was accepted, the wallets have %d", paid.Sum, account.Params.Votes.Allowance(paid.Epoch), got)
	}
	t.Logf("epoch %d: %d to %d", paid.Epoch, paid.Sum, paid.Count)
}
