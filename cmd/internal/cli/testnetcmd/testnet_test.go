package testnetcmd

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// run runs a command below testnet.
func run(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	code, out, errOut := clitest.Run(t, NewTestnet, append([]string{"testnet"}, args...)...)
	return clitest.Result{Code: code, Out: out, Err: errOut}
}

// Sizes and options that no testnet can have are refused before its directory is made.
func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "0"}, `0 peers and 1 buyers: from 1 to 200 in all`},
		{[]string{"-n", "200"}, `200 peers and 1 buyers: from 1 to 200 in all`},
		{[]string{"--buyers", "-1"}, `5 peers and -1 buyers`},
		{[]string{"--units", "0"}, `--units: 0 is not between 1 and 256`},
		{[]string{"--units", "257"}, `--units: 257 is not between`},
		{[]string{"--free", "--solana-rpc", "http://127.0.0.1:1"}, `--free: a free network has no chain`},
		{[]string{"--free", "--audit", "1m"}, `--free: a free network has no chain and no audits`},
		{[]string{"--audit", "1m", "-n", "1", "--buyers", "0"}, `--audit: 1 peers in all; at least \d are needed`},
		{[]string{"--audit", "1s"}, `--audit: 1s, want 0 or 30s to a day`},
		{[]string{"--audit", "25h"}, `--audit: 25h0m0s, want 0 or`},
		{[]string{"now"}, `up does not take "now"`},
	} {
		run(t, append([]string{"up", "--dir", dir}, c.args...)...).Want(t, cli.ExitUsage, c.want)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s was made: %v", dir, err)
	}
}

// stoppedNetwork makes the homes of a stopped free network of two selling peers and a buyer.
func stoppedNetwork(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	g, err := market.FreeGenesis("testnet", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	g.SlotMillis, g.IntervalSlots = 100, 10
	for _, name := range []string{"peer-1", "peer-2", "buyer-1"} {
		home := filepath.Join(dir, name)
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := p2p.CreateIdentity(filepath.Join(home, config.FileIdentity)); err != nil {
			t.Fatal(err)
		}
		writeJSON(t, filepath.Join(home, config.FileGenesis), g)
		if err := os.WriteFile(filepath.Join(home, config.FileConfig), []byte("region: local\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A stopped network is not replaced by other sizes, nor when it cannot be resumed.
func TestStoppedIsKept(t *testing.T) {
	t.Parallel()
	dir := stoppedNetwork(t)
	hint := "^hint: `starling testnet up --new --dir " + dir + "` replaces it and deletes its peers' keys"
	for _, args := range [][]string{{"-n", "3"}, {"--buyers", "0"}, {"--units", "2"}, {"--free=false"},
		{"--audit", "1m"}, {"--solana-rpc", "http://127.0.0.1:1"}} {
		run(t, append([]string{"up", "--dir", dir}, args...)...).Want(t, cli.ExitUsage, "2 selling peers and 1 buyers", hint)
	}
	if err := os.Remove(filepath.Join(dir, "peer-2", config.FileIdentity)); err != nil {
		t.Fatal(err)
	}
	run(t, "up", "--dir", dir).Want(t, cli.ExitUsage, `cannot be resumed: .*peer-2: reading the peer's key: `, hint)
	for _, name := range []string{"peer-1", "peer-2", "buyer-1"} {
		if _, err := os.Stat(filepath.Join(dir, name, config.FileConfig)); err != nil {
			t.Error(err)
		}
	}
}

// Commands on a testnet that does not run, or whose process is gone.
func TestNoTestnet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none := "no testnet runs in " + dir
	wallet := "SysvarC1ock11111111111111111111111111111111"
	run(t, "status", "--dir", dir).Want(t, cli.ExitUnreachable, none, "^hint: start one with `starling testnet up`$")
	run(t, "down", "--dir", dir).Want(t, cli.ExitFailed, none)
	run(t, "fund", "--dir", dir, wallet).Want(t, cli.ExitFailed, none, `^hint: starling testnet up --dir `)
	run(t, "fund", "--dir", dir, "ada").Want(t, cli.ExitUsage, `"ada" is not a Solana address`)

	state := filepath.Join(dir, "testnet.json")
	if err := os.WriteFile(state, []byte(`{"pid": 1, "started": 7, "genesis": {"decimals": 6}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "status", "--dir", dir).Want(t, cli.ExitUnreachable, none)
	run(t, "fund", "--dir", dir, "--tokens", "lots", wallet).Want(t, cli.ExitUsage, `--tokens: .*lots`)
	run(t, "fund", "--dir", dir, wallet).Want(t, cli.ExitFailed, none)
	run(t, "down", "--dir", dir).Want(t, cli.ExitOK, `is down; its files stay: see .starling testnet up --help`)
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", state, err)
	}
	if err := os.WriteFile(state, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "status", "--dir", dir).Want(t, cli.ExitFailed, `reading testnet.json: `)
}
