package buyer

import (
	"context"
	"fmt"
	"sync"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// What jobs set aside comes from a token account of this peer's key, and what they do not spend comes back to it: so the owner's allowance is
// used up by what is spent, however much was set aside. Where the key is the owner, it is the owner's account.

// spending is what is on its way from that account into escrows.
type spending struct {
	mu  sync.Mutex // held while money is brought
	out map[market.LeaseID]market.Amount
}

// purse is the token account that jobs set money aside from, and its owner, to whom the rest comes back.
func (x *escrowed) purse() (account, owner sign.Key) {
	return program.TokenAccount(x.b.self, x.b.cfg.Genesis.Mint), x.b.self
}

// provide brings into the account what a deposit takes, beside those that are on their way.
func (x *escrowed) provide(ctx context.Context, ev escrow.Fund) error {
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
	x.spending.mu.Lock()
	defer x.spending.mu.Unlock()
	all := need
	for _, n := range x.spending.out {
		sum, err := all.Add(n)
		if err != nil {
			return err
		}
		all = sum
	}
	if err := x.Chain.Provide(ctx, all); err != nil {
		return fmt.Errorf("setting %s aside: %w", x.b.cfg.Genesis.FormatAmount(need), err)
	}
	if x.spending.out == nil {
		x.spending.out = map[market.LeaseID]market.Amount{}
	}
	x.spending.out[ev.Leases[0].ID()] = need
	return nil
}

// arrived is told of leases whose money is in an escrow, or never will be.
func (x *escrowed) arrived(leases ...market.LeaseID) {
	x.spending.mu.Lock()
	defer x.spending.mu.Unlock()
	for _, id := range leases {
		delete(x.spending.out, id)
	}
}
