package networkcmd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// other is an address that is neither the mint's nor the cluster's.
const other = "SysvarC1ock11111111111111111111111111111111"

// draft writes the genesis of a network that pays and has no account yet.
func draft(t *testing.T, more ...string) string {
	t.Helper()
	args := []string{"genesis", "--network", "acme", "--chain", cluster, "--mint", mint, "--symbol", "USDC",
		"--audit", "0"}
	return file(t, network(t, append(args, more...)...).Want(t, cli.ExitOK).Out)
}

// file writes a text to a file of its own.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// initial are the arguments of init-escrow without a chain.
func initial(path, more string) []string {
	return append([]string{"init-escrow", path, "--program", other, "--dry-run"}, strings.Fields(more)...)
}

// key reads an address of the tests.
func key(t *testing.T, text string) sign.Key {
	t.Helper()
	k, err := sign.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Each flag sets its parameter and no other one, in slots and base units.
func TestParameters(t *testing.T) {
	t.Parallel()
	chain, token := sign.Hash(key(t, cluster)), key(t, mint)
	const hour, votes = 9000, " --voting 72h --first-slot 7" // slots of 400 ms
	voting := func(v account.Votes) account.Votes {
		base := account.Votes{
			VotingSlots: 72 * hour, LockSlots: 7 * 24 * hour, LeastBonded: 1e12, LeastBond: 1e10, FirstSlot: 7,
			EpochSlots: 24 * hour, EpochsOfMonth: 30,
		}
		base.Emission = v.Emission
		return base
	}
	path := draft(t)
	for more, change := range map[string]func(*account.Params){
		"":                                 func(*account.Params) {},
		"--margin 1s":                      func(p *account.Params) { p.MarginSlots = 3 },
		"--margin 0s":                      func(p *account.Params) { p.MarginSlots = 0 },
		"--response 1h":                    func(p *account.Params) { p.ResponseSlots = hour },
		"--unbonding 400h":                 func(p *account.Params) { p.UnbondingSlots = 400 * hour },
		"--evidence 1h":                    func(p *account.Params) { p.EvidenceSlots = hour },
		"--min-stake 0.5":                  func(p *account.Params) { p.MinStake = 500_000 },
		"--fee 1000":                       func(p *account.Params) { p.Mints[0].FeeBps = 1000 },
		"--treasury " + other:              func(p *account.Params) { p.Treasury = key(t, other) },
		"--authority " + other:             func(p *account.Params) { p.Authority = key(t, other) },
		"--stake-mint " + mint:             func(*account.Params) {},
		"--first-slot 9 --least-bonded 5":  func(*account.Params) {}, // of votes alone
		votes:                              func(p *account.Params) { p.Votes = voting(account.Votes{}) },
		votes + " --emission 300000000":    func(p *account.Params) { p.Votes = voting(account.Votes{Emission: 3e14}) },
		"--stake-decimals 2 --min-stake 1": func(p *account.Params) { p.MinStake = 1_000_000 },
		"--stake-mint " + other + " --stake-decimals 9 --min-stake 0.5" + votes +
			" --emission 1 --least-bonded 2": func(
			p *account.Params) {
			p.StakeMint, p.MinStake, p.Votes = key(t, other), 500_000_000, voting(account.Votes{Emission: 1e9})
			p.Votes.LeastBonded, p.Votes.LeastBond = 2e9, 1e13
		},
		"--burn 2000 --pool 8000 --treasury-share 0 --referrer 0": func(p *account.Params) {
			m := &p.Mints[0]
			m.BurnBps, m.PoolBps, m.TreasuryBps, m.ReferrerBps = 2000, 8000, 0, 0
		},
	} {
		want := account.Params{
			Network: "acme", Chain: chain, StakeMint: token, MarginSlots: 6 * hour, ResponseSlots: 6 * hour,
			UnbondingSlots: 14 * 24 * hour, EvidenceSlots: 13 * 24 * hour,
			Mints: []account.MintTerms{account.DefaultTerms(token, 6)},
		}
		change(&want)
		var got account.Params
		r := network(t, initial(path, more)...).Want(t, cli.ExitOK)
		if err := json.Unmarshal([]byte(r.Out), &got); err != nil || got.Hash() != want.Hash() {
			t.Errorf("%s: got %+v, %v\nwant %+v", more, got, err, want)
		}
	}
}

// Parameters that can never be changed are refused with their flag while it is time, and nothing is written.
func TestParametersRefused(t *testing.T) {
	t.Parallel()
	path := draft(t)
	for more, says := range map[string]string{
		"--margin -1s":                     `--margin: -1s is negative`,
		"--evidence -1h":                   `--evidence: -1h0m0s is negative`,
		"--voting -72h":                    `--voting: -72h0m0s is negative`,
		"--lock -1s":                       `--lock: -1s is negative`,
		"--epoch -1s":                      `--epoch: -1s is negative`,
		"--margin 500000h":                 `--margin or --response is longer than 2³² slots`,
		"--response 500000h":               `--margin or --response is longer than 2³² slots`,
		"--response 0s":                    `no slots to respond`,
		"--response 1s":                    `response slots: got`,
		"--unbonding 1h":                   `unbonding longer than evidence`,
		"--fee 9":                          `fee of 9 bps, want 10 to 1000`,
		"--fee 1001":                       `fee of 1001 bps, want 10 to 1000`,
		"--fee 65536":                      `--fee`,
		"--burn 1999 --pool 5501":          `1999`,
		"--burn 6000":                      `shares add up to 11000 bps, want 10000`,
		"--min-stake -1":                   `--min-stake: `,
		"--min-stake 0.0000001":            `--min-stake: `,
		"--min-stake 99999999999999999999": `--min-stake: `,
		"--treasury me":                    `--treasury: "me" is not a Solana address`,
		"--authority me":                   `--authority: "me" is not a Solana address`,
		"--stake-mint me":                  `--stake-mint: "me" is not a Solana address`,
		"--stake-mint " + other:            `--stake-decimals is needed`,
		"--stake-mint " + other + " --stake-decimals 2 --min-stake 0.001": `--min-stake: `,
		"--voting 72h": `--first-slot is needed with --voting`,
		"--voting 72h --first-slot 1 --least-bond 0":       `least bond: 0`,
		"--voting 72h --first-slot 1 --least-bonded 0":     `least bonded: 0`,
		"--voting 72h --first-slot 1 --lock 0s":            `lock slots: 0`,
		"--voting 72h --first-slot 1 --epochs-of-month 0":  `a month of 0 epochs`,
		"--voting 72h --first-slot 1 --epoch 0s":           `epochs of 0 slots`,
		"--voting 72h --first-slot 1 --emission x":         `--emission: `,
		"--voting 72h --first-slot 1 --least-bonded 1.2.3": `--least-bonded: `,
		"--params none.json":                               `none\.json`,
		"more":                                             `init-escrow`,
	} {
		r := network(t, initial(path, more)...).Want(t, cli.ExitUsage, `^starling: .*`+says)
		if r.Out != "" {
			t.Errorf("%s: wrote %q", more, r.Out)
		}
	}
	audited := draft(t, "--audit", "1h")
	network(t, initial(audited, "")...).Want(t, cli.ExitUsage, `need --voting`, `^hint: add --voting 72h`)
	network(t, initial(audited, "--voting 72h --first-slot 1")...).Want(t, cli.ExitOK, `"audit_slots": 300`)
}

// No parameters are made for a genesis file with an account, for one without a token, or for another kind of file.
func TestParametersOfOtherFiles(t *testing.T) {
	t.Parallel()
	free := file(t, network(t, "genesis", "--free", "--network", "lab").Want(t, cli.ExitOK).Out)
	done := draft(t, "--program", other, "--escrow", cluster)
	for path, says := range map[string]string{
		free: `is a free network: it has no token`, done: `names a program already`,
		file(t, ""): `file\.json`, file(t, "{}"): `file\.json`, file(t, strings.Repeat(" ",
			cli.MaxGenesisFile+1)): `file\.json`,
		filepath.Join(t.TempDir(), "gone.json"): `gone\.json`, t.TempDir(): `directory`,
	} {
		if r := network(t, initial(path, "")...).Want(t, cli.ExitUsage, `^starling: .*`+says); r.Out != "" {
			t.Errorf("wrote %q", r.Out)
		}
	}
	network(t, "init-escrow", draft(t)).Want(t, cli.ExitUsage, `--program is needed`, `^hint: starling network deploy`)
	network(t, "init-escrow", draft(t), "--program", "x").Want(t, cli.ExitUsage, `--program: "x" is not`)
	network(t, "init-escrow", draft(t), "--program", other).Want(t, cli.ExitUsage, `--rpc and --keypair are needed`)
	network(t, "init-escrow").Want(t, cli.ExitUsage, `init-escrow needs an argument`)
	network(t, "deploy", "--rpc", "http://127.0.0.1:1").Want(t, cli.ExitUsage, `--rpc and --keypair are needed`)
	network(t, "deploy", "--rpc", "http://127.0.0.1:1", "--keypair", file(t, "[1]")).Want(t, cli.ExitUsage,
		`file\.json`)
}

// A file of parameters is read back as it was printed; one of another network, token or form is refused.
func TestParametersFile(t *testing.T) {
	t.Parallel()
	path := draft(t)
	printed := network(t, initial(path, "--fee 300 --voting 72h --first-slot 1")...).Want(t, cli.ExitOK).Out
	again := network(t, initial(path, "--params "+file(t, printed))...).Want(t, cli.ExitOK).Out
	if again != printed {
		t.Errorf("got\n%s\nwant\n%s", again, printed)
	}
	replace := func(old, with string) string {
		t.Helper()
		if !strings.Contains(printed, old) {
			t.Fatalf("no %s in %s", old, printed)
		}
		return strings.Replace(printed, old, with, 1)
	}
	for text, says := range map[string]string{
		"":                                 `EOF`,
		"[]":                               `cannot unmarshal`,
		replace(`"acme"`, `"acne"`):        `wrong network: got "acne" on chain .*, want "acme"`,
		replace(`"fee_bps"`, `"fees_bps"`): `unknown field "fees_bps"`,
		replace(`"fee_bps": 300`, `"fee_bps": 1`):            `fee of 1 bps`,
		replace(`"fee_bps": 300`, `"fee_bps": -1`):           `cannot unmarshal`,
		replace(`"decimals": 6`, `"decimals": 9`):            `has no terms for the network's token`,
		replace(`"acme"`, `"acme", "audit_slots": 300`):      `has windows of audits of 300 slots, the genesis of 0`,
		replace(`"acme"`, `"`+strings.Repeat("a", 5000)+`"`): `file\.json`,
	} {
		r := network(t, initial(path, "--params "+file(t, text))...).Want(t, cli.ExitUsage, `^starling: .*`+says)
		if r.Out != "" {
			t.Errorf("%.200s: wrote %q", text, r.Out)
		}
	}
}

// The authority over a program is nobody, a single key, or an address of a program.
func TestWhoChanges(t *testing.T) {
	t.Parallel()
	single := sign.NewPrivate([32]byte{1}).Key()
	vault := account.NetworkAddress(single, account.Params{Network: "acme"})
	for says, who := range map[string]sign.Key{
		"nobody, ever": {}, single.String() + ", a single key": single,
		vault.String() + ", an address of a program, such as a multisig": vault,
	} {
		if got := whoChanges(svm.Deployed{Authority: who}); got != says {
			t.Errorf("got %q, want %q", got, says)
		}
	}
}

// The flags of a new proposal change what they name and nothing else, in the fees of one token.
func TestNewRules(t *testing.T) {
	t.Parallel()
	one, two := key(t, mint), key(t, other)
	g := market.Genesis{Mint: one, Symbol: "STAR", Decimals: 6, SlotMillis: 400}
	l := &moneycmd.Chain{Genesis: g}
	p := account.Params{StakeMint: one, ResponseSlots: 250, UnbondingSlots: 9000, MinStake: 30_000_000,
		Mints: []account.MintTerms{account.DefaultTerms(one, 6), account.DefaultTerms(two, 2)}}
	n := account.NewNetwork(p)
	for name, c := range map[string]struct {
		flags newRules
		named string
		want  func(*account.Rules)
	}{
		"nothing":        {newRules{fee: 5, burn: 5}, "", func(*account.Rules) {}},
		"fee":            {newRules{fee: 150}, "fee", func(r *account.Rules) { r.Fees[0].FeeBps = 150 }},
		"fee of nothing": {newRules{}, "fee", func(r *account.Rules) { r.Fees[0].FeeBps = 0 }},
		"another token":  {newRules{fee: 150, mint: other}, "fee", func(r *account.Rules) { r.Fees[1].FeeBps = 150 }},
		"response":       {newRules{response: 1}, "response", func(r *account.Rules) { r.ResponseSlots = 1 }},
		"unbonding":      {newRules{unbonding: 1e9}, "unbonding", func(r *account.Rules) { r.UnbondingSlots = 3 }},
		"least stake":    {newRules{minStake: "0.5"}, "min-stake", func(r *account.Rules) { r.MinStake = 500_000 }},
		"shares": {newRules{burn: 1, pool: 2, treasury: 3, referrer: 4}, "burn pool treasury-share referrer",
			func(r *account.Rules) {
				f := &r.Fees[0]
				f.BurnBps, f.PoolBps, f.TreasuryBps, f.ReferrerBps = 1, 2, 3, 4
			}},
	} {
		want := n.Rules
		want.Fees = slices.Clone(want.Fees)
		c.want(&want)
		got, err := c.flags.rules(l, n, func(f string) bool { return slices.Contains(strings.Fields(c.named), f) })
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	if n.Rules.Fees[0].FeeBps != 200 || n.Rules.Fees[1].FeeBps != 200 {
		t.Errorf("the rules in force were changed: %+v", n.Rules)
	}
	all := func(string) bool { return true }
	for says, f := range map[string]newRules{
		"--mint: the network does not take": {mint: cluster}, "--mint: \"x\" is not": {mint: "x"},
		"--response: 2400000h0m0s is longer": {response: 2400000 * 3600e9, minStake: "1"},
		"--min-stake: ":                      {minStake: "-1"},
		"--min-stake:":                       {},
	} {
		if _, err := f.rules(l, n, all); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want %q", f, err, says)
		}
	}
}
