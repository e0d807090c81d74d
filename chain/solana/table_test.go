package solana_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// claimsOf are the instructions of n claims on one tranche, each by so many keys and with a path of so many steps, and the accounts
// that a table can name.
func claimsOf(n, keys, path int) (in []svm.Instruction, holds []sign.Key) {
	at, escrow, mint := chaintest.RandomKey(), chaintest.RandomKey(), chaintest.RandomKey()
	holds = []sign.Key{escrow, account.TrancheAddress(at, escrow, 0), account.VaultAddress(at, escrow), mint, chaintest.RandomKey(), svm.TokenProgram, svm.InstructionsSysvar}
	for i := range n {
		v := verify.SignedVoucher{Signatures: verify.Signatures{Set: market.KeySet{Keys: make([]sign.Key, keys)}, Sigs: make([]verify.IndexedSignature, keys)}}
		c := program.Claim{Escrow: holds[0], Tranche: holds[1], Vault: holds[2], Destination: chaintest.RandomKey(), Mint: mint, Network: holds[4], Ed: uint8(2 * i),
			Proof: make(tranche.Proof, path)}
		holds = append(holds, c.Destination)
		in = append(in, program.VoucherSigned(sign.Domain{Network: "test"}, v).Instruction(), c.Instruction(at))
	}
	in = append(in, svm.Budget(program.Units(at, in), 1)...)
	return in, holds
}

// size is the length of the transaction, as the client library makes it: 0 when it makes none.
func size(t *testing.T, in []svm.Instruction, tables ...svm.Table) int {
	t.Helper()
	payer := sign.NewPrivate([32]byte{1})
	_, raw, err := transaction.Sign(in, tables, sign.Hash{1}, payer)
	if guess := chaintest.Size(payer.Key(), in, tables...); err == nil && len(raw) != guess || err != nil && guess <= chain.MaxRaw {
		t.Errorf("%d bytes, where chaintest counts %d: %v", len(raw), guess, err)
	}
	return len(raw)
}

// TestClaimsInTransaction says how many claims fit into one transaction, by how many keys sign their vouchers, and with how long paths:
// the figures of PROTOCOL.md.
func TestClaimsInTransaction(t *testing.T) {
	t.Parallel()
	longest := func(n, keys int, table bool) int {
		path := -1
		for path < tranche.MaxDepth {
			in, holds := claimsOf(n, keys, path+1)
			var tables []svm.Table
			if table {
				tables = []svm.Table{{Address: chaintest.RandomKey(), Holds: holds}}
			}
			if size(t, in, tables...) == 0 {
				break
			}
			path++
		}
		return path
	}
	for _, c := range []struct {
		claims int
		table  bool
		paths  []int // by keys, from 1; −1: none fits
	}{
		{1, false, []int{8, 5, 2, 0, -1}},
		{1, true, []int{8, 8, 8, 5, 2}},
		{2, false, []int{-1, -1, -1, -1, -1}},
		{2, true, []int{1, -1, -1, -1, -1}},
		{3, true, []int{-1, -1, -1, -1, -1}},
	} {
		var got []int
		for keys := range c.paths {
			got = append(got, longest(c.claims, keys+1, c.table))
		}
		if !slices.Equal(got, c.paths) {
			t.Errorf("%d claims, by a table %v: paths of %v, want %v", c.claims, c.table, got, c.paths)
		}
	}
	for keys, want := range []int{1011, 1121, 1231} {
		in, holds := claimsOf(1, keys+1, tranche.MaxDepth)
		if got := size(t, in, svm.Table{Address: chaintest.RandomKey(), Holds: holds}); got != want {
			t.Errorf("a claim by %d keys with the longest path takes %d bytes, want %d", keys+1, got, want)
		}
	}
}

// TestClaimByTable: three guardians' vouchers are claimed from a tranche of 256 leaves, which takes a lookup table; it is closed when
// the lease is over, and its rent is back.
func TestClaimByTable(t *testing.T) {
	t.Parallel()
	net := localnettest.Start(t, localnet.Config{})
	g, err := net.EscrowGenesis(t.Context(), "tables", 10)
	if err != nil {
		t.Fatal(err)
	}
	guardians := []sign.Private{newKey(t), newKey(t), newKey(t)}
	keys, err := market.NewKeySet(3, guardians[0].Key(), guardians[1].Key(), guardians[2].Key())
	if err != nil {
		t.Fatal(err)
	}
	provider, l := wealthy(t, net, g)
	d := makeDeal(t, net, g, lamports)
	network, err := l.Network(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := escrow.NewNet(g.Program, network, g.Mint)
	if err != nil {
		t.Fatal(err)
	}
	start := market.Slot(d.open.Opened)
	core := market.LeaseCore{Version: market.LeaseVersion, Units: 1, Order: d.open.Order, Buyer: d.buyer.Key(), Provider: provider.Key(), Payout: provider.Key(),
		VoucherKeys: keys.Hash(), Rate: 10 * market.RateScale, Cap: 2000, Start: start, ActivateBefore: start + 1000, End: start + 200}
	leaves := make([]tranche.Leaf, tranche.MaxLeaves)
	for i := range leaves {
		other := core
		other.Rank = uint32(i + 1)
		leaves[i] = tranche.LeafOf(other, uint16(i))
	}
	leaves[200] = tranche.LeafOf(core, 200)
	tree, err := tranche.Build(leaves)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := tree.Prove(200)
	if err != nil {
		t.Fatal(err)
	}
	d.open.Keys, d.open.Deposit = keys, uint64(tree.Root().Sum)
	add := d.tranche(g.Program, 0, 0)
	add.Root = tree.Root()
	if _, err := d.ledger.Run(t.Context(), []svm.Instruction{d.open.Instruction(g.Program), add.Instruction(g.Program)}, guardians[0], guardians[1], guardians[2]); err != nil {
		t.Fatal(err)
	}
	f := escrow.Funding{Opened: d.open.Opened, Index: 200, Proof: proof}
	m, err := claims.New(n, core, keys, f, escrow.When{Amount: 1}, escrow.Params{PollEvery: 50 * time.Millisecond, LookEvery: 100 * time.Millisecond, RetryAfter: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	v, err := verify.SignVoucher(n.Domain(), verify.Voucher{Version: verify.VoucherVersion, Flags: verify.VoucherFinal, Lease: core.ID(), Escrow: n.EscrowOf(core, f), Seq: 1,
		Cumulative: 700, Horizon: start + 70}, keys, guardians[0], guardians[1], guardians[2])
	if err != nil {
		t.Fatal(err)
	}
	w := watched{Ledger: l}
	drive(t, &w, m, escrow.VoucherKept{Voucher: v, Earned: v.Cumulative})
	if got, err := l.Balance(t.Context(), provider.Key()); err != nil || got != 700-14 {
		t.Errorf("the provider has %d (%v), want 700 less the fee of 2 %%", got, err)
	}
	if len(w.longest) != 1231 || w.tables == 0 {
		t.Errorf("%d claims by a table; the longest transaction takes %d bytes", w.tables, len(w.longest))
	}
	after, err := l.Funds(t.Context())
	spent := uint64(lamports) - after.Lamports - svm.Rent(svm.TokenSize)
	if err != nil || spent > 100_000 {
		t.Errorf("%d lamports are spent beside the token account's rent, %v: a table's is %d", spent, err, svm.TableRent(8))
	}
}

func wealthy(t *testing.T, net *localnet.Chain, g market.Genesis) (sign.Private, *solana.Ledger) {
	t.Helper()
	k := newKey(t)
	if err := net.FundKey(t.Context(), k.Key(), 0, lamports); err != nil {
		t.Fatal(err)
	}
	l, err := solana.New(solana.ConfigOf([]string{net.URL()}, g, k))
	if err != nil {
		t.Fatal(err)
	}
	return k, l
}

// watched counts the transactions that use tables.
type watched struct {
	*solana.Ledger
	tables  int
	longest []byte
}

func (w *watched) Sign(ctx context.Context, in []svm.Instruction, tables []svm.Table, others ...sign.Signer) (chain.Prepared, error) {
	tx, err := w.Ledger.Sign(ctx, in, tables, others...)
	if err == nil && len(tables) > 0 {
		w.tables++
	}
	if len(tx.Raw) > len(w.longest) {
		w.longest = tx.Raw
	}
	return tx, err
}

// drive tells claims an event and has them work until they are done.
func drive(t *testing.T, l escrow.Ledger, m claims.Claims, ev escrow.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	save := func(claims.Claims, []byte) error { return nil }
	for {
		next, _, err := chaintest.Drive(ctx, l, save, m, time.Now(), ev)
		ev = escrow.Ticked{}
		if err != nil {
			t.Fatal(err)
		}
		if m = next; m.Done() {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not done: paid %d, waits %q: %v", m.Paid(), m.Reason(), ctx.Err())
		case <-time.After(time.Until(m.Next())):
		}
	}
	if over, lost := m.Over(); !over || lost {
		t.Errorf("over %v, lost %v", over, lost)
	}
}
