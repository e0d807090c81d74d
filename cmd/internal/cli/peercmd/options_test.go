package peercmd

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// initialise runs starling init for a home directory.
func initialise(t *testing.T, home string, args ...string) clitest.Result {
	t.Helper()
	return clitest.NewHome(home, []func(*cli.App) *cobra.Command{NewInit}).CLI(t, append([]string{"init"}, args...)...)
}

// Options that cannot be meant are refused with their flag, and nothing is written.
func TestInitRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{"--owner me", `--owner: "me" is not a Solana address`},
		{"--region EU", `--region: `},
		{"--region " + strings.Repeat("a", 33), `--region: `},
		{"--price -1", `--price: `},
		{"--price 1e3", `--price: `},
		{"--price 0x1", `--price: `},
		{"--bootstrap /ip4/1.2.3.4/tcp/1", `--bootstrap: "/ip4/1\.2\.3\.4/tcp/1" is not the address of a peer`},
		{"--bootstrap nobody", `--bootstrap: "nobody" is not the address of a peer`},
		{"--relay --dial-out-only", `a peer that only dials out cannot relay`},
		{"--genesis " + bad, `--genesis: .*bad\.json`},
		{"--genesis " + filepath.Join(dir, "gone.json"), `--genesis: .*gone\.json`},
		{"--genesis " + dir, `--genesis: `},
		{"--psk " + bad, `--psk: .*bad\.json`},
		{"--psk " + filepath.Join(dir, "gone"), `--psk: .*gone`},
		{"now", `init does not take "now"`},
	} {
		home := filepath.Join(dir, "home")
		initialise(t, home, strings.Fields(c.args)...).Want(t, cli.ExitUsage, `^starling: .*`+c.says)
		if entries, err := os.ReadDir(home); err == nil && len(entries) > 0 {
			t.Errorf("%s: wrote %v", c.args, entries)
		}
	}
}

// A second init keeps all files, and refuses each flag that the configuration that is there would not heed.
func TestInitAgain(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	initialise(t, home, "--region", "eu").Want(t, cli.ExitOK, `created`).Not(t, `kept`)
	before := contents(t, home)
	initialise(t, home, "--region", "eu").Want(t, cli.ExitOK, `kept`).Not(t, `created`)
	initialise(t, home).Want(t, cli.ExitOK, `kept`).Not(t, `created`)
	for flag, value := range map[string]string{
		"owner": "SysvarC1ock11111111111111111111111111111111", "region": "us", "solana-rpc": "http://127.0.0.1:1",
		"price": "9", "psk": "new",
	} {
		initialise(t, home, "--"+flag, value).Want(t, cli.ExitUsage,
			`config\.yaml exists and is never overwritten: --`+flag+` would have no effect`,
			`^hint: write it into`)
	}
	for _, flag := range []string{"provide", "relay", "dial-out-only"} {
		initialise(t, home, "--"+flag).Want(t, cli.ExitUsage, `--`+flag+` would have no effect`)
	}
	initialise(t, home, "--relay", "--region", "us").Want(t, cli.ExitUsage, `--region, --relay would have no effect`)
	if after := contents(t, home); after != before {
		t.Errorf("the files were\n%s\nand are\n%s", before, after)
	}
}

// A pre-shared key is taken beside a configuration that names it, also if that was edited since.
func TestInitKeepsPrivateNetwork(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	initialise(t, home, "--psk", "new").Want(t, cli.ExitOK)
	path := filepath.Join(home, config.FileConfig)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "# edited\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	initialise(t, home, "--psk", "new").Want(t, cli.ExitOK, `swarm\.key +kept`)
	initialise(t, home, "--psk", "new", "--relay").Want(t, cli.ExitUsage, `: --relay would have no effect`)
}

// contents are the names and texts of all files of a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s:\n%x\n", e.Name(), text)
	}
	return all.String()
}

// An error that keeps a light client from starting has one line, an exit code and a remedy.
func TestClientError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code cli.ExitCode
		hint string
	}{
		{errors.New("first\nsecond"), cli.ExitUsage, ""},
		{fmt.Errorf("dialling: %w", client.ErrOtherNetwork), cli.ExitUsage, "name an entry peer of the pinned network"},
		{&p2p.Diagnosis{Reason: p2p.ReasonOtherNetwork}, cli.ExitUsage, "name an entry peer of the pinned network"},
		{&p2p.Diagnosis{Reason: p2p.ReasonOtherKey}, cli.ExitUnreachable, "get the private network's swarm.key"},
		{errors.Join(client.ErrNoEntry, errors.New("refused")), cli.ExitUnreachable, "check the address"},
	} {
		got, ok := errors.AsType[*cli.Error](clientError(c.err))
		if !ok || got.Code != c.code || !strings.HasPrefix(got.Hint, c.hint) || (got.Hint == "") != (c.hint == "") {
			t.Errorf("%v: got %+v", c.err, got)
		} else if strings.Contains(got.Error(), "\n") {
			t.Errorf("%q has several lines", got.Error())
		}
	}
}

// Figures in tables are exact where a column adds up, and short where a person compares.
func TestFigures(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		exact(0): "0.000000", exact(1): "0.000001", exact(12_345_678): "12.345678",
		exact(1<<64 - 1): "18446744073709.551615",
		millionths(-1):   "-0.0000", millionths(999_999): "1.0000", millionths(123_456): "0.1235",
		pingTime(0): "0s", pingTime(0.004): "0s", pingTime(1.23456): "1.23ms", pingTime(1500): "1.5s",
		shortPeer(""): "-", shortPeer("12D3"): "…12D3", shortPeer("12D3KooWabcdefgh"): "…abcdefgh",
		rating(api.Rating{Newcomer: true, Shunned: true, Score: 5}): "new",
		rating(api.Rating{Shunned: true}):                           "0.0000!",
		rating(api.Rating{Score: 500_000}):                          "0.5000",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The price of a unit-hour is 0 on a free network, where peers refuse any other, and else the default one.
func TestInitPrice(t *testing.T) {
	t.Parallel()
	g, err := market.FreeGenesis("lab", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lab.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]initOptions{
		"0": {region: "eu", genesis: file}, defaultPrice: {region: "eu"}, "0.07": {region: "eu", price: "0.07"},
	} {
		if _, err := o.check(); err != nil || o.price != want {
			t.Errorf("the price is %q, %v, want %q", o.price, err, want)
		}
	}
}
