package escrow

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Asked is the content of a transaction that a voucher key is asked to sign.
type Asked struct {
	Opens    []program.OpenEscrow // with the key among the voucher keys
	Tranches []program.AddTranche
	Hires    []program.AddStandbyTranche
	Retires  []program.RetireBegin // by voucher keys
}

// Consider returns the meaning of a guardian's signature, as a voucher key, on a transaction that another peer pays
// for. It refuses, with ErrConsent, every transaction that could use the signature for anything else. The key is also
// that of the guardian's wallet, and a signature covers each instruction that names the key. A budget is accepted only
// in the form of svm.Budget, at the end. The guardian must judge the content itself: escrow, supervisor and leases.
func Consider(net Net, key, payer sign.Key, in []svm.Instruction) (Asked, error) {
	var a Asked
	if payer == key {
		return a, fmt.Errorf("%w: payer: want another key than %s", ErrConsent, key)
	}
	rest, _, _, budget := svm.SplitBudget(in)
	if !budget && svm.Budgeted(in) {
		return a, fmt.Errorf("%w: budget: want a limit and a price as the last two instructions", ErrConsent)
	}
	asked := false
	for i, x := range rest {
		names := 0
		for _, m := range x.Accounts {
			if m.Key == key {
				names++
			}
		}
		call, _, err := program.ParseCall(net.Program, x)
		if err != nil && names == 0 {
			continue // it cannot use the signature
		}
		var voters []sign.Key
		switch c := call.(type) {
		case program.OpenEscrow:
			a.Opens, voters = append(a.Opens, c), c.Keys.Keys
		case program.AddTranche:
			a.Tranches = append(a.Tranches, c)
		case program.AddStandbyTranche:
			a.Hires, voters = append(a.Hires, c), c.Signers
		case program.RetireBegin:
			a.Retires, voters = append(a.Retires, c), c.Signers
		}
		voter := slices.Contains(voters, key)
		if names > 1 || names == 1 && !voter {
			return Asked{}, fmt.Errorf("%w: instruction %d: key in another role than voucher key", ErrConsent, i)
		}
		asked = asked || voter
	}
	if !asked {
		return Asked{}, fmt.Errorf("%w: no voucher key needed", ErrConsent)
	}
	return a, nil
}
