package program_test

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// one is a transaction of one instruction.
func one(in svm.Instruction) []svm.Instruction { return []svm.Instruction{in} }

func unsigned(place int) func(*svm.Instruction) {
	return func(in *svm.Instruction) { in.Accounts[place].Signer = false }
}

func readOnly(place int) func(*svm.Instruction) {
	return func(in *svm.Instruction) { in.Accounts[place].Writable = false }
}

func cut(in *svm.Instruction)    { in.Data = in.Data[:len(in.Data)-1] }
func longer(in *svm.Instruction) { in.Data = append(in.Data, 0) }

func (c *counter) networks() {
	good := c.initNetwork()
	c.deny("network cut off", program.ErrAddress, one(edit(good, cut)))
	c.deny("network of other parameters", program.ErrAddress, one(edit(good, func(in *svm.Instruction) { in.Data[1+48] ^= 1 })))
	c.deny("network elsewhere", program.ErrAddress, one(with(good, 1, c.stranger.Key())))
	c.deny("network unsigned", program.ErrNotSigner, one(edit(with(good, 0, c.buyer.Key()), unsigned(0))))
	c.deny("network read-only", program.ErrNotWritable, one(edit(good, readOnly(1))))
	c.deny("network by another system program", program.ErrAddress, one(with(good, 2, svm.TokenProgram)))
	c.deny("network of another stake mint", program.ErrAddress, one(with(good, 3, c.other)))
	c.deny("network of mints in another order", program.ErrAddress, one(edit(good, func(in *svm.Instruction) {
		in.Accounts[4], in.Accounts[5] = in.Accounts[5], in.Accounts[4]
	})))
	c.deny("network of too few mints", program.ErrAccountCount, one(edit(good, func(in *svm.Instruction) { in.Accounts = in.Accounts[:5] })))
	unlawful := func(change func(*account.Params)) svm.Instruction {
		p := c.params
		p.Mints = slices.Clone(p.Mints)
		change(&p)
		return program.InitNetwork{Payer: c.wallet.Key(), Network: account.NetworkAddress(c.program, p), Params: p}.Instruction(c.program)
	}
	native, _ := sign.ParseKey("So11111111111111111111111111111111111111112")
	c.deny("network whose evidence outlives the stake", program.ErrParams, one(unlawful(func(p *account.Params) { p.EvidenceSlots = 10 })))
	c.deny("network without time to respond", program.ErrParams, one(unlawful(func(p *account.Params) { p.ResponseSlots = 0 })))
	c.deny("network that burns too little", program.ErrParams, one(unlawful(func(p *account.Params) { p.Mints[0].BurnBps, p.Mints[0].PoolBps = 1999, 5501 })))
	c.deny("network with too low a fee", program.ErrParams, one(unlawful(func(p *account.Params) { p.Mints[1].FeeBps = 9 })))
	c.deny("network with too high a fee", program.ErrParams, one(unlawful(func(p *account.Params) { p.Mints[1].FeeBps = 1001 })))
	c.deny("network of shares that do not add up", program.ErrParams, one(unlawful(func(p *account.Params) { p.Mints[0].PoolBps++ })))
	c.deny("network of a mint twice", program.ErrParams, one(unlawful(func(p *account.Params) { p.Mints[1].Mint = c.token })))
	c.deny("network of other decimals", program.ErrMint, one(unlawful(func(p *account.Params) { p.Mints[0].Decimals = 7 })))
	c.deny("network of what is no mint", program.ErrKind, one(unlawful(func(p *account.Params) { p.Mints[0].Mint = c.back })))
	c.deny("network of what is no token's", program.ErrOwner, one(unlawful(func(p *account.Params) { p.StakeMint = c.stranger.Key() })))
	c.deny("network of a mint that cannot burn", program.ErrMint, one(unlawful(func(p *account.Params) { p.Mints[0].Mint = native })))
	c.deny("network of a stake that cannot burn", program.ErrMint, one(unlawful(func(p *account.Params) { p.StakeMint = native })))
	extended := c.extended()
	c.deny("network of a mint of the extended token program", program.ErrOwner, one(unlawful(func(p *account.Params) { p.Mints[0].Mint = extended })))
	c.must("network", one(good))
	c.deny("network again", program.ErrExists, one(good))

	pool := program.InitPool{Payer: c.wallet.Key(), Network: c.network, Mint: c.token, Pool: c.pool}.Instruction(c.program)
	c.deny("pool of another mint", program.ErrMint, one(with(pool, 2, c.other)))
	c.deny("pool of a mint that is not there", program.ErrMint, one(edit(pool, func(in *svm.Instruction) { in.Data[1] = 2 })))
	c.deny("pool elsewhere", program.ErrAddress, one(with(pool, 3, c.stranger.Key())))
	c.deny("pool of no network", program.ErrOwner, one(with(pool, 1, c.back)))
	c.deny("pool by another token program", program.ErrAddress, one(with(pool, 4, svm.SystemProgram)))
	c.deny("pool cut off", program.ErrData, one(edit(pool, cut)))
	c.must("pool", one(pool))
	c.deny("pool again", program.ErrExists, one(pool))

	// Another network, whose authority changes.
	p := c.params
	p.Network = "authority"
	other := account.NetworkAddress(c.program, p)
	c.must("network", one(program.InitNetwork{Payer: c.wallet.Key(), Network: other, Params: p}.Instruction(c.program)))
	first, second := named("authority"), named("next authority")
	set := func(by, to sign.Key) svm.Instruction {
		return program.SetAuthority{Authority: by, Network: other, New: to}.Instruction(c.program)
	}
	c.deny("authority by a stranger", program.ErrAuthority, one(set(c.stranger.Key(), second.Key())), c.stranger)
	c.deny("authority unsigned", program.ErrNotSigner, one(edit(set(first.Key(), second.Key()), unsigned(0))))
	c.deny("authority of no network", program.ErrOwner, one(with(set(first.Key(), second.Key()), 1, c.back)), first)
	c.must("authority", one(set(first.Key(), second.Key())), first)
	c.deny("authority by the one before", program.ErrAuthority, one(set(first.Key(), first.Key())), first)
	c.must("authority given up", one(set(second.Key(), sign.Key{})), second)
	c.deny("authority after it was given up", program.ErrAuthority, one(set(second.Key(), second.Key())), second)
	c.deny("authority of nobody", program.ErrNotSigner, one(edit(set(sign.Key{}, second.Key()), unsigned(0))))
	a, err := c.Account(c.Context(), other)
	if err != nil || a == nil {
		c.Fatalf("%+v, %v", a, err)
	}
	if n, err := account.UnmarshalNetwork(a.Data); err != nil || !n.Authority.IsZero() || n.Params.Hash() != p.Hash() {
		c.Errorf("network %+v, %v", n, err)
	}
}

func (c *counter) opening() {
	d := c.deal("opening", 1000, 1, c.buyer)
	good := d.at()
	deny := func(name string, want program.Code, in svm.Instruction, signers ...sign.Signer) {
		c.Helper()
		if signers == nil {
			signers = d.signers
		}
		c.deny("open "+name, want, one(in), signers...)
	}
	deny("cut off", program.ErrData, edit(good, cut))
	deny("with more", program.ErrData, edit(good, longer))
	deny("without buyer's signature", program.ErrNotSigner, edit(good, func(in *svm.Instruction) {
		in.Accounts[1] = svm.Meta{Key: c.stranger.Key()}
	}))
	deny("by another buyer", program.ErrAddress, with(good, 1, c.stranger.Key()), c.buyer, c.stranger)
	deny("from somebody's tokens", tokenOwner, with(with(good, 3, c.stranger.Key()), 10, c.buyer.Key()), c.buyer, c.stranger)
	deny("without the source's signature", program.ErrNotSigner, edit(with(good, 3, c.stranger.Key()), unsigned(3)))
	deny("of another mint", program.ErrMint, with(good, 6, c.other))
	deny("from tokens of another mint", tokenMint, with(good, 2, c.wrong))
	deny("of no network", program.ErrOwner, with(good, 7, c.back))
	deny("of another network", program.ErrAddress, with(good, 7, c.otherNetwork()))
	deny("elsewhere", program.ErrAddress, with(good, 4, c.stranger.Key()))
	deny("with another vault", program.ErrAddress, with(good, 5, c.stranger.Key()))
	deny("read-only", program.ErrNotWritable, edit(good, readOnly(4)))
	deny("with another token program", program.ErrAddress, with(good, 8, svm.SystemProgram))
	deny("with another system program", program.ErrAddress, with(good, 9, svm.TokenProgram))
	deny("with two accounts", program.ErrAccountCount, edit(good, func(in *svm.Instruction) { in.Accounts = in.Accounts[:2] }))
	change := func(change func(*program.OpenEscrow)) svm.Instruction {
		other := *d
		change(&other.call)
		return other.at()
	}
	deny("with nothing", program.ErrAmount, change(func(o *program.OpenEscrow) { o.Deposit = 0 }))
	deny("with more than there is", tokenFunds, change(func(o *program.OpenEscrow) { o.Deposit = funds + 1 }))
	deny("of a mint that is not there", program.ErrMint, change(func(o *program.OpenEscrow) { o.MintIndex = 2 }))
	deny("for no refund owner", program.ErrTokenOwner, change(func(o *program.OpenEscrow) { o.RefundOwner = sign.Key{} }))
	deny("without voucher keys", program.ErrKeySet, change(func(o *program.OpenEscrow) { o.Keys = market.KeySet{} }))
	deny("with threshold 0", program.ErrKeySet, change(func(o *program.OpenEscrow) { o.Keys.Threshold = 0 }))
	deny("with a threshold out of reach", program.ErrKeySet, change(func(o *program.OpenEscrow) { o.Keys.Threshold = 2 }))
	deny("with a key twice", program.ErrKeySet, change(func(o *program.OpenEscrow) { o.Keys.Keys = []sign.Key{c.buyer.Key(), c.buyer.Key()} }))
	deny("with nine standbys", program.ErrStandby, edit(good, func(in *svm.Instruction) { in.Data[len(in.Data)-1] = 9 }))
	two := c.deal("opening", 1000, 1, c.buyer, c.stranger)
	deny("with keys in another order", program.ErrKeySet, edit(two.at(), func(in *svm.Instruction) {
		in.Accounts[10], in.Accounts[11] = in.Accounts[11], in.Accounts[10]
	}), two.signers...)
	deny("with a key that does not sign", program.ErrNotSigner, edit(two.at(), func(in *svm.Instruction) {
		in.Accounts[10].Signer, in.Accounts[11].Signer = in.Accounts[10].Key == c.buyer.Key(), in.Accounts[11].Key == c.buyer.Key()
	}))
	six := make([]sign.Private, 6)
	for i := range six {
		six[i] = named(string(rune('a' + i)))
	}
	many := c.deal("opening", 1000, 1, six...)
	deny("with six keys", program.ErrKeySet, many.at(), many.signers...)
	weak := sign.Key{0: 1} // of order 1: nobody can sign a transaction for it
	deny("with a key of small order", program.ErrNotSigner, edit(good, func(in *svm.Instruction) { in.Accounts[10] = svm.Meta{Key: weak} }))

	// Lamports sent to its addresses before change nothing.
	d = c.deal("opening", 1000, 1, c.buyer) // of a slot that is recent however long all that took
	good = d.at()
	for _, k := range []sign.Key{d.call.Escrow, d.call.Vault} {
		if err := c.Fund(c.Context(), k, 900_000); err != nil {
			c.Fatal(err)
		}
	}
	c.must("open", one(good), d.signers...)
	deny("twice", program.ErrExists, good)
	e := d.check("opened")
	_, bump := svm.FindAddress(c.program, account.EscrowSeeds(c.network, c.buyer.Key(), sign.Hash(d.call.Order), d.call.Opened)...)
	_, vault := svm.FindAddress(c.program, account.VaultSeeds(d.call.Escrow)...)
	if e.Bump != bump || e.VaultBump != vault || e.State != account.EscrowOpen || e.Network != c.network || e.Buyer != c.buyer.Key() || e.Order != d.call.Order ||
		e.Mint != c.token || e.Vault != d.call.Vault || e.RefundOwner != c.owner.Key() || e.Referrer != named("referrer").Key() || e.RentPayer != c.wallet.Key() ||
		e.Opened != d.call.Opened || e.Deadline != d.call.Deadline || e.Deposited != 1_000_000 || len(e.Keys.Keys) != 1 || len(e.Standbys) != 0 {
		c.Errorf("opened %+v", e)
	}

	more := d.topUp(500)
	other := c.deal("opened beside", 1000, 1, c.buyer).open()
	c.deny("top up nothing", program.ErrAmount, one(d.topUp(0)), c.buyer)
	c.deny("top up another's vault", program.ErrAddress, one(with(more, 1, other.call.Vault)), c.buyer)
	c.deny("top up from the vault", program.ErrDuplicate, one(with(more, 2, d.call.Vault)), c.buyer)
	c.deny("top up another mint", program.ErrMint, one(with(more, 4, c.other)), c.buyer)
	c.deny("top up from tokens of another mint", tokenMint, one(with(more, 2, c.wrong)), c.buyer)
	c.deny("top up unsigned", program.ErrNotSigner, one(edit(more, unsigned(3))))
	c.deny("top up from somebody's tokens", tokenOwner, one(with(more, 3, c.stranger.Key())), c.stranger)
	c.deny("top up more than there is", tokenFunds, one(d.topUp(math.MaxUint64)), c.buyer)
	c.deny("top up a network", program.ErrKind, one(with(more, 0, c.network)), c.buyer)
	c.must("top up", one(more), c.buyer)
	if e := d.check("topped up"); e.Deposited != 1_000_500 {
		c.Errorf("topped up: %+v", e)
	}
}

// extended makes a mint of the token program with extensions, which the program does not take.
func (c *counter) extended() sign.Key {
	c.Helper()
	extensions, err := sign.ParseKey("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb")
	if err != nil {
		c.Fatal(err)
	}
	mint, authority := named("extended mint"), c.wallet.Key()
	c.must("extended mint", []svm.Instruction{
		edit(c.create(mint.Key(), mintSize), func(in *svm.Instruction) { copy(in.Data[20:], extensions[:]) }),
		{Program: extensions, Data: append(append([]byte{20, 6}, authority[:]...), 0), Accounts: []svm.Meta{{Key: mint.Key(), Writable: true}}}}, mint)
	return mint.Key()
}

// otherNetwork is the address of another network than that of escrows.
func (c *counter) otherNetwork() sign.Key {
	p := c.params
	p.Network = "authority"
	return account.NetworkAddress(c.program, p)
}

func (c *counter) tranches() {
	d, other := c.deal("tranches", 1000, 1, c.buyer).open(), c.deal("other tranches", 1000, 1, c.buyer).open()
	b := d.batch(0, d.leases("tranches", 3, c.now(), 100))
	good := b.add()
	deny := func(name string, want program.Code, in svm.Instruction) {
		c.Helper()
		c.deny("add a tranche "+name, want, one(in), c.buyer)
	}
	deny("cut off", program.ErrData, edit(good, cut))
	deny("with more", program.ErrData, edit(good, longer))
	deny("by nobody", program.ErrNotSigner, edit(with(good, 1, c.stranger.Key()), unsigned(1)))
	c.deny("add a tranche by a stranger", program.ErrAddress, one(with(good, 1, c.stranger.Key())), c.stranger)
	deny("of another escrow", program.ErrAddress, with(good, 2, other.call.Escrow))
	deny("by another vault", program.ErrAddress, with(good, 3, other.call.Vault))
	deny("elsewhere", program.ErrAddress, with(good, 4, c.stranger.Key()))
	deny("of a network", program.ErrKind, edit(good, func(in *svm.Instruction) { in.Accounts[2] = svm.Meta{Key: c.network, Writable: true} }))
	deny("read-only", program.ErrNotWritable, edit(good, readOnly(2)))
	next := d.batch(1, b.leaves)
	deny("of the number after the next", program.ErrLeaf, next.add())
	root := func(sum uint64, count uint16) svm.Instruction {
		return edit(good, func(in *svm.Instruction) {
			binary.LittleEndian.PutUint64(in.Data[35:], sum)
			binary.LittleEndian.PutUint16(in.Data[43:], count)
		})
	}
	deny("of no leaf", program.ErrIndex, root(10, 0))
	deny("of 257 leaves", program.ErrIndex, root(10, 257))
	deny("for more than was deposited", program.ErrAmount, root(1_000_001, 3))
	deny("for all that can be said", program.ErrAmount, root(math.MaxUint64, 3))
	b.open()
	if s := b.state(); s.By != account.ByBuyer || s.Sum != 3000 || s.Outstanding != 3000 || len(s.Leaves) != 3 || s.RentPayer != c.wallet.Key() || s.Escrow != d.call.Escrow {
		c.Errorf("opened %+v", s)
	}
	deny("again", program.ErrLeaf, good)
	tight := d.batch(1, []tranche.Leaf{d.leases("too large", 1, c.now(), 100)[0]})
	tight.leaves[0].Cap = 1_000_000 - 2999
	tight = d.batch(1, tight.leaves)
	deny("for more than is free", program.ErrAmount, tight.add())
	tight.leaves[0].Cap--
	d.batch(1, tight.leaves).open()
	d.check("two tranches")
}

// signedBy puts the signer's key where the provider's would be.
func signedBy(s svm.Signed, signer sign.Private) svm.Instruction {
	s.Keys[0] = signer.Key()
	return s.Instruction()
}
