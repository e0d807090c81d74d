package moneycmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/config"
)

// home makes a directory on a network, with the endpoint of a peer that answers each request with answer; empty: no peer.
func home(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, v any) {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(config.FileGenesis, market.Genesis{Network: "cli", Chain: sign.Hash{1}, Symbol: "STAR", Decimals: 6,
		SlotMillis: 400, IntervalSlots: 150, Simulated: true})
	if answer != nil {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		write(config.FileAPI, api.Endpoint{URL: s.URL, Token: "token"})
	}
	return dir
}

// run runs a command of this package on a home directory.
func run(t *testing.T, home string, args ...string) clitest.Result {
	t.Helper()
	var out, errs clitest.Buffer
	a := &cli.App{Out: &out, Err: &errs, Commands: []func(*cli.App) *cobra.Command{NewWallet, NewStake},
		Getenv: func(name string) string { return map[string]string{"STARLING_HOME": home}[name] }}
	return clitest.Result{Code: a.Run(t.Context(), args), Out: out.String(), Err: errs.String()}
}

// Spending is a line for each day and key, and the limits are compared with today's alone.
func TestSpend(t *testing.T) {
	t.Parallel()
	dir := home(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("days") != "30" || r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
		_ = json.NewEncoder(w).Encode(spend.Report{
			Resets: time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC), Limits: spend.Limits{PerDay: 5_000_000},
			Days: []spend.Day{
				{Day: "2026-03-02", Jobs: 2, Spent: 1_500_000, Open: 500_000},
				{Day: "2026-03-01", Key: "ci", Jobs: 1, Spent: 4_000_000},
			},
		})
	})
	run(t, dir, "wallet", "spend", "--days", "30").Want(t, cli.ExitOK, `^LIMITS +PER JOB +PER DAY +TODAY +LEFT$`,
		`^this peer +- +5\.00 STAR +2\.00 STAR +3\.00 STAR`, `^2026-03-02 .* 2 +1\.50 STAR +0\.50 STAR`,
		`^2026-03-01 +ci +1 +4\.00 STAR `)
	run(t, dir, "wallet", "spend", "--days", "30", "-o", "json").Want(t, cli.ExitOK, `"spent": 1500000`, `"key": "ci"`)
}

// A peer that is away, or refuses, ends a command with its exit code and with what to do.
func TestSpendFails(t *testing.T) {
	t.Parallel()
	run(t, home(t, nil), "wallet", "spend").Want(t, cli.ExitUnreachable, `no peer is running here`, `^hint: `)
	dir := home(t, nil)
	b, err := json.Marshal(api.Endpoint{URL: "http://127.0.0.1:1", Token: "token"})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, config.FileAPI), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "wallet", "spend").Want(t, cli.ExitUnreachable, `no peer is running here`, `^hint: `)
	hangs := home(t, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	run(t, hangs, "wallet", "spend").Want(t, cli.ExitUnreachable, `^starling: `)
	odd := home(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if r := run(t, odd, "wallet", "spend"); r.Code == int(cli.ExitOK) || r.Out != "" {
		t.Errorf("an answer that is not the API's: exit code %d, %s", r.Code, r.Out)
	}
}

// What is wrong on the command line is refused before the chain or a peer is asked.
func TestMoneyRefuses(t *testing.T) {
	t.Parallel()
	dir := home(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the peer was asked for %s", r.URL) })
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"wallet", "spend", "today"}, `spend does not take "today"`},
		{[]string{"wallet", "spend", "--days", "many"}, `--days`},
		{[]string{"wallet", "allow"}, `allow needs an argument`},
		{[]string{"wallet", "balance"}, `did you mean starling wallet show\?`},
		{[]string{"wallet", "escrow", "show"}, `show (needs an argument|does not take)`},
		{[]string{"wallet", "escrow", "top-up", "x"}, `top-up needs 2 arguments, not 1`},
		{[]string{"wallet", "import"}, `import (needs an argument|does not take)`},
		{[]string{"stake", "add"}, `add (needs an argument|does not take)`},
		{[]string{"stake", "remove", "1", "2"}, `remove `},
		{[]string{"stake", "nonsense"}, `"nonsense" is not a command of starling stake`},
	} {
		run(t, dir, c.args...).Want(t, cli.ExitUsage, `^starling: .*(`+c.says+`)`)
	}
}

// A chain that does not answer is not a peer without money.
func TestMoneyWithoutChain(t *testing.T) {
	t.Parallel()
	dir := home(t, nil)
	for _, args := range [][]string{
		{"wallet", "show", "SysvarC1ock11111111111111111111111111111111"}, {"wallet", "escrow", "ls"}, {"stake", "status"},
	} {
		r := run(t, dir, append(args, "--rpc", "http://127.0.0.1:1")...)
		if r.Code == int(cli.ExitOK) || r.Out != "" {
			t.Errorf("%v: exit code %d, %s", args, r.Code, r.Out)
		}
	}
}
