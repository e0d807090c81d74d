package solana_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify"
)

// peer keeps one machine of chain/escrow going on a real chain.
type peer[M escrow.Machine[M]] struct {
	testing.TB
	ledger *solana.Ledger
	m      M
	others []sign.Signer
	told   []escrow.Effect
}

func (p *peer[M]) tell(ev escrow.Event) {
	p.Helper()
	m, notes, err := chaintest.Drive(p.Context(), p.ledger, func(M, []byte) error { return nil }, p.m, time.Now(), ev, p.others...)
	if err != nil {
		p.Fatalf("%T: %v", ev, err)
	}
	p.m = m
	for _, n := range notes {
		if _, waits := n.(escrow.Waiting); !waits {
			p.told = append(p.told, n)
		}
	}
}

// until lets the machine go on until it is so.
func (p *peer[M]) until(what string, so func(M) bool) {
	p.Helper()
	for range 1200 {
		if so(p.m) {
			return
		}
		p.tell(escrow.Ticked{})
		time.Sleep(50 * time.Millisecond) // between two polls of a chain
	}
	p.Fatalf("%s: not within a minute; it waits: %v, was told %+v", what, any(p.m).(interface{ Reason() string }).Reason(), p.told)
}

// remote is a guardian's signer as its peer has it: it signs nothing that it does not understand.
type remote struct {
	sign.Private
	net   escrow.Net
	asked *escrow.Asked
}

func (r remote) Sign(message []byte) (sign.Signature, error) {
	payer, in, err := transaction.ParseMessage(message)
	if err != nil {
		return sign.Signature{}, err
	}
	if *r.asked, err = escrow.Consider(r.net, r.Key(), payer, in); err != nil {
		return sign.Signature{}, err
	}
	return r.Private.Sign(message)
}

// TestGuardians is a detached job's money on the program itself: opened by the buyer with three guardians who sign beside it, a standby
// hired by one of them with another while the third is away, paid by their voucher, and all wound up.
func TestGuardians(t *testing.T) {
	t.Parallel()
	local := localnettest.Start(t, localnet.Config{})
	g, err := local.EscrowGenesis(t.Context(), "test", 10)
	if err != nil {
		t.Fatal(err)
	}
	wallet := func(tokens market.Amount) (sign.Private, *solana.Ledger) {
		k := newKey(t)
		if err := local.Fund(t.Context(), localnet.Wallet{Owner: k, Tokens: tokens, Lamports: lamports}); err != nil {
			t.Fatal(err)
		}
		l, err := solana.New(solana.ConfigOf([]string{local.URL()}, g, k))
		if err != nil {
			t.Fatal(err)
		}
		return k, l
	}
	buyer, ledger := wallet(1_000_000)
	hirer, hirerLedger := wallet(0)
	provider, providerLedger := wallet(0)
	guardians := []sign.Private{hirer, newKey(t), newKey(t)}
	job, first := newKey(t), newKey(t)
	network, err := ledger.Network(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	net, err := escrow.NewNet(g.Program, network, g.Mint)
	if err != nil {
		t.Fatal(err)
	}
	var asked escrow.Asked
	watching := func(i int) remote { return remote{guardians[i], net, &asked} }
	keys, err := market.NewKeySet(2, guardians[0].Key(), guardians[1].Key(), guardians[2].Key())
	if err != nil {
		t.Fatal(err)
	}
	standbys := []account.Standby{{Provider: provider.Key(), Payout: provider.Key(), MaxRate: 100 * market.RateScale, Budget: 100_000}}
	for range 3 { // with four the opening and the first tranche do not fit together
		standbys = append(standbys, account.Standby{Provider: newKey(t).Key(), Payout: newKey(t).Key(), MaxRate: 1, Budget: 1})
	}
	timing := escrow.Params{PollEvery: 50 * time.Millisecond, LookEvery: 100 * time.Millisecond, RetryAfter: 100 * time.Millisecond}
	deal := deposit.Deal{Order: market.OrderID(newKey(t).Key()), Buyer: buyer.Key(), Source: svm.TokenAccount(buyer.Key(), g.Mint), RefundOwner: buyer.Key(),
		Keys: keys, Standbys: standbys, LeaseBuyer: job.Key()}
	d, err := deposit.New(net, deal, timing)
	if err != nil {
		t.Fatal(err)
	}
	lease := func(order market.OrderID, provider sign.Key) market.LeaseCore {
		now, err := ledger.Slot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return market.LeaseCore{Version: market.LeaseVersion, Units: 1, Order: order, Buyer: job.Key(), Provider: provider, Payout: provider, VoucherKeys: keys.Hash(),
			Rate: 10 * market.RateScale, Cap: 10_000, Start: now, ActivateBefore: now + 800, End: now + 1000}
	}
	core := lease(deal.Order, first.Key())
	b := &peer[deposit.Deposit]{TB: t, ledger: ledger, m: d, others: []sign.Signer{watching(0), watching(1), watching(2)}}
	b.tell(escrow.Fund{Leases: []market.LeaseCore{core}, Deadline: core.Start + 5000, Deposit: 60_000})
	funded := func(told *[]escrow.Effect) bool {
		for _, e := range *told {
			if f, ok := e.(escrow.Funded); ok && len(f.Leases) > 0 {
				return true
			}
		}
		return false
	}
	b.until("funded", func(deposit.Deposit) bool { return funded(&b.told) })

	if len(asked.Opens) != 1 || asked.Opens[0].Order != deal.Order || len(asked.Opens[0].Standbys) != 4 {
		t.Errorf("guardians were asked %+v", asked)
	}

	// The buyer is gone. A guardian hires with whichever of the other two is there.
	at, _ := b.m.Escrow()
	opening := b.told[0].(escrow.Opening)
	h, err := deposit.NewHire(net, deposit.Hiring{Order: deal.Order, Buyer: buyer.Key(), Opened: opening.Opened, Deadline: b.m.Deadline(), Keys: keys, LeaseBuyer: job.Key(),
		Hirer: hirer.Key()}, timing)
	if err != nil {
		t.Fatal(err)
	}
	s := &peer[deposit.Hire]{TB: t, ledger: hirerLedger, m: h, others: []sign.Signer{watching(1)}}
	second := lease(market.OrderID{7}, provider.Key())
	s.tell(escrow.Fund{Leases: []market.LeaseCore{second}})
	s.until("hired", func(deposit.Hire) bool { return funded(&s.told) })
	if len(asked.Hires) != 1 || asked.Hires[0].Leaves[0].Lease != second.ID() {
		t.Errorf("the guardian was asked %+v", asked)
	}
	f, ok := s.m.Funding(second.ID())
	if !ok || net.EscrowOf(second, f) != at || f.Tranche != 1 {
		t.Fatalf("%+v, %v", f, ok)
	}

	// Its provider sees for itself, works, and is paid by two guardians.
	if f, err = escrow.UnmarshalFunding(f.Marshal()); err != nil {
		t.Fatal(err)
	}
	view, err := providerLedger.Look(t.Context(), at, []uint16{f.Tranche}, escrow.Confirmed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := escrow.CheckFunding(net, view, second, keys, f); err != nil {
		t.Fatal(err)
	}
	c, err := claims.New(net, second, keys, f, escrow.When{Amount: 100, Slots: 50}, timing)
	if err != nil {
		t.Fatal(err)
	}
	payee := &peer[claims.Claims]{TB: t, ledger: providerLedger, m: c}
	v, err := verify.SignVoucher(net.Domain(), verify.Voucher{Version: verify.VoucherVersion, Flags: verify.VoucherFinal, Seq: 1, Lease: second.ID(), Escrow: at,
		Cumulative: 200, Horizon: second.Start + 20}, keys, guardians[0], guardians[1])
	if err != nil {
		t.Fatal(err)
	}
	payee.tell(escrow.VoucherKept{Voucher: v, Earned: v.Cumulative})
	payee.until("claimed", func(m claims.Claims) bool { over, _ := m.Over(); return over })
	if payee.m.Paid() != 200 {
		t.Errorf("paid %d", payee.m.Paid())
	}

	// The lease ends with a final receipt: the guardian's rent is back without anybody else.
	receipt := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: second.ID(), Seq: 1, Provider: provider.Key(),
		Buyer: job.Key(), From: second.Start, To: second.Start + 20, Cumulative: 200}
	signature, err := receipt.Sign(net.Domain(), provider)
	if err != nil {
		t.Fatal(err)
	}
	s.others = nil
	s.tell(escrow.Retire{Leases: []escrow.Retired{{Lease: second.ID(), Final: &verify.Receipt{ReceiptCore: receipt, ProviderSig: signature}}}})
	s.tell(escrow.End{})
	s.until("rent is back", deposit.Hire.Closed)

	// The buyer is back and has the rest.
	b.others = nil
	b.tell(escrow.End{})
	b.until("closed", deposit.Deposit.Closed)
	if funds, err := ledger.Funds(t.Context()); err != nil || funds.Balance != 1_000_000-200 {
		t.Errorf("%+v, %v: all but what was claimed should be back", funds, err)
	}

	// Nothing of it is left on the chain but its past, which says who signed the voucher that was claimed.
	named, err := ledger.Naming(t.Context(), at, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var guarded []rewards.Guarded
	for _, id := range named {
		if g, err := ledger.Guarded(t.Context(), id); err == nil {
			guarded = append(guarded, g)
		} else if !errors.Is(err, chain.ErrMalformed) {
			t.Errorf("transaction %s: %v", id, err)
		}
	}
	signed := []sign.Key{guardians[0].Key(), guardians[1].Key()}
	slices.SortFunc(signed, func(a, b sign.Key) int { return bytes.Compare(a[:], b[:]) })
	paid, fee := uint64(0), uint64(network.Params.Mints[0].FeeBps)*200/10_000
	for _, x := range guarded {
		paid += x.Net
		if !slices.Equal(x.Keys, signed) || x.Mint != g.Mint || x.Slot < second.Start {
			t.Errorf("%+v, signed by %v", x, signed)
		}
	}
	if paid != 200-fee || len(guarded) == 0 {
		t.Errorf("of %d transactions %d are claims, of %d", len(named), len(guarded), paid)
	}
	if _, err := ledger.Guarded(t.Context(), sign.Signature{1}); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("a transaction that there is not: %v", err)
	}
	if again, err := ledger.Naming(t.Context(), at, 0, 2); err != nil || len(again) != 2 || again[0] != named[0] {
		t.Errorf("the newest two: %v, %v", again, err)
	}
}

// TestHireFits says how much room a hire takes: the hirer is a guardian or not, and two, three or four of them sign.
func TestHireFits(t *testing.T) {
	t.Parallel()
	payer := newKey(t)
	for _, c := range []struct {
		signers int
		own     bool
		leaves  [2]int
		bytes   int
	}{
		{2, true, [2]int{1, 0}, 469}, {2, true, [2]int{4, 0}, 665}, {2, true, [2]int{4, 4}, 972},
		{2, false, [2]int{4, 4}, 1068}, {3, true, [2]int{4, 4}, 1070}, {3, false, [2]int{4, 4}, 1166}, {4, true, [2]int{2, 2}, 908},
	} {
		signers := []sign.Signer{payer}
		var keys []sign.Key
		if c.own {
			keys = append(keys, payer.Key())
		}
		for len(keys) < c.signers {
			k := newKey(t)
			signers, keys = append(signers, k), append(keys, k.Key())
		}
		at := newKey(t).Key()
		var calls []svm.Instruction
		for i, n := range c.leaves {
			if n > 0 {
				calls = append(calls, program.AddStandbyTranche{Payer: payer.Key(), Escrow: at, Vault: account.VaultAddress(sign.Key{9}, at),
					Tranche: account.TrancheAddress(sign.Key{9}, at, uint16(i)), Signers: keys, Index: uint16(i), Leaves: make([]program.StandbyLeaf, n)}.Instruction(sign.Key{9}))
			}
		}
		_, raw, err := transaction.Sign(calls, nil, sign.Hash{1}, signers...)
		if name := fmt.Sprintf("%d signers, own %v, %v leaves", c.signers, c.own, c.leaves); err != nil || len(raw) != c.bytes {
			t.Errorf("%s: %d bytes, %v", name, len(raw), err)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	payer, other := sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})
	_, raw, err := transaction.Sign([]svm.Instruction{program.AddStandbyTranche{Payer: payer.Key(), Signers: []sign.Key{other.Key()},
		Leaves: make([]program.StandbyLeaf, 1)}.Instruction(sign.Key{9})}, nil, sign.Hash{1}, payer, other)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw[1+2*64:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		_, in, err := transaction.ParseMessage(message)
		if err != nil && !errors.Is(err, chain.ErrMalformed) {
			t.Errorf("refused with %v", err)
		}
		for _, x := range in {
			if call, _, err := program.ParseCall(x.Program, x); err == nil && !bytes.Equal(call.Instruction(x.Program).Data, x.Data) {
				t.Errorf("%+v reads as %+v", x, call)
			}
		}
	})
}
