package localnet_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/slash"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify"
)

const staked = 100_000_000 // base units

// soldTwice is the proof that seller sold one unit to two buyers, in slots just past.
func soldTwice(t *testing.T, g market.Genesis, seller sign.Private, end market.Slot, paid [2]market.Amount) (proof.Finding, [2]sign.Key) {
	t.Helper()
	units := []market.UnitID{{1}, {2}}
	var rs []verify.Receipt
	var buyers [2]sign.Key
	for i := range 2 {
		buyer := sign.NewPrivate(sha256.Sum256([]byte{byte(i)}))
		buyers[i] = buyer.Key()
		core := verify.ReceiptCore{
			Version: verify.ReceiptVersion, Units: 2, Lease: market.LeaseID{byte(i + 1)}, Seq: 1, Prev: sign.Hash{byte(i + 1)}, Provider: seller.Key(),
			Buyer: buyer.Key(), UnitsRoot: market.UnitsRoot(units), From: end - 10 + market.Slot(i), To: end, Amount: paid[i], Cumulative: paid[i],
		}
		p, err := core.Sign(g.Domain(), seller)
		b, err2 := core.Sign(g.Domain(), buyer)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, verify.Receipt{ReceiptCore: core, ProviderSig: p, BuyerSig: b})
	}
	c, err := verify.NewConflict(g.Domain(), rs[0], rs[1], units, units)
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.Check(proof.DoubleSale{Conflict: c}, g)
	if err != nil {
		t.Fatal(err)
	}
	return f, buyers
}

// A provider that sold one unit twice loses its stake to whoever submits the proof: the buyers are made whole, and who
// submits it again is told that it is done.
func TestEvidenceSubmit(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	g, err := net.EscrowGenesis(t.Context(), "slash", 10)
	if err != nil {
		t.Fatal(err)
	}
	wallet := func(name string, tokens market.Amount) (sign.Private, *solana.Ledger) {
		k := sign.NewPrivate(sha256.Sum256([]byte(name)))
		if err := net.FundKey(t.Context(), k.Key(), tokens, 1_000_000_000); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.ConfigOf([]string{net.URL()}, g, k))
		if err != nil {
			t.Fatal(err)
		}
		return k, l
	}
	seller, at := wallet("seller", staked)
	provider := account.ProviderAddress(g.Program, g.Escrow, seller.Key())
	vault := account.StakeAddress(g.Program, provider)
	if _, err := at.Run(t.Context(), []svm.Instruction{
		program.Register{Payer: seller.Key(), Owner: seller.Key(), Peer: seller.Key(), Network: g.Escrow, Provider: provider, Vault: vault, Mint: g.Mint,
			Payout: seller.Key()}.Instruction(g.Program),
	}); err != nil {
		t.Fatal(err)
	}
	reporter, own := wallet("reporter", 0)
	now, err := own.Slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, buyers := soldTwice(t, g, seller, now, [2]market.Amount{7_000_000, 30_000_000})
	submit := func() (proof.Outcome, error) {
		return slash.Submit(t.Context(), own, f, reporter.Key())
	}
	if out, err := submit(); !errors.Is(err, slash.ErrNotStaked) || len(out.Transactions) != 0 {
		t.Errorf("nothing staked: %+v, %v", out, err)
	}
	if _, err := at.Run(t.Context(), []svm.Instruction{
		program.Stake{Authority: seller.Key(), Source: svm.TokenAccount(seller.Key(), g.Mint), Provider: provider, Vault: vault, Mint: g.Mint, Amount: staked}.Instruction(g.Program),
	}); err != nil {
		t.Fatal(err)
	}
	out, err := submit()
	if err != nil {
		t.Fatal(err)
	}
	sold := f.Content().(proof.DoubleSale)
	want := program.TakenFor(staked, uint64(sold.A.Cumulative), uint64(sold.B.Cumulative))
	if out.Already || out.Taken != staked || out.Burned != want.Burned || out.Reward.Amount != want.Reporter {
		t.Errorf("came of it: %+v", out)
	}
	for _, p := range append(out.Paid, *out.Reward) {
		if has := balance(t, own, p.Wallet); uint64(has) != p.Amount || p.Amount == 0 {
			t.Errorf("%s has %d, %d were said", p.Wallet, has, p.Amount)
		}
	}
	if has := balance(t, own, buyers[0]); has != 7_000_000 {
		t.Errorf("the first buyer has %d back of 7 tokens", has)
	}
	slashed := out
	if out, err = submit(); err != nil || !out.Already || len(out.Transactions) != 0 || out.Slot == 0 {
		t.Errorf("once more: %+v, %v", out, err)
	}
	root := sign.Sum([]byte("receipts"))
	if _, err := own.Anchored(t.Context(), reporter.Key(), root); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("an anchor that nobody made: %v", err)
	}
	anchor := program.Anchor{Authority: reporter.Key(), Anchor: account.AnchorAddress(g.Program, reporter.Key(), root), Root: root, Count: 12}
	made, err := own.Run(t.Context(), []svm.Instruction{anchor.Instruction(g.Program)})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := own.Anchored(t.Context(), reporter.Key(), root); err != nil || a.Count != 12 || a.Slot == 0 {
		t.Errorf("the anchor reads %+v, %v", a, err)
	}
	a, err := own.AnchorIn(t.Context(), made)
	for end := time.Now().Add(time.Minute); errors.Is(err, chain.ErrNotFound) && time.Now().Before(end); a, err = own.AnchorIn(t.Context(), made) {
		time.Sleep(100 * time.Millisecond) // it is not final yet
	}
	if err != nil || a.Authority != reporter.Key() || a.Root != root || a.Count != 12 || a.Slot == 0 {
		t.Errorf("the transaction that anchored reads %+v, %v", a, err)
	}
	if _, err := own.AnchorIn(t.Context(), slashed.Transactions[0]); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("a transaction that anchored nothing: %v", err)
	}
	funds, err := own.Funds(t.Context())
	// What is left of the rent: the anchor, and three token accounts that it opened.
	most := svm.Rent(account.AnchorSize) + 3*svm.Rent(svm.TokenSize) + 100_000
	if err != nil || 1_000_000_000-funds.Lamports > most {
		t.Errorf("the receipts' rent did not come back: %+v, %v", funds, err)
	}
}

// balance of a wallet, waiting until it is final.
func balance(t *testing.T, l *solana.Ledger, wallet sign.Key) market.Amount {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if n, err := l.Balance(ctx, wallet); err == nil && n > 0 {
			return n
		} else if ctx.Err() != nil {
			t.Fatalf("balance of %s: %d, %v", wallet, n, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
