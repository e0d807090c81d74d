package model_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// town is a chain on which every call of a test succeeds as it stands. A test changes one thing at a time.
type town struct {
	t       *testing.T
	s       *model.State
	slot    uint64
	network sign.Key
	keys    market.KeySet
	core    market.LeaseCore
	funding func() (at, tr sign.Key, leaf tranche.Leaf, proof tranche.Proof)
	chain   *escrowtest.Chain
}

// newTown has a network with votes, and an escrow with two leases, which are paid for by a voucher.
func newTown(t *testing.T) *town {
	p := escrowtest.Params()
	p.Votes = account.Votes{VotingSlots: 20, LockSlots: 5, LeastBonded: 600, LeastBond: 150, Emission: 90_000, FirstSlot: 1,
		EpochSlots: 20, EpochsOfMonth: 4}
	c := escrowtest.New(escrowtest.Net(t, p))
	w := &town{t: t, chain: c, slot: c.Root, network: c.Net.Address(), keys: escrowtest.KeySet(t, 2, "a", "b", "c")}
	var cores []market.LeaseCore
	for i := range 2 {
		cores = append(cores, escrowtest.Lease(i, w.keys, market.Slot(w.slot), market.Slot(w.slot)+50, market.Slot(w.slot)+100))
	}
	f := c.Lock(t, w.keys, market.Slot(w.slot)+200, cores...)[0]
	w.core, w.s = cores[0], c.Final
	at := c.Net.EscrowOf(w.core, f)
	w.funding = func() (sign.Key, sign.Key, tranche.Leaf, tranche.Proof) {
		return at, account.TrancheAddress(c.Net.Program, at, 0), tranche.LeafOf(w.core, f.Index), slices.Clone(f.Proof)
	}
	w.hold("payout", escrowtest.Key("payouta"), 0)
	w.hold("stake", escrowtest.Key("owner of stake"), 10_000)
	return w
}

// hold gives a wallet's associated token account an amount, out of nothing.
func (w *town) hold(_ string, owner sign.Key, amount uint64) {
	w.s.Tokens[svm.TokenAccount(owner, w.chain.Net.Mint)] = svm.Token{Mint: w.chain.Net.Mint, Owner: owner, Amount: amount, Plain: true}
}

// deny applies a call to a copy: it is refused for this rule, and changes nothing.
func (w *town) deny(name string, rule error, call program.Call, beside ...svm.Signed) {
	w.t.Helper()
	w.denyAt(name, w.slot, rule, call, beside...)
}

func (w *town) denyAt(name string, slot uint64, rule error, call program.Call, beside ...svm.Signed) {
	w.t.Helper()
	s := w.s.Clone()
	if err := s.Apply(slot, call, beside...); !errors.Is(err, rule) || !reflect.DeepEqual(s, w.s) {
		w.t.Errorf("%s: %v, want %v, changed %v", name, err, rule, !reflect.DeepEqual(s, w.s))
	}
}

// do applies a call that must succeed.
func (w *town) do(name string, call program.Call, beside ...svm.Signed) {
	w.t.Helper()
	if err := w.s.Apply(w.slot, call, beside...); err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
}

func with[C any](c C, change func(*C)) C {
	change(&c)
	return c
}

func TestOpeningRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	net, buyer := w.chain.Net, escrowtest.Key("buyer")
	at := net.Escrow(buyer, market.OrderID{7}, w.slot)
	good := program.OpenEscrow{Payer: buyer, Buyer: buyer, Source: escrowtest.Key("source"), Authority: buyer, Escrow: at,
		Vault: account.VaultAddress(net.Program, at), Mint: net.Mint, Network: w.network, Order: market.OrderID{7}, Opened: w.slot,
		Deadline: w.slot + 100, Deposit: 1000, RefundOwner: escrowtest.Key("owner"), MintIndex: net.MintIndex(), Keys: w.keys}
	for name, c := range map[string]struct {
		rule   error
		change func(*program.OpenEscrow)
	}{
		"no network":       {program.ErrOwner, func(c *program.OpenEscrow) { c.Network = escrowtest.Key("x") }},
		"not a network":    {program.ErrKind, func(c *program.OpenEscrow) { c.Network, _, _, _ = w.funding() }},
		"other mint":       {program.ErrMint, func(c *program.OpenEscrow) { c.MintIndex = 0 }},
		"no such mint":     {program.ErrMint, func(c *program.OpenEscrow) { c.MintIndex = 9 }},
		"threshold 0":      {program.ErrKeySet, func(c *program.OpenEscrow) { c.Keys.Threshold = 0 }},
		"threshold 4 of 3": {program.ErrKeySet, func(c *program.OpenEscrow) { c.Keys.Threshold = 4 }},
		"keys twice":       {program.ErrKeySet, func(c *program.OpenEscrow) { c.Keys.Keys = []sign.Key{c.Keys.Keys[0], c.Keys.Keys[0]} }},
		"nine standbys":    {program.ErrStandby, func(c *program.OpenEscrow) { c.Standbys = make([]account.Standby, 9) }},
		"slot to come":     {program.ErrOpened, func(c *program.OpenEscrow) { c.Opened++ }},
		"old slot":         {program.ErrOpened, func(c *program.OpenEscrow) { c.Opened -= account.OpeningSlots + 1 }},
		"over at once":     {program.ErrDeadline, func(c *program.OpenEscrow) { c.Deadline = w.slot }},
		"for ever":         {program.ErrDeadline, func(c *program.OpenEscrow) { c.Deadline = 1 << 40 }},
		"no deposit":       {program.ErrAmount, func(c *program.OpenEscrow) { c.Deposit = 0 }},
		"no refund owner":  {program.ErrTokenOwner, func(c *program.OpenEscrow) { c.RefundOwner = sign.Key{} }},
		"other address":    {program.ErrAddress, func(c *program.OpenEscrow) { c.Order[0]++ }},
		"other vault":      {program.ErrAddress, func(c *program.OpenEscrow) { c.Vault = escrowtest.Key("x") }},
		"not its tokens":   {model.ErrToken, func(c *program.OpenEscrow) { c.Authority = escrowtest.Key("x") }},
		"more than it has": {model.ErrToken, func(c *program.OpenEscrow) { c.Deposit = escrowtest.Wealth + 1 }},
	} {
		w.deny(name, c.rule, with(good, c.change))
	}
	w.do("open", good)
	w.deny("twice", program.ErrExists, good)
	root := tranche.Root{Hash: sign.Hash{1}, Sum: 600, Count: 3}
	add := program.AddTranche{Payer: buyer, Buyer: buyer, Escrow: at, Vault: good.Vault, Tranche: account.TrancheAddress(net.Program, at, 0), Root: root}
	for name, c := range map[string]struct {
		rule   error
		change func(*program.AddTranche)
	}{
		"other buyer":   {program.ErrAddress, func(c *program.AddTranche) { c.Buyer = escrowtest.Key("x") }},
		"other number":  {program.ErrLeaf, func(c *program.AddTranche) { c.Index = 1 }},
		"no leaves":     {program.ErrIndex, func(c *program.AddTranche) { c.Root.Count = 0 }},
		"257 leaves":    {program.ErrIndex, func(c *program.AddTranche) { c.Root.Count = account.MaxLeaves + 1 }},
		"other vault":   {program.ErrAddress, func(c *program.AddTranche) { c.Vault = escrowtest.Key("x") }},
		"too much":      {program.ErrAmount, func(c *program.AddTranche) { c.Root.Sum = 1001 }},
		"other address": {program.ErrAddress, func(c *program.AddTranche) { c.Tranche = escrowtest.Key("x") }},
		"no escrow":     {program.ErrOwner, func(c *program.AddTranche) { c.Escrow = escrowtest.Key("x") }},
	} {
		w.deny(name, c.rule, with(add, c.change))
	}
	w.denyAt("after the deadline", good.Deadline, program.ErrDeadline, add)
	w.do("add", add)
	if e := w.s.Escrows[at]; e.Outstanding != 600 || e.Tranches != 1 || w.s.Tokens[good.Vault].Amount != 1000 {
		t.Errorf("escrow %+v", e)
	}
	second := with(add, func(c *program.AddTranche) { c.Index, c.Tranche = 1, account.TrancheAddress(net.Program, at, 1) })
	w.deny("more than is free", program.ErrAmount, second)
	top := program.TopUp{Escrow: at, Vault: good.Vault, Source: good.Source, Authority: buyer, Mint: net.Mint, Amount: 200}
	w.deny("top up nothing", program.ErrAmount, with(top, func(c *program.TopUp) { c.Amount = 0 }))
	w.deny("top up elsewhere", program.ErrAddress, with(top, func(c *program.TopUp) { c.Vault = escrowtest.Key("x") }))
	w.deny("top up from itself", program.ErrDuplicate, with(top, func(c *program.TopUp) { c.Source = c.Vault }))
	w.deny("top up another mint", program.ErrMint, with(top, func(c *program.TopUp) { c.Mint = escrowtest.Key("other mint") }))
	w.do("top up", top)
	w.do("add with it", second)
}

func TestClaimRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.slot += 30
	net := w.chain.Net
	at, tr, leaf, proof := w.funding()
	voucher := func(cumulative market.Amount, names ...string) svm.Signed {
		f := w.core
		return program.VoucherSigned(net.Domain(), escrowtest.Voucher(t, net, f, fundingOf(w), verify.Voucher{Seq: 1, Cumulative: cumulative}, w.keys, names...))
	}
	good := program.Claim{Escrow: at, Tranche: tr, Vault: account.VaultAddress(net.Program, at), Mint: net.Mint, Network: w.network,
		Destination: svm.TokenAccount(w.core.Payout, net.Mint), Leaf: leaf, Proof: proof}
	paid := voucher(250, "a", "b")
	for name, c := range map[string]struct {
		rule   error
		change func(*program.Claim)
	}{
		"no escrow":        {program.ErrOwner, func(c *program.Claim) { c.Escrow = escrowtest.Key("x") }},
		"other network":    {program.ErrAddress, func(c *program.Claim) { c.Network = escrowtest.Key("x") }},
		"other vault":      {program.ErrAddress, func(c *program.Claim) { c.Vault = escrowtest.Key("x") }},
		"into the vault":   {program.ErrDuplicate, func(c *program.Claim) { c.Destination = c.Vault }},
		"other mint":       {program.ErrMint, func(c *program.Claim) { c.Mint = escrowtest.Key("other mint") }},
		"other wallet":     {program.ErrRoot, func(c *program.Claim) { c.Destination = svm.TokenAccount(escrowtest.Key("owner"), net.Mint) }},
		"no account":       {program.ErrOwner, func(c *program.Claim) { c.Destination = escrowtest.Key("x") }},
		"other place":      {program.ErrRoot, func(c *program.Claim) { c.Leaf.Index = 1 }},
		"no such place":    {program.ErrIndex, func(c *program.Claim) { c.Leaf.Index = 2 }},
		"dearer":           {program.ErrRoot, func(c *program.Claim) { c.Leaf.Rate *= 2 }},
		"larger cap":       {program.ErrSum, func(c *program.Claim) { c.Leaf.Cap *= 2 }},
		"no path":          {program.ErrPath, func(c *program.Claim) { c.Proof = nil }},
		"no signatures":    {program.ErrNoInstruction, func(c *program.Claim) { c.Ed = 2 }},
		"itself as signed": {program.ErrPrecompile, func(c *program.Claim) { c.Ed = 1 }},
	} {
		w.deny(name, c.rule, with(good, c.change), paid)
	}
	w.deny("one signature of two", program.ErrThreshold, good, voucher(250, "a"))
	w.deny("forged", model.ErrSignature, good, with(voucher(250, "a", "b"), func(s *svm.Signed) { s.Message = append([]byte{1}, s.Message[1:]...) }))
	w.deny("for nothing", program.ErrNothingDue, good, voucher(0, "a", "b"))
	w.do("claim", good, paid)
	w.deny("twice", program.ErrNothingDue, good, paid)
	if got := w.s.Tranches[tr].Leaves[0]; got.Paid != 250 {
		t.Errorf("leaf %+v", got)
	}
	w.do("as far as time has passed", good, voucher(1000, "b", "c"))
	if got := w.s.Tranches[tr].Leaves[0]; got.Paid != 300 {
		t.Errorf("%d were paid for 30 slots of 10", got.Paid)
	}
	if e := w.s.Escrows[at]; e.Paid != 300 || e.Fee != 8 || w.s.Tokens[good.Destination].Amount != 292 {
		t.Errorf("paid %d, fee %d, received %d", e.Paid, e.Fee, w.s.Tokens[good.Destination].Amount)
	}
	begin := program.RetireBegin{Escrow: at, Tranche: tr, Network: w.network, Signers: []sign.Key{escrowtest.Key("buyer")}}
	w.deny("by a stranger", program.ErrThreshold, with(begin, func(c *program.RetireBegin) { c.Signers = []sign.Key{escrowtest.Key("x")} }))
	w.deny("by one key", program.ErrThreshold, with(begin, func(c *program.RetireBegin) { c.Signers = w.keys.Keys[:1] }))
	w.deny("no such leaf", program.ErrIndex, with(begin, func(c *program.RetireBegin) { c.Index = 2 }))
	finish := program.RetireFinish{Escrow: at, Tranche: tr, Leaf: leaf, Proof: proof}
	w.deny("finished before", program.ErrEarly, finish)
	w.do("retire", begin)
	w.deny("retire twice", program.ErrRetired, begin)
	w.denyAt("finished too soon", w.slot+escrowtest.Response, program.ErrEarly, finish)
	w.denyAt("claimed too late", w.slot+escrowtest.Response+1, program.ErrRetired, good, voucher(1000, "a", "b"))
	w.slot += escrowtest.Response + 1
	w.do("finish", finish)
	w.deny("finish twice", program.ErrNothingDue, finish)
	if got := w.s.Tranches[tr]; got.Leaves[0].Freed != 700 || got.Outstanding != 1000 {
		t.Errorf("tranche %+v", got)
	}
}

func fundingOf(w *town) (f escrow.Funding) {
	_, _, leaf, proof := w.funding()
	f.Opened, f.Index, f.Proof = w.chain.Root, leaf.Index, proof
	return f
}

func TestRefundRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	net, buyer := w.chain.Net, escrowtest.Key("buyer")
	at, tr, _, _ := w.funding()
	deadline := w.s.Escrows[at].Deadline
	good := program.Refund{Escrow: at, Vault: account.VaultAddress(net.Program, at), Mint: net.Mint, Network: w.network, Buyer: buyer,
		Destination: svm.TokenAccount(escrowtest.Key("owner"), net.Mint)}
	anyone := with(good, func(c *program.Refund) { c.Buyer = sign.Key{} })
	w.deny("nothing is free", program.ErrNothingDue, good)
	w.do("top up", program.TopUp{Escrow: at, Vault: good.Vault, Source: escrowtest.Key("source"), Authority: buyer, Mint: net.Mint, Amount: 50})
	w.deny("by anybody", program.ErrEarly, anyone)
	w.deny("by another", program.ErrAddress, with(good, func(c *program.Refund) { c.Buyer = escrowtest.Key("x") }))
	w.deny("to another", program.ErrTokenOwner, with(good, func(c *program.Refund) { c.Destination = svm.TokenAccount(escrowtest.Key("payouta"), net.Mint) }))
	w.do("refund", good)
	if e := w.s.Escrows[at]; e.Refunded != 50 || e.State != account.EscrowOpen || e.Outstanding != 2000 {
		t.Errorf("escrow %+v", e)
	}
	closing := program.CloseTranche{Escrow: at, Tranche: tr, RentPayer: buyer}
	w.deny("close what is owed", program.ErrOutstanding, closing)
	w.denyAt("within the margin", deadline+escrowtest.Margin, program.ErrEarly, anyone)
	w.slot = deadline + escrowtest.Margin + 1
	w.do("refund all", anyone)
	if e := w.s.Escrows[at]; e.State != account.EscrowRefunded || e.Outstanding != 0 || w.s.Tokens[good.Vault].Amount != 0 {
		t.Errorf("escrow %+v", e)
	}
	end := program.CloseEscrow{Escrow: at, Vault: good.Vault, Destination: good.Destination, Mint: net.Mint, RentPayer: buyer}
	w.deny("close with a tranche", program.ErrOutstanding, end)
	w.deny("rent to another", program.ErrAddress, with(closing, func(c *program.CloseTranche) { c.RentPayer = escrowtest.Key("x") }))
	w.do("close the tranche", closing)
	w.do("close", end)
	if len(w.s.Escrows)+len(w.s.Tranches) != 0 || w.s.Rent[buyer] != 0 {
		t.Errorf("%d escrows, %d lamports of rent", len(w.s.Escrows), w.s.Rent[buyer])
	}
}

func TestProviderRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	net, owner, peer := w.chain.Net, escrowtest.Key("owner of stake"), escrowtest.Key("peer")
	at := account.ProviderAddress(net.Program, w.network, peer)
	reg := program.Register{Payer: owner, Network: w.network, Mint: net.Mint, Provider: at, Vault: account.StakeAddress(net.Program, at),
		Peer: peer, Owner: owner, Payout: owner}
	w.deny("no payout", program.ErrZeroKey, with(reg, func(c *program.Register) { c.Payout = sign.Key{} }))
	w.deny("other mint", program.ErrAddress, with(reg, func(c *program.Register) { c.Mint = escrowtest.Key("other mint") }))
	w.deny("other peer", program.ErrAddress, with(reg, func(c *program.Register) { c.Peer = escrowtest.Key("x") }))
	w.do("register", reg)
	w.deny("twice", program.ErrExists, reg)
	payout, inventory := escrowtest.Key("new payout"), sign.Hash{9}
	w.deny("update nothing", program.ErrData, program.Update{Signer: owner, Provider: at})
	w.deny("payout by the peer", program.ErrNotOwner, program.Update{Signer: peer, Provider: at, Payout: &payout})
	w.deny("inventory by another", program.ErrNotOwner, program.Update{Signer: escrowtest.Key("x"), Provider: at, Inventory: &inventory})
	w.do("inventory by the peer", program.Update{Signer: peer, Provider: at, Inventory: &inventory})
	w.do("payout by the owner", program.Update{Signer: owner, Provider: at, Payout: &payout})
	if p := w.s.Providers[at]; p.Payout != payout || p.Inventory != inventory || p.Sequence != 2 {
		t.Errorf("provider %+v", p)
	}
	stake := program.Stake{Authority: owner, Source: svm.TokenAccount(owner, net.Mint), Provider: at, Vault: reg.Vault, Mint: net.Mint, Amount: 1000}
	w.deny("stake nothing", program.ErrAmount, with(stake, func(c *program.Stake) { c.Amount = 0 }))
	w.deny("stake too much", model.ErrToken, with(stake, func(c *program.Stake) { c.Amount = 10_001 }))
	w.deny("stake elsewhere", program.ErrAddress, with(stake, func(c *program.Stake) { c.Vault = escrowtest.Key("x") }))
	w.do("stake", stake)
	bond := program.Bond{Owner: owner, Network: w.network, Provider: at, Amount: 700}
	w.deny("bond more than is staked", program.ErrStakeShort, with(bond, func(c *program.Bond) { c.Amount = 1001 }))
	w.deny("bond by the peer", program.ErrNotOwner, with(bond, func(c *program.Bond) { c.Owner = peer }))
	w.do("bond", bond)
	back := program.RequestUnstake{Owner: owner, Network: w.network, Provider: at, Amount: 300}
	w.deny("unstake what is bonded", program.ErrBonded, with(back, func(c *program.RequestUnstake) { c.Amount = 301 }))
	w.deny("unstake more than there is", program.ErrStakeShort, with(back, func(c *program.RequestUnstake) { c.Amount = 1001 }))
	w.deny("unstake by the peer", program.ErrNotOwner, with(back, func(c *program.RequestUnstake) { c.Owner = peer }))
	w.do("unstake", back)
	out := program.Withdraw{Owner: owner, Provider: at, Vault: reg.Vault, Destination: stake.Source, Mint: net.Mint}
	w.denyAt("withdraw too soon", w.slot+79, program.ErrEarly, out)
	w.deny("into the vault", program.ErrDuplicate, with(out, func(c *program.Withdraw) { c.Destination = c.Vault }))
	w.slot += 80
	w.do("withdraw", out)
	w.deny("withdraw twice", program.ErrNothingDue, out)
	if p := w.s.Providers[at]; p.Stake != 700 || p.Bonded != 700 || w.s.Tokens[stake.Source].Amount != 9300 || w.s.Networks[w.network].Bonded != 700 {
		t.Errorf("provider %+v", p)
	}
	w.votes(at, owner, peer)
}

// votes has the one voter that there is change the network's rules.
func (w *town) votes(provider, owner, peer sign.Key) {
	w.t.Helper()
	w.slot++
	rules := w.s.Networks[w.network].Rules
	rules.ResponseSlots *= 2
	ballot := account.BallotAddress(w.chain.Net.Program, w.network, provider, w.slot)
	propose := program.ProposeRules{Payer: owner, Owner: owner, Network: w.network, Provider: provider, Ballot: ballot, Opened: w.slot, Rules: rules}
	w.deny("proposed by the peer", program.ErrNotOwner, with(propose, func(c *program.ProposeRules) { c.Owner = peer }))
	w.deny("fees for no mint", program.ErrData, with(propose, func(c *program.ProposeRules) { c.Rules.Fees = nil }))
	w.deny("at another address", program.ErrAddress, with(propose, func(c *program.ProposeRules) { c.Ballot = owner }))
	w.deny("in a slot to come", program.ErrOpened, with(propose, func(c *program.ProposeRules) { c.Opened++ }))
	w.do("propose", propose)
	b := w.s.Ballots[ballot]
	vote := program.CastVote{Payer: owner, Signer: owner, Provider: provider, Ballot: ballot, For: true,
		Vote: account.VoteAddress(w.chain.Net.Program, b.Topic(ballot), provider)}
	w.deny("vote by the peer", program.ErrNotOwner, with(vote, func(c *program.CastVote) { c.Signer = peer }))
	w.denyAt("vote too late", b.Ends+1, program.ErrOver, vote)
	w.do("vote", vote)
	w.deny("vote twice", program.ErrExists, vote)
	w.deny("release while it votes", program.ErrFrozen, program.Release{Owner: owner, Network: w.network, Provider: provider, Amount: 1})
	enact := program.Enact{Network: w.network, Ballot: ballot}
	w.denyAt("enacted before the lock is over", b.Ripe-1, program.ErrEarly, enact)
	w.denyAt("enacted long after", b.Dead+1, program.ErrOver, enact)
	w.deny("note closed early", program.ErrEarly, program.CloseVote{Vote: vote.Vote, RentPayer: owner})
	w.slot = b.Ripe
	w.do("enact", enact)
	w.deny("enact twice", program.ErrOver, enact)
	if n := w.s.Networks[w.network]; n.Rules.ResponseSlots != rules.ResponseSlots || n.Sequence != 1 {
		w.t.Errorf("rules %+v, sequence %d", n.Rules, n.Sequence)
	}
	w.do("close the note", program.CloseVote{Vote: vote.Vote, RentPayer: owner})
	w.do("release", program.Release{Owner: owner, Network: w.network, Provider: provider, Amount: 700})
}

func TestAnchorRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	author := escrowtest.Key("author")
	receipts := []sign.Hash{{1}, {2}, {3}}
	leaves := [][]byte{receipts[0][:], receipts[1][:], receipts[2][:]}
	root := merkle.Root(leaves)
	at := account.AnchorAddress(w.chain.Net.Program, author, root)
	anchor := program.Anchor{Authority: author, Anchor: at, Root: root, Count: 3}
	w.deny("of nothing", program.ErrIndex, with(anchor, func(c *program.Anchor) { c.Count = 0 }))
	w.deny("elsewhere", program.ErrAddress, with(anchor, func(c *program.Anchor) { c.Anchor = author }))
	w.do("anchor", anchor)
	w.deny("twice", program.ErrExists, anchor)
	for i, r := range receipts {
		prove := program.Prove{Anchor: at, Receipt: r, Index: uint64(i), Path: merkle.Prove(leaves, i)}
		before := w.s.Clone()
		if w.do("prove", prove); !reflect.DeepEqual(before, w.s) {
			t.Error("a proof changes something")
		}
		w.deny("out of range", program.ErrIndex, with(prove, func(c *program.Prove) { c.Index = 3 }))
		w.deny("another receipt", program.ErrRoot, with(prove, func(c *program.Prove) { c.Receipt = sign.Hash{9} }))
		w.deny("a longer path", program.ErrPath, with(prove, func(c *program.Prove) { c.Path = append(slices.Clone(c.Path), sign.Hash{}) }))
	}
	gone := program.CloseAnchor{Anchor: at, Authority: author}
	w.deny("closed by another", program.ErrAddress, with(gone, func(c *program.CloseAnchor) { c.Authority = escrowtest.Key("x") }))
	w.do("close", gone)
	if w.s.Rent[author] != 0 || len(w.s.Anchors) != 0 {
		t.Errorf("%d lamports of rent, %d anchors", w.s.Rent[author], len(w.s.Anchors))
	}
}

func TestRewardRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	net, owner, peer := w.chain.Net, escrowtest.Key("owner of stake"), escrowtest.Key("peer")
	at := account.ProviderAddress(net.Program, w.network, peer)
	w.s.Providers[at] = account.Provider{Network: w.network, Peer: peer, Owner: owner, Payout: owner, Stake: 1000, Bonded: 700}
	n := w.s.Networks[w.network]
	n.Bonded = 700
	w.s.Networks[w.network] = n
	pool := account.PoolAddress(net.Program, w.network, net.Mint)
	w.s.Tokens[pool] = svm.Token{Mint: net.Mint, Owner: w.network, Amount: 1000, Plain: true}
	payees := []sign.Key{escrowtest.Key("payouta"), owner}
	leaves := [][]byte{account.RewardLeaf(payees[0], 300), account.RewardLeaf(payees[1], 400)}
	epoch := (w.slot-1)/20 - 1
	ballot := account.BallotAddress(net.Program, w.network, at, w.slot)
	propose := program.ProposeRewards{Payer: owner, Signer: peer, Network: w.network, Provider: at, Ballot: ballot, Opened: w.slot,
		Rewards: account.Rewards{Source: 2, Epoch: epoch, Sum: 700, Count: 2, Root: merkle.Root(leaves)}}
	for name, c := range map[string]struct {
		rule   error
		change func(*program.ProposeRewards)
	}{
		"by a stranger":    {program.ErrNotOwner, func(c *program.ProposeRewards) { c.Signer = escrowtest.Key("x") }},
		"no such source":   {program.ErrMint, func(c *program.ProposeRewards) { c.Rewards.Source = 3 }},
		"to nobody":        {program.ErrIndex, func(c *program.ProposeRewards) { c.Rewards.Count = 0 }},
		"of nothing":       {program.ErrAmount, func(c *program.ProposeRewards) { c.Rewards.Sum = 0 }},
		"not over yet":     {program.ErrEpoch, func(c *program.ProposeRewards) { c.Rewards.Epoch++ }},
		"long over":        {program.ErrEpoch, func(c *program.ProposeRewards) { c.Rewards.Epoch -= 6 }},
		"too much emitted": {program.ErrAllowance, func(c *program.ProposeRewards) { c.Rewards.Source, c.Rewards.Sum = 0, 1<<40 }},
	} {
		w.deny(name, c.rule, with(propose, c.change))
	}
	w.do("propose", propose)
	accept := program.Accept{Payer: owner, Network: w.network, Ballot: ballot, Source: pool, Mint: net.Mint,
		Payout: account.PayoutAddress(net.Program, w.network, 2, epoch)}
	accept.Vault = account.RewardsAddress(net.Program, accept.Payout)
	w.deny("accepted before the vote", program.ErrNotCarried, accept)
	vote := program.CastVote{Payer: owner, Signer: peer, Provider: at, Ballot: ballot, For: true,
		Vote: account.VoteAddress(net.Program, w.s.Ballots[ballot].Topic(ballot), at)}
	w.deny("against rewards", program.ErrData, with(vote, func(c *program.CastVote) { c.For = false }))
	w.do("vote", vote)
	w.deny("from another source", program.ErrAddress, with(accept, func(c *program.Accept) { c.Source = svm.TokenAccount(owner, net.Mint) }))
	w.deny("in another mint", program.ErrMint, with(accept, func(c *program.Accept) { c.Mint = escrowtest.Key("other mint") }))
	w.do("accept", accept)
	w.deny("accept twice", program.ErrOver, accept)
	claim := program.ClaimReward{Payout: accept.Payout, Vault: accept.Vault, Destination: svm.TokenAccount(payees[0], net.Mint),
		Mint: net.Mint, Amount: 300, Path: merkle.Prove(leaves, 0)}
	w.deny("more than its reward", program.ErrRoot, with(claim, func(c *program.ClaimReward) { c.Amount++ }))
	w.deny("another's reward", program.ErrRoot, with(claim, func(c *program.ClaimReward) { c.Destination = svm.TokenAccount(owner, net.Mint) }))
	w.deny("into the vault", program.ErrDuplicate, with(claim, func(c *program.ClaimReward) { c.Destination = c.Vault }))
	w.do("claim", claim)
	w.deny("claim twice", program.ErrClaimed, claim)
	end := program.ClosePayout{RentPayer: owner, Network: w.network, Payout: accept.Payout, Vault: accept.Vault, Source: pool, Mint: net.Mint}
	w.deny("closed early", program.ErrEarly, end)
	w.slot = w.s.Payouts[accept.Payout].Stays + 1
	w.do("close", end)
	if w.s.Tokens[pool].Amount != 700 || w.s.Tokens[claim.Destination].Amount != 300 || len(w.s.Payouts) != 0 {
		t.Errorf("the pool has %d, the payee %d", w.s.Tokens[pool].Amount, w.s.Tokens[claim.Destination].Amount)
	}
}

func TestNetworkRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	authority := escrowtest.Key("authority")
	hand := program.SetAuthority{Authority: authority, Network: w.network, New: escrowtest.Key("next")}
	w.deny("by another", program.ErrAuthority, with(hand, func(c *program.SetAuthority) { c.Authority = escrowtest.Key("next") }))
	w.do("hand on", hand)
	w.deny("by the former", program.ErrAuthority, hand)
	w.do("give up", program.SetAuthority{Authority: escrowtest.Key("next"), Network: w.network})
	w.deny("by nobody", program.ErrAuthority, program.SetAuthority{Network: w.network, New: authority})
	w.deny("drawn by nobody", program.ErrAuthority, program.DrawPool{Network: w.network, Mint: w.chain.Net.Mint, Amount: 1,
		Pool: account.PoolAddress(w.chain.Net.Program, w.network, w.chain.Net.Mint)})
}

// Anybody creates a network of lawful parameters, at the one address that they make, and the pools of its mints.
func TestFoundingRules(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	p := escrowtest.Params()
	p.Network = "another"
	w.s.Mints[escrowtest.Key("other mint")] = model.Mint{}
	found := program.InitNetwork{Payer: escrowtest.Key("x"), Network: account.NetworkAddress(w.chain.Net.Program, p), Params: p}
	w.deny("of another address", program.ErrAddress, with(found, func(c *program.InitNetwork) { c.Network = w.network }))
	w.deny("of unlawful parameters", program.ErrParams, with(found, func(c *program.InitNetwork) { c.Params.Network = "" }))
	w.deny("of other decimals", program.ErrMint, with(found, func(c *program.InitNetwork) {
		c.Params.Mints = []account.MintTerms{{Mint: w.chain.Net.Mint, Decimals: 9}}
	}))
	w.do("found", found)
	w.deny("twice", program.ErrExists, found)
	pool := program.InitPool{Payer: escrowtest.Key("x"), Network: found.Network, Mint: w.chain.Net.Mint, Index: 1,
		Pool: account.PoolAddress(w.chain.Net.Program, found.Network, w.chain.Net.Mint)}
	w.deny("pool of another mint", program.ErrMint, with(pool, func(c *program.InitPool) { c.Index = 0 }))
	w.deny("pool elsewhere", program.ErrAddress, with(pool, func(c *program.InitPool) { c.Pool = found.Network }))
	w.do("open the pool", pool)
	w.deny("open it twice", program.ErrExists, pool)
}
