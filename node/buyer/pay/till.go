package pay

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
)

// till is the token account that jobs set money aside from. It is of this peer's key, and receives the unspent money of
// jobs. So only spent amounts use up the owner's allowance, not amounts set aside. If the key is the owner, it is the
// owner's account.
type till struct {
	cfg      Config
	deposits *settle.Keeper[deposit.Deposit]

	turn *semaphore.Weighted // one at a time: a deposit must be in the journal before the next one counts
}

// source returns the account that receives the refund, and its owner.
func (x *till) source() (account, owner sign.Key) {
	return svm.TokenAccount(x.cfg.Self, x.cfg.Genesis.Mint), x.cfg.Self
}

// account returns the owner's token account, where the peer spends another's money, and else zero.
func (x *till) account() sign.Key {
	if x.cfg.Owner == x.cfg.Self {
		return sign.Key{}
	}
	return svm.TokenAccount(x.cfg.Owner, x.cfg.Genesis.Mint)
}

// deposit brings the money for some leases into the till, beside the money for other deposits. It journals the deposit.
func (x *till) deposit(ctx context.Context, name string, m deposit.Deposit, ev escrow.Fund) error {
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
	if err := x.turn.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for another deposit: %w", err)
	}
	defer x.turn.Release(1)
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
	if err := x.cfg.Chain.Provide(ctx, all); err != nil {
		return fmt.Errorf("setting %s aside: %w", x.cfg.Genesis.FormatAmount(need), err)
	}
	x.deposits.Add(name, m)
	if err := x.deposits.Ask(ctx, name, ev); err != nil {
		return fmt.Errorf("funding %d leases: %w", len(ev.Leases), err)
	}
	return nil
}
