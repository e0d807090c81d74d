package escrow_test

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func TestConsider(t *testing.T) {
	t.Parallel()
	net, keys := network(t), keySet(t, 2, "guardian 1", "guardian 2", "guardian 3")
	me, at := key("guardian 1"), key("escrow")
	open := program.OpenEscrow{Payer: key("buyer"), Buyer: key("buyer"), Source: key("source"), Authority: key("buyer"), Escrow: at, Vault: key("vault"),
		Mint: net.Mint, Network: net.Address(), Order: market.OrderID{9}, RefundOwner: key("owner"), Keys: keys, Standbys: standbys()}
	add := program.AddTranche{Payer: key("buyer"), Buyer: key("buyer"), Escrow: at, Vault: key("vault"), Tranche: key("tranche"), Index: 1}
	hire := program.AddStandbyTranche{Payer: key("guardian 2"), Escrow: at, Vault: key("vault"), Tranche: key("tranche"), Signers: keys.Keys[:2], Index: 1,
		Leaves: []program.StandbyLeaf{{Lease: market.LeaseID{1}, Rate: 1, Cap: 1, Start: 1, End: 2}}}
	if !contains(hire.Signers, me) {
		hire.Signers = keys.Keys[1:]
	}
	retire := program.RetireBegin{Escrow: at, Tranche: key("tranche"), Network: net.Address(), Signers: hire.Signers, Index: 3}
	transfer := program.Instruction{Program: program.SystemProgram, Accounts: []program.Meta{{Key: me, Signer: true, Writable: true}, {Key: key("thief")}}, Data: []byte{2}}
	token := program.OpenTokenAccount(key("buyer"), key("owner"), net.Mint)
	of := func(calls ...program.Call) (out []program.Instruction) {
		for _, c := range calls {
			out = append(out, c.Instruction(net.Program))
		}
		return out
	}
	other := open
	other.Buyer = me
	source := open
	source.Source = me
	alien := hire.Instruction(key("another program"))
	for name, c := range map[string]struct {
		payer sign.Key
		in    []program.Instruction
		want  error
	}{
		"opening":                 {key("buyer"), append(of(open, add), token), nil},
		"hire":                    {key("guardian 2"), of(hire), nil},
		"retiring":                {key("guardian 2"), of(retire), nil},
		"with a budget":           {key("guardian 2"), append(of(hire), program.Budget(50_000, 7)...), nil},
		"only a price":            {key("guardian 2"), append(of(hire), program.Budget(50_000, 7)[1]), escrow.ErrConsent},
		"the budget first":        {key("guardian 2"), append(program.Budget(50_000, 7), of(hire)...), escrow.ErrConsent},
		"two budgets":             {key("guardian 2"), append(append(of(hire), program.Budget(50_000, 7)...), program.Budget(50_000, 7)...), escrow.ErrConsent},
		"a budget with more":      {key("guardian 2"), append(of(hire), program.Budget(50_000, 7)[0], longer(program.Budget(50_000, 7)[1])), escrow.ErrConsent},
		"to pay":                  {me, of(hire), escrow.ErrConsent},
		"with a transfer":         {key("guardian 2"), append(of(hire), transfer), escrow.ErrConsent},
		"a transfer":              {key("guardian 2"), []program.Instruction{transfer}, escrow.ErrConsent},
		"nothing":                 {key("guardian 2"), nil, escrow.ErrConsent},
		"as the buyer":            {key("x"), of(other), escrow.ErrConsent},
		"as the source":           {key("x"), of(source), escrow.ErrConsent},
		"of another program":      {key("x"), []program.Instruction{alien}, escrow.ErrConsent},
		"not its":                 {key("x"), of(program.RetireBegin{Escrow: at, Tranche: key("tranche"), Network: net.Address(), Signers: []sign.Key{key("x")}}), escrow.ErrConsent},
		"to be refunded to it":    {key("x"), append(of(hire), of(program.Refund{Escrow: at, Vault: key("vault"), Destination: key("y"), Mint: net.Mint, Network: net.Address(), Buyer: me})...), escrow.ErrConsent},
		"with bytes after a call": {key("x"), []program.Instruction{longer(hire.Instruction(net.Program))}, escrow.ErrConsent},
		"with few accounts":       {key("x"), []program.Instruction{fewer(open.Instruction(net.Program), me)}, escrow.ErrConsent},
	} {
		a, err := escrow.Consider(net, me, c.payer, c.in)
		if !errors.Is(err, c.want) || err == nil && len(a.Opens)+len(a.Hires)+len(a.Retires) != 1 {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if a, err := escrow.Consider(net, me, key("x"), of(open, add)); err != nil || len(a.Tranches) != 1 || a.Opens[0].Order != open.Order {
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

func longer(in program.Instruction) program.Instruction {
	in.Data = append(in.Data, 0)
	return in
}

func fewer(in program.Instruction, k sign.Key) program.Instruction {
	in.Accounts = []program.Meta{{Key: k, Signer: true}}
	return in
}
