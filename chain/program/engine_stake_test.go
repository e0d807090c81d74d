package program_test

import (
	"fmt"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
	"github.com/starling-network/starling/verify"
)

// desk is a bench with tokens and networks, where providers register.
type desk struct {
	*bench
	token, other sign.Key // the stake mint; another one
	chain        sign.Hash
	patient      sign.Key // network where evidence always counts, and stake is never ready
	hasty        sign.Key // network of the same id where stake is ready after a slot
	timed        sign.Key // network where evidence counts for 100 slots, and stake is ready after 150
	many         sign.Key // token account with plenty of the stake mint, of the bench's wallet
}

// seller is a registered provider.
type seller struct {
	owner, peer             sign.Private
	network, address, vault sign.Key
}

func newDesk(t *testing.T, e programtest.Engine, id sign.Key) *desk {
	b := newBench(t, e, id, "desk", 1000*sol)
	d := &desk{bench: b, chain: sign.Sum([]byte("chain"))}
	d.token, d.other = b.mint("stake", 9), b.mint("other", 6)
	d.many = b.tokens("many", d.token, b.wallet.Key(), 1<<60)
	d.patient = d.network(1<<40, 1<<40+1)
	d.hasty = d.network(0, 1)
	d.timed = d.network(100, 150)
	return d
}

func (d *desk) params(evidence, unbonding uint64) account.Params {
	return account.Params{Network: "test", Chain: d.chain, Authority: named("authority").Key(), StakeMint: d.token, MarginSlots: 10, ResponseSlots: 10,
		EvidenceSlots: evidence, UnbondingSlots: unbonding, MinStake: 500,
		Mints: []account.MintTerms{{Mint: d.other, FeeBps: 100, BurnBps: 2000, PoolBps: 8000, Decimals: 6}}}
}

func (d *desk) network(evidence, unbonding uint64) sign.Key {
	p := d.params(evidence, unbonding)
	at := account.NetworkAddress(d.program, p)
	d.must(fmt.Sprintf("network with evidence of %d slots", evidence), []svm.Instruction{
		program.InitNetwork{Payer: d.wallet.Key(), Network: at, Params: p}.Instruction(d.program)})
	return at
}

func (d *desk) domain() sign.Domain { return d.params(0, 1).Domain(d.program) }

// unregistered knows where it will be.
func (d *desk) unregistered(network sign.Key, name string) seller {
	s := seller{owner: named("owner of " + name), peer: named("peer of " + name), network: network}
	s.address = account.ProviderAddress(d.program, network, s.peer.Key())
	s.vault = account.StakeAddress(d.program, s.address)
	return s
}

func (d *desk) register(s seller) svm.Instruction {
	return program.Register{Payer: d.wallet.Key(), Owner: s.owner.Key(), Peer: s.peer.Key(), Network: s.network, Provider: s.address, Vault: s.vault,
		Mint: d.token, Payout: named("payout").Key(), Inventory: sign.Sum([]byte("units"))}.Instruction(d.program)
}

// seller registers one that stakes so much.
func (d *desk) seller(network sign.Key, name string, stake uint64) seller {
	d.Helper()
	s := d.unregistered(network, name)
	in := []svm.Instruction{d.register(s)}
	if stake > 0 {
		in = append(in, d.stake(s, stake))
	}
	d.must("register "+name, in, s.owner, s.peer)
	return s
}

func (d *desk) stake(s seller, amount uint64) svm.Instruction {
	return program.Stake{Authority: d.wallet.Key(), Source: d.many, Provider: s.address, Vault: s.vault, Mint: d.token, Amount: amount}.Instruction(d.program)
}

func (d *desk) request(s seller, amount uint64) svm.Instruction {
	return program.RequestUnstake{Owner: s.owner.Key(), Network: s.network, Provider: s.address, Amount: amount}.Instruction(d.program)
}

func (d *desk) withdraw(s seller, to sign.Key) svm.Instruction {
	return program.Withdraw{Owner: s.owner.Key(), Provider: s.address, Vault: s.vault, Destination: to, Mint: d.token}.Instruction(d.program)
}

func (d *desk) provider(s seller) account.Provider {
	d.Helper()
	a, err := d.Account(d.Context(), s.address)
	if err != nil || a == nil || a.Owner != d.program {
		d.Fatalf("provider %s: %+v, %v", s.address, a, err)
	}
	p, err := account.UnmarshalProvider(a.Data)
	if err != nil {
		d.Fatal(err)
	}
	return p
}

// deny runs an instruction that the program has to refuse; the bench's wallet pays.
func (d *desk) deny(name string, want program.Code, in svm.Instruction, signers ...sign.Signer) {
	d.Helper()
	d.run(name, programtest.Custom(0, uint32(want)), []svm.Instruction{in}, append([]sign.Signer{d.wallet}, signers...)...)
}

func TestProvidersOnEngines(t *testing.T) {
	t.Parallel()
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		d := newDesk(t, e, id)
		d.registering()
		d.updating()
		d.staking()
		d.unstaking()
		d.drawing()
	})
}

func (d *desk) registering() {
	s := d.unregistered(d.patient, "one")
	good := d.register(s)
	stranger := named("stranger")
	d.deny("register cut off", program.ErrData, edit(good, func(in *svm.Instruction) { in.Data = in.Data[:64] }), s.owner, s.peer)
	d.deny("register with more", program.ErrData, edit(good, func(in *svm.Instruction) { in.Data = append(in.Data, 0) }), s.owner, s.peer)
	d.deny("register without payout", program.ErrZeroKey, edit(good, func(in *svm.Instruction) { clear(in.Data[1:33]) }), s.owner, s.peer)
	d.deny("register without owner", program.ErrNotSigner, edit(good, func(in *svm.Instruction) { in.Accounts[1].Signer = false }), s.peer)
	d.deny("register another's peer key", program.ErrNotSigner, edit(good, func(in *svm.Instruction) { in.Accounts[2].Signer = false }), s.owner)
	d.deny("register in no network", program.ErrOwner, with(good, 3, stranger.Key()), s.owner, s.peer)
	d.deny("register in another network", program.ErrAddress, with(good, 3, d.hasty), s.owner, s.peer)
	d.deny("register elsewhere", program.ErrAddress, with(good, 4, stranger.Key()), s.owner, s.peer)
	d.deny("register with another vault", program.ErrAddress, with(good, 5, stranger.Key()), s.owner, s.peer)
	d.deny("register with another mint", program.ErrAddress, with(good, 6, d.other), s.owner, s.peer)
	d.deny("register with another token program", program.ErrAddress, with(good, 7, svm.SystemProgram), s.owner, s.peer)
	d.deny("register with another system program", program.ErrAddress, with(good, 8, svm.TokenProgram), s.owner, s.peer)
	d.deny("register read-only", program.ErrNotWritable, edit(good, func(in *svm.Instruction) { in.Accounts[4].Writable = false }), s.owner, s.peer)

	before := d.now()
	d.must("register", []svm.Instruction{good}, s.owner, s.peer)
	got := d.provider(s)
	_, bump := svm.FindAddress(d.program, account.ProviderSeeds(s.network, s.peer.Key())...)
	_, vault := svm.FindAddress(d.program, account.StakeSeeds(s.address)...)
	want := account.Provider{Bump: bump, VaultBump: vault, Network: s.network, Peer: s.peer.Key(), Owner: s.owner.Key(),
		Payout: named("payout").Key(), Inventory: sign.Sum([]byte("units")), Registered: got.Registered}
	if got != want || got.Registered < before {
		d.Errorf("registered %+v, want %+v after slot %d", got, want, before)
	}
	if d.balance(s.vault) != 0 {
		d.Errorf("a vault with %d tokens", d.balance(s.vault))
	}
	d.deny("register again", program.ErrExists, good, s.owner, s.peer)
	d.deny("register in a network that is a provider", program.ErrKind, with(good, 3, s.address), s.owner, s.peer)
}

func (d *desk) updating() {
	s := d.seller(d.patient, "updater", 0)
	next, payout, inventory := named("next owner"), named("next payout").Key(), sign.Sum([]byte("more units"))
	zero := sign.Key{}
	update := func(by sign.Private, u program.Update) svm.Instruction {
		u.Signer, u.Provider = by.Key(), s.address
		return u.Instruction(d.program)
	}
	all := program.Update{Payout: &payout, Inventory: &inventory}
	d.deny("update by a stranger", program.ErrNotOwner, update(next, all), next)
	d.deny("update of payout by the peer key", program.ErrNotOwner, update(s.peer, all), s.peer)
	unsigned := func(in *svm.Instruction) { in.Accounts[0].Signer = false }
	d.deny("update without signature", program.ErrNotSigner, edit(update(s.owner, all), unsigned))
	d.deny("update by the peer key without signature", program.ErrNotSigner, edit(update(s.peer, program.Update{Inventory: &inventory}), unsigned))
	d.deny("update of nothing", program.ErrData, update(s.owner, program.Update{}), s.owner)
	d.deny("update to no owner", program.ErrZeroKey, update(s.owner, program.Update{Owner: &zero}), s.owner)
	d.deny("update of a network", program.ErrKind, with(update(s.owner, all), 1, d.patient), s.owner)
	d.deny("update of a vault", program.ErrOwner, with(update(s.owner, all), 1, s.vault), s.owner)
	d.must("update by the peer key", []svm.Instruction{update(s.peer, program.Update{Inventory: &inventory})}, s.peer)
	nextKey := next.Key()
	d.must("update by the owner", []svm.Instruction{update(s.owner, program.Update{Payout: &payout, Owner: &nextKey})}, s.owner)
	if p := d.provider(s); p.Owner != nextKey || p.Payout != payout || p.Inventory != inventory || p.Sequence != 2 || p.Peer != s.peer.Key() {
		d.Errorf("updated to %+v", p)
	}
	d.deny("update by the owner before", program.ErrNotOwner, update(s.owner, all), s.owner)
}

func (d *desk) staking() {
	s, other := d.seller(d.patient, "staker", 0), d.seller(d.patient, "other staker", 0)
	good := d.stake(s, 1000)
	wrong := d.tokens("of the other mint", d.other, d.wallet.Key(), 5000)
	d.deny("stake nothing", program.ErrAmount, d.stake(s, 0))
	d.deny("stake cut off", program.ErrData, edit(good, func(in *svm.Instruction) { in.Data = in.Data[:8] }))
	d.deny("stake into another's vault", program.ErrAddress, with(good, 3, other.vault))
	d.deny("stake for a network", program.ErrKind, with(good, 2, d.patient))
	d.deny("stake by another token program", program.ErrAddress, with(good, 5, svm.SystemProgram))
	d.deny("stake of another mint", tokenMint, with(with(good, 1, wrong), 4, d.other))
	d.deny("stake of two mints", tokenMint, with(good, 1, wrong))
	d.deny("stake more than there is", tokenFunds, d.stake(s, 1<<61))
	d.deny("stake of somebody else", tokenOwner, with(good, 0, s.owner.Key()), s.owner)
	d.deny("stake without signature", program.ErrNotSigner, edit(with(good, 0, s.owner.Key()), func(in *svm.Instruction) { in.Accounts[0].Signer = false }))
	d.must("stake", []svm.Instruction{good})
	d.must("stake more", []svm.Instruction{d.stake(s, 234)})
	d.deny("stake out of the vault itself", tokenOwner, with(good, 1, s.vault))
	if p := d.provider(s); p.Stake != 1234 || d.balance(s.vault) != 1234 || p.Sequence != 0 {
		d.Errorf("staked %d, vault %d, sequence %d", p.Stake, d.balance(s.vault), p.Sequence)
	}
}

func (d *desk) unstaking() {
	s, other := d.seller(d.hasty, "leaver", 1000), d.seller(d.hasty, "other leaver", 1000)
	to := d.tokens("leaver's", d.token, s.owner.Key(), 0)
	wrong := d.tokens("leaver's other", d.other, s.owner.Key(), 0)
	d.deny("unstake nothing", program.ErrAmount, d.request(s, 0), s.owner)
	d.deny("unstake too much", program.ErrStakeShort, d.request(s, 1001), s.owner)
	d.deny("unstake by the peer key", program.ErrNotOwner, with(d.request(s, 1), 0, s.peer.Key()), s.peer)
	d.deny("unstake without signature", program.ErrNotSigner, edit(d.request(s, 1), func(in *svm.Instruction) { in.Accounts[0].Signer = false }))
	d.deny("unstake by another network's time", program.ErrAddress, with(d.request(s, 1), 1, d.patient), s.owner)
	d.deny("withdraw before", program.ErrNothingDue, d.withdraw(s, to), s.owner)
	d.must("unstake", []svm.Instruction{d.request(s, 600)}, s.owner)
	p := d.provider(s)
	if p.Stake != 400 || p.Unbonding != 600 || p.Ready == 0 || d.balance(s.vault) != 1000 {
		d.Errorf("unstaking: %+v, vault %d", p, d.balance(s.vault))
	}
	d.until(p.Ready)
	good := d.withdraw(s, to)
	d.deny("withdraw by the peer key", program.ErrNotOwner, with(good, 0, s.peer.Key()), s.peer)
	d.deny("withdraw from another's vault", program.ErrAddress, with(good, 2, other.vault), s.owner)
	d.deny("withdraw into the vault", program.ErrDuplicate, with(good, 3, s.vault), s.owner)
	d.deny("withdraw another mint", tokenMint, with(with(good, 3, wrong), 4, d.other), s.owner)
	d.deny("withdraw as another mint", tokenMint, with(good, 3, wrong), s.owner)
	d.deny("withdraw with data", program.ErrData, edit(good, func(in *svm.Instruction) { in.Data = append(in.Data, 1) }), s.owner)
	d.must("withdraw", []svm.Instruction{good}, s.owner)
	if p := d.provider(s); p.Stake != 400 || p.Unbonding != 0 || p.Ready != 0 || d.balance(s.vault) != 400 || d.balance(to) != 600 {
		d.Errorf("withdrawn: %+v, vault %d, got %d", p, d.balance(s.vault), d.balance(to))
	}
	d.deny("withdraw twice", program.ErrNothingDue, good, s.owner)
	d.must("unstake the rest", []svm.Instruction{d.request(s, 400)}, s.owner)
}

func (d *desk) drawing() {
	authority := named("authority")
	s, poor := d.seller(d.patient, "verifier", 500), d.seller(d.patient, "poor verifier", 499)
	foreign := d.seller(d.hasty, "foreign verifier", 500)
	pool := account.PoolAddress(d.program, d.patient, d.other)
	d.must("pool", []svm.Instruction{program.InitPool{Payer: d.wallet.Key(), Network: d.patient, Mint: d.other, Pool: pool}.Instruction(d.program)})
	d.must("fees", []svm.Instruction{{Program: svm.TokenProgram, Data: u64([]byte{7}, 1000), Accounts: []svm.Meta{
		{Key: d.other, Writable: true}, {Key: pool, Writable: true}, {Key: d.wallet.Key(), Signer: true}}}})
	to := d.tokens("verifier's", d.other, named("payout").Key(), 0)
	good := program.DrawPool{Authority: authority.Key(), Network: d.patient, Pool: pool, Mint: d.other, Provider: s.address, Destination: to, Amount: 700}.Instruction(d.program)
	d.deny("draw by another", program.ErrAuthority, with(good, 0, s.owner.Key()), s.owner)
	d.deny("draw without signature", program.ErrNotSigner, edit(good, func(in *svm.Instruction) { in.Accounts[0].Signer = false }))
	d.deny("draw on another network's", program.ErrAddress, with(good, 1, d.hasty), authority)
	d.deny("draw on what is no pool", program.ErrAddress, with(good, 2, to), authority)
	d.deny("draw on another mint's", program.ErrAddress, with(good, 3, d.token), authority)
	d.deny("draw for one with too little stake", program.ErrMinStake, with(good, 4, poor.address), authority)
	d.deny("draw for another network's", program.ErrAddress, with(good, 4, foreign.address), authority)
	d.deny("draw for nobody", program.ErrOwner, with(good, 4, authority.Key()), authority)
	d.deny("draw into the pool", program.ErrTokenOwner, with(good, 5, pool), authority)
	d.deny("draw for somebody", program.ErrTokenOwner, with(good, 5, d.many), authority)
	d.deny("draw into an account that its owner does not look at", program.ErrAddress, with(good, 5, d.aside("verifier's", d.other, named("payout").Key(), 0)), authority)
	d.deny("draw nothing", program.ErrAmount, edit(good, func(in *svm.Instruction) { clear(in.Data[1:]) }), authority)
	d.must("draw", []svm.Instruction{good}, authority)
	if d.balance(pool) != 300 || d.balance(to) != 700 {
		d.Errorf("drawn: pool %d, verifier %d", d.balance(pool), d.balance(to))
	}
	d.deny("draw more than there is", tokenFunds, good, authority)
	d.must("give the authority up", []svm.Instruction{program.SetAuthority{Authority: authority.Key(), Network: d.patient}.Instruction(d.program)}, authority)
	d.deny("draw by who was the authority", program.ErrAuthority, good, authority)
	d.deny("draw by nobody", program.ErrAuthority, edit(with(good, 0, sign.Key{}), func(in *svm.Instruction) { in.Accounts[0].Signer = false }))
}

// sale is a receipt, and the units that it is for.
type sale struct {
	verify.Receipt
	units []market.UnitID
}

// sell makes the receipt of a lease of n units, all of them this sale's own but for the last, which is `shared`.
func (d *desk) sell(peer, buyer sign.Private, lease byte, n int, from, to, cumulative uint64) sale {
	d.Helper()
	units := make([]market.UnitID, n)
	for i := range units {
		units[i] = market.UnitID(sign.Sum([]byte{lease}, []byte(fmt.Sprint(i))))
	}
	units[n-1] = shared
	core := verify.ReceiptCore{Version: verify.ReceiptVersion, Units: uint16(n), Lease: market.LeaseID{lease}, Seq: 1, Provider: peer.Key(), Buyer: buyer.Key(),
		UnitsRoot: market.UnitsRoot(units), From: market.Slot(from), To: market.Slot(to), Cumulative: market.Amount(cumulative)}
	return sale{d.sign(d.domain(), core, peer, buyer), units}
}

func (d *desk) sign(domain sign.Domain, core verify.ReceiptCore, peer, buyer sign.Private) verify.Receipt {
	d.Helper()
	p, err := core.Sign(domain, peer)
	if err != nil {
		d.Fatal(err)
	}
	b, err := core.Sign(domain, buyer)
	if err != nil {
		d.Fatal(err)
	}
	return verify.Receipt{ReceiptCore: core, ProviderSig: p, BuyerSig: b}
}

// shared is the unit sold twice.
var shared = market.UnitID(sign.Sum([]byte("shared")))
