package solana_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify/tranche"
)

// deal is a buyer's ledger and the escrow that it will open.
type deal struct {
	ledger *solana.Ledger
	buyer  sign.Private
	open   program.OpenEscrow
}

func makeDeal(t *testing.T, net *localnet.Chain, g market.Genesis, lamports uint64) deal {
	t.Helper()
	buyer := newKey(t)
	if err := net.Fund(t.Context(), localnet.Wallet{Owner: buyer, Tokens: 1_000_000, Lamports: lamports}); err != nil {
		t.Fatal(err)
	}
	l, err := solana.New(solana.ConfigOf([]string{net.URL()}, g, buyer))
	if err != nil {
		t.Fatal(err)
	}
	slot, err := l.Slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := market.NewKeySet(1, buyer.Key())
	if err != nil {
		t.Fatal(err)
	}
	order := market.OrderID(chaintest.RandomKey())
	at := account.EscrowAddress(g.Program, g.Escrow, buyer.Key(), sign.Hash(order), uint64(slot))
	return deal{l, buyer, program.OpenEscrow{Payer: buyer.Key(), Buyer: buyer.Key(), Source: svm.TokenAccount(buyer.Key(), g.Mint),
		Authority: buyer.Key(), Escrow: at, Vault: account.VaultAddress(g.Program, at), Mint: g.Mint, Network: g.Escrow,
		Order: order, Opened: uint64(slot), Deadline: uint64(slot) + 100_000, Deposit: 5000, RefundOwner: buyer.Key(), Keys: keys}}
}

func (d deal) tranche(id sign.Key, index uint16, leaves int) program.AddTranche {
	return program.AddTranche{Payer: d.buyer.Key(), Buyer: d.buyer.Key(), Escrow: d.open.Escrow, Vault: d.open.Vault,
		Tranche: account.TrancheAddress(id, d.open.Escrow, index), Index: index,
		Root: tranche.Root{Hash: sign.Hash(chaintest.RandomKey()), Sum: 100, Count: uint16(leaves)}}
}

func (d deal) look(t *testing.T, tranches []uint16, level escrow.Level) escrow.View {
	t.Helper()
	v, err := d.ledger.Look(t.Context(), d.open.Escrow, tranches, level)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEscrow: what is opened is seen, at both levels; rent and fees are what Sign said; each trouble has its own error.
func TestEscrow(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	began := time.Now()
	g, err := net.EscrowGenesis(t.Context(), "test", 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("program and network on the chain after %v", time.Since(began))
	if again, err := net.EscrowGenesis(t.Context(), "test", 10); err != nil || again != g {
		t.Fatalf("once more: %+v, %v", again, err)
	}

	t.Run("Network", func(t *testing.T) {
		t.Parallel()
		n, err := makeDeal(t, net, g, lamports).ledger.Network(t.Context())
		if err != nil || n.Params.Network != "test" || account.NetworkAddress(g.Program, n.Params) != g.Escrow || n.Authority != net.Faucet().Key() {
			t.Errorf("%+v, %v", n, err)
		}
		other := g
		other.Escrow = chaintest.RandomKey()
		if _, err := makeDeal(t, net, other, lamports).ledger.Network(t.Context()); !errors.Is(err, chain.ErrNotFound) {
			t.Errorf("a network that nobody created: %v", err)
		}
		other.Escrow = account.PoolAddress(g.Program, g.Escrow, g.Mint)
		if _, err := makeDeal(t, net, other, lamports).ledger.Network(t.Context()); !errors.Is(err, chain.ErrMalformed) {
			t.Errorf("an account that is no network: %v", err)
		}
	})
	t.Run("Look", func(t *testing.T) {
		t.Parallel()
		d := makeDeal(t, net, g, lamports)
		if v := d.look(t, []uint16{0}, escrow.Confirmed); v.Escrow != nil || v.Vault != 0 || v.Slot == 0 || len(v.Tranches) != 0 {
			t.Errorf("before it is opened: %+v", v)
		}
		if err := net.FundKey(t.Context(), d.open.Escrow, 0, 1_000_000); err != nil { // anybody can
			t.Fatal(err)
		}
		if v := d.look(t, nil, escrow.Confirmed); v.Escrow != nil {
			t.Errorf("lamports alone: %+v", v)
		}
		before, err := d.ledger.Funds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		calls := []svm.Instruction{d.open.Instruction(g.Program), d.tranche(g.Program, 0, 3).Instruction(g.Program), d.tranche(g.Program, 1, 256).Instruction(g.Program)}
		if _, err := d.ledger.Run(t.Context(), calls); err != nil {
			t.Fatal(err)
		}
		v := d.look(t, []uint16{0, 1, 2}, escrow.Confirmed)
		if v.Escrow == nil || v.Escrow.Order != d.open.Order || v.Escrow.Outstanding != 200 || v.Vault != 5000 || len(v.Tranches) != 2 || len(v.Tranches[1].Leaves) != 256 {
			t.Errorf("after it was opened: %+v", v)
		}
		for range 20 { // final after 31 slots; each step is 3
			if v = d.look(t, []uint16{1}, escrow.Finalized); v.Escrow != nil {
				break
			}
			if err := step(d.ledger)(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if v.Escrow == nil || len(v.Tranches) != 1 {
			t.Errorf("final: %+v", v)
		}
		after, err := d.ledger.Funds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rent := account.EscrowRent(1, 0) + account.TrancheRent(3) + account.TrancheRent(256)
		if paid, bid := before.Lamports-after.Lamports, leastBid(g.Program, calls); paid != 5000+bid+rent-1_000_000 {
			t.Errorf("paid %d lamports, want a fee of 5000, %d for a place in a block, and rent of %d, of which a million was there", paid, bid, rent)
		}
		// An account of the program that is no escrow, and one that is no account of it at all.
		for _, at := range []sign.Key{account.TrancheAddress(g.Program, d.open.Escrow, 0), g.Mint} {
			if _, err := d.ledger.Look(t.Context(), at, nil, escrow.Confirmed); !errors.Is(err, chain.ErrMalformed) || errors.Is(err, chain.ErrDown) {
				t.Errorf("%s: %v", at, err)
			}
		}
		// More tranches than one call takes: the two that there are stand in different parts.
		many := make([]uint16, 250)
		for i := range many {
			many[i] = uint16(i + 2)
		}
		many[0], many[249] = 1, 0
		if v := d.look(t, many, escrow.Confirmed); len(v.Tranches) != 2 || len(v.Tranches[0].Leaves) != 3 || len(v.Tranches[1].Leaves) != 256 {
			t.Errorf("in parts: %+v", v)
		}
	})
	t.Run("Refusal", func(t *testing.T) {
		t.Parallel()
		d := makeDeal(t, net, g, lamports)
		d.open.Deadline = 1
		_, err := d.ledger.Run(t.Context(), []svm.Instruction{d.open.Instruction(g.Program)})
		if !errors.Is(err, chain.ErrRejected) || !errors.Is(err, program.ErrDeadline) {
			t.Errorf("%v, want the program's own refusal", err)
		}
	})
	t.Run("Fees", func(t *testing.T) {
		t.Parallel()
		calls := func(d deal) []svm.Instruction {
			return []svm.Instruction{svm.OpenTokenAccount(d.buyer.Key(), chaintest.RandomKey(), g.Mint), d.open.Instruction(g.Program)}
		}
		need := 5000 + 890_880 + leastBid(g.Program, calls(makeDeal(t, net, g, 0))) + account.EscrowRent(1, 0) + svm.Rent(svm.TokenSize)
		d := makeDeal(t, net, g, need-1)
		if _, err := d.ledger.Run(t.Context(), calls(d)); !errors.Is(err, chain.ErrFees) || !strings.Contains(err.Error(), "lamports") {
			t.Errorf("a lamport short: %v", err)
		}
		if err := net.FundKey(t.Context(), d.buyer.Key(), 0, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := d.ledger.Run(t.Context(), calls(d)); err != nil {
			t.Errorf("exactly enough: %v", err)
		}
		if f, err := d.ledger.Funds(t.Context()); err != nil || f.Lamports != 890_880 {
			t.Errorf("left: %+v, %v", f, err)
		}
	})
	t.Run("Sign", func(t *testing.T) {
		t.Parallel()
		d := makeDeal(t, net, g, lamports)
		if _, err := d.ledger.Sign(t.Context(), nil, nil); !errors.Is(err, chain.ErrPayment) {
			t.Errorf("nothing: %v", err)
		}
		var calls []svm.Instruction
		for i := range uint16(30) {
			calls = append(calls, d.tranche(g.Program, i, 1).Instruction(g.Program))
		}
		if _, err := d.ledger.Sign(t.Context(), calls, nil); !errors.Is(err, chain.ErrPayment) {
			t.Errorf("what does not fit: %v", err)
		}
		guardian := newKey(t)
		d.open.Keys, _ = market.NewKeySet(1, d.buyer.Key(), guardian.Key())
		call := []svm.Instruction{d.open.Instruction(g.Program)}
		if _, err := d.ledger.Sign(t.Context(), call, nil); err == nil {
			t.Error("signed without a key that must")
		}
		if _, err := d.ledger.Run(t.Context(), call, guardian); err != nil {
			t.Error(err)
		}
	})
	t.Run("NoProgram", func(t *testing.T) {
		t.Parallel()
		l := open(t, net, 1)
		if _, err := l.Look(t.Context(), g.Escrow, nil, escrow.Confirmed); err == nil {
			t.Error("looked on a network without a program")
		}
		if _, err := l.Network(t.Context()); err == nil {
			t.Error("read the account of a network without a program")
		}
	})
}

// leastBid is what a transaction bids where nobody else does, in lamports.
func leastBid(at sign.Key, in []svm.Instruction) uint64 {
	return chain.BidLamports(chain.DefaultFees().Least, program.Units(at, in))
}
