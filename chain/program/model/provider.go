package model

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// providers are the calls about a registration and its stake.
type providers struct{ *tx }

// register: owner and peer key both sign. The account is permanent.
func (t providers) register(c program.Register) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	t.no(ok && c.Mint != n.Params.StakeMint, program.ErrAddress)
	t.no(c.Payout.IsZero(), program.ErrZeroKey)
	t.create(c.Provider, account.ProviderAddress(t.Program, c.Network, c.Peer))
	t.create(c.Vault, account.StakeAddress(t.Program, c.Provider))
	if err := t.refused(); err != nil {
		return err
	}
	_, bump := svm.FindAddress(t.Program, account.ProviderSeeds(c.Network, c.Peer)...)
	_, vaultBump := svm.FindAddress(t.Program, account.StakeSeeds(c.Provider)...)
	t.Providers[c.Provider] = account.Provider{
		Bump: bump, VaultBump: vaultBump, Network: c.Network, Peer: c.Peer, Owner: c.Owner, Payout: c.Payout,
		Inventory: c.Inventory, Registered: t.now,
	}
	t.pay(c.Payer, account.ProviderSize)
	t.open(c.Payer, c.Vault, c.Mint, c.Provider)
	return nil
}

// update: the owner changes anything, the peer key the inventory alone.
func (t providers) update(c program.Update) error {
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.no(c.Payout == nil && c.Inventory == nil && c.Owner == nil, program.ErrData)
	delegate := c.Signer == p.Peer && c.Payout == nil && c.Owner == nil
	t.no(ok && c.Signer != p.Owner && !delegate, program.ErrNotOwner)
	t.no(c.Payout != nil && c.Payout.IsZero() || c.Owner != nil && c.Owner.IsZero(), program.ErrZeroKey)
	if err := t.refused(); err != nil {
		return err
	}
	set(&p.Payout, c.Payout)
	set(&p.Inventory, c.Inventory)
	set(&p.Owner, c.Owner)
	p.Sequence++
	t.Providers[c.Provider] = p
	return nil
}

func set[V any](to *V, from *V) {
	if from != nil {
		*to = *from
	}
}

// add saturates.
func add(a, b uint64) uint64 {
	if a+b < a {
		return ^uint64(0)
	}
	return a + b
}

func (t *tx) ownedBy(p account.Provider, ok bool, owner sign.Key) {
	t.no(ok && owner != p.Owner, program.ErrNotOwner)
}

func (t *tx) networkOf(p account.Provider, ok bool, network sign.Key) (account.Network, bool) {
	t.no(ok && network != p.Network, program.ErrAddress)
	return find(t, t.Networks, network)
}

// stake: any key adds.
func (t providers) stake(c program.Stake) error {
	t.no(c.Amount == 0, program.ErrAmount)
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.no(ok && c.Vault != account.StakeAddress(t.Program, c.Provider), program.ErrAddress)
	t.sum(t.sum(p.Stake, c.Amount), p.Unbonding)
	t.mint(c.Mint)
	t.move(c.Source, c.Vault, c.Mint, c.Authority, c.Amount)
	if err := t.refused(); err != nil {
		return err
	}
	t.moved(c.Source, c.Vault, c.Amount)
	p.Stake += c.Amount
	t.Providers[c.Provider] = p
	return nil
}

// requestUnstake: unbonded stake can be requested, and waits longer than evidence is admissible. Another request
// restarts the wait for all of it.
func (t providers) requestUnstake(c program.RequestUnstake) error {
	t.no(c.Amount == 0, program.ErrAmount)
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.ownedBy(p, ok, c.Owner)
	n, _ := t.networkOf(p, ok, c.Network)
	t.no(ok && c.Amount > p.Stake, program.ErrStakeShort)
	t.no(ok && c.Amount <= p.Stake && p.Stake-c.Amount < p.Bonded, program.ErrBonded)
	ready := t.sum(t.now, n.Rules.UnbondingSlots)
	if err := t.refused(); err != nil {
		return err
	}
	p.Stake, p.Unbonding, p.Ready = p.Stake-c.Amount, p.Unbonding+c.Amount, ready
	t.Providers[c.Provider] = p
	return nil
}

// withdraw: the owner takes the stake that has waited.
func (t providers) withdraw(c program.Withdraw) error {
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.ownedBy(p, ok, c.Owner)
	t.no(ok && c.Vault != account.StakeAddress(t.Program, c.Provider), program.ErrAddress)
	t.no(c.Destination == c.Vault, program.ErrDuplicate)
	t.no(ok && p.Unbonding == 0, program.ErrNothingDue)
	t.no(ok && t.now < p.Ready, program.ErrEarly)
	t.mint(c.Mint)
	t.move(c.Vault, c.Destination, c.Mint, c.Provider, p.Unbonding)
	if err := t.refused(); err != nil {
		return err
	}
	t.moved(c.Vault, c.Destination, p.Unbonding)
	p.Unbonding, p.Ready = 0, 0
	t.Providers[c.Provider] = p
	return nil
}
