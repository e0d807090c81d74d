package moneycmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

// The status of a stake shows a shortfall, the part that votes, and the slot from which stake can be withdrawn.
func TestStakeStatus(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(*account.Provider)
		says   []string
		not    string
	}{
		"plain": {nil, []string{`^registered +slot 10, 6m ago$`, `^stake +40\.00 STAR *$`,
			`^bonded +30\.00 STAR +it votes; starling stake release unbonds it$`}, `unbonding|slashed|inventory`},
		"short": {func(p *account.Provider) { p.Stake, p.Bonded = 29_999_999, 0 },
			[]string{`^stake +29\.999999 STAR +less than the network's least, 30\.00 STAR$`}, `bonded`},
		"voted": {func(p *account.Provider) { p.Frozen = 1000 },
			[]string{`^bonded .* it voted and cannot be released before slot 1000, 0s ago$`}, `release unbonds it`},
		"voted before": {func(p *account.Provider) { p.Frozen = 999 }, []string{`release unbonds it`}, `it voted and`},
		"waits": {func(p *account.Provider) { p.Unbonding, p.Ready = 5, 1001 },
			[]string{`^unbonding +0\.000005 STAR +can be withdrawn from slot 1001, in about 0s `}, `now`},
		"ready": {func(p *account.Provider) { p.Unbonding, p.Ready = 5, 1000 },
			[]string{`^unbonding .* can be withdrawn now: starling stake withdraw$`}, `from slot`},
		"slashed": {func(p *account.Provider) { p.Slashed, p.WasSlashed = 700, true }, []string{`^slashed +slot 700, 2m ago`},
			`unbonding`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFakeChain(t)
			c.register(x.change)
			r := run(t, c.home, "stake", "status").Want(t, cli.ExitOK, x.says...)
			wantNot(t, r.Out, x.not)
		})
	}
}

// Another provider is named by its peer key; a missing registration is a usage error, a forged one is not.
func TestStakeProvider(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	other := sign.NewPrivate([32]byte{5}).Key()
	c.register(func(p *account.Provider) { p.Peer, p.Stake, p.Bonded = other, 1, 0 })
	run(t, c.home, "stake", "status").Want(t, cli.ExitUsage, `^starling: provider `+c.peer.Key().String()+` is not reg`,
		`^hint: starling stake register; or name its peer key by --provider$`)
	run(t, c.home, "stake", "status", "--provider", other.String(), "-o", "json").Want(t, cli.ExitOK,
		`"provider": "`+other.String()+`"`, `"stake": 1,`)
	run(t, c.home, "stake", "status", "--provider", "o").Want(t, cli.ExitUsage, `--provider: "o" is not a Solana address`)
	at := account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, other)
	for _, change := range []func(*stored){
		func(a *stored) { a.owner = sign.Key{3} }, func(a *stored) { a.data = a.data[:len(a.data)-1] },
	} {
		forged := c.accounts[at]
		change(&forged)
		c.accounts[at] = forged
		run(t, c.home, "stake", "status", "--provider", other.String()).Want(t, cli.ExitPayment,
			`the registration of `+other.String())
	}
}

// stakeCall is a command line about stake, and the call that it has to make.
type stakeCall struct {
	line   []string
	change func(*account.Provider)
	says   string
	call   func(c *fakeChain, at sign.Key) svm.Instruction
}

func stakeCalls() map[string]stakeCall {
	bond := func(n uint64) func(*fakeChain, sign.Key) svm.Instruction {
		return func(c *fakeChain, at sign.Key) svm.Instruction {
			return program.Bond{Owner: c.owner.Key(), Network: c.genesis.Escrow, Provider: at, Amount: n}.
				Instruction(c.genesis.Program)
		}
	}
	release := func(n uint64) func(*fakeChain, sign.Key) svm.Instruction {
		return func(c *fakeChain, at sign.Key) svm.Instruction {
			return program.Release{Owner: c.owner.Key(), Network: c.genesis.Escrow, Provider: at, Amount: n}.
				Instruction(c.genesis.Program)
		}
	}
	remove := func(n uint64) func(*fakeChain, sign.Key) svm.Instruction {
		return func(c *fakeChain, at sign.Key) svm.Instruction {
			return program.RequestUnstake{Owner: c.owner.Key(), Network: c.genesis.Escrow, Provider: at, Amount: n}.
				Instruction(c.genesis.Program)
		}
	}
	return map[string]stakeCall{
		"add": {[]string{"add", "2.5"}, nil, `^adding 2\.50 STAR of \w+ to the stake of `,
			func(c *fakeChain, at sign.Key) svm.Instruction {
				return program.Stake{Authority: c.owner.Key(), Provider: at, Mint: c.genesis.Mint, Amount: 2_500_000,
					Source: svm.TokenAccount(c.owner.Key(), c.genesis.Mint),
					Vault:  account.StakeAddress(c.genesis.Program, at)}.Instruction(c.genesis.Program)
			}},
		"bond all":     {[]string{"bond", "all"}, nil, `^bonding 10\.00 STAR of the stake of `, bond(10_000_000)},
		"bond one":     {[]string{"bond", "0.000001"}, nil, `^bonding 0\.000001 STAR `, bond(1)},
		"release all":  {[]string{"release", "all"}, nil, `^releasing 30\.00 STAR of `, release(30_000_000)},
		"remove all":   {[]string{"remove", "all"}, nil, `^taking 10\.00 STAR out of the stake of `, remove(10_000_000)},
		"remove some":  {[]string{"remove", "9"}, nil, `^9\.00 STAR can be withdrawn from slot 3000, in about 13m`, remove(9_000_000)},
		"remove again": {[]string{"remove", "9"}, func(p *account.Provider) { p.Unbonding, p.Ready = 1_000_000, 1500 }, `^1\.00 STAR was removed earlier; its wait starts again now$(?s:.*)^10\.00 STAR can be withdrawn from slot 3000, `, remove(9_000_000)},
	}
}

// A command about stake makes one call, for the amount that it announces.
func TestStakeCalls(t *testing.T) {
	t.Parallel()
	for name, x := range stakeCalls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFakeChain(t)
			c.register(x.change)
			wallet := c.key(t, "cold.json", c.owner)
			run(t, c.home, append([]string{"stake", "--wallet", wallet}, x.line...)...).Want(t, cli.ExitOK, x.says,
				`^confirmed +\w+$`)
			wantSent(t, c, x.call(c, account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, c.peer.Key())))
		})
	}
}

// Withdrawn stake goes to the account of the owner, which is opened first.
func TestStakeWithdraw(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	c.key(t, config.FileWallet, c.owner)
	c.register(nil)
	run(t, c.home, "stake", "withdraw").Want(t, cli.ExitUsage, `^starling: no stake is unbonding$`)
	c.register(func(p *account.Provider) { p.Unbonding, p.Ready = 3_000_000, 1001 })
	run(t, c.home, "stake", "withdraw").Want(t, cli.ExitPayment, `3\.00 STAR can be withdrawn from slot 1001, .*not yet$`)
	wantNothing(t, c)
	c.slot = 1001
	run(t, c.home, "stake", "withdraw").Want(t, cli.ExitOK, `^withdrawing 3\.00 STAR to `+c.owner.Key().String())
	at := account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, c.peer.Key())
	wantSent(t, c, svm.OpenTokenAccount(c.peer.Key(), c.owner.Key(), c.genesis.Mint),
		program.Withdraw{Owner: c.owner.Key(), Provider: at, Vault: account.StakeAddress(c.genesis.Program, at),
			Destination: svm.TokenAccount(c.owner.Key(), c.genesis.Mint),
			Mint:        c.genesis.Mint}.Instruction(c.genesis.Program))
}

// Amounts that the program would refuse are refused before, with the stake and its bonded part.
func TestStakeRefuses(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	c.key(t, config.FileWallet, c.owner)
	c.register(nil)
	poor := func(p *account.Provider) { p.Stake, p.Bonded = 29_000_000, 0 }
	for _, x := range []struct {
		change func(*account.Provider)
		line   []string
		code   cli.ExitCode
		says   string
	}{
		{nil, []string{"bond", "10.000001"}, cli.ExitUsage, `10\.000001 STAR cannot be bonded of a stake of 40\.00 STAR, of which 30`},
		{nil, []string{"bond", "18446744073709.551615"}, cli.ExitUsage, `cannot be bonded of a stake of 40\.00 STAR`},
		{nil, []string{"bond", "ALL"}, cli.ExitUsage, `"ALL" is not a decimal number`},
		{poor, []string{"bond", "all"}, cli.ExitUsage, `29\.00 STAR would be bonded, the network's least stake is 30\.00 STAR`},
		{nil, []string{"release", "30.000001"}, cli.ExitUsage, `30\.000001 STAR cannot be released of 30\.00 STAR`},
		{poor, []string{"release", "all"}, cli.ExitUsage, `0\.00 STAR cannot be released of 0\.00 STAR`},
		{func(p *account.Provider) { p.Frozen = 1000 }, []string{"release", "all"}, cli.ExitPayment, `bonded until that has ended: slot 1000`},
		{nil, []string{"remove", "10.000001"}, cli.ExitUsage, `30\.00 STAR of the stake is bonded$`},
		{nil, []string{"remove", "40.000001"}, cli.ExitUsage, `40\.000001 STAR cannot be taken out of a stake of 40\.00 STAR`},
		{nil, []string{"remove", "0"}, cli.ExitUsage, `amount must be greater than zero`},
		{nil, []string{"add", "0"}, cli.ExitUsage, `amount must be greater than zero`},
	} {
		c.register(x.change)
		run(t, c.home, append([]string{"stake"}, x.line...)...).Want(t, x.code, `^starling: .*`+x.says)
	}
	wantNothing(t, c)
}

// The stake of a network may be another token than its money: the decimals of that token count, and an invalid amount
// is a usage error all the same.
func TestStakeOfAnotherToken(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		mint sign.Key
		text string
		want uint64
	}{{sign.Key{8}, "2.5", 250}, {sign.Key{88}, "250", 250}} {
		c := newFakeChain(t, func(c *fakeChain) { c.params.StakeMint = x.mint })
		c.key(t, config.FileWallet, c.owner)
		c.register(nil)
		for _, bad := range []string{"0", "0.001", "many", "99999999999999999999"} {
			run(t, c.home, "stake", "add", bad).Want(t, cli.ExitUsage, `^starling: `)
		}
		wantNothing(t, c)
		run(t, c.home, "stake", "add", x.text).Want(t, cli.ExitOK)
		at := account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, c.peer.Key())
		wantSent(t, c, program.Stake{Authority: c.owner.Key(), Provider: at, Mint: x.mint, Amount: x.want,
			Source: svm.TokenAccount(c.owner.Key(), x.mint),
			Vault:  account.StakeAddress(c.genesis.Program, at)}.Instruction(c.genesis.Program))
	}
}

// Nobody's key but the owner's signs for its stake, and nothing is bonded where nothing is voted on.
func TestStakeSigners(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t, func(c *fakeChain) { c.params.Votes = account.Votes{} })
	c.register(nil)
	for _, line := range [][]string{{"remove", "1"}, {"release", "1"}, {"withdraw"}} {
		run(t, c.home, append([]string{"stake"}, line...)...).Want(t, cli.ExitUsage,
			`^starling: the provider's owner must sign this, and the key of `+c.owner.Key().String()+` is missing$`,
			`^hint: give its keypair file with --wallet FILE$`)
	}
	run(t, c.home, "stake", "bond", "1").Want(t, cli.ExitUsage, `network cli has no votes`)
	for name, text := range map[string]string{"text.json": "secret words", "short.json": "[1,2,3]", "big.json": "[" + string(make([]byte, 5000))} {
		c.write(t, name, text)
		r := run(t, c.home, "stake", "remove", "1", "--wallet", c.home+"/"+name).Want(t, cli.ExitUsage, name)
		wantNot(t, r.Err, `secret`)
	}
	run(t, c.home, "stake", "remove", "1", "--wallet", c.home+"/missing.json").Want(t, cli.ExitUsage, `missing\.json`)
	wantNothing(t, c)
}

// A registration has the inventory of the peer that runs here, and of no other.
func TestStakeRegister(t *testing.T) {
	t.Parallel()
	c := newFakeChain(t)
	c.key(t, config.FileWallet, c.owner)
	info := api.NodeInfo{Key: c.peer.Key(), Inventory: sign.Hash{6}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(info)
	}))
	t.Cleanup(s.Close)
	c.write(t, config.FileAPI, api.Endpoint{URL: s.URL, Token: "token"})
	for _, x := range [][]string{{"--payout", "x"}, {"--inventory", "x"}, {"--inventory", "00"}} {
		run(t, c.home, append([]string{"stake", "register"}, x...)...).Want(t, cli.ExitUsage, `^starling: `+x[0]+`: "`)
	}
	info.Key = sign.Key{4}
	run(t, c.home, "stake", "register").Want(t, cli.ExitUsage, `^starling: the peer that runs here is `+info.Key.String())
	wantNothing(t, c)
	info.Key = c.peer.Key()
	payout := sign.NewPrivate([32]byte{8}).Key()
	run(t, c.home, "stake", "register", "--payout", payout.String()).Want(t, cli.ExitOK,
		`^registering provider `+c.peer.Key().String()+` of owner `+c.owner.Key().String()+`, paid to `+payout.String())
	at := account.ProviderAddress(c.genesis.Program, c.genesis.Escrow, c.peer.Key())
	wantSent(t, c, program.Register{Payer: c.peer.Key(), Owner: c.owner.Key(), Peer: c.peer.Key(), Network: c.genesis.Escrow,
		Payout: payout, Inventory: info.Inventory, Provider: at, Vault: account.StakeAddress(c.genesis.Program, at),
		Mint: c.genesis.Mint}.Instruction(c.genesis.Program))
	c.register(nil)
	run(t, c.home, "stake", "register").Want(t, cli.ExitUsage, `is registered already$`, `^hint: starling stake status$`)
	draft := newFakeChain(t)
	draft.genesis.Program, draft.genesis.Escrow = sign.Key{}, sign.Key{}
	draft.write(t, config.FileGenesis, draft.genesis)
	run(t, draft.home, "stake", "register").Want(t, cli.ExitUsage, `network cli has no program yet`)
	draft.write(t, config.FileGenesis, market.Genesis{Network: "cli", Chain: sign.Hash{1}, Symbol: "STAR", Decimals: 6,
		SlotMillis: 400, IntervalSlots: 150, Free: true})
	run(t, draft.home, "stake", "register").Want(t, cli.ExitUsage, `network cli is a free network`,
		`^hint: starling proof check checks the signed receipts$`)
}
