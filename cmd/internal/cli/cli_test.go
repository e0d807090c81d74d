package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/p2p"
)

// run runs the command line as Main does, with another command in place of the real ones.
func run(t *testing.T, c func(*App) *cobra.Command, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &App{In: strings.NewReader(""), Out: &o, Err: &e, Getenv: func(string) string { return "" }, commands: []func(*App) *cobra.Command{c}}
	code = a.run(t.Context(), args)
	return code, o.String(), e.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code ExitCode
		text string
	}{
		{nil, ExitOK, ""},
		{errors.New("broken"), ExitFailed, "starling: broken\n"},
		{&Error{Code: ExitNoMatch, Err: errors.New("nobody"), Hint: "raise --max-price"}, ExitNoMatch, "starling: nobody\nhint: raise --max-price\n"},
		{fmt.Errorf("submitting: %w", &Error{Code: ExitPayment, Err: errors.New("no funds"), Hint: "airdrop"}), ExitPayment, "starling: submitting: no funds\nhint: airdrop\n"},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), ExitTimeout, "starling: waiting: context deadline exceeded\n"},
		{fmt.Errorf("reading: %w", job.ErrInvalid), ExitUsage, "starling: reading: job is not valid\n"},
		{fmt.Errorf("%w: /x", api.ErrNoPeer), ExitUnreachable, "starling: no peer is running here: /x\nhint: start it with `starling up`, or say which one with --home\n"},
		{&api.Error{Status: 404, Message: "no such job", Hint: "look"}, ExitUsage, "starling: no such job\nhint: look\n"},
		{&api.Error{Status: 500, Message: "oh"}, ExitFailed, "starling: oh\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Succeeded}), ExitOK, ""},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodeProgram, Reason: "rank 0 exited with 3"}), ExitFailed, "starling: job j1 failed: rank 0 exited with 3\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Reason: "\x1b[2J\u009bred"}), ExitFailed, "starling: job j1 failed:  [2J red\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodeNoMatch, Reason: "nobody"}), ExitNoMatch, "starling: job j1 failed: nobody\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodePayment, Reason: "no funds"}), ExitPayment, "starling: job j1 failed: no funds\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodeTimeout, Reason: "1h"}), ExitTimeout, "starling: job j1 failed: 1h\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodeLost, Reason: "4 times"}), ExitLost, "starling: job j1 failed: 4 times\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodeInput, Reason: "no input"}), ExitUsage, "starling: job j1 failed: no input\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Failed, Code: buyer.CodePeer, Reason: "disk full"}), ExitPeer, "starling: job j1 failed: disk full\n"},
		{JobError(buyer.Job{ID: "j1", State: buyer.Stopped, Reason: "by its user"}), ExitFailed, "starling: job j1 stopped: by its user\n"},
		{&api.Error{Status: 502, Code: api.CodeUnreachable, Message: "gone", Hint: "wait"}, ExitUnreachable, "starling: gone\nhint: wait\n"},
		{&api.Error{Status: 507, Code: api.CodeFull, Message: "no room"}, ExitPeer, "starling: no room\n"},
		{&api.Error{Status: 500, Code: api.CodePeer, Message: "journal"}, ExitPeer, "starling: journal\n"},
		{&api.Error{Status: 402, Code: api.CodePayment, Message: "no funds"}, ExitPayment, "starling: no funds\n"},
		{fmt.Errorf("copying: %w", live.ErrCut), ExitUnreachable, "starling: copying: the connection broke off\n"},
		{WithHint(errors.New("broken"), "mend %s", "it"), ExitFailed, "starling: broken\nhint: mend it\n"},
		{WithHint(&Error{Code: ExitUsage, Err: errors.New("x"), Hint: "first"}, "second"), ExitUsage, "starling: x\nhint: first\n"},
	} {
		cmd := func(*App) *cobra.Command {
			return &cobra.Command{Use: "x", GroupID: groupNetworks, RunE: func(*cobra.Command, []string) error { return c.err }}
		}
		code, _, text := run(t, cmd, "x")
		if code != int(c.code) || text != c.text {
			t.Errorf("%v: code %d, text %q, want %d, %q", c.err, code, text, c.code, c.text)
		}
	}
	_, _, text := run(t, func(*App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return WithHint(errors.New("a <b>"), "c") }}
	}, "x", "-o", "json")
	if want := `{"error":{"code":"failed","message":"a <b>","hint":"c"}}` + "\n"; text != want {
		t.Errorf("as JSON: %q, want %q", text, want)
	}
}

// Every class of errors of a job has a code, every code a word and a line in the help.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for _, c := range []ExitCode{ExitOK, ExitFailed, ExitUsage, ExitNoMatch, ExitPayment, ExitUnreachable, ExitLost, ExitPeer, ExitTimeout} {
		if words[c.word()] {
			t.Errorf("%d has the word of another code, %q", c, c.word())
		}
		words[c.word()] = true
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^  %d +\w`, c)).MatchString(rootEnd) {
			t.Errorf("the help does not list exit code %d", c)
		}
	}
	for _, c := range []buyer.Code{buyer.CodeNoMatch, buyer.CodePayment, buyer.CodeTimeout, buyer.CodeLost, buyer.CodeInput, buyer.CodePeer} {
		if e := explain(JobError(buyer.Job{State: buyer.Failed, Code: c})); e.Code == ExitFailed {
			t.Errorf("a job that failed with %q has the exit code of one whose program failed", c)
		}
	}
}

func TestTablesCannotBeBroken(t *testing.T) {
	t.Parallel()
	_, out, _ := run(t, func(a *App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
			return a.Show(nil, func(tb *Table) {
				tb.Row("a\tb", "\x1b[31mred")
				tb.Row("long name", 7)
				tb.Head("NAME", "VALUE")
			})
		}}
	}, "x")
	if want := "NAME       VALUE\na b         [31mred\nlong name  7\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// The flags of a job, through the command line, make what the job package reads of them.
func TestJobFlagsReachTheJob(t *testing.T) {
	t.Parallel()
	var got job.Job
	cmd := func(*App) *cobra.Command {
		c := &cobra.Command{Use: "run MODULE [-- ARGS]", Args: cobra.MinimumNArgs(1)}
		f := JobFlags(c)
		c.RunE = func(_ *cobra.Command, args []string) (err error) {
			f.Module, f.Args = args[0], args[1:]
			got, err = f.Job(job.Token{Decimals: 6})
			return err
		}
		return c
	}
	code, _, text := run(t, cmd, "run", "-n", "5", "--cpu", "0.5", "--memory", "256Mi", "--disk", "1Gi", "--units", "2", "--class", "cpu",
		"--name", "lm", "-l", "team=a", "-e", "SEED=1", "-e", "LIST=a,b", "--region", "local,eu-west", "--exclude", "SysvarC1ock11111111111111111111111111111111",
		"--spread", "pack", "-i", "shards/{rank}.bin:/data/shard.bin", "--out", "/out", "--retries", "1", "--queue-timeout", "30s",
		"--timeout", "10m", "--max-price", "0.05", "--budget", "0.25", "lm.wasm", "--", "train", "--steps", "200")
	if code != 0 {
		t.Fatal(text)
	}
	want, err := job.Parse([]byte(`
apiVersion: v1
kind: Job
metadata: {name: lm, labels: {team: a}}
spec:
  module: lm.wasm
  args: [train, --steps, 200]
  env: {SEED: 1, LIST: "a,b"}
  count: 5
  resources: {class: cpu, units: 2, cpu: 0.5, memory: 256Mi, disk: 1Gi}
  placement: {regions: [local, eu-west], exclude: [SysvarC1ock11111111111111111111111111111111], spread: pack}
  inputs: [{src: "shards/{rank}.bin", dst: /data/shard.bin}]
  outputs: [{src: /out}]
  restart: {max: 1}
  timeouts: {queue: 30s, run: 10m}
  payment: {maxPrice: 0.05, budget: 0.25}
`), job.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the flags make\n%+v\nthe file\n%+v", got, want)
	}
	code, _, text = run(t, cmd, "run", "lm.wasm", "--count", "three")
	if code != int(ExitUsage) || !strings.Contains(text, `--count: "three" is not a count`) {
		t.Errorf("code %d, %q", code, text)
	}
}

// The configuration that init writes is the default one, and whatever init is told comes out of it as it went in.
func TestConfigText(t *testing.T) {
	t.Parallel()
	read := func(o initOptions) node.Config {
		text, err := o.configText()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), node.FileConfig)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := node.LoadConfig(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	want := node.DefaultConfig()
	want.Listen, want.Announce, want.Bootstrap, want.Solana.RPC = []string{}, []string{}, []string{}, []string{}
	want.NAT.Relays, want.Block = []string{}, []string{}
	if got := read(initOptions{region: want.Region, price: want.Provide.Price}); !reflect.DeepEqual(got, want) {
		t.Errorf("init writes %+v, the defaults are %+v", got, want)
	}
	const owner = "SysvarC1ock11111111111111111111111111111111"
	want.Region, want.Owner, want.Provide.Enabled, want.Provide.Price = "eu-west", owner, true, "0.10"
	want.Bootstrap, want.Solana.RPC = []string{`/dns4/a"b: #c`}, []string{"http://127.0.0.1:1", "http://[::1]:2"}
	if got := read(initOptions{region: "eu-west", owner: owner, bootstrap: want.Bootstrap, rpc: want.Solana.RPC, provide: true, price: "0.10"}); !reflect.DeepEqual(got, want) {
		t.Errorf("read back as %+v, want %+v", got, want)
	}
}

// A private network's key is made once, given on as a file, and never overwritten.
func TestInitPSK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if code, _, text := run(t, newInit, "init", "--home", first, "--psk", "new"); code != 0 {
		t.Fatal(text)
	}
	key, err := p2p.LoadPSK(filepath.Join(first, node.FilePSK))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, text := run(t, newInit, "init", "--home", second, "--psk", filepath.Join(first, node.FilePSK)); code != 0 {
		t.Fatal(text)
	}
	if code, out, _ := run(t, newInit, "init", "--home", second, "--psk", "new"); code != 0 || !strings.Contains(out, "swarm.key      kept") {
		t.Errorf("again: %q", out)
	}
	if got, err := p2p.LoadPSK(filepath.Join(second, node.FilePSK)); err != nil || *got != *key {
		t.Errorf("the second peer's key: %v", err)
	}
	cfg, err := node.LoadConfig(filepath.Join(second, node.FileConfig))
	if err != nil || cfg.PrivateNetwork != node.FilePSK {
		t.Errorf("configuration names %q, %v", cfg.PrivateNetwork, err)
	}
	for _, args := range [][]string{{"--psk", dir}, {"--psk", filepath.Join(first, node.FileConfig)}, {"--relay", "--dial-out-only"}} {
		if code, _, text := run(t, newInit, append([]string{"init", "--home", filepath.Join(dir, "third")}, args...)...); code != int(ExitUsage) {
			t.Errorf("%v: code %d, %s", args, code, text)
		}
	}
}
