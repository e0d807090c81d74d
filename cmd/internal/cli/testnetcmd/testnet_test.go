package testnetcmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
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
	run(t, "down", "--dir", dir).Want(t, cli.ExitOK, `is down; its files stay until .starling testnet up`)
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", state, err)
	}
	if err := os.WriteFile(state, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "status", "--dir", dir).Want(t, cli.ExitFailed, `reading testnet.json: `)
}
