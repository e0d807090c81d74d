package networkcmd

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	cluster = "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG" // of Solana's devnet
	mint    = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
)

// network runs a command line below starling network.
func network(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.NewHome(t.TempDir(), []func(*cli.App) *cobra.Command{NewNetwork}).CLI(t, append([]string{"network"}, args...)...)
}

// The genesis that is written is the one that was described, in whole slots, and is read again as it is.
func TestGenesis(t *testing.T) {
	t.Parallel()
	base := []string{"genesis", "--network", "acme", "--chain", cluster, "--mint", mint, "--symbol", "USDC"}
	for more, change := range map[string]func(*market.Genesis){
		"":          func(*market.Genesis) {},
		"--audit 0": func(g *market.Genesis) { g.AuditSlots, g.AuditOneIn = 0, 0 },
		"--slot 1s --interval 30s --decimals 9 --audit 4h --audit-window 10m": func(g *market.Genesis) {
			g.SlotMillis, g.IntervalSlots, g.Decimals, g.AuditSlots, g.AuditOneIn = 1000, 30, 9, 600, 24
		},
		"--program " + mint + " --escrow " + cluster: func(g *market.Genesis) { g.Program, g.Escrow = g.Mint, sign.Key(g.Chain) },
	} {
		chain, _ := sign.ParseKey(cluster)
		token, _ := sign.ParseKey(mint)
		want := market.Genesis{Network: "acme", Chain: sign.Hash(chain), Mint: token, Symbol: "USDC", Decimals: 6, SlotMillis: 400, IntervalSlots: 25,
			AuditSlots: 300, AuditOneIn: 30}
		change(&want)
		r := network(t, append(slices.Clone(base), strings.Fields(more)...)...).Want(t, cli.ExitOK)
		if g, err := market.ParseGenesis([]byte(r.Out)); err != nil || g != want {
			t.Errorf("%s: got %+v, %v, want %+v", more, g, err, want)
		}
	}
	hexadecimal, err := chainHash(strings.Repeat("0a", 32))
	if h, err2 := chainHash(sign.Key(hexadecimal).String()); err != nil || err2 != nil || h != hexadecimal {
		t.Errorf("a hash in both forms: %v, %v, %v, %v", hexadecimal, h, err, err2)
	}
}

// Impossible parameters are refused with their flag, and nothing is written.
func TestGenesisRefuses(t *testing.T) {
	t.Parallel()
	base := []string{"genesis", "--network", "acme", "--chain", cluster, "--mint", mint, "--symbol", "USDC"}
	for more, says := range map[string]string{
		"--network=": `--network is needed`, "--chain=": `--chain is needed`, "--mint=": `--mint is needed`, "--symbol=": `--symbol is needed`,
		"--chain xyz": `--chain: "xyz" is not a genesis hash`, "--mint me": `--mint: "me" is not a Solana address`, "--symbol usd": `symbol`, "--network Acme": `network`,
		"--slot 0s": `--slot: 0s is not a whole number of milliseconds`, "--slot 1500us": `--slot: 1\.5ms is not`, "--slot -1s": `--slot: -1s is not`, "--interval 10100ms": `--interval: 10\.1s is not a whole number of slots of 400ms`,
		"--interval 0s": `--interval: 0s`, "--interval 100ms": `--interval: 100ms`, "--audit-window 0s": `--audit-window: 0s`, "--audit-window 500ms": `--audit-window: 500ms`,
		"--audit 3m": `--audit: 3m0s is not a whole number of windows of 2m0s`, "--audit -2m": `--audit: -2m0s`, "--decimals 200": `decimals`, "--decimals 256": `--decimals`,
		"--program x": `--program: "x" is not a Solana address`, "--program " + mint: `escrow`, "--escrow " + mint: `escrow`, "now": `genesis does not take "now"`,
		"--free": `--chain: a free network has no chain`,
	} {
		if r := network(t, append(slices.Clone(base), strings.Fields(more)...)...).Want(t, cli.ExitUsage, `^starling: .*`+says); r.Out != "" {
			t.Errorf("%s: wrote %q", more, r.Out)
		}
	}
}

// Two free networks of one name are two networks, and neither has a chain or money.
func TestFreeGenesis(t *testing.T) {
	t.Parallel()
	var made []market.Genesis
	for range 2 {
		r := network(t, "genesis", "--free", "--network", "lab", "--slot", "1s", "--interval", "20s").Want(t, cli.ExitOK)
		g, err := market.ParseGenesis([]byte(r.Out))
		if err != nil || !g.Free || !g.Mint.IsZero() || g.AuditSlots != 0 || g.SlotMillis != 1000 || g.IntervalSlots != 20 {
			t.Fatalf("%+v, %v", g, err)
		}
		made = append(made, g)
	}
	if made[0].Hash() == made[1].Hash() {
		t.Error("two networks are one")
	}
	for _, flag := range ofChain {
		network(t, "genesis", "--free", "--network", "lab", "--"+flag, "1").Want(t, cli.ExitUsage, `^starling: (--`+flag+`: a free network|invalid argument)`)
	}
	network(t, "genesis", "--free").Want(t, cli.ExitUsage, `--network is needed`)
}

// The program's commands refuse addresses and missing flags before any endpoint is asked.
func TestAuthorityRefuses(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"authority": `authority needs an argument`, "authority me": `PROGRAM: "me" is not a Solana address`, "authority " + mint: `--rpc is needed`,
		"authority " + mint + " --upgrade me": `--upgrade: "me" is not a Solana address`, "authority " + mint + " --upgrade none --rpc http://127.0.0.1:1": `--keypair is needed`,
		"finalize " + mint: `--rpc is needed`, "finalize x": `PROGRAM: "x" is not`, "proposal show": `show needs an argument`, "rules now": `rules does not take "now"`,
	} {
		network(t, strings.Fields(line)...).Want(t, cli.ExitUsage, `^starling: .*`+says)
	}
	network(t, "authority", mint, "--rpc", "http://127.0.0.1:1").Want(t, cli.ExitPayment, `^starling: `)
	network(t, "rules").Want(t, cli.ExitUnreachable, `reading the network's genesis`)
}

// A proposal goes through its states slot by slot.
func TestStateOf(t *testing.T) {
	t.Parallel()
	carried := account.Ballot{Subject: account.SubjectRules, Sequence: 3, Ends: 100, Ripe: 110, Dead: 120, Total: 10, For: 6, Against: 2}
	n := account.Network{Sequence: 3}
	for _, x := range []struct {
		change func(*account.Ballot)
		now    market.Slot
		want   string
	}{
		{nil, 0, "open"}, {nil, 100, "open"}, {nil, 101, "locked"}, {nil, 109, "locked"}, {nil, 110, "ripe"}, {nil, 120, "ripe"}, {nil, 121, "expired"},
		{nil, math.MaxUint64, "expired"}, {func(b *account.Ballot) { b.For = 5 }, 101, "rejected"}, {func(b *account.Ballot) { b.Against = 3 }, 115, "rejected"},
		{func(b *account.Ballot) { b.For = 5 }, 100, "open"}, {func(b *account.Ballot) { b.Sequence = 2 }, 50, "superseded"},
		{func(b *account.Ballot) { b.Done, b.Sequence = true, 2 }, 115, "executed"},
	} {
		b := carried
		if x.change != nil {
			x.change(&b)
		}
		if got := stateOf(b, n, x.now); got != x.want {
			t.Errorf("%+v at %d: got %s, want %s", b, x.now, got, x.want)
		}
	}
}

// The changes of a proposal are its differences alone, with the token's name where there are several.
func TestChanges(t *testing.T) {
	t.Parallel()
	one, two := sign.Key{9}, sign.Key{8}
	l := &moneycmd.Chain{Genesis: market.Genesis{Mint: one, Symbol: "STAR", Decimals: 6, SlotMillis: 400}}
	p := account.Params{StakeMint: one, ResponseSlots: 250, UnbondingSlots: 9000, MinStake: 30_000_000,
		Mints: []account.MintTerms{account.DefaultTerms(one, 6), account.DefaultTerms(two, 2)}}
	from := account.NewNetwork(p).Rules
	if got := changes(l, p, from, from); len(got) != 0 {
		t.Errorf("no change is %+v", got)
	}
	to := from
	to.Fees = slices.Clone(from.Fees)
	to.ResponseSlots, to.MinStake, to.Fees[0].FeeBps, to.Fees[1].BurnBps = 500, 60_000_000, 150, 6000
	want := []change{{"response", "250 slots, 100s", "500 slots, 3m"}, {"min-stake", "30.00 STAR", "60.00 STAR"},
		{"fee of " + one.Short(), "200 bps", "150 bps"}, {"burn of " + two.Short(), "5000 bps", "6000 bps"}}
	if got := changes(l, p, from, to); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	info := proposalInfo{Changes: want, Total: 3, State: "open", Slot: 10, Ends: 20}
	if got := info.summary(); !strings.HasPrefix(got, "response 250 slots, 100s → 500 slots, 3m; min-stake ") || len([]rune(got)) > 120 {
		t.Errorf("got %q", got)
	}
	if got := info.share(1) + info.share(2); got != "33.3 %66.7 %" || (proposalInfo{}).share(0) != "0.0 %" || (proposalInfo{}).summary() != "nothing: these are the present rules" {
		t.Errorf("got %q", got)
	}
	for state, begin := range map[string]string{"open": "vote ends slot 20, in", "locked": "can be executed slot ", "ripe": "starling network proposal execute; expires slot 1, ", "rejected": "", "executed": ""} {
		info.State = state
		if got := next(l, info); !strings.HasPrefix(got, begin) || begin == "" && got != "" {
			t.Errorf("%s: got %q, want %q", state, got, begin)
		}
	}
}
