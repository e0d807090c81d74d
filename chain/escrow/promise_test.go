package escrow_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// A provider that found its lease funded is paid its whole cap at the lease's end, by the program's model, whatever its
// buyer and the other providers do in the meantime that does not retire its leaf. The buyer can retire it: then the
// amount earned by the end of the response slots is paid.
func TestFundedIsPaid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPromise(t)
		for range rapid.IntRange(0, 6).Draw(t, "troubles") {
			p.trouble(t)
		}
		view, err := (&escrowtest.Wallet{Chain: p.chain}).Look(context.Background(), p.at, []uint16{0}, escrow.Finalized)
		if err != nil {
			t.Fatal(err)
		}
		landed, err := escrow.CheckFunding(p.chain.Net, view, p.core, p.keys, p.funding)
		if retired := view.Escrow == nil || p.retired; (err == nil) == retired {
			t.Fatalf("funded: %v, retired %v", err, retired)
		}
		if err != nil {
			return
		}
		if landed > p.core.ActivateBefore {
			t.Fatalf("landed at %d, activate before %d", landed, p.core.ActivateBefore)
		}
		for range rapid.IntRange(0, 6).Draw(t, "more troubles") {
			p.trouble(t)
		}
		due := p.core.Cap
		if p.retired {
			last := p.began + escrowtest.Response
			due = 10 * market.Amount(min(max(last, uint64(p.core.Start)), uint64(p.core.End))-uint64(p.core.Start))
			p.until(t, last)
		} else {
			p.until(t, uint64(p.core.End)+rapid.Uint64Range(0, escrowtest.Margin).Draw(t, "late"))
		}
		if got := p.claim(t, p.core, p.funding); got != due {
			t.Fatalf("paid %d of %d", got, due)
		}
	})
}

// promise is an escrow with three leases, of which core is watched.
type promise struct {
	chain   *escrowtest.Chain
	keys    market.KeySet
	core    market.LeaseCore
	others  []market.LeaseCore
	funding escrow.Funding
	all     []escrow.Funding
	at      sign.Key
	retired bool
	began   uint64 // the slot in which it was retired
}

func newPromise(t *rapid.T) *promise {
	p := &promise{chain: escrowtest.New(escrowtest.Net(t, escrowtest.Params())), keys: escrowtest.KeySet(t, 1, "buyer")}
	start := market.Slot(p.chain.Root)
	for i := range 3 {
		length := market.Slot(rapid.IntRange(1, 200).Draw(t, "length"))
		p.others = append(p.others, escrowtest.Lease(i, p.keys, start, start+50, start+length))
	}
	deadline := start + 200 + escrowtest.Margin
	p.all = p.chain.Lock(t, p.keys, deadline, p.others...)
	which := rapid.IntRange(0, 2).Draw(t, "which")
	p.core, p.funding = p.others[which], p.all[which]
	p.at = p.chain.Net.EscrowOf(p.core, p.funding)
	return p
}

// until lets slots pass up to one.
func (p *promise) until(t *rapid.T, slot uint64) {
	if p.chain.Root < slot {
		p.chain.Advance(slot - p.chain.Root)
	}
	if p.chain.Root < slot {
		t.Fatalf("slot %d, want %d", p.chain.Root, slot)
	}
}

// apply applies a call if the program takes it.
func (p *promise) apply(call program.Call, beside ...svm.Signed) bool {
	next := p.chain.Final.Clone()
	if err := next.Apply(p.chain.Root, call, beside...); err != nil {
		return false
	}
	p.chain.Final, p.chain.Tip = next, next.Clone()
	return true
}

// trouble is a call of somebody else's, as far as the program takes it, before the lease ends.
func (p *promise) trouble(t *rapid.T) {
	net, i := p.chain.Net, rapid.IntRange(0, 2).Draw(t, "lease")
	tr := account.TrancheAddress(net.Program, p.at, 0)
	vault := account.VaultAddress(net.Program, p.at)
	switch rapid.IntRange(0, 4).Draw(t, "trouble") {
	case 0:
		last := uint64(p.core.End)
		if p.retired { // its provider claims within the response slots
			last = min(last, p.began+escrowtest.Response)
		}
		if last > p.chain.Root {
			p.chain.Advance(rapid.Uint64Range(1, last-p.chain.Root).Draw(t, "slots"))
		}
	case 1: // the buyer takes back all that is free
		p.apply(program.Refund{Escrow: p.at, Vault: vault, Destination: svm.TokenAccount(escrowtest.Key("owner"), net.Mint),
			Mint: net.Mint, Network: net.Address(), Buyer: escrowtest.Key("buyer")})
	case 2:
		ok := p.apply(program.RetireBegin{Escrow: p.at, Tranche: tr, Network: net.Address(),
			Signers: []sign.Key{escrowtest.Key("buyer")}, Index: uint16(i)})
		if ok && p.others[i].Provider == p.core.Provider {
			p.retired, p.began = true, p.chain.Root
		}
	case 3:
		if p.others[i].Provider != p.core.Provider {
			p.claim(t, p.others[i], p.all[i])
		}
	case 4: // free the rest of a leaf whose response slots are over
		if p.others[i].Provider != p.core.Provider {
			p.apply(program.RetireFinish{Escrow: p.at, Tranche: tr, Leaf: tranche.LeafOf(p.others[i], uint16(i)),
				Proof: p.all[i].Proof})
		}
	}
}

// claim claims a whole lease and returns the amount that its leaf was paid.
func (p *promise) claim(t *rapid.T, core market.LeaseCore, f escrow.Funding) market.Amount {
	net := p.chain.Net
	v := escrowtest.Voucher(t, net, core, f, verify.Voucher{Seq: 1, Cumulative: core.Cap, Horizon: core.End}, p.keys, "buyer")
	to := svm.TokenAccount(core.Payout, net.Mint)
	if _, open := p.chain.Final.Tokens[to]; !open {
		p.chain.Final = p.chain.Final.Clone()
		p.chain.Final.Tokens[to] = svm.Token{Mint: net.Mint, Owner: core.Payout, Plain: true}
	}
	tr := account.TrancheAddress(net.Program, p.at, 0)
	p.apply(program.Claim{Escrow: p.at, Tranche: tr, Vault: account.VaultAddress(net.Program, p.at), Destination: to,
		Mint: net.Mint, Network: net.Address(), Leaf: tranche.LeafOf(core, f.Index), Proof: f.Proof},
		program.VoucherSigned(net.Domain(), v))
	return market.Amount(p.chain.Final.Tranches[tr].Leaves[f.Index].Paid)
}

// A signature that Consider lets a guardian give can be used for nothing but a voucher key's part: the key stands in
// the transaction only as one of the voucher keys.
func TestConsiderProperty(t *testing.T) {
	t.Parallel()
	net, keys := escrowtest.Net(t, escrowtest.Params()), escrowtest.KeySet(t, 1, "me", "other")
	me := escrowtest.Key("me")
	rapid.Check(t, func(t *rapid.T) {
		who := func(role string) sign.Key {
			return escrowtest.Key(rapid.SampledFrom([]string{"a", "b", "c", "me"}).Draw(t, role))
		}
		var in []svm.Instruction
		others := 0 // places that name the key and are no voucher key's
		count := func(k ...sign.Key) {
			for _, x := range k {
				if x == me {
					others++
				}
			}
		}
		voter := false
		for range rapid.IntRange(1, 3).Draw(t, "instructions") {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				c := program.RetireBegin{Escrow: who("escrow"), Tranche: who("tranche"), Network: net.Address(), Signers: keys.Keys}
				count(c.Escrow, c.Tranche)
				in, voter = append(in, c.Instruction(net.Program)), true
			case 1:
				c := program.AddStandbyTranche{Payer: who("payer"), Escrow: who("escrow"), Vault: who("vault"), Tranche: who("tranche"),
					Signers: keys.Keys, Leaves: []program.StandbyLeaf{{Rate: 1, Cap: 1, Start: 1, End: 2}}}
				count(c.Payer, c.Escrow, c.Vault, c.Tranche)
				in, voter = append(in, c.Instruction(net.Program)), true
			case 2:
				c := program.AddTranche{Payer: who("payer"), Buyer: who("buyer"), Escrow: who("escrow"), Vault: who("vault"), Tranche: who("tranche")}
				count(c.Payer, c.Buyer, c.Escrow, c.Vault, c.Tranche)
				in = append(in, c.Instruction(net.Program))
			case 3:
				m := svm.Meta{Key: who("account"), Signer: rapid.Bool().Draw(t, "signs")}
				count(m.Key)
				in = append(in, svm.Instruction{Program: escrowtest.Key("alien"), Accounts: []svm.Meta{m}})
			}
		}
		payer := who("pays")
		count(payer)
		_, err := escrow.Consider(net, me, payer, in)
		if want := others == 0 && voter; (err == nil) != want {
			t.Fatalf("%d other places, a voucher key %v: %v", others, voter, err)
		}
	})
}
