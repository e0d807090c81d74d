package program_test

import (
	"slices"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// Terms of the network of these tests.
const (
	feeBps   = 50
	margin   = 5
	response = 5
	perSlot  = 10 // what every lease of these tests costs, base units
	rate     = perSlot * 1_000_000
	funds    = 1 << 40 // of the buyer
)

// counter is a bench with a network and a token, and the people of escrows.
type counter struct {
	*bench
	params                           account.Params
	network, token, other            sign.Key // token: mint 0; other: mint 1
	source                           sign.Key // the buyer's tokens
	back, treasury, referrer, payout sign.Key // token accounts of the refund owner, …
	wrong                            sign.Key // the buyer's of the other mint
	pool                             sign.Key
	buyer, owner, provider, stranger sign.Private
}

func newCounter(t testing.TB, e programtest.Engine, id sign.Key) *counter {
	b := newBench(t, e, id, "payer", 100*sol)
	c := &counter{bench: b, buyer: named("buyer"), owner: named("buyer's wallet"), provider: named("provider"), stranger: named("stranger")}
	c.token, c.other = b.mint("token", 6), b.mint("other", 9)
	c.params = account.Params{Network: "counter", Chain: sign.Sum([]byte("chain")), Treasury: named("treasury").Key(), Authority: named("authority").Key(),
		StakeMint: c.token, MarginSlots: margin, ResponseSlots: response, UnbondingSlots: 10, EvidenceSlots: 9, Mints: []account.MintTerms{
			{Mint: c.token, FeeBps: feeBps, BurnBps: 5000, PoolBps: 2500, TreasuryBps: 1500, ReferrerBps: 1000, Decimals: 6},
			{Mint: c.other, FeeBps: 10, BurnBps: 10_000, Decimals: 9}}}
	c.network = account.NetworkAddress(id, c.params)
	c.pool = account.PoolAddress(id, c.network, c.token)
	c.source = b.tokens("buyer's", c.token, c.buyer.Key(), funds)
	c.back = b.tokens("refund owner's", c.token, c.owner.Key(), 0)
	c.treasury = b.tokens("treasury's", c.token, c.params.Treasury, 0)
	c.referrer = b.tokens("referrer's", c.token, named("referrer").Key(), 0)
	c.payout = b.tokens("payout's", c.token, named("payout").Key(), 0)
	b.lend(c.payout, named("payout"), c.stranger.Key()) // and is paid all the same
	b.lend(c.back, c.owner, c.stranger.Key())
	c.wrong = b.tokens("of the other mint", c.other, c.buyer.Key(), funds)
	return c
}

func (c *counter) initNetwork() svm.Instruction {
	return program.InitNetwork{Payer: c.wallet.Key(), Network: c.network, Params: c.params}.Instruction(c.program)
}

func (c *counter) domain() sign.Domain { return c.params.Domain(c.program) }

// deny runs instructions of which the program has to refuse the last; the bench's wallet pays.
func (c *counter) deny(name string, want program.Code, in []svm.Instruction, signers ...sign.Signer) {
	c.Helper()
	c.run(name, programtest.Custom(len(in)-1, uint32(want)), in, append([]sign.Signer{c.wallet}, signers...)...)
}

// deal is an escrow, and who signs for it.
type deal struct {
	*counter
	call    program.OpenEscrow
	keys    []sign.Private // in the order of the key set
	signers []sign.Signer  // of the opening
}

// deal prepares an escrow opened now, with a deadline so many slots later.
func (c *counter) deal(name string, deadline uint64, threshold uint8, keys ...sign.Private) *deal {
	c.Helper()
	public := make([]sign.Key, len(keys))
	for i, k := range keys {
		public[i] = k.Key()
	}
	set, err := market.NewKeySet(threshold, public...)
	if err != nil {
		c.Fatal(err)
	}
	slices.SortFunc(keys, func(a, b sign.Private) int {
		return slices.Index(set.Keys, a.Key()) - slices.Index(set.Keys, b.Key())
	})
	now := c.now()
	d := &deal{counter: c, keys: keys, signers: []sign.Signer{c.buyer}, call: program.OpenEscrow{
		Payer: c.wallet.Key(), Buyer: c.buyer.Key(), Source: c.source, Authority: c.buyer.Key(), Mint: c.token, Network: c.network,
		Order: market.OrderID(sign.Sum([]byte(name))), Opened: now, Deadline: now + deadline, Deposit: 1_000_000,
		Referrer: named("referrer").Key(), RefundOwner: c.owner.Key(), Keys: set}}
	for _, k := range keys {
		if k.Key() != c.buyer.Key() {
			d.signers = append(d.signers, k)
		}
	}
	return d
}

// at is the instruction that opens it, at its address.
func (d *deal) at() svm.Instruction {
	d.call.Escrow = account.EscrowAddress(d.program, d.network, d.call.Buyer, sign.Hash(d.call.Order), d.call.Opened)
	d.call.Vault = account.VaultAddress(d.program, d.call.Escrow)
	return d.call.Instruction(d.program)
}

func (d *deal) open() *deal {
	d.Helper()
	d.must("open", []svm.Instruction{d.at()}, d.signers...)
	return d
}

func (d *deal) state() account.Escrow {
	d.Helper()
	a, err := d.Account(d.Context(), d.call.Escrow)
	if err != nil || a == nil || a.Owner != d.program {
		d.Fatalf("escrow: %+v, %v", a, err)
	}
	e, err := account.UnmarshalEscrow(a.Data)
	if err != nil {
		d.Fatal(err)
	}
	return e
}

// check holds what must hold of every escrow that nobody gave tokens to.
func (d *deal) check(name string) account.Escrow {
	d.Helper()
	e := d.state()
	held := d.balance(d.call.Vault)
	if held != e.Deposited-e.Paid+e.Fee-e.Refunded || held < e.Outstanding+e.Fee {
		d.Errorf("%s: %s: the vault holds %d of %+v", d.Engine.Name(), name, held, e)
	}
	return e
}

// batch is a tranche.
type batch struct {
	*deal
	index   uint16
	leaves  []tranche.Leaf
	tree    *tranche.Tree
	address sign.Key
	before  map[int]uint64 // paid of each leaf, as far as a test keeps it
}

// leases makes leaves of n leases, from a slot on for so many slots, capped at what those cost.
func (d *deal) leases(name string, n int, start, slots uint64) []tranche.Leaf {
	leaves := make([]tranche.Leaf, n)
	for i := range leaves {
		leaves[i] = tranche.Leaf{Version: tranche.LeafVersion, Index: uint16(i), Provider: d.provider.Key(), Payout: named("payout").Key(), Rate: rate,
			Lease: market.LeaseID(sign.Sum(d.call.Order[:], []byte(name), []byte{byte(i)})), Cap: market.Amount(slots * perSlot),
			Start: market.Slot(start), End: market.Slot(start + slots)}
	}
	return leaves
}

func (d *deal) batch(index uint16, leaves []tranche.Leaf) *batch {
	d.Helper()
	tree, err := tranche.Build(leaves)
	if err != nil {
		d.Fatal(err)
	}
	return &batch{deal: d, index: index, leaves: leaves, tree: tree, address: account.TrancheAddress(d.program, d.call.Escrow, index),
		before: map[int]uint64{}}
}

func (b *batch) add() svm.Instruction {
	return program.AddTranche{Payer: b.wallet.Key(), Buyer: b.buyer.Key(), Escrow: b.call.Escrow, Vault: b.call.Vault, Tranche: b.address, Index: b.index,
		Root: b.tree.Root()}.Instruction(b.deal.program)
}

func (b *batch) open() *batch {
	b.Helper()
	b.must("add tranche", []svm.Instruction{b.add()}, b.buyer)
	return b
}

func (b *batch) state() account.Tranche {
	b.Helper()
	a, err := b.Account(b.Context(), b.address)
	if err != nil || a == nil || a.Owner != b.program {
		b.Fatalf("tranche: %+v, %v", a, err)
	}
	t, err := account.UnmarshalTranche(a.Data)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (b *batch) proof(i int) tranche.Proof {
	p, err := b.tree.Prove(i)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (b *batch) voucher(i int, cumulative uint64) verify.Voucher {
	return verify.Voucher{Version: verify.VoucherVersion, Lease: b.leaves[i].Lease, Escrow: b.call.Escrow, Seq: 1, Cumulative: market.Amount(cumulative)}
}

// signed is a voucher by keys of the set.
func (b *batch) signed(domain sign.Domain, v verify.Voucher, by ...sign.Private) svm.Instruction {
	signers := make([]sign.Signer, len(by))
	for i, k := range by {
		signers[i] = k
	}
	s, err := verify.SignVoucher(domain, v, b.call.Keys, signers...)
	if err != nil {
		b.Fatal(err)
	}
	return program.VoucherSigned(domain, s).Instruction()
}

// pay is the claim without its voucher, whose instruction comes first.
func (b *batch) pay(i int, to sign.Key) svm.Instruction {
	return program.Claim{Escrow: b.call.Escrow, Tranche: b.address, Vault: b.call.Vault, Destination: to, Mint: b.call.Mint, Network: b.network, Leaf: b.leaves[i],
		Proof: b.proof(i)}.Instruction(b.deal.program)
}

func (b *batch) claim(i int, cumulative uint64, to sign.Key) []svm.Instruction {
	return []svm.Instruction{b.signed(b.domain(), b.voucher(i, cumulative), b.keys[:b.call.Keys.Threshold]...), b.pay(i, to)}
}

func (b *batch) begin(i int, by ...sign.Key) svm.Instruction {
	return program.RetireBegin{Escrow: b.call.Escrow, Tranche: b.address, Network: b.network, Signers: by, Index: uint16(i)}.Instruction(b.deal.program)
}

func (b *batch) finish(i int) svm.Instruction {
	return program.RetireFinish{Escrow: b.call.Escrow, Tranche: b.address, Leaf: b.leaves[i], Proof: b.proof(i)}.Instruction(b.deal.program)
}

func (b *batch) receipt(i int, cumulative uint64) verify.ReceiptCore {
	return verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: b.leaves[i].Lease, Seq: 1, Provider: b.provider.Key(),
		Buyer: b.buyer.Key(), Cumulative: market.Amount(cumulative)}
}

// final retires a leaf by its final receipt.
func (b *batch) final(i int, core verify.ReceiptCore, by sign.Private) []svm.Instruction {
	signature, err := core.Sign(b.domain(), by)
	if err != nil {
		b.Fatal(err)
	}
	return []svm.Instruction{signedBy(program.FinalSigned(b.domain(), core, signature), by), program.RetireFinal{Escrow: b.call.Escrow, Tranche: b.address, Network: b.network, Leaf: b.leaves[i],
		Proof: b.proof(i)}.Instruction(b.deal.program)}
}

func (d *deal) refund(buyer sign.Key) svm.Instruction {
	return program.Refund{Escrow: d.call.Escrow, Vault: d.call.Vault, Destination: d.back, Mint: d.call.Mint, Network: d.network, Buyer: buyer}.Instruction(d.program)
}

func (d *deal) sweep() svm.Instruction {
	return program.Sweep{Escrow: d.call.Escrow, Vault: d.call.Vault, Mint: d.call.Mint, Network: d.network, Pool: d.pool, Treasury: d.treasury, Referrer: d.referrer}.Instruction(d.program)
}

func (d *deal) close(buyer sign.Key) svm.Instruction {
	return program.CloseEscrow{Escrow: d.call.Escrow, Vault: d.call.Vault, Destination: d.back, Mint: d.call.Mint, RentPayer: d.wallet.Key(), Buyer: buyer}.Instruction(d.program)
}

func (b *batch) close() svm.Instruction {
	return program.CloseTranche{Escrow: b.call.Escrow, Tranche: b.address, RentPayer: b.wallet.Key()}.Instruction(b.deal.program)
}

func feeOf(paid uint64) uint64 { return (paid*feeBps + 9999) / 10_000 }

func TestEscrowsOnEngines(t *testing.T) {
	t.Parallel()
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		c := newCounter(t, e, id)
		c.until(max(c.now(), account.OpeningSlots/2+1)) // when leases can have been and escrows can name an earlier slot
		c.networks()
		c.opening()
		c.tranches()
		c.claims()
		c.retiring()
		c.standbys()
		c.closing()
		if _, ok := e.(programtest.Warper); ok {
			c.whole()
			c.times()
		}
	})
}
