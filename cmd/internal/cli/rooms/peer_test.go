package rooms

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p"
)

// world is a world of all commands, with the tests that several kinds of worlds share.
type world struct{ *clitest.World }

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{clitest.NewWorld(t, Commands, p2p.NAT{})}
}

// The commands against a real peer, from the order to the receipts.
func TestPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("run", func(t *testing.T) { t.Parallel(); w.testRun(t) })
	t.Run("detach", func(t *testing.T) { t.Parallel(); w.testDetach(t) })
	t.Run("quote", func(t *testing.T) { t.Parallel(); w.testQuote(t) })
	t.Run("dryrun", func(t *testing.T) { t.Parallel(); w.testDryRun(t) })
}

func (w *world) testRun(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results")
	id, r := w.Greet(t, "--save", results)
	for _, line := range []string{"[0] hello ada\n", "[0] from rank 0\n", "[1] hello grace\n", "[1] from rank 1\n"} {
		if !strings.Contains(r.Out, line) {
			t.Errorf("standard output %q lacks %q", r.Out, line)
		}
	}
	r.Want(t, cli.ExitOK, `^\[0\] args one two$`, `^\[1\] args one two$`, `^leased in `, `^`+id+` succeeded in [\d.]+s, cost 0.00\d+ STAR,( paid .*,)? \d+ receipts, \d transactions?$`)
	for rank, want := range []string{"hello ada from 0", "hello grace from 1"} {
		if b, err := os.ReadFile(filepath.Join(results, fmt.Sprint(rank), "out", "greeting")); err != nil || string(b) != want {
			t.Errorf("output of rank %d: %q, %v", rank, b, err)
		}
	}
	short := id[:len(id)-2]
	w.CLI(t, "status", short).Want(t, cli.ExitOK, `^job +`+id, `^state +succeeded$`, `^cost +0.00\d+ STAR, budget 1.00 STAR$`, `^transaction +\w{32,}`,
		`^RANK +STATE +PROVIDER +ROUTE`, `^0 +done +\w{8} +(direct|gossip) +[0-9a-f]{8} +0 +0`)
	w.CLI(t, "status", id, "-o", "json").Want(t, cli.ExitOK, `"state": "succeeded"`, `"cost": \d+`)
	w.CLI(t, "ps", "-a").Want(t, cli.ExitOK, `^ID +NAME +STATE`, `^`+id[:8]+`\w* +greet +succeeded +2/2 +- +\d+s +- +0.00\d+ STAR`)
	w.CLI(t, "logs", id).Want(t, cli.ExitOK, `^\[1\] hello grace$`)
	if one := w.CLI(t, "logs", "--rank", "1", id).Want(t, cli.ExitOK); one.Out != "hello grace\nfrom rank 1" || one.Err != "args one two\n" {
		t.Errorf("one rank's log: %q, %q", one.Out, one.Err)
	}
	w.testPartsOfLogs(t, id)
	w.CLI(t, "logs", "--rank", "2", id).Want(t, cli.ExitUsage, `ranks 0 to 1, not 2`)
	w.CLI(t, "logs", "-f", id).Want(t, cli.ExitOK)
	w.CLI(t, "wait", id).Want(t, cli.ExitOK, `^`+id+` succeeded`)
	w.CLI(t, "stop", id).Want(t, cli.ExitOK, `^`+id+` +succeeded$`)
	w.CLI(t, "why", id).Want(t, cli.ExitOK, `order \w{8} for 2 × 1 units of cpu, at most 1.00 STAR`, `^PROVIDER +ANSWER +PRICE +ROUTE`,
		`^\w{8} +quoted +0.3[67] STAR +(direct|gossip) in [\d.]+(µs|ms)`, `chosen +rank 1 +\w{8}`, `paid .* claimed or to be claimed`, `ended .* succeeded`)
	w.CLI(t, "why", id, "-o", "json").Want(t, cli.ExitOK, `"kind": "quoted"`)
	again := filepath.Join(t.TempDir(), "again")
	w.CLI(t, "get", id, again, "--rank", "1").Want(t, cli.ExitOK, `^1 +/out +\d+ +.*again/out$`)
	if b, err := os.ReadFile(filepath.Join(again, "out", "greeting")); err != nil || string(b) != "hello grace from 1" {
		t.Errorf("%q, %v", b, err)
	}
	w.CLI(t, "get", id, again, "--rank", "1").Want(t, cli.ExitFailed, `is not empty`)
	w.CLI(t, "status", "jnever").Want(t, cli.ExitUsage, `no such job`, `^hint: .starling ps -a. lists all jobs with their ids`)
}

// testPartsOfLogs asks for parts of the logs of testRun's job.
func (w *world) testPartsOfLogs(t *testing.T, id string) {
	if one := w.CLI(t, "logs", "--rank", "1", "--tail", "1", id).Want(t, cli.ExitOK); one.Out != "from rank 1" || one.Err != "" {
		t.Errorf("the last line of one rank: %q, %q", one.Out, one.Err)
	}
	w.CLI(t, "logs", "-t", "--tail", "1", id).Want(t, cli.ExitOK, `^\[0\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ from rank 0$`)
	for _, args := range [][]string{{"--tail", "1"}, {"--tail", "1", "-f"}, {"--since", "1h", "--tail", "1"}} {
		r := w.CLI(t, append([]string{"logs", id}, args...)...).Want(t, cli.ExitOK, `^\[0\] from rank 0$`, `^\[1\] from rank 1$`)
		if strings.Contains(r.Out, "hello") {
			t.Errorf("%v: %q", args, r.Out)
		}
	}
	for _, args := range [][]string{{"--tail", "0"}, {"--since", time.Now().Add(time.Hour).Format(time.RFC3339)}} {
		if r := w.CLI(t, append([]string{"logs", id}, args...)...).Want(t, cli.ExitOK); r.Out != "" || strings.Contains(r.Err, "args") {
			t.Errorf("%v: %q, %q", args, r.Out, r.Err)
		}
	}
	w.CLI(t, "logs", "--tail", "-1", id).Want(t, cli.ExitUsage, `--tail: -1, want at least 0`)
	w.CLI(t, "logs", "--since", "yesterday", id).Want(t, cli.ExitUsage, `--since: "yesterday", want 90s, `)
}

func (w *world) testDetach(t *testing.T) {
	var out, errOut clitest.Buffer
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1)
	go func() {
		code <- w.App(&out, &errOut).Run(ctx, []string{"run", "--max-price", "1", "--budget", "1", filepath.Join(w.Files, "work.wasm")})
	}()
	clitest.Eventually(t, "the job's log is shown", func() bool { return out.String() == "working\n" })
	id := regexp.MustCompile(`(?m)^job (j\w+)$`).FindStringSubmatch(errOut.String())[1]
	w.CLI(t, "ps").Want(t, cli.ExitOK, `^`+id[:8]+`\w* +work +running +0/1`)
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^state +running$`, `^running for +\d`, `^0 +running +\w{8}`)
	interrupt()
	if c := <-code; c != 0 || !strings.Contains(errOut.String(), "detached; the job runs on. Come back with `starling logs -f "+id+"`, end it with `starling stop "+id+"`") {
		t.Errorf("exit code %d\n%s", c, errOut.String())
	}
	if q := w.CLI(t, "ps", "-q").Want(t, cli.ExitOK); !strings.Contains(q.Out, id+"\n") {
		t.Errorf("the job does not run any more: %q", q.Out)
	}
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK, `^`+id+` +stopped$`)
	w.CLI(t, "wait", id).Want(t, cli.ExitFailed, `^`+id+` stopped in`, `^hint: starling why`)
	w.CLI(t, "stop").Want(t, cli.ExitUsage, `needs an id`)
}

func (w *world) testDryRun(t *testing.T) {
	args := []string{"run", "--dry-run", "-n", "3", "--max-price", "0.36", "--timeout", "1h", filepath.Join(w.Files, "work.wasm")}
	w.CLI(t, args...).Want(t, cli.ExitNoMatch, `^ranks +3$`, `^PROVIDER +UNITS +REGION`, `the job cannot be placed now`)
	w.CLI(t, append(args, "-o", "json")...).Want(t, cli.ExitNoMatch, `"maxCost": 1080000`)
}

// Every command that needs a peer says so, and how to get one.
func TestNoPeer(t *testing.T) {
	t.Parallel()
	w := clitest.NewHome(t.TempDir(), Commands)
	for _, args := range [][]string{
		{"ps"}, {"status", "j"}, {"logs", "j"}, {"why", "j"}, {"wait", "j"}, {"get", "j", "d"}, {"stop", "j"}, {"exec", "j", "--", "x"}, {"cp", "j:/x", "y"}, {"job", "port-forward", "j", "80"}, {"job", "pause", "j"}, {"job", "resume", "j"}, {"peer", "status"}, {"peer", "ls"}, {"peer", "show", "p"},
		{"offers"}, {"provider", "leases"}, {"proof", "ls", "j"}, {"proof", "show", "j"}, {"proof", "export", "j", "f"}, {"proof", "check", "j"},
	} {
		w.CLI(t, args...).Want(t, cli.ExitUnreachable, `^starling: no peer is running here`, "^hint: start it with `starling up`")
	}
	w.CLI(t, "wallet", "show").Want(t, cli.ExitUsage, `^hint: starling init`)
}

func (w *world) testQuote(t *testing.T) {
	hello := filepath.Join(w.Files, "fail.wasm")
	out := w.Must(t, "quote", "-n", "2", "--max-price", "1", "--timeout", "1h", hello)
	if !strings.Contains(out, "2 ranks for 1h0m0s would cost 0.7") || strings.Count(out, "direct in")+strings.Count(out, "gossip in") != 2 {
		t.Errorf("%s", out)
	}
	if r := w.CLI(t, "quote", "--max-price", "0.1", hello); r.Code != int(cli.ExitNoMatch) || !strings.Contains(r.Err, "cannot be placed now") {
		t.Errorf("%+v", r)
	}
	file := w.File(t, "quote.yaml", "{apiVersion: v1, kind: Job, spec: {module: fail.wasm, payment: {maxPrice: 1}}}")
	var q record.Quotation
	if err := json.Unmarshal([]byte(w.Must(t, "quote", file, "-o", "json")), &q); err != nil || !q.Places || q.Cost == 0 || len(q.Quotes) == 0 {
		t.Errorf("%+v, %v", q, err)
	}
	if r := w.CLI(t, "quote", "-n", "2", file); r.Code != int(cli.ExitUsage) {
		t.Errorf("%+v", r)
	}
}
