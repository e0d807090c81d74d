package model

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// votes are the calls about bonds and ballots.
type votes struct{ *tx }

// bond: an owner lets part of the stake vote, in all at least the least stake.
func (t votes) bond(c program.Bond) error {
	t.no(c.Amount == 0, program.ErrAmount)
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.ownedBy(p, ok, c.Owner)
	n, isNetwork := t.networkOf(p, ok, c.Network)
	t.no(isNetwork && !n.Params.Votes.On(), program.ErrNoVotes)
	after := t.sum(p.Bonded, c.Amount)
	t.no(ok && after > p.Stake, program.ErrStakeShort)
	t.no(isNetwork && after < n.Rules.MinStake, program.ErrMinStake)
	all := t.sum(n.Bonded, c.Amount)
	if err := t.refused(); err != nil {
		return err
	}
	p.Bonded, p.Raised = after, t.now
	n.Bonded = all
	t.Providers[c.Provider], t.Networks[c.Network] = p, n
	return nil
}

// release: bonded stake becomes plain stake, but not during a vote that it took part in.
func (t votes) release(c program.Release) error {
	t.no(c.Amount == 0, program.ErrAmount)
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.ownedBy(p, ok, c.Owner)
	t.networkOf(p, ok, c.Network)
	t.no(ok && c.Amount > p.Bonded, program.ErrNotBonded)
	t.no(ok && t.now <= p.Frozen, program.ErrFrozen)
	if err := t.refused(); err != nil {
		return err
	}
	p.Bonded -= c.Amount
	t.Providers[c.Provider] = p
	t.unbonded(c.Network, c.Amount)
	return nil
}

// unbonded takes from the network's sum.
func (t *tx) unbonded(network sign.Key, amount uint64) {
	n := t.Networks[network]
	n.Bonded -= amount
	t.Networks[network] = n
}

// proposeRules: an owner with the least bond proposes rules within the bounds.
func (t votes) proposeRules(c program.ProposeRules) error {
	b := account.Ballot{Subject: account.SubjectRules, Rules: c.Rules}
	return t.propose(b, c.Opened, c.Payer, c.Owner, c.Network, c.Provider, c.Ballot, func(n account.Network) {
		t.no(n.Params.Allows(c.Rules) != nil, program.ErrParams)
		t.no(len(c.Rules.Fees) != len(n.Params.Mints), program.ErrData)
	})
}

// proposeRewards: an owner with the minimum bond proposes an epoch's rewards, at most the epoch's allowance.
func (t votes) proposeRewards(c program.ProposeRewards) error {
	b := account.Ballot{Subject: account.SubjectRewards, Rewards: c.Rewards}
	return t.propose(b, c.Opened, c.Payer, c.Signer, c.Network, c.Provider, c.Ballot, func(n account.Network) {
		w, v := c.Rewards, n.Params.Votes
		t.no(int(w.Source) > len(n.Params.Mints), program.ErrMint)
		t.no(w.Count == 0 || w.Count > account.MaxPayees, program.ErrIndex)
		t.no(w.Sum == 0, program.ErrAmount)
		if v.On() {
			t.inTime(n, w)
			t.no(w.Source == 0 && w.Sum > v.Allowance(w.Epoch), program.ErrAllowance)
		}
	})
}

// inTime: from an epoch's end for a month its rewards can be voted on and accepted.
func (t *tx) inTime(n account.Network, w account.Rewards) {
	v := n.Params.Votes
	end := v.EpochEnd(w.Epoch)
	t.no(end == ^uint64(0), program.ErrOverflow)
	t.no(t.now < end || t.now > add(end, v.Month()), program.ErrEpoch)
}

func (t votes) propose(
	b account.Ballot, opened uint64, payer, signer, network, provider, ballot sign.Key, about func(account.Network),
) error {
	p, ok := find(t.tx, t.Providers, provider)
	t.speaks(p, ok, signer, b.Subject)
	n, isNetwork := t.networkOf(p, ok, network)
	t.no(ok && isNetwork && p.Bonded < n.Params.Votes.LeastBond, program.ErrNotBonded)
	t.no(opened > t.now || t.now > add(opened, account.OpeningSlots), program.ErrOpened)
	v := n.Params.Votes
	if isNetwork {
		t.no(!v.On(), program.ErrNoVotes)
		t.no(n.Bonded < v.LeastBonded, program.ErrQuorum)
		about(n)
	}
	t.create(ballot, account.BallotAddress(t.Program, network, provider, opened))
	b.Ends = t.sum(t.now, v.VotingSlots)
	b.Ripe = t.sum(t.sum(b.Ends, v.LockSlots), 1)
	b.Dead = t.sum(b.Ripe, v.VotingSlots)
	if err := t.refused(); err != nil {
		return err
	}
	_, b.Bump = svm.FindAddress(t.Program, account.BallotSeeds(network, provider, opened)...)
	b.Network, b.Proposer, b.RentPayer, b.Opened = network, provider, payer, opened
	b.Total, b.Sequence = n.Bonded, n.Sequence
	t.Ballots[ballot] = b
	t.pay(payer, account.BallotSize)
	return nil
}

// speaks: the owner decides; rewards are counted by its machine, so the peer key may speak of them too.
func (t votes) speaks(p account.Provider, ok bool, signer sign.Key, s account.Subject) {
	t.no(ok && signer != p.Owner && (s == account.SubjectRules || signer != p.Peer), program.ErrNotOwner)
}

// castVote: once on a topic, with the whole bond from before the ballot's opening, which stays bonded until the end of
// the vote.
func (t votes) castVote(c program.CastVote) error {
	b, isBallot := find(t.tx, t.Ballots, c.Ballot)
	p, ok := find(t.tx, t.Providers, c.Provider)
	t.no(isBallot && (b.Done || t.now > b.Ends), program.ErrOver)
	if !isBallot || !ok {
		return t.refused()
	}
	t.no(p.Network != b.Network, program.ErrOtherNetwork)
	t.speaks(p, ok, c.Signer, b.Subject)
	t.no(b.Subject != account.SubjectRules && !c.For, program.ErrData)
	t.no(p.Bonded == 0 || p.Raised >= b.Opened, program.ErrNotBonded)
	v, former := account.Vote{Provider: c.Provider, RentPayer: c.Payer, For: c.For}, account.Ballot{}
	if c.Former.IsZero() {
		t.create(c.Vote, account.VoteAddress(t.Program, b.Topic(c.Ballot), c.Provider))
	} else {
		v, former = t.leaves(c, b)
	}
	if err := t.refused(); err != nil {
		return err
	}
	if c.Former.IsZero() {
		_, v.Bump = svm.FindAddress(t.Program, account.VoteSeeds(b.Topic(c.Ballot), c.Provider)...)
		t.pay(c.Payer, account.VoteSize)
	} else {
		former.For -= v.Weight
		t.Ballots[c.Former] = former
	}
	v.Ballot, v.Ends, v.Weight = c.Ballot, b.Ends, p.Bonded
	t.Votes[c.Vote] = v
	if c.For {
		b.For += p.Bonded
	} else {
		b.Against += p.Bonded
	}
	p.Frozen = max(p.Frozen, b.Ends)
	t.Ballots[c.Ballot], t.Providers[c.Provider] = b, p
	return nil
}

// leaves: a vote on rewards moves from one ballot to another on the same epoch, unless the first has taken effect.
func (t votes) leaves(c program.CastVote, b account.Ballot) (account.Vote, account.Ballot) {
	t.no(c.Vote != account.VoteAddress(t.Program, b.Topic(c.Ballot), c.Provider), program.ErrAddress)
	v, ok := find(t.tx, t.Votes, c.Vote)
	t.no(ok && v.Ballot == c.Ballot, program.ErrExists)
	t.no(ok && v.Ballot != c.Former, program.ErrAddress)
	former, ok := find(t.tx, t.Ballots, c.Former)
	t.no(ok && former.Done, program.ErrOver)
	return v, former
}

// closeVote: returns the rent after the end of the vote.
func (t votes) closeVote(c program.CloseVote) error {
	v, ok := find(t.tx, t.Votes, c.Vote)
	t.no(ok && v.RentPayer != c.RentPayer, program.ErrAddress)
	t.no(ok && t.now <= v.Ends, program.ErrEarly)
	if err := t.refused(); err != nil {
		return err
	}
	delete(t.Votes, c.Vote)
	t.repay(v.RentPayer, account.VoteSize)
	return nil
}

// enact: carried rules take effect, within the period that follows the lock, and only if the ballot was opened under
// the rules that it replaces.
func (t votes) enact(c program.Enact) error {
	b, ok := find(t.tx, t.Ballots, c.Ballot)
	if !ok {
		return t.refused()
	}
	t.no(c.Network != b.Network, program.ErrAddress)
	n, ok := find(t.tx, t.Networks, c.Network)
	t.no(b.Done || t.now > b.Dead, program.ErrOver)
	t.no(b.Subject != account.SubjectRules, program.ErrSubject)
	t.no(t.now < b.Ripe, program.ErrEarly)
	t.no(ok && b.Sequence != n.Sequence, program.ErrSuperseded)
	t.no(!b.Carried(), program.ErrNotCarried)
	if err := t.refused(); err != nil {
		return err
	}
	n.Rules = b.Rules
	n.Sequence++
	b.Done = true
	t.Networks[c.Network], t.Ballots[c.Ballot] = n, b
	return nil
}

// closeBallot: returns the rent once the ballot can no longer take effect.
func (t votes) closeBallot(c program.CloseBallot) error {
	b, ok := find(t.tx, t.Ballots, c.Ballot)
	t.no(ok && b.RentPayer != c.RentPayer, program.ErrAddress)
	t.no(ok && (t.now <= b.Dead || t.now <= add(b.Opened, account.OpeningSlots)), program.ErrEarly)
	if err := t.refused(); err != nil {
		return err
	}
	delete(t.Ballots, c.Ballot)
	t.repay(b.RentPayer, account.BallotSize)
	return nil
}
