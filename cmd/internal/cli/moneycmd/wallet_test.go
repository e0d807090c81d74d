package moneycmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

// peerAnswers makes a peer run on the home directory that shows itself so.
func (c *fakeChain) peerAnswers(t *testing.T, status int, v any) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}))
	t.Cleanup(s.Close)
	c.write(t, config.FileAPI, api.Endpoint{URL: s.URL, Token: "token"})
}

// Without a running peer the chain is asked: the peer may spend its own account and the smaller one of the
// owner's balance and the allowance.
func TestWalletOfChain(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ balance, allowed, own, want uint64 }{
		"nothing":         {0, 0, 0, 0},
		"no allowance":    {7_000_000, 0, 0, 0},
		"allowance":       {7_000_000, 2_000_000, 1, 2_000_001},
		"above a balance": {7_000_000, 9_000_000, 500_000, 7_500_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFakeChain(t)
			c.tokens(c.owner.Key(), x.balance, x.allowed)
			c.tokens(c.peer.Key(), x.own, 0)
			money := func(n uint64) string { return strings.ReplaceAll(c.genesis.FormatAmount(market.Amount(n)), ".", `\.`) }
			run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^owner +`+c.owner.Key().String()+` +`+money(x.balance)+`$`,
				`^peer +`+c.peer.Key().String()+` +may spend `+money(x.want)+`, of which `+money(x.own)+` are in its own`,
				`^fees +1\.00 SOL +of the peer$`)
		})
	}
}

// A peer that runs is asked before the chain; with --rpc the chain is.
func TestWalletOfPeer(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	g := c.genesis
	g.Symbol = "PEER"
	c.peerAnswers(t, http.StatusOK, api.NodeInfo{Genesis: g, Funds: &chain.Funds{Balance: 5, Own: 1, Spendable: 3, Lamports: 7}})
	run(t, c.home, "wallet", "show", "-o", "json").Want(t, cli.ExitOK, `"tokens": 5,`, `"own": 1,`, `"spendable": 3,`,
		`"lamports": 7$`)
	run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^owner .* 0\.000005 PEER$`, `^fees +0\.000000007 SOL`)
	url := "http://" + strings.TrimSuffix(strings.Split(readFile(t, c.home, config.FileConfig), "http://")[1], "']}\n")
	run(t, c.home, "wallet", "show", "--rpc", url).Want(t, cli.ExitOK, `^owner .* 0\.00 STAR$`)
	run(t, c.home, "wallet", "show", "--rpc", "http://127.0.0.1:1").Want(t, cli.ExitPayment, `^hint: name another endpoint`)
	c.peerAnswers(t, http.StatusInternalServerError, nil)
	run(t, c.home, "wallet", "show").Want(t, cli.ExitFailed, `^starling: the peer answered 500`)
}

func readFile(t *testing.T, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Where no balance is known the wallet says why, in one line of the table, and shows the addresses all the same.
func TestWalletWithoutBalance(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		info api.NodeInfo
		want string
	}{
		{api.NodeInfo{}, `the peer has not reached the chain yet`},
		{api.NodeInfo{ChainErr: "down\nbalance  9999 STAR"}, `down balance  9999 STAR`},
		{api.NodeInfo{ChainErr: "no", Problems: []api.Fault{{Service: "disk", Problem: "full"},
			{Service: "entries", Problem: "no entry", Remedy: "add one"}}}, `no entry; add one`},
		{api.NodeInfo{Problems: []api.Fault{{Service: "slots", Problem: "late", Remedy: "wait"}}}, `late; wait`},
	} {
		c := newFakeChain(t)
		c.peerAnswers(t, http.StatusOK, x.info)
		run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^owner +`+c.owner.Key().String()+` +pays and is paid, from owner\.address`,
			`^balance +not known +`+x.want+`$`)
	}
	c := newFakeChain(t)
	c.write(t, config.FileConfig, "{}\n")
	run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^balance +not known +the peer does not run; start it with`)
	c.write(t, config.FileConfig, "solana: {rpc: ['http://127.0.0.1:1']}\n")
	run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^balance +not known +the peer does not run, and the chain cannot be`)
	c.write(t, config.FileGenesis, market.Genesis{Network: "cli", Chain: sign.Hash{1}, Symbol: "STAR", Decimals: 6,
		SlotMillis: 400, IntervalSlots: 150, Free: true})
	run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^owner .* nothing is paid: network cli is free$`)
	run(t, t.TempDir(), "wallet", "show").Want(t, cli.ExitUsage, `no peer was set up in `, `^hint: starling init$`)
}

// A mint that is not there, or has other decimals than the genesis says, would make every amount wrong.
func TestWalletOfOtherMint(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	at := c.owner.Key().String()
	c.tokens(c.owner.Key(), 1_500_000, 0)
	run(t, c.home, "wallet", "show", at).Want(t, cli.ExitOK, `^wallet +`+at+` +1\.50 STAR$`)
	run(t, c.home, "wallet", "show", sign.Key{5}.String(), "-o", "json").Want(t, cli.ExitOK, `"tokens": 0$`)
	run(t, c.home, "wallet", "show", "me").Want(t, cli.ExitUsage, `wallet: "me" is not a Solana address`)
	token := make([]byte, 82)
	token[44], token[45] = 9, 1
	for _, x := range []struct {
		mint stored
		says string
	}{
		{stored{1, svm.TokenProgram, token}, `9 decimals, the network has 6`},
		{stored{1, sign.Key{3}, token}, `not to the token program`},
		{stored{1, svm.TokenProgram, token[:81]}, `mint account of 81 bytes`},
	} {
		c.accounts[c.genesis.Mint] = x.mint
		run(t, c.home, "wallet", "show", at).Want(t, cli.ExitPayment, x.says)
	}
	delete(c.accounts, c.genesis.Mint)
	run(t, c.home, "wallet", "show", at).Want(t, cli.ExitPayment, `no account `+c.genesis.Mint.String()+` on this chain`)
}

// The owner alone signs an allowance; the tokens in the peer's own account go back to the owner's.
func TestWalletAllowAndCollect(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	run(t, c.home, "wallet", "allow", "1").Want(t, cli.ExitUsage, `^starling: the owner must sign this`)
	run(t, c.home, "wallet", "collect").Want(t, cli.ExitUsage, `the peer's own account holds nothing`)
	wantNothing(t, c)
	c.key(t, config.FileWallet, c.owner)
	for _, bad := range []string{"0", "1.0000001", "unlimited"} {
		run(t, c.home, "wallet", "allow", bad).Want(t, cli.ExitUsage)
	}
	run(t, c.home, "wallet", "allow", "12.5").Want(t, cli.ExitOK,
		`^letting peer `+c.peer.Key().String()+` spend 12\.50 STAR of `+c.owner.Key().String())
	source := svm.TokenAccount(c.owner.Key(), c.genesis.Mint)
	wantSent(t, c, svm.ApproveTokens(source, c.genesis.Mint, c.peer.Key(), c.owner.Key(), 12_500_000, 6))
	c.sent = nil
	c.tokens(c.peer.Key(), 42, 0)
	run(t, c.home, "wallet", "collect").Want(t, cli.ExitOK, `^moving 0\.000042 STAR to `+c.owner.Key().String())
	wantSent(t, c, svm.OpenTokenAccount(c.peer.Key(), c.owner.Key(), c.genesis.Mint),
		svm.TransferTokens(svm.TokenAccount(c.peer.Key(), c.genesis.Mint), source, c.genesis.Mint, c.peer.Key(), 42, 6))
	if err := config.SaveOwner(c.home, c.peer.Key()); err != nil {
		t.Fatal(err)
	}
	run(t, c.home, "wallet", "allow", "1").Want(t, cli.ExitUsage, `the peer is the owner of its tokens`)
	c.tokens(c.peer.Key(), 3_000_000, 0)
	run(t, c.home, "wallet", "show").Want(t, cli.ExitOK, `^peer .* is the owner, and may spend all$`)
}

// A key is written once, readable by its user alone, and never replaces another owner's.
func TestWalletNew(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	run(t, c.home, "wallet", "new").Want(t, cli.ExitUsage, `owner\.address names another owner, `+c.owner.Key().String(), `^hint: remove `)
	elsewhere := filepath.Join(t.TempDir(), "cold.json")
	run(t, c.home, "wallet", "new", elsewhere).Want(t, cli.ExitOK, `^file +`+elsewhere)
	cold, err := ReadKeypair(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	before := readFile(t, elsewhere)
	run(t, c.home, "wallet", "new", elsewhere).Want(t, cli.ExitUsage, `exists: a key is never overwritten`, `^hint: `)
	if readFile(t, elsewhere) != before {
		t.Error("the key was overwritten")
	}
	if err := os.Remove(filepath.Join(c.home, config.FileOwner)); err != nil {
		t.Fatal(err)
	}
	c.write(t, config.FileConfig, "owner: "+c.owner.Key().String()+"\n")
	run(t, c.home, "wallet", "import", elsewhere).Want(t, cli.ExitUsage, `config\.yaml names another owner, `,
		"^hint: take `owner` out of config.yaml first")
	c.write(t, config.FileConfig, "{}\n")
	if err := os.Chmod(elsewhere, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, c.home, "wallet", "import", elsewhere).Want(t, cli.ExitUsage, `\(mode 0644\)$`, `^hint: chmod 600 `+elsewhere)
	if err := os.Chmod(elsewhere, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, c.home, "wallet", "import", elsewhere).Want(t, cli.ExitOK, `^address +`+cold.Key().String())
	if owner, err := config.LoadOwner(c.home); err != nil || owner != cold.Key() {
		t.Errorf("the owner is %v, %v, want %v", owner, err, cold.Key())
	}
	if st, err := os.Stat(filepath.Join(c.home, config.FileWallet)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", st, err)
	}
}
