package wards

import (
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// payments is the part of a guarded job that decides about its transactions.
type payments struct {
	owner   sign.Key
	keys    market.KeySet // the guardians
	escrows []sign.Key    // opened before
}

// check checks a transaction that payer pays for, before the guardian self signs it. It may open an escrow of the job
// for its guardians or hire a standby from such an escrow; self may have no other part in it. It returns the opened
// escrows.
func (j payments) check(g market.Genesis, self, payer sign.Key, in []svm.Instruction) ([]sign.Key, error) {
	if g.Program.IsZero() {
		return nil, errors.New("the network has no escrows")
	}
	asked, err := escrow.Consider(escrow.Net{Program: g.Program}, self, payer, in)
	if err != nil {
		return nil, err
	}
	changes := func(m svm.Meta) bool { return m.Key == self && m.Writable }
	for _, x := range in {
		if x.Program == self || slices.ContainsFunc(x.Accounts, changes) {
			return nil, errors.New("a guardian's account changes in no transaction of a job")
		}
	}
	var opened []sign.Key
	for _, c := range asked.Opens {
		switch {
		case c.Buyer != j.owner || c.Network != g.Escrow || c.Mint != g.Mint ||
			c.Keys.Threshold != j.keys.Threshold || !slices.Equal(c.Keys.Keys, j.keys.Keys):
			return nil, fmt.Errorf("escrow %s is of another job, or paid by others", c.Escrow.Short())
		case c.Escrow != c.Address(g.Program):
			return nil, fmt.Errorf("escrow %s is at another address", c.Escrow.Short())
		case !slices.Contains(j.escrows, c.Escrow) && !slices.Contains(opened, c.Escrow):
			opened = append(opened, c.Escrow)
		}
	}
	for _, c := range asked.Hires {
		if !slices.Contains(j.escrows, c.Escrow) && !slices.Contains(opened, c.Escrow) {
			return nil, fmt.Errorf("escrow %s is not of the job", c.Escrow.Short())
		}
	}
	if len(asked.Retires) > 0 { // a supervisor has the job's key for that
		return nil, errors.New("a guardian retires nothing")
	}
	return opened, nil
}
