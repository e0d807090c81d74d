package modeltest

import (
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// voteCalls makes the calls about bonds, ballots and rewards of a world.
type voteCalls struct{ *World }

// Votes of these worlds: short, so that a few steps cross them.
var votes = account.Votes{VotingSlots: 20, LockSlots: 5, LeastBonded: 600, LeastBond: 150, Emission: 90_000_000,
	FirstSlot: 1, EpochSlots: 20, EpochsOfMonth: 4}

// payees are those of a root of rewards.
type payees []struct {
	to     sign.Key
	amount uint64
}

func (p payees) leaves() [][]byte {
	out := make([][]byte, len(p))
	for i, x := range p {
		out[i] = account.RewardLeaf(x.to, x.amount)
	}
	return out
}

// firstVote has the first provider bond, fills the emission's account, accepts rewards of an epoch and pays one. It
// votes for other rules, which do not hold yet, and for rewards of the pool, which are not accepted yet.
func (w voteCalls) firstVote(network, provider sign.Key, do func(program.Call, ...svm.Signed)) {
	p := w.Providers[provider]
	mint := w.Mints[1]
	emission := account.EmissionAddress(w.Program, network)
	do(program.InitEmission{Payer: p.Owner, Network: network, Mint: mint, Emission: emission})
	// An owner withdraws its stake into any account: so tokens come there by a call of this program.
	stake := w.stakeOf(provider, p.Owner, votes.Emission)
	do(stake)
	do(program.RequestUnstake{Owner: p.Owner, Network: network, Provider: provider, Amount: votes.Emission})
	w.Slot += w.Networks[network].Rules.UnbondingSlots
	do(program.Withdraw{Owner: p.Owner, Provider: provider, Vault: stake.Vault, Destination: emission, Mint: mint})

	do(program.Bond{Owner: p.Owner, Network: network, Provider: provider, Amount: 700})
	w.Slot++ // stake bonded in a slot votes in ballots of the next
	c := w.rewardsOf(network, provider, 0, 90)
	do(c)
	b := w.Ballots[c.Ballot]
	do(program.CastVote{Payer: p.Owner, Signer: p.Peer, Provider: provider, Ballot: c.Ballot,
		Vote: account.VoteAddress(w.Program, b.Topic(c.Ballot), provider), For: true})
	do(w.acceptance(c.Ballot, p.Owner))
	do(w.rewardClaim(account.PayoutAddress(w.Program, network, 0, c.Rewards.Epoch), 1))

	w.Slot++ // for another address
	rules := w.Networks[network].Rules
	rules.MinStake--
	r := program.ProposeRules{Payer: p.Owner, Owner: p.Owner, Network: network, Provider: provider,
		Ballot: account.BallotAddress(w.Program, network, provider, w.Slot), Opened: w.Slot, Rules: rules}
	do(r)
	do(program.CastVote{Payer: p.Owner, Signer: p.Owner, Provider: provider, Ballot: r.Ballot,
		Vote: account.VoteAddress(w.Program, sign.Hash(r.Ballot), provider), For: true})

	w.Slot++
	next := w.rewardsOf(network, provider, 1, 9)
	do(next)
	b = w.Ballots[next.Ballot]
	do(program.CastVote{Payer: p.Owner, Signer: p.Peer, Provider: provider, Ballot: next.Ballot,
		Vote: account.VoteAddress(w.Program, b.Topic(next.Ballot), provider), For: true})
}

// rewardsOf opens a ballot on the rewards of the last epoch.
func (w voteCalls) rewardsOf(network, provider sign.Key, source uint8, sum uint64) program.ProposeRewards {
	p := w.Providers[provider]
	v := w.Networks[network].Params.Votes
	r := account.Rewards{Source: source, Sum: sum, Count: uint32(1 + w.choice(9))}
	if v.On() {
		r.Epoch = (w.Slot-v.FirstSlot)/v.EpochSlots - 1
	}
	var paid payees
	for i := range r.Count {
		paid = append(paid, struct {
			to     sign.Key
			amount uint64
		}{w.people[int(i)%People].Key(), sum / uint64(r.Count)})
	}
	if sum == 90 {
		r.Count, paid = 3,
			append(payees{}, payees{{w.people[1].Key(), 30}, {w.people[2].Key(), 31}, {w.people[3].Key(), 29}}...)
	}
	r.Root, r.Table = merkle.Root(paid.leaves()), sign.Sum([]byte("table"))
	w.paid[r.Root] = paid
	return program.ProposeRewards{Payer: p.Owner, Signer: one(w.World, []sign.Key{p.Owner, p.Peer}), Network: network,
		Provider: provider, Ballot: account.BallotAddress(w.Program, network, provider, w.Slot), Opened: w.Slot,
		Rewards: r}
}

func (w voteCalls) acceptance(ballot, payer sign.Key) program.Accept {
	b := w.Ballots[ballot]
	c := program.Accept{Payer: payer, Network: b.Network, Ballot: ballot,
		Payout: account.PayoutAddress(w.Program, b.Network, b.Rewards.Source, b.Rewards.Epoch)}
	c.Source, c.Mint = w.sourceOf(b.Network, b.Rewards.Source)
	c.Vault = account.RewardsAddress(w.Program, c.Payout)
	return c
}

func (w voteCalls) sourceOf(network sign.Key, source uint8) (at, mint sign.Key) {
	n := w.Networks[network]
	if source == 0 || int(source) > len(n.Params.Mints) {
		return account.EmissionAddress(w.Program, network), n.Params.StakeMint
	}
	mint = n.Params.Mints[source-1].Mint
	return account.PoolAddress(w.Program, network, mint), mint
}

func (w voteCalls) rewardClaim(payout sign.Key, i uint32) program.ClaimReward {
	p := w.Payouts[payout]
	paid := w.paid[p.Root]
	path, err := merkle.New(paid.leaves()).Prove(int(i))
	if err != nil {
		w.t.Fatal(err)
	}
	_, mint := w.sourceOf(p.Network, p.Source)
	return program.ClaimReward{Payout: payout, Vault: account.RewardsAddress(w.Program, payout),
		Destination: Account(paid[i].to, mint), Mint: mint, Index: i, Amount: paid[i].amount, Path: path}
}

// bonded returns a provider, preferably with a bond.
func (w voteCalls) bonded() (at sign.Key, p account.Provider, ok bool) {
	with := map[sign.Key]account.Provider{}
	for k, p := range w.Providers {
		if p.Bonded > 0 {
			with[k] = p
		}
	}
	if len(with) == 0 || w.oneIn(8) {
		return w.staked()
	}
	return pick(w.World, with)
}

func (w voteCalls) bond() (program.Call, []svm.Signed) {
	at, p, ok := w.staked()
	if !ok {
		return nil, nil
	}
	return program.Bond{Owner: p.Owner, Network: p.Network, Provider: at, Amount: w.amount(p.Stake - p.Bonded + 1)}, nil
}

func (w voteCalls) release() (program.Call, []svm.Signed) {
	at, p, ok := w.bonded()
	if !ok || !w.oneIn(3) {
		return nil, nil
	}
	return program.Release{Owner: p.Owner, Network: p.Network, Provider: at, Amount: w.amount(p.Bonded + 1)}, nil
}

func (w voteCalls) proposeRules() (program.Call, []svm.Signed) {
	at, p, ok := w.bonded()
	if !ok {
		return nil, nil
	}
	n := w.Networks[p.Network]
	r := n.Rules
	r.Fees = slices.Clone(r.Fees)
	switch w.choice(8) {
	case 0:
		r.ResponseSlots = uint32(w.upTo(5 * response))
	case 1:
		r.UnbondingSlots = w.upTo(5 * unbonding)
	case 2:
		r.MinStake = w.upTo(5 * minStake)
	case 3:
		r.Fees[0].FeeBps = uint16(w.upTo(1100))
	case 4:
		r.Fees[0].BurnBps, r.Fees[0].PoolBps = r.Fees[0].PoolBps, r.Fees[0].BurnBps
	default:
		r.ResponseSlots, r.Fees[0] = response+uint32(w.choice(40)), account.Fees{FeeBps: 10 + uint16(w.choice(900)),
			BurnBps: 5000, TreasuryBps: 2500, ReferrerBps: 2500}
	}
	return program.ProposeRules{Payer: w.person(), Owner: p.Owner, Network: p.Network, Provider: at,
		Ballot: account.BallotAddress(w.Program, p.Network, at, w.Slot), Opened: w.Slot, Rules: r}, nil
}

func (w voteCalls) proposeRewards() (program.Call, []svm.Signed) {
	at, p, ok := w.bonded()
	if !ok {
		return nil, nil
	}
	n := w.Networks[p.Network]
	source := uint8(w.choice(len(n.Params.Mints) + 1))
	from, _ := w.sourceOf(p.Network, source)
	most := w.Tokens[from].Amount
	if v := n.Params.Votes; source == 0 && v.On() {
		most = v.Allowance((w.Slot-v.FirstSlot)/v.EpochSlots - 1)
	}
	c := w.rewardsOf(p.Network, at, source, w.amount(most+1))
	if w.oneIn(6) {
		c.Rewards.Epoch += w.upTo(3) - 2
	}
	return c, nil
}

// openBallot returns a ballot, preferably one still open for votes.
func (w voteCalls) openBallot() (at sign.Key, b account.Ballot, ok bool) {
	with := map[sign.Key]account.Ballot{}
	for k, b := range w.Ballots {
		if !b.Done && w.Slot <= b.Ends {
			with[k] = b
		}
	}
	if len(with) == 0 || w.oneIn(8) {
		return pick(w.World, w.Ballots)
	}
	return pick(w.World, with)
}

func (w voteCalls) castVote() (program.Call, []svm.Signed) {
	ballot, b, ok := w.openBallot()
	at, p, some := w.bonded()
	if !ok || !some {
		return nil, nil
	}
	c := program.CastVote{Payer: w.person(), Signer: p.Owner, Provider: at, Ballot: ballot,
		Vote: account.VoteAddress(w.Program, b.Topic(ballot), at), For: !w.oneIn(8)}
	if w.oneIn(3) {
		c.Signer = p.Peer
	}
	if v, there := w.Votes[c.Vote]; there && !w.oneIn(5) || w.oneIn(20) {
		c.Former = v.Ballot
	}
	return c, nil
}

func (w voteCalls) closeVote() (program.Call, []svm.Signed) {
	at, v, ok := pick(w.World, w.Votes)
	if !ok || w.Slot <= v.Ends && !w.oneIn(5) {
		return nil, nil
	}
	return program.CloseVote{Vote: at, RentPayer: v.RentPayer}, nil
}

// carried is a ballot about a subject, more often one with enough votes that has not taken effect.
func (w voteCalls) carried(s account.Subject) (at sign.Key, b account.Ballot, ok bool) {
	with, all := map[sign.Key]account.Ballot{}, map[sign.Key]account.Ballot{}
	for k, b := range w.Ballots {
		if b.Subject == s {
			all[k] = b
			if b.Carried() && !b.Done {
				with[k] = b
			}
		}
	}
	if len(with) == 0 && !w.oneIn(3) {
		return at, b, false
	}
	if len(with) == 0 || w.oneIn(8) {
		return pick(w.World, all)
	}
	return pick(w.World, with)
}

func (w voteCalls) enact() (program.Call, []svm.Signed) {
	at, b, ok := w.carried(account.SubjectRules)
	if !ok {
		return nil, nil
	}
	if w.Land == nil && !w.Together && w.Slot < b.Ripe && w.oneIn(2) {
		w.Slot = b.Ripe
	}
	return program.Enact{Network: b.Network, Ballot: at}, nil
}

func (w voteCalls) accept() (program.Call, []svm.Signed) {
	at, _, ok := w.carried(account.SubjectRewards)
	if !ok {
		return nil, nil
	}
	return w.acceptance(at, w.person()), nil
}

func (w voteCalls) closeBallot() (program.Call, []svm.Signed) {
	at, b, ok := pick(w.World, w.Ballots)
	if !ok || w.Slot <= b.Dead && !w.oneIn(6) {
		return nil, nil
	}
	return program.CloseBallot{Ballot: at, RentPayer: b.RentPayer}, nil
}

func (w voteCalls) initEmission() (program.Call, []svm.Signed) {
	without := map[sign.Key]account.Network{}
	for at, n := range w.Networks {
		if _, there := w.Tokens[account.EmissionAddress(w.Program, at)]; !there && n.Params.Votes.On() {
			without[at] = n
		}
	}
	if len(without) == 0 && w.oneIn(6) {
		without = w.Networks
	}
	at, n, ok := pick(w.World, without)
	if !ok {
		return nil, nil
	}
	return program.InitEmission{Payer: w.person(), Network: at, Mint: n.Params.StakeMint,
		Emission: account.EmissionAddress(w.Program, at)}, nil
}

func (w voteCalls) claimReward() (program.Call, []svm.Signed) {
	at, p, ok := pick(w.World, w.Payouts)
	if !ok || w.paid[p.Root] == nil {
		return nil, nil
	}
	return w.rewardClaim(at, uint32(w.choice(len(w.paid[p.Root])))), nil
}

func (w voteCalls) closePayout() (program.Call, []svm.Signed) {
	at, p, ok := pick(w.World, w.Payouts)
	if !ok || !w.oneIn(3) {
		return nil, nil
	}
	if w.Land == nil && !w.Together && w.Slot <= p.Stays && w.oneIn(3) {
		w.Slot = p.Stays + 1
	}
	c := program.ClosePayout{Payout: at, Vault: account.RewardsAddress(w.Program, at), Network: p.Network,
		RentPayer: p.RentPayer}
	c.Source, c.Mint = w.sourceOf(p.Network, p.Source)
	return c, nil
}
