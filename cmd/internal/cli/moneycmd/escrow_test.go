package moneycmd

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
)

// wantSent checks that one transaction was sent, with these calls.
func wantSent(t *testing.T, c *fakeChain, want ...svm.Instruction) {
	t.Helper()
	if len(c.sent) != 1 {
		t.Fatalf("%d transactions were sent, want 1", len(c.sent))
	}
	sameKey := func(a, b svm.Meta) bool { return a.Key == b.Key } // its permissions are the transaction's
	same := func(a, b svm.Instruction) bool {
		return a.Program == b.Program && bytes.Equal(a.Data, b.Data) &&
			slices.EqualFunc(a.Accounts, b.Accounts, sameKey)
	}
	if !slices.EqualFunc(c.sent[0], want, same) {
		t.Errorf("sent %+v\nwant %+v", c.sent[0], want)
	}
}

// wantNothing checks that no transaction was sent.
func wantNothing(t *testing.T, c *fakeChain) {
	t.Helper()
	if len(c.sent) != 0 {
		t.Errorf("sent %+v, want nothing", c.sent)
	}
}

// The free part of an escrow is the rest that neither the providers nor the network may claim.
func TestEscrowShow(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	at := c.escrow(nil)
	run(t, c.home, "wallet", "escrow", "show", at.String()).Want(t, cli.ExitOK, `^state +open$`,
		`^refund to +`+c.owner.Key().String(), `^deposited +5\.00 STAR$`, `^outstanding +2\.00 STAR `,
		`^paid +1\.00 STAR +of which 0\.02 STAR fees$`, `^free +2\.00 STAR `, `^opened +slot 900, 40s ago$`,
		`^deadline +slot 5000, in about 26m `, `^all back +slot 5101, in about 27m `, `^vouchers +1 of 1 key$`,
		`^0 +all 2 +3\.00 STAR +2\.00 STAR +opened by the keys$`, `^ +0 +1\.00 STAR +0\.00 STAR *$`,
		`^ +1 +0\.00 STAR +0\.000007 STAR +being retired, claims until slot 1250, in about 100s `)

	var info escrowInfo
	r := run(t, c.home, "wallet", "escrow", "show", at.String(), "-o", "json").Want(t, cli.ExitOK)
	if err := json.Unmarshal([]byte(r.Out), &info); err != nil {
		t.Fatal(err)
	}
	if info.Free != 2_000_000 || info.Closable != 5101 || info.Slot != 1000 || len(info.Tranches) != 1 ||
		len(info.Tranches[0].Leaves) != 2 || info.Tranches[0].Leaves[1].Window != 1250 {
		t.Errorf("got %+v", info)
	}
}

// A vault that holds less than is owed has nothing free, and not almost 2⁶⁴ units.
func TestEscrowShort(t *testing.T) {
	t.Parallel()
	for vault, want := range map[uint64]uint64{0: 0, 69: 0, 70: 0, 71: 1, 1 << 63: 1<<63 - 70} {
		info := newEscrowInfo(sign.Key{}, account.Escrow{Outstanding: 50, Fee: 20, Swept: 3}, vault, 1)
		if info.Free != want || info.Fees != 23 {
			t.Errorf("a vault of %d: %d free, fees of %d, want %d and 23", vault, info.Free, info.Fees, want)
		}
	}
}

// The list has this peer's escrows alone, whatever else an endpoint shows, and the first opened comes first.
func TestEscrowList(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	c.register(nil)
	at := c.escrow(nil)
	for i, change := range []func(*account.Escrow){
		func(e *account.Escrow) { e.Buyer = sign.Key{44} },
		func(e *account.Escrow) { e.Network = sign.Key{55} },
	} {
		var e account.Escrow
		c.escrow(func(x *account.Escrow) { e = *x })
		change(&e)
		c.accounts[sign.Key{66, byte(i)}] = stored{1, c.genesis.Program, e.Marshal()}
	}
	r := run(t, c.home, "wallet", "escrow", "ls").Want(t, cli.ExitOK, `^ESCROW +ORDER +STATE +DEPOSITED `,
		`^`+at.String()+` +\w+ +open +5\.00 STAR +2\.00 STAR +1\.00 STAR +2\.00 STAR +slot 5000, in about 26m `,
		`^1 escrow of `+c.peer.Key().String())
	if n := strings.Count(r.Out, " open "); n != 1 {
		t.Errorf("%d escrows, want 1:\n%s", n, r.Out)
	}
	run(t, c.home, "wallet", "escrow", "ls", "--buyer", c.owner.Key().String(), "-o", "json").Want(t, cli.ExitOK,
		`^\[\]$`)
	run(t, c.home, "wallet", "escrow", "ls", "--buyer", "me").Want(t, cli.ExitUsage,
		`^starling: --buyer: "me" is not a Solana address$`)
}

// An address without an escrow is the user's mistake; an account of another kind is the chain's answer.
func TestEscrowNotThere(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	run(t, c.home, "wallet", "escrow", "show", sign.Key{1, 2, 3}.String()).Want(t, cli.ExitUsage,
		`not found: it does not exist`, `^hint: starling wallet escrow ls$`)
	run(t, c.home, "wallet", "escrow", "show", c.genesis.Escrow.String()).Want(t, cli.ExitPayment,
		`^hint: it is of another kind or network`)
	run(t, c.home, "wallet", "escrow", "show", "7xKX…gAsU").Want(t, cli.ExitUsage,
		`^starling: escrow: "7xKX…gAsU" is not a Solana address$`)
	long := strings.Repeat("1", 4000)
	if r := run(t, c.home, "wallet", "escrow", "show", long).Want(t, cli.ExitUsage); len(r.Err) > 200 {
		t.Errorf("the error repeats %d bytes of an address", len(r.Err))
	}
	delete(c.accounts, c.genesis.Escrow)
	run(t, c.home, "wallet", "escrow", "ls").Want(t, cli.ExitPayment, `the network's account `)
}

// A top-up is paid from the owner's account: signed by the owner where its key is at hand, else by the peer.
func TestEscrowTopUp(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		c := newFakeChain(t)
		at, by := c.escrow(nil), c.peer.Key()
		if own {
			c.key(t, config.FileWallet, c.owner)
			by = c.owner.Key()
		}
		run(t, c.home, "wallet", "escrow", "top-up", at.String(), "1.000001").Want(t, cli.ExitOK,
			`^adding 1\.000001 STAR of `+c.owner.Key().String()+` to escrow `+at.String()+`; fees are paid by `,
			`^confirmed +\w+$`)
		wantSent(t, c, program.TopUp{Escrow: at, Vault: account.VaultAddress(c.genesis.Program, at),
			Source: svm.TokenAccount(c.owner.Key(), c.genesis.Mint), Authority: by, Mint: c.genesis.Mint,
			Amount: 1_000_001}.Instruction(c.genesis.Program))
	}
}

// Nothing is sent that could only fail, and an amount is never rounded.
func TestEscrowTopUpRefuses(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	at := c.escrow(nil).String()
	for amount, says := range map[string]string{
		"0": `amount must be greater than zero`, "0.0000001": `has 7 decimals, the token has 6`, "-1": `(unknown|is not)`,
		"1e3": `is not a decimal number`, "18446744073710": `number too large`, "2,5": `is not a decimal number`,
		"": `is not a decimal number`, "all": `is not a decimal number`,
	} {
		run(t, c.home, "wallet", "escrow", "top-up", at, amount).Want(t, cli.ExitUsage, `^starling: .*`+says)
	}
	c.escrow(func(e *account.Escrow) { e.Mint, e.MintIndex = sign.Key{8}, 1 })
	run(t, c.home, "wallet", "escrow", "top-up", at, "1").Want(t, cli.ExitUsage, `holds another token, `)
	c.escrow(func(e *account.Escrow) { e.State = account.EscrowRefunded })
	run(t, c.home, "wallet", "escrow", "top-up", at, "1").Want(t, cli.ExitUsage, `was refunded: nothing can be added`)
	wantNothing(t, c)
}

// Before the deadline and the margin are over the buyer gets the free part; from the slot after, anybody refunds all.
func TestEscrowRefund(t *testing.T) {
	t.Parallel()
	buyer := sign.NewPrivate([32]byte{1}).Key()
	for name, x := range map[string]struct {
		slot  market.Slot
		other bool // the escrow is of another buyer
		says  string
		by    sign.Key
	}{
		"free part":       {1000, false, `^taking 2\.00 STAR back from escrow `, buyer},
		"last slot":       {5100, false, `^taking 2\.00 STAR back from escrow `, buyer},
		"all":             {5101, false, `^taking 4\.00 STAR back from escrow `, sign.Key{}},
		"all, by another": {5101, true, `^taking 4\.00 STAR back from escrow `, sign.Key{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFakeChain(t)
			at := c.escrow(nil)
			if x.other {
				c.peer = sign.NewPrivate([32]byte{3})
				at = c.escrow(nil)
				c.peer = sign.NewPrivate([32]byte{1})
			}
			c.slot = x.slot
			run(t, c.home, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitOK, x.says, `^confirmed +\w+$`)
			wantSent(t, c, svm.OpenTokenAccount(c.peer.Key(), c.owner.Key(), c.genesis.Mint),
				program.Refund{Escrow: at, Vault: account.VaultAddress(c.genesis.Program, at),
					Destination: svm.TokenAccount(c.owner.Key(), c.genesis.Mint), Mint: c.genesis.Mint,
					Network: c.genesis.Escrow, Buyer: x.by}.Instruction(c.genesis.Program))
		})
	}
}

func TestEscrowRefundRefuses(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	at := c.escrow(func(e *account.Escrow) { e.Outstanding = 4_000_000 }).String()
	run(t, c.home, "wallet", "escrow", "refund", at).Want(t, cli.ExitUsage, `nothing is free in escrow `,
		`^hint: the outstanding part can be taken back from slot 5101, in about 27m`)
	c.escrow(func(e *account.Escrow) {
		e.State, e.Outstanding, e.Fee, e.Paid, e.Refunded = account.EscrowRefunded, 0, 0, 0, e.Deposited
	})
	run(t, c.home, "wallet", "escrow", "refund", at).Want(t, cli.ExitUsage, `was refunded already$`)
	stranger := newFakeChain(t)
	stranger.peer = sign.NewPrivate([32]byte{3})
	at = stranger.escrow(nil).String()
	run(t, stranger.home, "wallet", "escrow", "refund", at).Want(t, cli.ExitUsage,
		`only the buyer, `+stranger.peer.Key().String()+`, takes back`, `^hint: wait until slot 5101, in about 27m`)
	wantNothing(t, c)
	wantNothing(t, stranger)
}

// A refusal by the chain ends with the code of payments and the remedy, whichever words the endpoint finds for it.
func TestRefusedByTheChain(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[string]string{
		`{"code":-32002,"message":"Transaction simulation failed: insufficient funds for fee"}`: `^hint: send SOL to the ` +
			`peer's key, `,
		`{"code":-32002,"message":"custom program error: 0x1"}`: `^hint: send STAR to \w+, or let its owner allow the ` +
			`peer more: starling wallet allow AMOUNT$`,
		`{"code":-32002,"message":"\u001b[2Jgone"}`: `^starling: [^\x1b]*gone$`,
	} {
		c := newFakeChain(t)
		at := c.escrow(nil)
		c.refuse = refusal
		run(t, c.home, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitPayment, want)
	}
}

// A peer without SOL is refused before anything is sent.
func TestNoFees(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	at := c.escrow(nil)
	c.accounts[c.peer.Key()] = stored{lamports: 5000}
	run(t, c.home, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitPayment, `holds 5000 lamports, \d+ needed`,
		`^hint: send SOL to the peer's key, `+c.peer.Key().String())
	wantNothing(t, c)
}

// An endpoint of another cluster, or none at all, is not this network's chain.
func TestOtherChain(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	at := c.escrow(nil)
	c.genesis.Chain = sign.Hash{77}
	run(t, c.home, "wallet", "escrow", "show", at.String()).Want(t, cli.ExitPayment, `serves another cluster`,
		`^hint: name another endpoint with --rpc$`)
	run(t, c.home, "wallet", "escrow", "show", at.String(), "--rpc", "ftp://x").Want(t, cli.ExitUsage)
	c.write(t, config.FileConfig, "{}\n")
	run(t, c.home, "wallet", "escrow", "show", at.String()).Want(t, cli.ExitUsage, `no endpoint of the chain is known`,
		`^hint: give one with --rpc, or set solana\.rpc in config\.yaml$`)
}
