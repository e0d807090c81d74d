package escrow_test

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func TestConsider(t *testing.T) {
	t.Parallel()
	net, keys := escrowtest.Net(t, escrowtest.Params()), escrowtest.KeySet(t, 2, "guardian 1", "guardian 2", "guardian 3")
	me, at := escrowtest.Key("guardian 1"), escrowtest.Key("escrow")
	open := program.OpenEscrow{Payer: escrowtest.Key("buyer"), Buyer: escrowtest.Key("buyer"), Source: escrowtest.Key("source"), Authority: escrowtest.Key("buyer"), Escrow: at, Vault: escrowtest.Key("vault"),
		Mint: net.Mint, Network: net.Address(), Order: market.OrderID{9}, RefundOwner: escrowtest.Key("owner"), Keys: keys, Standbys: []account.Standby{{Provider: escrowtest.Key("standby"), Payout: escrowtest.Key("payout"), MaxRate: 1, Budget: 3000}}}
	add := program.AddTranche{Payer: escrowtest.Key("buyer"), Buyer: escrowtest.Key("buyer"), Escrow: at, Vault: escrowtest.Key("vault"), Tranche: escrowtest.Key("tranche"), Index: 1}
	hire := program.AddStandbyTranche{Payer: escrowtest.Key("guardian 2"), Escrow: at, Vault: escrowtest.Key("vault"), Tranche: escrowtest.Key("tranche"), Signers: keys.Keys[:2], Index: 1,
		Leaves: []program.StandbyLeaf{{Lease: market.LeaseID{1}, Rate: 1, Cap: 1, Start: 1, End: 2}}}
	if !contains(hire.Signers, me) {
		hire.Signers = keys.Keys[1:]
	}
	retire := program.RetireBegin{Escrow: at, Tranche: escrowtest.Key("tranche"), Network: net.Address(), Signers: hire.Signers, Index: 3}
	transfer := svm.Instruction{Program: svm.SystemProgram, Accounts: []svm.Meta{{Key: me, Signer: true, Writable: true}, {Key: escrowtest.Key("thief")}}, Data: []byte{2}}
	token := svm.OpenTokenAccount(escrowtest.Key("buyer"), escrowtest.Key("owner"), net.Mint)
	of := func(calls ...program.Call) (out []svm.Instruction) {
		for _, c := range calls {
			out = append(out, c.Instruction(net.Program))
		}
		return out
	}
	other := open
	other.Buyer = me
	source := open
	source.Source = me
	alien := hire.Instruction(escrowtest.Key("another program"))
	for name, c := range map[string]struct {
		payer sign.Key
		in    []svm.Instruction
		want  error
	}{
		"opening":                 {escrowtest.Key("buyer"), append(of(open, add), token), nil},
		"hire":                    {escrowtest.Key("guardian 2"), of(hire), nil},
		"retiring":                {escrowtest.Key("guardian 2"), of(retire), nil},
		"with a budget":           {escrowtest.Key("guardian 2"), append(of(hire), svm.Budget(50_000, 7)...), nil},
		"only a price":            {escrowtest.Key("guardian 2"), append(of(hire), svm.Budget(50_000, 7)[1]), escrow.ErrConsent},
		"the budget first":        {escrowtest.Key("guardian 2"), append(svm.Budget(50_000, 7), of(hire)...), escrow.ErrConsent},
		"two budgets":             {escrowtest.Key("guardian 2"), append(append(of(hire), svm.Budget(50_000, 7)...), svm.Budget(50_000, 7)...), escrow.ErrConsent},
		"a budget with more":      {escrowtest.Key("guardian 2"), append(of(hire), svm.Budget(50_000, 7)[0], longer(svm.Budget(50_000, 7)[1])), escrow.ErrConsent},
		"to pay":                  {me, of(hire), escrow.ErrConsent},
		"with a transfer":         {escrowtest.Key("guardian 2"), append(of(hire), transfer), escrow.ErrConsent},
		"a transfer":              {escrowtest.Key("guardian 2"), []svm.Instruction{transfer}, escrow.ErrConsent},
		"nothing":                 {escrowtest.Key("guardian 2"), nil, escrow.ErrConsent},
		"as the buyer":            {escrowtest.Key("x"), of(other), escrow.ErrConsent},
		"as the source":           {escrowtest.Key("x"), of(source), escrow.ErrConsent},
		"of another program":      {escrowtest.Key("x"), []svm.Instruction{alien}, escrow.ErrConsent},
		"not its":                 {escrowtest.Key("x"), of(program.RetireBegin{Escrow: at, Tranche: escrowtest.Key("tranche"), Network: net.Address(), Signers: []sign.Key{escrowtest.Key("x")}}), escrow.ErrConsent},
		"to be refunded to it":    {escrowtest.Key("x"), append(of(hire), of(program.Refund{Escrow: at, Vault: escrowtest.Key("vault"), Destination: escrowtest.Key("y"), Mint: net.Mint, Network: net.Address(), Buyer: me})...), escrow.ErrConsent},
		"with bytes after a call": {escrowtest.Key("x"), []svm.Instruction{longer(hire.Instruction(net.Program))}, escrow.ErrConsent},
		"with few accounts":       {escrowtest.Key("x"), []svm.Instruction{fewer(open.Instruction(net.Program), me)}, escrow.ErrConsent},
	} {
		a, err := escrow.Consider(net, me, c.payer, c.in)
		if !errors.Is(err, c.want) || err == nil && len(a.Opens)+len(a.Hires)+len(a.Retires) != 1 {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if a, err := escrow.Consider(net, me, escrowtest.Key("x"), of(open, add)); err != nil || len(a.Tranches) != 1 || a.Opens[0].Order != open.Order {
		t.Errorf("%+v, %v", a, err)
	}
}

func contains(keys []sign.Key, k sign.Key) bool {
	for _, x := range keys {
		if x == k {
			return true
		}
	}
	return false
}

func longer(in svm.Instruction) svm.Instruction {
	in.Data = append(in.Data, 0)
	return in
}

func fewer(in svm.Instruction, k sign.Key) svm.Instruction {
	in.Accounts = []svm.Meta{{Key: k, Signer: true}}
	return in
}
