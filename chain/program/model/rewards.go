package model

import (
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// payouts are the calls about the rewards of an epoch.
type payouts struct{ *tx }

// initEmission: any key opens the account that the emission is paid from, if the network has an emission.
func (t payouts) initEmission(c program.InitEmission) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	t.no(ok && n.Params.Votes.Emission == 0, program.ErrNoVotes)
	t.no(ok && c.Mint != n.Params.StakeMint, program.ErrMint)
	t.create(c.Emission, account.EmissionAddress(t.Program, c.Network))
	if err := t.refused(); err != nil {
		return err
	}
	t.open(c.Payer, c.Emission, c.Mint, c.Network)
	return nil
}

// source adds the reasons why an account is not the source of rewards, or the one they return to.
func (t payouts) source(n account.Network, network sign.Key, source uint8, at, mint sign.Key) {
	of, must := n.Params.StakeMint, account.EmissionAddress(t.Program, network)
	if source > 0 {
		of, must = n.Params.Mints[source-1].Mint, account.PoolAddress(t.Program, network, mint)
	}
	t.no(mint != of, program.ErrMint)
	t.no(at != must, program.ErrAddress)
}

// accept: an amount that more than two thirds of all bonded stake confirmed is set aside, once for an epoch.
func (t payouts) accept(c program.Accept) error {
	b, ok := find(t.tx, t.Ballots, c.Ballot)
	if !ok {
		return t.refused()
	}
	t.no(c.Network != b.Network, program.ErrAddress)
	t.no(b.Done, program.ErrOver)
	t.no(b.Subject != account.SubjectRewards, program.ErrSubject)
	n, ok := find(t.tx, t.Networks, c.Network)
	if !ok || b.Subject != account.SubjectRewards || c.Network != b.Network {
		return t.refused()
	}
	w := b.Rewards
	t.inTime(n, w)
	t.no(!b.Carried(), program.ErrNotCarried)
	t.source(n, c.Network, w.Source, c.Source, c.Mint)
	t.create(c.Payout, account.PayoutAddress(t.Program, c.Network, w.Source, w.Epoch))
	t.create(c.Vault, account.RewardsAddress(t.Program, c.Payout))
	t.no(t.Tokens[c.Source].Amount < w.Sum, ErrToken)
	t.mint(c.Mint)
	emitted := n.Emitted
	if w.Source == 0 {
		emitted = t.sum(emitted, w.Sum)
	}
	stays := t.sum(t.now, n.Params.Votes.Claiming())
	if err := t.refused(); err != nil {
		return err
	}
	_, bump := svm.FindAddress(t.Program, account.PayoutSeeds(c.Network, w.Source, w.Epoch)...)
	_, vaultBump := svm.FindAddress(t.Program, account.RewardsSeeds(c.Payout)...)
	t.Payouts[c.Payout] = account.Payout{Bump: bump, VaultBump: vaultBump, Source: w.Source, Network: c.Network,
		RentPayer: c.Payer, Root: w.Root, Epoch: w.Epoch, Sum: w.Sum, Stays: stays, Count: w.Count,
		Claimed: make([]byte, (w.Count+7)/8)}
	t.pay(c.Payer, account.PayoutSize(w.Count))
	t.open(c.Payer, c.Vault, c.Mint, c.Payout)
	t.moved(c.Source, c.Vault, w.Sum)
	n.Emitted, b.Done = emitted, true
	t.Networks[c.Network], t.Ballots[c.Ballot] = n, b
	return nil
}

// claimReward: each payee once, into its associated token account, out of the amount set aside.
func (t payouts) claimReward(c program.ClaimReward) error {
	p, ok := find(t.tx, t.Payouts, c.Payout)
	if !ok {
		return t.refused()
	}
	t.no(c.Vault != account.RewardsAddress(t.Program, c.Payout), program.ErrAddress)
	t.no(c.Destination == c.Vault, program.ErrDuplicate)
	to, there := t.holding(c.Destination)
	t.no(there && to.Mint != c.Mint, program.ErrMint)
	t.known(c.Destination, c.Mint, to.Owner, c.Payee)
	t.mint(c.Mint)
	t.path(p.Root, account.RewardLeaf(to.Owner, c.Amount), uint64(c.Index), uint64(p.Count), c.Path)
	t.no(p.WasPaid(c.Index), program.ErrClaimed)
	t.sum(p.Paid, c.Amount)
	t.move(c.Vault, c.Destination, c.Mint, c.Payout, c.Amount)
	if err := t.refused(); err != nil {
		return err
	}
	t.moved(c.Vault, c.Destination, c.Amount)
	p.Claimed = slices.Clone(p.Claimed)
	p.Claimed[c.Index/8] |= 1 << (c.Index % 8)
	p.Claims++
	p.Paid += c.Amount
	t.Payouts[c.Payout] = p
	return nil
}

// closePayout: after its time the unclaimed rest goes back to its source.
func (t payouts) closePayout(c program.ClosePayout) error {
	p, ok := find(t.tx, t.Payouts, c.Payout)
	if !ok {
		return t.refused()
	}
	t.no(c.Vault != account.RewardsAddress(t.Program, c.Payout) || c.RentPayer != p.RentPayer || c.Network != p.Network,
		program.ErrAddress)
	if n, ok := find(t.tx, t.Networks, c.Network); ok && c.Network == p.Network {
		t.source(n, c.Network, p.Source, c.Source, c.Mint)
	}
	t.no(t.now <= p.Stays, program.ErrEarly)
	left := t.Tokens[c.Vault].Amount
	if err := t.refused(); err != nil {
		return err
	}
	t.moved(c.Vault, c.Source, left)
	delete(t.Tokens, c.Vault)
	delete(t.Payouts, c.Payout)
	t.repay(p.RentPayer, account.PayoutSize(p.Count))
	t.repay(p.RentPayer, svm.TokenSize)
	return nil
}
