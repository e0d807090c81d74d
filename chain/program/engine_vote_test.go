package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

// council is a desk with a network that votes, where three providers have stake: 2000, 500 and 700.
type council struct {
	*desk
	params            account.Params
	at                sign.Key // the network
	great, less, idle seller
	emission          sign.Key
	stranger          sign.Private
	opened            uint64 // slot of the last ballot
}

// newCouncil makes the network; two of the providers bond all they have, when the bonds were tried.
func newCouncil(t *testing.T, e programtest.Engine, id sign.Key, voting uint64) *council {
	return newCouncilWith(t, e, id, voting, 10)
}

// newCouncilWith has evidence count for so many slots.
func newCouncilWith(t *testing.T, e programtest.Engine, id sign.Key, voting, evidence uint64) *council {
	d := newDesk(t, e, id)
	d.until(45) // so that epochs are over
	c := &council{desk: d, params: d.params(evidence, evidence+1), stranger: named("stranger")}
	c.params.Votes = account.Votes{VotingSlots: voting, LockSlots: 3, LeastBonded: 2200, LeastBond: 400, Emission: 900_000, FirstSlot: 1, EpochSlots: 20, EpochsOfMonth: 100}
	c.at = account.NetworkAddress(id, c.params)
	c.emission = account.EmissionAddress(id, c.at)
	d.must("network that votes", one(program.InitNetwork{Payer: d.wallet.Key(), Network: c.at, Params: c.params}.Instruction(id)))
	c.great, c.less, c.idle = d.seller(c.at, "great", 2000), d.seller(c.at, "less", 500), d.seller(c.at, "idle", 700)
	return c
}

func TestVotesOnEngines(t *testing.T) {
	t.Parallel()
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		c := newCouncil(t, e, id, 200)
		c.bonding()
		c.rewarding()
		c.ruling()
	})
}

// TestVotesInTime is about slots to the one: only one engine's clock can be set.
func TestVotesInTime(t *testing.T) {
	t.Parallel()
	e := programtest.LiteSVM(t)
	c := newCouncil(t, e, programtest.Deploy(t, e, program.ELF), 12)
	c.until(10_000)
	c.bond(c.great, 2000)
	c.bond(c.less, 500)
	c.init()
	c.votesInTime()
	c.rewardsInTime()
}

func (c *council) bonds(s seller, amount uint64) svm.Instruction {
	return program.Bond{Owner: s.owner.Key(), Network: c.at, Provider: s.address, Amount: amount}.Instruction(c.program)
}

func (c *council) release(s seller, amount uint64) svm.Instruction {
	return program.Release{Owner: s.owner.Key(), Network: c.at, Provider: s.address, Amount: amount}.Instruction(c.program)
}

// bond bonds, and waits until the bond votes in ballots that are opened.
func (c *council) bond(s seller, amount uint64) {
	c.Helper()
	c.must("bond", one(c.bonds(s, amount)), s.owner)
	c.raised(s)
}

// raised waits until the slot after that in which the program saw the last bond: an engine may be asked for its slot
// before it counts the one in which a transaction ran.
func (c *council) raised(s seller) {
	c.Helper()
	c.until(c.provider(s).Raised + 1)
}

func (c *council) init() {
	c.Helper()
	c.must("emission", one(program.InitEmission{Payer: c.wallet.Key(), Network: c.at, Mint: c.token, Emission: c.emission}.Instruction(c.program)))
	c.fill(c.token, c.emission, 900_000)
}

// fill mints into a token account.
func (c *council) fill(mint, to sign.Key, amount uint64) {
	c.Helper()
	c.must("fill", one(svm.Instruction{Program: svm.TokenProgram, Data: u64([]byte{7}, amount), Accounts: []svm.Meta{
		{Key: mint, Writable: true}, {Key: to, Writable: true}, {Key: c.wallet.Key(), Signer: true}}}))
}

func (c *council) network() account.Network {
	c.Helper()
	a, err := c.Account(c.Context(), c.at)
	if err != nil || a == nil {
		c.Fatalf("network: %+v, %v", a, err)
	}
	n, err := account.UnmarshalNetwork(a.Data)
	if err != nil {
		c.Fatal(err)
	}
	return n
}

func (c *council) ballot(at sign.Key) account.Ballot {
	c.Helper()
	a, err := c.Account(c.Context(), at)
	if err != nil || a == nil {
		c.Fatalf("ballot: %+v, %v", a, err)
	}
	b, err := account.UnmarshalBallot(a.Data)
	if err != nil {
		c.Fatal(err)
	}
	return b
}

func (c *council) bonding() {
	s := c.great
	good := c.bonds(s, 2000)
	c.deny("bond nothing", program.ErrAmount, c.bonds(s, 0), s.owner)
	c.deny("bond more than the stake", program.ErrStakeShort, c.bonds(s, 2001), s.owner)
	c.deny("bond the most there is", program.ErrStakeShort, c.bonds(s, ^uint64(0)), s.owner)
	c.deny("bond too little", program.ErrMinStake, c.bonds(s, 499), s.owner)
	c.deny("bond by a stranger", program.ErrNotOwner, with(good, 0, c.stranger.Key()), c.stranger)
	c.deny("bond by the peer key", program.ErrNotOwner, with(good, 0, s.peer.Key()), s.peer)
	c.deny("bond unsigned", program.ErrNotSigner, edit(good, unsigned(0)))
	c.deny("bond in another network", program.ErrAddress, with(good, 1, c.hasty), s.owner)
	c.deny("bond read-only", program.ErrNotWritable, edit(good, readOnly(1)), s.owner)
	c.deny("bond for good of nobody", program.ErrNotWritable, edit(good, readOnly(2)), s.owner)
	c.deny("bond a network", program.ErrKind, with(good, 2, c.at), s.owner)
	c.deny("bond a vault", program.ErrOwner, with(good, 2, s.vault), s.owner)
	c.deny("bond with more data", program.ErrData, edit(good, longer), s.owner)
	silent := c.seller(c.patient, "where nothing is voted on", 1000)
	c.deny("bond where nothing is voted on", program.ErrNoVotes,
		program.Bond{Owner: silent.owner.Key(), Network: c.patient, Provider: silent.address, Amount: 1000}.Instruction(c.program), silent.owner)

	c.must("bond", one(good), s.owner)
	c.deny("bond beyond what counts", program.ErrOverflow, c.bonds(s, ^uint64(0)), s.owner)
	c.deny("unstake what is bonded", program.ErrBonded, c.request(s, 1), s.owner)
	c.raised(s)
	c.deny("propose while too little is bonded", program.ErrQuorum, c.proposal(s, c.rules(501)), s.owner)
	c.bond(c.less, 500)
	if n, p := c.network(), c.provider(s); n.Bonded != 2500 || p.Bonded != 2000 || p.Stake != 2000 || p.Raised == 0 {
		c.Errorf("bonded: %d in the network, %+v", n.Bonded, p)
	}
	c.deny("release nothing", program.ErrAmount, c.release(s, 0), s.owner)
	c.deny("release more than is bonded", program.ErrNotBonded, c.release(s, 2001), s.owner)
	c.deny("release by a stranger", program.ErrNotOwner, with(c.release(s, 1), 0, c.stranger.Key()), c.stranger)
	c.deny("release unsigned", program.ErrNotSigner, edit(c.release(s, 1), unsigned(0)))
	c.deny("release in another network", program.ErrAddress, with(c.release(s, 1), 1, c.hasty), s.owner)
	c.must("release", one(c.release(s, 100)), s.owner)
	c.must("bond again", one(c.bonds(s, 100)), s.owner)
	c.raised(s)
}

// rules are the network's with another least stake.
func (c *council) rules(least uint64) account.Rules {
	r := c.params.Rules()
	r.MinStake = least
	return r
}

func (c *council) proposal(s seller, r account.Rules) svm.Instruction {
	c.Helper()
	c.opened = c.now()
	return program.ProposeRules{Payer: c.wallet.Key(), Owner: s.owner.Key(), Network: c.at, Provider: s.address,
		Ballot: account.BallotAddress(c.program, c.at, s.address, c.opened), Opened: c.opened, Rules: r}.Instruction(c.program)
}

func (c *council) rewardsProposal(s seller, w account.Rewards) svm.Instruction {
	c.Helper()
	c.opened = c.now()
	return program.ProposeRewards{Payer: c.wallet.Key(), Signer: s.peer.Key(), Network: c.at, Provider: s.address,
		Ballot: account.BallotAddress(c.program, c.at, s.address, c.opened), Opened: c.opened, Rewards: w}.Instruction(c.program)
}

// open opens a ballot, and says where it is.
func (c *council) open(name string, in svm.Instruction, by sign.Private) sign.Key {
	c.Helper()
	c.must(name, one(in), by)
	return in.Accounts[4].Key
}

func (c *council) vote(s seller, by sign.Private, ballot sign.Key, yes bool) svm.Instruction {
	c.Helper()
	return program.CastVote{Payer: c.wallet.Key(), Signer: by.Key(), Provider: s.address, Ballot: ballot,
		Vote: account.VoteAddress(c.program, c.ballot(ballot).Topic(ballot), s.address), For: yes}.Instruction(c.program)
}

// epoch is the last that is over.
func (c *council) epoch() uint64 {
	c.Helper()
	return (c.now()-c.params.Votes.FirstSlot)/c.params.Votes.EpochSlots - 1
}

// worked is a root of rewards for three payees, the last of whom gets what the others leave and more.
type worked struct {
	account.Rewards
	to      [3]sign.Private
	amounts [3]uint64
	tree    *merkle.Tree
}

func (c *council) worked(source uint8, epoch, sum uint64) worked {
	w := worked{Rewards: account.Rewards{Source: source, Count: 3, Epoch: epoch, Sum: sum}, amounts: [3]uint64{30, sum - 60, 31}}
	leaves := make([][]byte, 3)
	for i, name := range []string{"payee a", "payee b", "payee c"} {
		w.to[i] = named(name)
		leaves[i] = account.RewardLeaf(w.to[i].Key(), w.amounts[i])
	}
	w.tree = merkle.New(leaves)
	w.Root = w.tree.Root()
	return w
}

func (c *council) acceptance(w account.Rewards, ballot sign.Key) program.Accept {
	a := program.Accept{Payer: c.wallet.Key(), Network: c.at, Ballot: ballot, Source: c.emission, Mint: c.token,
		Payout: account.PayoutAddress(c.program, c.at, w.Source, w.Epoch)}
	if w.Source == 1 {
		a.Source, a.Mint = account.PoolAddress(c.program, c.at, c.other), c.other
	}
	a.Vault = account.RewardsAddress(c.program, a.Payout)
	return a
}

func (c *council) claimed(w worked, a program.Accept, i int, to sign.Key) svm.Instruction {
	c.Helper()
	path, err := w.tree.Prove(i)
	if err != nil {
		c.Fatal(err)
	}
	return program.ClaimReward{Payout: a.Payout, Vault: a.Vault, Destination: to, Mint: a.Mint, Index: uint32(i), Amount: w.amounts[i], Path: path}.Instruction(c.program)
}

func (c *council) rewarding() {
	good := program.InitEmission{Payer: c.wallet.Key(), Network: c.at, Mint: c.token, Emission: c.emission}.Instruction(c.program)
	c.deny("emission where there is none", program.ErrNoVotes, with(good, 1, c.patient))
	c.deny("emission of another mint", program.ErrMint, with(good, 2, c.other))
	c.deny("emission elsewhere", program.ErrAddress, with(good, 3, c.stranger.Key()))
	c.deny("emission unsigned", program.ErrNotSigner, edit(with(good, 0, c.stranger.Key()), unsigned(0)))
	c.init()
	c.deny("emission twice", program.ErrExists, good)

	s, epoch := c.great, c.epoch()
	allowed := c.params.Votes.Allowance(epoch)
	w := c.worked(0, epoch, allowed)
	other := func(change func(*account.Rewards)) svm.Instruction {
		c.Helper()
		r := w.Rewards
		change(&r)
		return c.rewardsProposal(s, r)
	}
	c.deny("propose more than the schedule gives", program.ErrAllowance, other(func(r *account.Rewards) { r.Sum++ }), s.peer)
	c.deny("propose all there is", program.ErrAllowance, other(func(r *account.Rewards) { r.Sum = ^uint64(0) }), s.peer)
	c.deny("propose nothing", program.ErrAmount, other(func(r *account.Rewards) { r.Sum = 0 }), s.peer)
	c.deny("propose for nobody", program.ErrIndex, other(func(r *account.Rewards) { r.Count = 0 }), s.peer)
	c.deny("propose for too many", program.ErrIndex, other(func(r *account.Rewards) { r.Count = account.MaxPayees + 1 }), s.peer)
	c.deny("propose for an epoch that is not over", program.ErrEpoch, other(func(r *account.Rewards) { r.Epoch += 50 }), s.peer)
	c.deny("propose for an epoch that never is", program.ErrOverflow, other(func(r *account.Rewards) { r.Epoch = ^uint64(0) }), s.peer)
	c.deny("propose from a pool that there is not", program.ErrMint, other(func(r *account.Rewards) { r.Source = 2 }), s.peer)
	c.deny("propose by another's peer key", program.ErrNotOwner, with(c.rewardsProposal(s, w.Rewards), 1, c.stranger.Key()), c.stranger)
	c.deny("propose without anything bonded", program.ErrNotBonded, c.rewardsProposal(c.idle, w.Rewards), c.idle.peer)
	c.must("bond again what was released", one(c.release(c.less, 101)), c.less.owner)
	c.deny("propose with a base unit less than the least bond", program.ErrNotBonded, c.rewardsProposal(c.less, w.Rewards), c.less.peer)
	c.must("bond again what was released", one(c.bonds(c.less, 101)), c.less.owner)
	c.raised(c.less)

	at := c.open("propose rewards", c.rewardsProposal(s, w.Rewards), s.peer)
	accept := c.acceptance(w.Rewards, at)
	c.deny("accept what nobody confirmed", program.ErrNotCarried, accept.Instruction(c.program))
	c.deny("vote against rewards", program.ErrData, c.vote(s, s.peer, at, false), s.peer)
	c.must("confirm by the lesser", one(c.vote(c.less, c.less.peer, at, true)), c.less.peer)
	c.deny("accept what too few confirmed", program.ErrNotCarried, accept.Instruction(c.program))
	c.must("confirm", one(c.vote(s, s.peer, at, true)), s.peer)
	c.deny("confirm twice", program.ErrExists, c.vote(s, s.peer, at, true), s.peer)
	c.until(c.now() + 1)
	rival := c.worked(0, epoch, allowed/2)
	second := c.open("propose others", c.rewardsProposal(s, rival.Rewards), s.peer)
	c.deny("confirm another root of the epoch", program.ErrExists, c.vote(s, s.peer, second, true), s.peer)
	c.moving(at, second)

	c.notAccepted(accept)
	c.must("accept", one(accept.Instruction(c.program)))
	c.deny("accept twice", program.ErrOver, accept.Instruction(c.program))
	if n := c.network(); n.Emitted != allowed || c.balance(accept.Vault) != allowed || c.balance(c.emission) != 900_000-allowed {
		c.Errorf("accepted: %d emitted, %d in the vault, %d left, want %d", n.Emitted, c.balance(accept.Vault), c.balance(c.emission), allowed)
	}
	c.claiming(w, accept)
}

// moving has both voters leave a ballot on an epoch's rewards for another on the same epoch, and come back.
func (c *council) moving(at, second sign.Key) {
	s := c.great
	move := func(s seller, from, to sign.Key) svm.Instruction {
		c.Helper()
		return program.CastVote{Payer: c.wallet.Key(), Signer: s.peer.Key(), Provider: s.address, Ballot: to, Former: from,
			Vote: account.VoteAddress(c.program, c.ballot(to).Topic(to), s.address), For: true}.Instruction(c.program)
	}
	good := move(s, at, second)
	c.deny("move a vote from a ballot that it was not cast on", program.ErrAddress, with(good, 6, c.at), s.peer)
	c.deny("move a vote to where it is", program.ErrExists, move(s, second, at), s.peer)
	c.deny("move a vote from a ballot that is only read", program.ErrNotWritable, edit(good, readOnly(6)), s.peer)
	c.deny("move another's vote", program.ErrAddress, with(good, 4, account.VoteAddress(c.program, c.ballot(at).Topic(at), c.less.address)), s.peer)
	c.must("move a vote", one(good), s.peer)
	if a, b := c.ballot(at), c.ballot(second); a.For != 500 || b.For != 2000 || a.Carried() || !b.Carried() {
		c.Errorf("moved: for %d of %d and %d of %d", a.For, a.Total, b.For, b.Total)
	}
	c.deny("move a vote twice", program.ErrExists, good, s.peer)
	c.must("move a vote back", one(move(s, second, at)), s.peer)
	if a, b := c.ballot(at), c.ballot(second); a.For != 2500 || b.For != 0 {
		c.Errorf("moved back: for %d and %d", a.For, b.For)
	}
}

func (c *council) notAccepted(accept program.Accept) {
	good := accept.Instruction(c.program)
	c.deny("accept from another account", program.ErrAddress, with(good, 3, c.many))
	c.deny("accept in another mint", program.ErrMint, with(good, 4, c.other))
	c.deny("accept elsewhere", program.ErrAddress, with(good, 5, c.stranger.Key()))
	c.deny("accept into another vault", program.ErrAddress, with(good, 6, c.stranger.Key()))
	c.deny("accept in another network", program.ErrAddress, with(good, 1, c.hasty))
	c.deny("accept a network", program.ErrKind, with(good, 2, c.at))
	c.deny("accept what another program holds", program.ErrOwner, with(good, 2, c.emission))
	c.deny("accept by another token program", program.ErrAddress, with(good, 7, svm.SystemProgram))
	c.deny("accept unsigned", program.ErrNotSigner, edit(with(good, 0, c.stranger.Key()), unsigned(0)))
	c.deny("accept with data", program.ErrData, edit(good, longer))
	for _, place := range []int{1, 2, 3, 5, 6} {
		c.deny("accept read-only", program.ErrNotWritable, edit(good, readOnly(place)))
	}
}

func (c *council) claiming(w worked, a program.Accept) {
	var to [3]sign.Key
	for i, k := range w.to {
		to[i] = c.tokens("reward "+string(rune('a'+i)), c.token, k.Key(), 0)
	}
	wrong := c.tokens("reward of another mint", c.other, w.to[0].Key(), 0)
	good := c.claimed(w, a, 0, to[0])
	c.deny("claim more", program.ErrRoot, edit(good, func(in *svm.Instruction) { in.Data[5]++ }))
	c.deny("claim another's", program.ErrRoot, with(good, 2, to[1]))
	c.deny("claim as another", program.ErrRoot, edit(good, func(in *svm.Instruction) { in.Data[1] = 1 }))
	c.deny("claim past the end", program.ErrIndex, edit(good, func(in *svm.Instruction) { in.Data[1] = 3 }))
	c.deny("claim by a short path", program.ErrPath, edit(good, func(in *svm.Instruction) { in.Data = in.Data[:len(in.Data)-32]; in.Data[13]-- }))
	c.deny("claim into the vault", program.ErrDuplicate, with(good, 2, a.Vault))
	c.deny("claim from another vault", program.ErrAddress, with(good, 1, c.emission))
	c.deny("claim into another mint", program.ErrMint, with(good, 2, wrong))
	c.deny("claim of a ballot", program.ErrKind, with(good, 0, a.Ballot))
	c.deny("claim cut off", program.ErrData, edit(good, cut))
	c.deny("claim read-only", program.ErrNotWritable, edit(good, readOnly(0)))
	aside := c.aside("reward, where its payee does not look", c.token, w.to[0].Key(), 0)
	c.deny("claim into an account that the payee does not look at", program.ErrAddress, with(good, 2, aside))
	c.must("claim a reward", one(good))
	c.deny("claim a reward twice", program.ErrClaimed, good)
	c.must("claim the great reward", one(c.claimed(w, a, 1, to[1])))
	c.deny("claim more than was set aside", tokenFunds, c.claimed(w, a, 2, to[2]))
	if got := [...]uint64{c.balance(to[0]), c.balance(to[1]), c.balance(to[2]), c.balance(a.Vault)}; got != [...]uint64{30, w.Sum - 60, 0, 30} {
		c.Errorf("claimed %d of %d", got, w.Sum)
	}
	end := program.ClosePayout{Payout: a.Payout, Vault: a.Vault, Source: a.Source, Mint: a.Mint, Network: c.at, RentPayer: c.wallet.Key()}.Instruction(c.program)
	c.deny("close a payout early", program.ErrEarly, end)
	c.deny("close a payout for another", program.ErrAddress, with(end, 6, c.stranger.Key()))
	c.deny("close a payout into another's account", program.ErrAddress, with(end, 2, to[2]))
	c.deny("close a payout in another mint", program.ErrMint, with(end, 3, c.other))
	c.deny("close a payout in another network", program.ErrAddress, with(end, 4, c.hasty))
}

func (c *council) ruling() {
	c.until(c.opened + 1) // for another address
	s, want := c.great, c.rules(501)
	want.Fees[0] = account.Fees{FeeBps: 300, BurnBps: 5000, PoolBps: 5000}
	lawless := func(change func(*account.Rules)) svm.Instruction {
		c.Helper()
		r := c.rules(501)
		change(&r)
		return c.proposal(s, r)
	}
	c.deny("propose too short a response", program.ErrParams, lawless(func(r *account.Rules) { r.ResponseSlots = 9 }), s.owner)
	c.deny("propose too long a response", program.ErrParams, lawless(func(r *account.Rules) { r.ResponseSlots = 41 }), s.owner)
	c.deny("propose too short an unbonding", program.ErrParams, lawless(func(r *account.Rules) { r.UnbondingSlots = 10 }), s.owner)
	c.deny("propose too long an unbonding", program.ErrParams, lawless(func(r *account.Rules) { r.UnbondingSlots = 45 }), s.owner)
	c.deny("propose too little stake", program.ErrParams, lawless(func(r *account.Rules) { r.MinStake = 124 }), s.owner)
	c.deny("propose too much stake", program.ErrParams, lawless(func(r *account.Rules) { r.MinStake = ^uint64(0) }), s.owner)
	c.deny("propose that too little burns", program.ErrParams, lawless(func(r *account.Rules) { r.Fees[0].BurnBps, r.Fees[0].PoolBps = 1999, 8001 }), s.owner)
	c.deny("propose too high a fee", program.ErrParams, lawless(func(r *account.Rules) { r.Fees[0].FeeBps = 1001 }), s.owner)
	c.deny("propose no fees", program.ErrData, lawless(func(r *account.Rules) { r.Fees = nil }), s.owner)
	c.deny("propose fees of two", program.ErrData, lawless(func(r *account.Rules) { r.Fees = append(r.Fees, r.Fees[0]) }), s.owner)
	good := c.proposal(s, want)
	c.deny("propose what there is not", program.ErrSubject, edit(good, func(in *svm.Instruction) { in.Data[9] = 4 }), s.owner)
	c.deny("propose by the peer key", program.ErrNotOwner, with(good, 1, s.peer.Key()), s.peer)
	c.deny("propose unsigned", program.ErrNotSigner, edit(good, unsigned(1)))
	c.deny("propose in another network", program.ErrAddress, with(good, 2, c.hasty), s.owner)
	c.deny("propose elsewhere", program.ErrAddress, with(good, 4, c.stranger.Key()), s.owner)
	c.deny("propose for later", program.ErrOpened, edit(good, func(in *svm.Instruction) { in.Data[5] = 1 }), s.owner)
	at := c.open("propose rules", good, s.owner)
	c.deny("propose twice", program.ErrExists, good, s.owner)
	c.until(c.now() + 1)
	rival := c.open("propose other rules", c.proposal(s, c.rules(502)), s.owner)

	c.must("bond late", one(c.bonds(c.idle, 700)), c.idle.owner)
	c.deny("vote with what was bonded later", program.ErrNotBonded, c.vote(c.idle, c.idle.owner, at, true), c.idle.owner)
	yes := c.vote(s, s.owner, at, true)
	c.deny("vote by a stranger", program.ErrNotOwner, with(yes, 1, c.stranger.Key()), c.stranger)
	c.deny("vote by the peer key", program.ErrNotOwner, with(yes, 1, s.peer.Key()), s.peer)
	c.deny("vote unsigned", program.ErrNotSigner, edit(yes, unsigned(1)))
	c.deny("vote with another's place", program.ErrAddress, with(yes, 4, account.VoteAddress(c.program, sign.Hash(at), c.less.address)), s.owner)
	c.deny("vote neither way", program.ErrData, edit(yes, func(in *svm.Instruction) { in.Data[1] = 2 }), s.owner)
	c.deny("vote on a network", program.ErrKind, with(yes, 3, c.at), s.owner)
	elsewhere := c.seller(c.hasty, "elsewhere", 1000)
	c.deny("vote from another network", program.ErrOtherNetwork, with(with(yes, 1, elsewhere.owner.Key()), 2, elsewhere.address), elsewhere.owner)
	for _, place := range []int{2, 3, 4} {
		c.deny("vote read-only", program.ErrNotWritable, edit(yes, readOnly(place)), s.owner)
	}
	c.must("vote against", one(c.vote(c.less, c.less.owner, at, false)), c.less.owner)
	c.must("vote", one(yes), s.owner)
	c.deny("vote twice", program.ErrExists, yes, s.owner)
	c.deny("vote twice, the other way", program.ErrExists, c.vote(s, s.owner, at, false), s.owner)
	c.must("vote for the rival", one(c.vote(s, s.owner, rival, true)), s.owner)
	c.deny("release while the vote runs", program.ErrFrozen, c.release(s, 1), s.owner)
	c.deny("unstake while the vote runs", program.ErrBonded, c.request(s, 1), s.owner)

	enact := program.Enact{Network: c.at, Ballot: at}.Instruction(c.program)
	c.deny("enact at once", program.ErrEarly, enact)
	c.deny("enact in another network", program.ErrAddress, with(enact, 0, c.hasty))
	c.deny("enact read-only", program.ErrNotWritable, edit(enact, readOnly(0)))
	c.until(c.ballot(rival).Ripe)
	c.must("enact", one(enact))
	if n := c.network(); n.Sequence != 1 || n.Rules.MinStake != 501 || n.Rules.Fees[0] != want.Fees[0] || n.Params.MinStake != 500 {
		c.Errorf("enacted: %+v", n)
	}
	c.deny("enact twice", program.ErrOver, enact)
	c.deny("enact what was voted on before", program.ErrSuperseded, with(enact, 1, rival))
	c.deny("accept rules", program.ErrSubject, program.Accept{Payer: c.wallet.Key(), Network: c.at, Ballot: rival, Source: c.emission, Mint: c.token,
		Payout: c.stranger.Key(), Vault: c.stranger.Key()}.Instruction(c.program))
	c.must("release after the vote", one(c.release(s, 1)), s.owner)
	gone := program.CloseVote{Vote: yes.Accounts[4].Key, RentPayer: c.wallet.Key()}.Instruction(c.program)
	c.deny("close another's vote", program.ErrAddress, with(gone, 1, c.stranger.Key()))
	c.deny("close a ballot as a vote", program.ErrKind, with(gone, 0, at))
	c.must("close a vote", one(gone))
}

func (c *council) votesInTime() {
	s := c.great
	start := c.now()
	old := c.proposal(s, c.rules(400))
	c.until(start + 151)
	c.deny("propose 151 slots late", program.ErrOpened, old, s.owner)
	at := c.open("propose in time", c.proposal(s, c.rules(400)), s.owner)
	b := c.ballot(at)
	if b.Ends != b.Opened+12 || b.Ripe != b.Ends+4 || b.Dead != b.Ripe+12 || b.Total != 2500 {
		c.Errorf("opened %+v", b)
	}
	c.until(b.Ends)
	c.must("vote in the last slot", one(c.vote(s, s.owner, at, true)), s.owner)
	gone := program.CloseVote{Vote: account.VoteAddress(c.program, sign.Hash(at), s.address), RentPayer: c.wallet.Key()}.Instruction(c.program)
	c.deny("close a vote in its last slot", program.ErrEarly, gone)
	c.deny("release in the last slot", program.ErrFrozen, c.release(s, 1), s.owner)
	c.until(b.Ends + 1)
	c.deny("vote late", program.ErrOver, c.vote(c.less, c.less.owner, at, true), c.less.owner)
	c.must("release in the next slot", one(c.release(s, 1)), s.owner)
	c.bond(s, 1)
	enact := program.Enact{Network: c.at, Ballot: at}.Instruction(c.program)
	c.until(b.Ripe - 1)
	c.deny("enact a slot early", program.ErrEarly, enact)
	lost := c.open("propose what half is against", c.proposal(s, c.rules(450)), s.owner)
	c.must("vote for it", one(c.vote(c.less, c.less.owner, lost, true)), c.less.owner)
	c.until(b.Dead + 1)
	c.deny("enact a slot late", program.ErrOver, enact)
	end := program.CloseBallot{Ballot: at, RentPayer: c.wallet.Key()}.Instruction(c.program)
	c.deny("close a ballot whose address could return", program.ErrEarly, end)
	c.until(c.ballot(lost).Ripe)
	c.deny("enact without half", program.ErrNotCarried, with(enact, 1, lost))
	c.until(b.Opened + 150)
	c.deny("close a ballot a slot early", program.ErrEarly, end)
	c.until(b.Opened + 151)
	c.deny("close another's ballot", program.ErrAddress, with(end, 1, c.stranger.Key()))
	c.must("close a ballot", one(end))
	c.must("close a vote after its ballot", one(gone))
	if got := c.network(); got.Sequence != 0 || got.Rules.MinStake != 500 {
		c.Errorf("without a vote: %+v", got)
	}
}

func (c *council) rewardsInTime() {
	s, v := c.great, c.params.Votes
	epoch := c.epoch() + 1
	end := v.EpochEnd(epoch)
	w := c.worked(1, epoch, 1000)
	c.until(end - 1)
	c.deny("propose a slot before the epoch is over", program.ErrEpoch, c.rewardsProposal(s, w.Rewards), s.peer)
	c.until(end)
	at := c.open("propose as the epoch is over", c.rewardsProposal(s, w.Rewards), s.peer)
	c.must("confirm in time", one(c.vote(s, s.owner, at, true)), s.owner)
	c.until(end + v.Month())
	accept := c.acceptance(w.Rewards, at)
	c.deny("accept in what is no mint", program.ErrMint, with(accept.Instruction(c.program), 4, c.stranger.Key()))
	pool := account.PoolAddress(c.program, c.at, c.other)
	c.must("pool of the council", one(program.InitPool{Payer: c.wallet.Key(), Network: c.at, Mint: c.other, Pool: pool}.Instruction(c.program)))
	c.deny("accept more than is in the pool", tokenFunds, accept.Instruction(c.program))
	c.fill(c.other, pool, 1500)
	c.until(end + v.Month() + 1)
	c.deny("accept a month late", program.ErrEpoch, accept.Instruction(c.program))

	epoch = c.epoch()
	w = c.worked(1, epoch, 1000)
	at = c.open("propose from the pool", c.rewardsProposal(s, w.Rewards), s.peer)
	c.must("confirm from the pool", one(c.vote(s, s.owner, at, true)), s.owner)
	accept = c.acceptance(w.Rewards, at)
	c.must("accept from the pool", one(accept.Instruction(c.program)))
	stays := c.now() + v.Claiming()
	to := c.tokens("reward of the pool", c.other, w.to[1].Key(), 0)
	c.must("claim from the pool", one(c.claimed(w, accept, 1, to)))
	gone := program.ClosePayout{Payout: accept.Payout, Vault: accept.Vault, Source: accept.Source, Mint: c.other, Network: c.at, RentPayer: c.wallet.Key()}.Instruction(c.program)
	c.until(stays)
	c.deny("close a payout a slot early", program.ErrEarly, gone)
	c.until(stays + 1)
	before := c.lamports(c.wallet.Key())
	c.must("close a payout", one(gone))
	if back := c.lamports(c.wallet.Key()) - before; c.balance(pool) != 560 || c.balance(to) != 940 || back+5000 != svm.Rent(account.PayoutSize(3))+svm.Rent(svm.TokenSize) {
		c.Errorf("closed: %d in the pool, %d paid, %d lamports back", c.balance(pool), c.balance(to), back)
	}
	if n := c.network(); n.Emitted != 0 {
		c.Errorf("a pool's rewards count as emitted: %d", n.Emitted)
	}
}
