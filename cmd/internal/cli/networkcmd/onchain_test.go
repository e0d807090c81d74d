package networkcmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify/tranche"
)

// chained is a home directory on a local chain with the program, set up by the commands themselves.
type chained struct {
	*clitest.World
	net     *localnet.Chain
	genesis market.Genesis
	peer    sign.Private
	owner   sign.Private
}

// writeJSON writes a file of a command's output, or of a value.
func writeJSON(t *testing.T, path string, v any) string {
	t.Helper()
	text, isText := v.(string)
	if !isText {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newChained(t *testing.T) *chained {
	t.Helper()
	dir := t.TempDir()
	c := &chained{World: clitest.NewHome(filepath.Join(dir, "home"), rooms.Commands), net: localnettest.Start(t, localnet.Config{})}
	payer := filepath.Join(dir, "payer.json")
	if _, err := p2p.SaveIdentity(payer, c.net.Faucet().Seed()); err != nil {
		t.Fatal(err)
	}
	direct := writeJSON(t, filepath.Join(dir, "direct.json"), c.net.Genesis("cli", 10))

	var deployed struct{ Program string }
	r := c.CLI(t, "network", "deploy", "--keypair", payer, "--rpc", c.net.URL(), "-o", "json").Want(t, cli.ExitOK, `deploying \d+ bytes at`)
	if err := json.Unmarshal([]byte(r.Out), &deployed); err != nil {
		t.Fatal(err)
	}
	make := []string{"network", "init-escrow", direct, "--program", deployed.Program, "--keypair", payer, "--rpc", c.net.URL(), "--treasury", c.net.Faucet().Key().String(),
		"--unbonding", "50s", "--evidence", "2s", "--margin", "4s", "--response", "5s", "--min-stake", "30",
		"--voting", "10m", "--lock", "1m", "--least-bonded", "35", "--least-bond", "5", "--first-slot", "1", "--epoch", "10s", "--emission", "1000"}
	r = c.CLI(t, make...).Want(t, cli.ExitOK, `"program": "`+deployed.Program, `^the account exists, with the pools of 1 token`,
		`^the emission is paid from token account \w+: send up to 1000.00`)
	g, err := market.ParseGenesis([]byte(r.Out))
	if err != nil || g.Escrow.IsZero() {
		t.Fatalf("%v: %s", err, r.Out)
	}
	if again := c.CLI(t, make...).Want(t, cli.ExitOK); again.Out != r.Out {
		t.Errorf("once more: %s", again.Out)
	}
	// The parameters as a file lead to the same account.
	params := c.CLI(t, append(make, "--dry-run")...).Want(t, cli.ExitOK, `"fee_bps": 200`)
	c.CLI(t, "network", "init-escrow", direct, "--program", deployed.Program, "--keypair", payer, "--rpc", c.net.URL(),
		"--params", writeJSON(t, filepath.Join(dir, "params.json"), params.Out)).Want(t, cli.ExitOK, `"escrow": "`+g.Escrow.String())

	c.genesis = g
	c.CLI(t, "init", "--genesis", writeJSON(t, filepath.Join(dir, "escrow.json"), r.Out), "--solana-rpc", c.net.URL()).Want(t, cli.ExitOK)
	if c.peer, err = moneycmd.ReadKeypair(filepath.Join(c.Home, config.FileIdentity)); err != nil {
		t.Fatal(err)
	}
	if c.owner, err = moneycmd.ReadKeypair(filepath.Join(c.Home, config.FileWallet)); err != nil {
		t.Fatal(err)
	}
	c.CLI(t, "stake", "status").Want(t, cli.ExitUsage, `is not registered`, `^hint: starling stake register`)
	c.CLI(t, "stake", "register").Want(t, cli.ExitPayment, `holds 0 lamports`, `^hint: send SOL to the peer's key, `+c.peer.Key().String())
	// The owner's account is lent to the peer, as one that buys has it.
	if err := c.net.Fund(t.Context(), localnet.Wallet{Owner: c.owner, Delegate: c.peer.Key(), Tokens: 1000_000_000, Allowance: 500_000_000, Lamports: 1_000_000_000}); err != nil {
		t.Fatal(err)
	}
	return c
}

// until makes a slot the newest but one, so that windows which a command has to act in can be long.
func (c *chained) until(t *testing.T, slot uint64) {
	t.Helper()
	l, err := solana.NewReader([]string{c.net.URL()}, c.genesis)
	if err != nil {
		t.Fatal(err)
	}
	for skipped := false; ; skipped = true {
		now, err := l.Slot(t.Context())
		if err == nil && uint64(now) > slot {
			return
		}
		if err == nil && !skipped {
			err = c.net.Skip(t.Context(), slot+1)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(localnettest.SlotMillis * time.Millisecond)
	}
}

// TestOnChain: the commands that call the program, against a chain: from a cluster without the program to stake withdrawn and
// deposits taken back.
func TestOnChain(t *testing.T) {
	t.Parallel()
	c := newChained(t)
	c.CLI(t, "wallet", "show").Want(t, cli.ExitOK, `^owner +\w+ +1000.00 STAR$`, `may spend 500.00 STAR, of which 0.00 STAR are in its own account`, `^fees +1.00 SOL`)
	c.CLI(t, "wallet", "show", c.net.Faucet().Key().String()).Want(t, cli.ExitOK, `^wallet +\w+ +0.00 STAR$`)
	c.CLI(t, "wallet", "allow", "700").Want(t, cli.ExitOK, `^letting peer \w+ spend 700.00 STAR of `, `^confirmed +\w+`)
	c.CLI(t, "wallet", "show").Want(t, cli.ExitOK, `may spend 700.00 STAR, of which`)
	c.CLI(t, "wallet", "collect").Want(t, cli.ExitUsage, `holds nothing`)
	t.Run("Stake", func(t *testing.T) { c.testStake(t) })
	t.Run("Escrow", func(t *testing.T) { c.testEscrow(t) })
}

func (c *chained) testStake(t *testing.T) {
	c.CLI(t, "stake", "register").Want(t, cli.ExitOK, `^no peer runs here, so no inventory is stated`, `^registering provider `+c.peer.Key().String(), `^confirmed +\w+`)
	c.CLI(t, "stake", "register").Want(t, cli.ExitUsage, `is registered already`)
	c.CLI(t, "stake", "status").Want(t, cli.ExitOK, `^stake +0.00 STAR +less than the network's least, 30.00 STAR`, `^owner +`+c.owner.Key().String())
	c.CLI(t, "stake", "remove", "1").Want(t, cli.ExitUsage, `cannot be taken out of a stake of 0.00 STAR`)
	c.CLI(t, "stake", "withdraw").Want(t, cli.ExitUsage, `no stake is unbonding`)
	c.CLI(t, "stake", "add", "0").Want(t, cli.ExitUsage)
	c.CLI(t, "stake", "add", "40.5").Want(t, cli.ExitOK, `^adding 40.50 STAR of \w+ to the stake of `)
	c.CLI(t, "stake", "add", "2000").Want(t, cli.ExitPayment)
	c.CLI(t, "stake", "status").Want(t, cli.ExitOK, `^stake +40.50 STAR`)
	c.CLI(t, "stake", "remove", "10.5").Want(t, cli.ExitOK, `^10.50 STAR can be withdrawn from slot \d+, in about \d+s`)
	c.CLI(t, "stake", "withdraw").Want(t, cli.ExitPayment, `^starling: 10.50 STAR can be withdrawn from slot \d+, in about`)
	c.CLI(t, "stake", "remove", "all").Want(t, cli.ExitOK, `^10.50 STAR was removed earlier; its wait starts again`, `^40.50 STAR can be withdrawn from`)
	var s moneycmd.StakeInfo
	if err := json.Unmarshal([]byte(c.CLI(t, "stake", "status", "-o", "json").Want(t, cli.ExitOK, `"unbonding": 40500000`).Out), &s); err != nil {
		t.Fatal(err)
	}
	c.until(t, s.Ready)
	c.CLI(t, "stake", "status").Want(t, cli.ExitOK, `^unbonding +40.50 STAR +can be withdrawn now`)
	c.CLI(t, "stake", "withdraw").Want(t, cli.ExitOK, `^withdrawing 40.50 STAR to `+c.owner.Key().String())
	c.CLI(t, "wallet", "show").Want(t, cli.ExitOK, `^owner +\w+ +1000.00 STAR$`)
	// Without the owner's key nothing of the owner's can be done.
	moved := filepath.Join(t.TempDir(), "owner.json")
	wallet := filepath.Join(c.Home, config.FileWallet)
	if err := os.Rename(wallet, moved); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.Home, config.FileConfig)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cold := strings.Replace(string(text), "\nowner:", "\nowner: "+c.owner.Key().String()+" #", 1)
	if cold == string(text) {
		cold += "\nowner: " + c.owner.Key().String() + "\n"
	}
	writeJSON(t, file, cold)
	c.CLI(t, "stake", "add", "1").Want(t, cli.ExitOK) // as its delegate
	c.CLI(t, "stake", "remove", "all").Want(t, cli.ExitUsage, `the provider's owner must sign this`, `^hint: give its keypair file with --wallet FILE`)
	c.CLI(t, "stake", "remove", "all", "--wallet", moved).Want(t, cli.ExitOK)
	c.CLI(t, "wallet", "new").Want(t, cli.ExitUsage, `names another owner`)
	c.CLI(t, "wallet", "import", moved).Want(t, cli.ExitOK, `^address +`+c.owner.Key().String())
	c.CLI(t, "wallet", "import", moved).Want(t, cli.ExitUsage, `never overwritten`)
}

func (c *chained) testEscrow(t *testing.T) {
	c.CLI(t, "wallet", "escrow", "ls").Want(t, cli.ExitOK, `^0 escrows of `+c.peer.Key().String())
	at, deadline := c.openEscrow(t.Context(), t)
	c.CLI(t, "wallet", "escrow", "ls").Want(t, cli.ExitOK, `^`+at.String()+` +\w+ +open +5.00 STAR +2.00 STAR +0.00 STAR +3.00 STAR +slot \d+, in about`, `^1 escrow of `)
	c.CLI(t, "wallet", "escrow", "ls", "--buyer", c.owner.Key().String(), "-o", "json").Want(t, cli.ExitOK, `^\[\]$`)
	c.CLI(t, "wallet", "escrow", "show", at.String()).Want(t, cli.ExitOK, `^deposited +5.00 STAR$`, `^outstanding +2.00 STAR`, `^free +3.00 STAR`, `^deadline +slot `+fmt.Sprint(deadline),
		`^0 +all 2 +2.00 STAR +2.00 STAR .*opened by the buyer$`, `^ +1 +0.00 STAR +0.00 STAR`)
	c.CLI(t, "wallet", "escrow", "top-up", at.String(), "1.5").Want(t, cli.ExitOK, `^adding 1.50 STAR of \w+ to escrow `)
	c.CLI(t, "wallet", "escrow", "show", at.String(), "-o", "json").Want(t, cli.ExitOK, `"deposited": 6500000`, `"free": 4500000`)
	c.CLI(t, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitOK, `^taking 4.50 STAR back from escrow \w+ to `+c.owner.Key().String())
	c.CLI(t, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitUsage, `nothing is free`, `^hint: the outstanding part can be taken back from slot \d+, in about`)
	c.until(t, deadline+200)
	c.CLI(t, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitOK, `^taking 2.00 STAR back`)
	c.CLI(t, "wallet", "escrow", "show", at.String()).Want(t, cli.ExitOK, `^state +refunded`, `^refunded +6.50 STAR`, `^deadline +slot \d+, \d+s ago`)
	c.CLI(t, "wallet", "escrow", "refund", at.String()).Want(t, cli.ExitUsage, `was refunded already`)
	c.CLI(t, "wallet", "escrow", "top-up", at.String(), "1").Want(t, cli.ExitUsage, `was refunded`)
	c.CLI(t, "wallet", "escrow", "show", c.peer.Key().String()).Want(t, cli.ExitUsage, `not found: it does not exist`, `^hint: starling wallet escrow ls`)
	c.CLI(t, "wallet", "escrow", "show", c.genesis.Mint.String()).Want(t, cli.ExitPayment, `is no escrow of program`)
	c.CLI(t, "wallet", "escrow", "show", at.String(), "--rpc", "http://127.0.0.1:1").Want(t, cli.ExitPayment, `^hint: name another endpoint with --rpc`)
}

// openEscrow deposits 5 tokens, of which a tranche of two leaves takes 2.
func (c *chained) openEscrow(ctx context.Context, t *testing.T) (at sign.Key, deadline uint64) {
	t.Helper()
	l, err := solana.New(solana.ConfigOf([]string{c.net.URL()}, c.genesis, c.peer))
	if err != nil {
		t.Fatal(err)
	}
	slot, err := l.Slot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	buyer, opened := c.peer.Key(), uint64(slot)
	at = account.EscrowAddress(c.genesis.Program, c.genesis.Escrow, buyer, sign.Hash{1}, opened)
	open := program.OpenEscrow{Payer: buyer, Buyer: buyer, Source: svm.TokenAccount(c.owner.Key(), c.genesis.Mint), Authority: buyer, Escrow: at,
		Vault: account.VaultAddress(c.genesis.Program, at), Mint: c.genesis.Mint, Network: c.genesis.Escrow, Order: market.OrderID{1}, Opened: opened,
		Deadline: opened + 5000, Deposit: 5_000_000, RefundOwner: c.owner.Key(), Keys: market.KeySet{Threshold: 1, Keys: []sign.Key{buyer}}}
	add := program.AddTranche{Payer: buyer, Buyer: buyer, Escrow: at, Vault: open.Vault, Tranche: account.TrancheAddress(c.genesis.Program, at, 0),
		Root: tranche.Root{Hash: sign.Hash{9}, Sum: 2_000_000, Count: 2}}
	if _, err := l.Run(ctx, []svm.Instruction{open.Instruction(c.genesis.Program), add.Instruction(c.genesis.Program)}); err != nil {
		t.Fatal(err)
	}
	return at, open.Deadline
}
