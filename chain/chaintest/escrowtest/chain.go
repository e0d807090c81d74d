package escrowtest

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Figures of a Chain.
const (
	Lag    = 8       // slots between confirmed and final
	Wealth = 1 << 30 // base units of the mint, all of the buyer

	firstSlot = 1000
	lifetime  = 40 // slots in which a signed transaction may land
)

// Chain is a chain with the program's model: blocks, of which the newest can be forked away, and transactions on their
// way to one.
type Chain struct {
	Net      escrow.Net
	Slot     uint64
	Root     uint64       // newest final slot
	Final    *model.State // as of Root
	Tip      *model.State // with the blocks after it
	Pool     []Transaction
	Made     map[chain.TxID]Transaction // all that were ever signed
	Opens    int                        // escrows opened, finalized
	Adds     int                        // tranches
	Hires    int                        // standby tranches
	TopUps   int
	Paid     map[Place]market.Amount // finalized
	Openings []uint64                // slots named by the openings that were signed, in order
	Wrong    string                  // a forbidden transaction that was signed
	Away     map[sign.Key]bool       // keys that co-sign for no other key now
	Price    uint64                  // claims that bid less for a unit are left out

	blocks []landed // in these blocks, oldest first
	done   map[chain.TxID]landed
	past   []moment // final states, oldest first
}

// moment is a state that was final in a slot. (A state that is final is replaced, never changed.)
type moment struct {
	slot  uint64
	state *model.State
}

// Place is a lease's leaf. After a fork another leaf may have the same number.
type Place struct {
	Tranche sign.Key
	Lease   market.LeaseID
}

// Transaction is a signed transaction. Pool has the transactions that were sent and are not in a block yet.
type Transaction struct {
	Tx     chain.Prepared
	In     []svm.Instruction
	Tables []svm.Table
}

// Claims is the lease of the voucher in a transaction; zero means none.
func (x Transaction) Claims() market.LeaseID {
	v, _ := x.Voucher()
	return v.Lease
}

// Voucher is the voucher that a transaction shows.
func (x Transaction) Voucher() (v verify.Voucher, ok bool) {
	for _, in := range x.In {
		if s, ok := svm.ParseSigned(in); ok && len(s.Message) >= verify.VoucherSize {
			if v, err := verify.UnmarshalVoucher(s.Message[len(s.Message)-verify.VoucherSize:]); err == nil {
				return v, true
			}
		}
	}
	return verify.Voucher{}, false
}

// landed is a transaction in a block; err is set if it had no effect.
type landed struct {
	Transaction
	slot uint64
	err  error
}

// New returns a chain with the network, its mint, and a buyer that owns all tokens.
func New(net escrow.Net) *Chain {
	c := &Chain{Net: net, Slot: firstSlot, Root: firstSlot - Lag, Final: model.New(net.Program),
		done: map[chain.TxID]landed{}, Made: map[chain.TxID]Transaction{}, Paid: map[Place]market.Amount{}}
	c.Final.Networks[net.Address()] = net.Account
	c.Final.Mints[net.Mint] = model.Mint{Decimals: 6, Supply: Wealth}
	c.hold(svm.TokenAccount(Key("owner"), net.Mint), Key("owner"), 0)
	c.hold(Key("source"), Key("buyer"), Wealth)
	c.hold(account.PoolAddress(net.Program, net.Address(), net.Mint), net.Address(), 0)
	c.Tip = c.Final.Clone()
	return c
}

func (c *Chain) hold(at, owner sign.Key, amount uint64) {
	c.Final.Tokens[at] = svm.Token{Mint: c.Net.Mint, Owner: owner, Amount: amount, Plain: true}
}

// Tokens is the sum of all accounts.
func (c *Chain) Tokens() (sum uint64) {
	for _, t := range c.Tip.Tokens {
		sum += t.Amount
	}
	return sum
}

// Balance is the amount of a wallet's token account.
func (c *Chain) Balance(wallet sign.Key) uint64 {
	return c.Tip.Tokens[svm.TokenAccount(wallet, c.Net.Mint)].Amount
}

// run applies a transaction to a state, wholly or not at all.
func (c *Chain) run(state **model.State, slot uint64, x Transaction) (err error) {
	*state, err = chaintest.Run(c.Net.Program, *state, slot, x.In, x.Tables...)
	return err
}

// Land puts a sent transaction into the newest block.
func (c *Chain) Land(i int) {
	x := c.Pool[i]
	c.Pool = slices.Delete(c.Pool, i, i+1)
	if _, _, price, _ := svm.SplitBudget(x.In); price < c.Price && x.Claims() != (market.LeaseID{}) {
		return
	}
	if _, twice := c.done[x.Tx.ID]; twice || c.Slot > x.Tx.LastValid || c.inBlock(x.Tx.ID) {
		return
	}
	c.blocks = append(c.blocks, landed{x, c.Slot, c.run(&c.Tip, c.Slot, x)})
}

// inBlock reports whether a transaction is in a block that is not final.
func (c *Chain) inBlock(id chain.TxID) bool {
	return slices.ContainsFunc(c.blocks, func(l landed) bool { return l.Tx.ID == id })
}

// Advance lets slots pass; old blocks become final.
func (c *Chain) Advance(slots uint64) {
	c.Slot += slots
	for len(c.blocks) > 0 && c.blocks[0].slot+Lag <= c.Slot {
		l := c.blocks[0]
		c.blocks = c.blocks[1:]
		l.err = c.run(&c.Final, l.slot, l.Transaction)
		c.done[l.Tx.ID] = l
		if l.err == nil {
			c.count(l)
		}
	}
	c.Root = max(c.Root, c.Slot-Lag)
	c.past = append(c.past, moment{c.Root, c.Final})
}

// count adds a final transaction to the figures.
func (c *Chain) count(l landed) {
	for _, in := range l.In {
		if in.Program != c.Net.Program {
			continue
		}
		switch call, _, _ := program.ParseCall(c.Net.Program, in); call := call.(type) {
		case program.OpenEscrow:
			c.Opens++
		case program.AddTranche:
			c.Adds++
		case program.AddStandbyTranche:
			c.Hires++
		case program.TopUp:
			c.TopUps++
		case program.Claim:
			paid := c.Final.Tranches[call.Tranche].Leaves[call.Leaf.Index].Paid
			c.Paid[Place{call.Tranche, l.Claims()}] = market.Amount(paid)
		}
	}
}

// watch records an opening that is signed while another escrow of the order could still be opened.
func (c *Chain) watch(in []svm.Instruction) {
	for _, i := range in {
		call, _, _ := program.ParseCall(c.Net.Program, i)
		open, ok := call.(program.OpenEscrow)
		if !ok || slices.Contains(c.Openings, open.Opened) && c.Openings[len(c.Openings)-1] == open.Opened {
			continue
		}
		for _, before := range c.Openings {
			_, there := c.Tip.Escrows[c.Net.Escrow(open.Buyer, open.Order, before)]
			if there || c.Root <= before+account.OpeningSlots || before == open.Opened {
				c.Wrong = fmt.Sprintf("an escrow of slot %d was signed, that of slot %d could still be",
					open.Opened, before)
			}
		}
		c.Openings = append(c.Openings, open.Opened)
	}
}

// Inject applies another signer's call, finalized immediately. All blocks with transactions must be final.
func (c *Chain) Inject(t T, call program.Call) {
	t.Helper()
	c.Final = c.Final.Clone()
	if err := c.Final.Apply(c.Root, call); err != nil || len(c.blocks) > 0 {
		t.Fatalf("%T: %v, beside %d transactions", call, err, len(c.blocks))
	}
	c.Tip = c.Final.Clone()
}

// Fork takes the newest n transactions out of their blocks; with back they come back by themselves.
func (c *Chain) Fork(n int, back bool) {
	n = min(n, len(c.blocks))
	gone := c.blocks[len(c.blocks)-n:]
	c.blocks = slices.Clone(c.blocks[:len(c.blocks)-n])
	c.Tip = c.Final.Clone()
	for i, l := range c.blocks {
		c.blocks[i].err = c.run(&c.Tip, l.slot, l.Transaction)
	}
	for _, l := range gone {
		if back {
			c.Pool = append(c.Pool, l.Transaction)
		}
	}
}
