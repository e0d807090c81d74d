package buyer

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
)

// What jobs set aside comes from a token account of this peer's key, and what they do not spend comes back to it: so the owner's allowance is
// used up by what is spent, however much was set aside. Where the key is the owner, it is the owner's account.

// purse is the token account that jobs set money aside from, and its owner, to whom the rest comes back.
func (x *escrowed) purse() (account, owner sign.Key) {
	return program.TokenAccount(x.b.self, x.b.cfg.Genesis.Mint), x.b.self
}

// account is the owner's token account, where the peer spends what is another's.
func (x *escrowed) account() sign.Key {
	if x.b.cfg.Owner == x.b.self {
		return sign.Key{}
	}
	return program.TokenAccount(x.b.cfg.Owner, x.b.cfg.Genesis.Mint)
}

// deposit brings the money for some leases into the purse, beside what other deposits will take from there, and journals the deposit.
func (x *escrowed) deposit(ctx context.Context, name string, m escrow.Deposit, ev escrow.Fund) error {
	need := ev.Deposit
	if need == 0 {
		for _, l := range ev.Leases {
			sum, err := need.Add(l.Cap)
			if err != nil {
				return err
			}
			need = sum
		}
	}
	x.depositing.Lock() // a deposit must be in the journal before the next one counts
	defer x.depositing.Unlock()
	all := need
	for _, name := range x.deposits.Names() {
		m, _, err := x.deposits.Get(name)
		if err != nil {
			continue // it ended meanwhile
		}
		if all, err = all.Add(m.Owing()); err != nil {
			return err
		}
	}
	if err := x.Chain.Provide(ctx, all); err != nil {
		return fmt.Errorf("setting %s aside: %w", x.b.cfg.Genesis.FormatAmount(need), err)
	}
	x.deposits.Add(name, m)
	if err := x.deposits.Ask(ctx, name, ev); err != nil {
		return fmt.Errorf("funding %d leases: %w", len(ev.Leases), err)
	}
	return nil
}
