package rooms

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// programs are what the peers of these tests run.
var programs = map[string]guest.Program{
	// greet copies its input to its output and says who it is.
	"greet": func(p guest.Process) int {
		rank := environ(p, buyer.EnvRank)
		text, err := guest.ReadFile(p, "/in/name", 100)
		if err != nil {
			return 1
		}
		fmt.Fprintf(p.Stdout(), "hello %s\nfrom rank %s", text, rank)
		fmt.Fprintln(p.Stderr(), "args", strings.Join(p.Args(), " "))
		for range 1500 { // longer than an interval, and than a busy machine is wrong about the slot, so that there is something to pay
			p.Burn()
		}
		if guest.WriteFile(p, "/out/greeting", []byte("hello "+string(text)+" from "+rank)) != nil {
			return 2
		}
		return 0
	},
	// spin goes on until it is killed.
	"spin": func(p guest.Process) int {
		for {
			p.Burn()
		}
	},
	// tell says how long its secrets are.
	"tell": func(p guest.Process) int {
		file, err := guest.ReadFile(p, runtime.SecretsDir+"/key", 100)
		if err != nil {
			return 1
		}
		fmt.Fprintln(p.Stdout(), "secrets of", len(environ(p, "TOKEN")), "and", len(file))
		return 0
	},
	"fail": func(p guest.Process) int {
		fmt.Fprintln(p.Stderr(), "this goes wrong")
		return 7
	},
	// hold goes on until a file of this machine is there, and leaves what is in it.
	"hold": func(p guest.Process) int {
		fmt.Fprintln(p.Stdout(), "holding")
		text, err := os.ReadFile(p.Args()[len(p.Args())-1])
		for ; err != nil; text, err = os.ReadFile(p.Args()[len(p.Args())-1]) {
			p.Burn()
		}
		if guest.WriteFile(p, "/out/text", text) != nil {
			return 2
		}
		return 0
	},
	// work goes on until it is stopped.
	"work": func(p guest.Process) int {
		fmt.Fprintln(p.Stdout(), "working")
		for !guest.Exists(p, guest.StopFile) {
			p.Burn()
		}
		return 0
	},
}

func peerID(t *testing.T, i int) string {
	t.Helper()
	id, err := peer.IDFromPrivateKey(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

func environ(p guest.Process, name string) string {
	for _, e := range p.Environ() {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

var escrowParams = escrow.Params{PollEvery: 50 * time.Millisecond, LookEvery: 200 * time.Millisecond, RetryAfter: 200 * time.Millisecond}

// world is two peers that sell, one that buys and has a local API, and a chain, in this process and in real time.
type world struct {
	chain   *chaintest.Programs
	halted  atomic.Bool // the chain makes no blocks
	genesis market.Genesis
	home    string // of the buyer
	homes   []string
	hosts   []*p2p.Host
	seller  string // home of a peer that sells
	owner   sign.Key
	files   string // modules and inputs
	docker  string // where docker's configuration is; ""
	path    string // PATH; ""
	entry   string // address of the entry peer, where commands are a light client's
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return makeWorld(t, p2p.NAT{})
}

// makeWorld is newWorld with a buyer that is reached, and relays for others, as nat says.
func makeWorld(t testing.TB, nat p2p.NAT) *world {
	t.Helper()
	const slot = 50
	blocks := chaintest.NewChain(chaintest.Config{})
	w := &world{files: t.TempDir()}
	w.genesis = market.Genesis{Network: "cli", Chain: blocks.Genesis(), Symbol: "STAR", Decimals: 6, SlotMillis: slot, IntervalSlots: 40, Simulated: true}
	mint, at := sign.Key(sign.Sum([]byte("mint"))), sign.Key(sign.Sum([]byte("program")))
	net, err := escrow.NewNet(at, program.NewNetwork(program.Params{
		Network: w.genesis.Network, Chain: w.genesis.Chain, StakeMint: mint, MarginSlots: 100, ResponseSlots: 100, UnbondingSlots: 2000, EvidenceSlots: 1000,
		MinStake: 1, Mints: []program.MintTerms{program.DefaultTerms(mint, w.genesis.Decimals)},
	}), mint)
	if err != nil {
		t.Fatal(err)
	}
	w.genesis.Program, w.genesis.Escrow, w.genesis.Mint = net.Program, net.Address(), net.Mint
	w.chain = chaintest.NewPrograms(blocks, net)
	p2ptest.Go(t, func(ctx context.Context) error {
		tick := time.NewTicker(slot * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if !w.halted.Load() {
					blocks.Advance(1)
					w.chain.Advance()
				}
			}
		}
	})
	for name := range programs {
		w.file(t, name+".wasm", string(runtimetest.FakeModule(name)))
	}
	w.file(t, "in/0/name", "ada")
	w.file(t, "in/1/name", "grace")
	var hosts []*p2p.Host
	for i := range 3 {
		cfg := p2p.Config{Key: p2ptest.Key(i), Network: w.genesis.Tag(), Agent: "starling/test"}
		if i == 2 {
			cfg.NAT = nat
		}
		hosts = append(hosts, p2ptest.LoopbackHost(t, cfg))
	}
	for i, h := range hosts {
		w.peer(t, i, h)
	}
	p2ptest.ConnectAll(t, hosts...)
	w.hosts = hosts
	w.finds(t)
	return w
}

// finds waits until whoever buys has found both providers.
func (w *world) finds(t testing.TB) {
	t.Helper()
	clitest.Eventually(t, "both providers are found", func() bool {
		var offers []api.OfferInfo
		r := w.cli(t, "offers", "-o", "json")
		return r.Code == 0 && json.Unmarshal([]byte(r.Out), &offers) == nil && len(offers) == 2 && offers[0].Answered && offers[1].Answered
	})
}

// peer runs peer i; the last one buys.
func (w *world) peer(t testing.TB, i int, h *p2p.Host) {
	t.Helper()
	home := t.TempDir()
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	key := sign.NewPrivate(seed)
	cfg := node.DefaultConfig()
	if i == 0 {
		w.seller = home
	}
	if i < 2 {
		cfg.Provide.Enabled, cfg.Provide.Units, cfg.Provide.Price = true, 16, fmt.Sprintf("0.3%d", 6+i)
		cfg.Provide.Unit = node.Unit{MilliCPU: 100, MemoryMiB: 8, DiskMiB: 8}
	} else {
		w.home, w.owner = home, key.Key()
		w.chain.Mint(key.Key(), 100_000_000)
		if _, err := p2p.SaveIdentity(filepath.Join(home, node.FileIdentity), seed); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, node.FileConfig), []byte("solana: {rpc: [configured]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.homes = append(w.homes, home)
	cfg.Buy.Webhooks.Private = true
	g, err := json.Marshal(w.genesis)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, node.FileGenesis), g, 0o600); err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenStore(filepath.Join(home, "blobs"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := store.OpenSQLite(filepath.Join(home, node.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(home, "peer.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { journal.Close(); log.Close() }) // after the peer: this was said first
	n, err := node.New(t.Context(), node.Parts{
		Config: cfg, Home: home, Genesis: w.genesis, Key: key, Owner: key.Key(), Host: h, Store: journal, Blobs: blobs,
		Ledger: w.chain.Ledger(key.Key()), Program: w.chain.Ledger(key.Key()), Escrow: escrowParams, Runtimes: map[string]runtime.Runtime{"wasm": runtimetest.NewFake("wasm", programs)},
		SlotEvery: time.Second,
		NoAPI:     i == 1, Version: "test", Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, n.Run)
}

// file writes a file for jobs and returns its path.
func (w *world) file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(w.files, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// cli runs a command on the buyer's home.
func (w *world) cli(t testing.TB, args ...string) clitest.Result {
	t.Helper()
	var out, errOut clitest.Buffer
	code := w.app(&out, &errOut).Run(t.Context(), args)
	return clitest.Result{Code: code, Out: out.String(), Err: errOut.String()}
}

func (w *world) app(out, errOut io.Writer) *cli.App {
	return &cli.App{
		In: strings.NewReader(""), Out: out, Err: errOut, Commands: Commands,
		Getenv: func(name string) string {
			return map[string]string{
				"STARLING_HOME": w.home, "STARLING_PEER": w.entry, "TOKEN": secretValue, "HOOK": hookSecret, "DOCKER_CONFIG": w.docker, "PATH": w.path,
			}[name]
		},
		OpenChain: func(rpc []string, _ market.Genesis) (proof.Chain, error) {
			if rpc[0] == "down" {
				w := chaintest.NewChain(chaintest.Config{})
				w.SetDown(true)
				return w.Ledger(sign.Key{1}), nil
			}
			return w.chain.Ledger(w.owner), nil
		},
	}
}

// greet runs a job of two ranks until it is paid and returns its id.
func (w *world) greet(t *testing.T, more ...string) (string, clitest.Result) {
	t.Helper()
	args := append([]string{"run", "-n", "2", "--wait", "paid", "--max-price", "1", "--budget", "1", "-i", filepath.Join(w.files, "in/{rank}") + ":/in", "--out", "/out"}, more...)
	r := w.cli(t, append(args, filepath.Join(w.files, "greet.wasm"), "--", "one", "two")...).Want(t, cli.ExitOK, `^job (j\w+)$`)
	return regexp.MustCompile(`(?m)^job (j\w+)$`).FindStringSubmatch(r.Err)[1], r
}

// The commands against a real peer, from the order to the receipts.
func TestPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("run", func(t *testing.T) { t.Parallel(); w.testRun(t) })
	t.Run("fail", func(t *testing.T) { t.Parallel(); w.testFail(t) })
	t.Run("refused", func(t *testing.T) { t.Parallel(); w.testRefused(t) })
	t.Run("detach", func(t *testing.T) { t.Parallel(); w.testDetach(t) })
	t.Run("submit", func(t *testing.T) { t.Parallel(); w.testSubmit(t) })
	t.Run("limits", func(t *testing.T) { t.Parallel(); w.testLimits(t) })
	t.Run("dryrun", func(t *testing.T) { t.Parallel(); w.testDryRun(t) })
	t.Run("peer", func(t *testing.T) { t.Parallel(); w.testNode(t) })
	t.Run("receipts", func(t *testing.T) { t.Parallel(); w.testReceipts(t) })
	t.Run("live", func(t *testing.T) { t.Parallel(); w.testLive(t) })
	t.Run("portforward", func(t *testing.T) { t.Parallel(); w.testPortForward(t) })
}

func (w *world) testRun(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results")
	id, r := w.greet(t, "--save", results)
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
	w.cli(t, "status", short).Want(t, cli.ExitOK, `^job +`+id, `^state +succeeded$`, `^cost +0.00\d+ STAR, budget 1.00 STAR$`, `^transaction +\w{32,}`,
		`^RANK +STATE +PROVIDER +ROUTE`, `^0 +done +\w{8} +(direct|gossip) +[0-9a-f]{8} +0 +0`)
	w.cli(t, "status", id, "-o", "json").Want(t, cli.ExitOK, `"state": "succeeded"`, `"cost": \d+`)
	w.cli(t, "ps", "-a").Want(t, cli.ExitOK, `^ID +NAME +STATE`, `^`+id[:8]+`\w* +greet +succeeded +2/2 +- +\d+s +- +0.00\d+ STAR`)
	w.cli(t, "logs", id).Want(t, cli.ExitOK, `^\[1\] hello grace$`)
	if one := w.cli(t, "logs", "--rank", "1", id).Want(t, cli.ExitOK); one.Out != "hello grace\nfrom rank 1" || one.Err != "args one two\n" {
		t.Errorf("one rank's log: %q, %q", one.Out, one.Err)
	}
	w.cli(t, "logs", "--rank", "2", id).Want(t, cli.ExitUsage, `ranks 0 to 1, not 2`)
	w.cli(t, "logs", "-f", id).Want(t, cli.ExitOK)
	w.cli(t, "wait", id).Want(t, cli.ExitOK, `^`+id+` succeeded`)
	w.cli(t, "stop", id).Want(t, cli.ExitOK, `^`+id+` +succeeded$`)
	w.cli(t, "why", id).Want(t, cli.ExitOK, `order \w{8} for 2 × 1 units of cpu, at most 1.00 STAR`, `^PROVIDER +ANSWER +PRICE +ROUTE`,
		`^\w{8} +quoted +0.3[67] STAR +(direct|gossip) in [\d.]+(µs|ms)`, `chosen +rank 1 +\w{8}`, `paid .* claimed or to be claimed`, `ended .* succeeded`)
	w.cli(t, "why", id, "-o", "json").Want(t, cli.ExitOK, `"kind": "quoted"`)
	again := filepath.Join(t.TempDir(), "again")
	w.cli(t, "get", id, again, "--rank", "1").Want(t, cli.ExitOK, `^1 +/out +\d+ +.*again/out$`)
	if b, err := os.ReadFile(filepath.Join(again, "out", "greeting")); err != nil || string(b) != "hello grace from 1" {
		t.Errorf("%q, %v", b, err)
	}
	w.cli(t, "get", id, again, "--rank", "1").Want(t, cli.ExitFailed, `is not empty`)
	w.cli(t, "status", "jnever").Want(t, cli.ExitUsage, `no such job`, `^hint: .starling ps -a. lists all jobs with their ids`)
}

// What a job owes cannot be paid while the chain makes no blocks: its result is there all the same, and run returns with it.
func TestRunReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	results, gate := filepath.Join(dir, "results"), filepath.Join(dir, "gate")
	var out, errOut clitest.Buffer
	code := make(chan int, 1)
	go func() {
		code <- w.app(&out, &errOut).Run(t.Context(), []string{"run", "--max-price", "1", "--budget", "1", "--out", "/out", "--save", results, filepath.Join(w.files, "hold.wasm"), "--", gate})
	}()
	clitest.Eventually(t, "the program runs", func() bool { return out.String() == "holding\n" })
	w.halted.Store(true)
	if err := os.WriteFile(gate+".new", []byte("open"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(gate+".new", gate); err != nil {
		t.Fatal(err)
	}
	clitest.Result{Code: <-code, Out: out.String(), Err: errOut.String()}.Want(t, cli.ExitOK, `^j\w+ succeeded in [\d.]+m?s; its peer pays what it owes: starling status j\w+$`)
	if b, err := os.ReadFile(filepath.Join(results, "out", "text")); err != nil || string(b) != "open" {
		t.Errorf("%q, %v", b, err)
	}
	id := regexp.MustCompile(`(?m)^job (j\w+)$`).FindStringSubmatch(errOut.String())[1]
	w.cli(t, "status", id).Want(t, cli.ExitOK, `^state +settling, then succeeded$`)
	w.cli(t, "logs", "-f", id).Want(t, cli.ExitOK, `^holding$`)
	w.halted.Store(false)
	w.cli(t, "wait", id).Want(t, cli.ExitOK, `^`+id+` succeeded in [\d.]+s, cost 0.\d+ STAR`)
}

func (w *world) testFail(t *testing.T) {
	args := []string{"run", "--max-price", "1", "--budget", "1", "--name", "wrong", filepath.Join(w.files, "fail.wasm")}
	w.cli(t, args...).Want(t, cli.ExitFailed, `^this goes wrong$`, `^starling: job (j\w+) failed: .*7`, `^hint: starling why j\w+$`)
	// One document on standard output, everything else beside it.
	r := w.cli(t, append(args, "--wait", "paid", "-o", "json")...).Want(t, cli.ExitFailed, `"code":"failed"`)
	var j buyer.Job
	if err := json.Unmarshal([]byte(r.Out), &j); err != nil || j.State != buyer.Failed || j.Code != buyer.CodeProgram {
		t.Errorf("%v: %s", err, r.Out)
	}
	w.cli(t, "get", j.ID, t.TempDir()).Want(t, cli.ExitFailed, `has no outputs`, `^hint: say which directory to keep`)
}

func (w *world) testRefused(t *testing.T) {
	module := filepath.Join(w.files, "work.wasm")
	w.cli(t, "run", "--max-price", "0.01", "--queue-timeout", "1s", module).Want(t, cli.ExitNoMatch, `no match for 1 × 1 units of cpu`, `^hint: starling why`)
	w.cli(t, "run", "--max-price", "1000", "--timeout", "24h", module).Want(t, cli.ExitPayment, `can cost up to 24000.00 STAR`, `^hint: `)
	w.cli(t, "run", "--max-price", "1", filepath.Join(w.files, "nowhere.wasm")).Want(t, cli.ExitUsage, `nowhere.wasm: no such file`)
	w.cli(t, "run", "--max-price", "1", w.files).Want(t, cli.ExitUsage, `a module is one file`)
	w.cli(t, "run", "--max-price", "1", "cid:bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku").Want(t, cli.ExitUsage, `is not on this peer`)
	link := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(link, "link")); err != nil {
		t.Fatal(err)
	}
	w.cli(t, "run", "--max-price", "1", "-i", link+":/in", module).Want(t, cli.ExitUsage, `uploading .*: link: symbolic link to "/etc/passwd": want a relative link .* cp -rL`)
	w.cli(t, "run", module).Want(t, cli.ExitUsage, `--max-price`)
	w.cli(t, "run").Want(t, cli.ExitUsage, `run needs a module`, `^hint: starling run`)
	w.cli(t, "run", "--max-price", "1", module, "argument").Want(t, cli.ExitUsage, `^hint: arguments of the program come after --`)
	w.cli(t, "run", "--max-price", "1", "-d", "--save", "x", module).Want(t, cli.ExitUsage, `--save needs`)
	w.cli(t, "run", "--max-price", "1", "-d", "--wait", "paid", module).Want(t, cli.ExitUsage, `--wait paid needs`, `^hint: starling wait`)
	w.cli(t, "run", "--max-price", "1", "--wait", "long", module).Want(t, cli.ExitUsage, `--wait: "long", want result or paid`)
}

func (w *world) testDetach(t *testing.T) {
	var out, errOut clitest.Buffer
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1)
	go func() {
		code <- w.app(&out, &errOut).Run(ctx, []string{"run", "--max-price", "1", "--budget", "1", filepath.Join(w.files, "work.wasm")})
	}()
	clitest.Eventually(t, "the job's log is shown", func() bool { return out.String() == "working\n" })
	id := regexp.MustCompile(`(?m)^job (j\w+)$`).FindStringSubmatch(errOut.String())[1]
	w.cli(t, "ps").Want(t, cli.ExitOK, `^`+id[:8]+`\w* +work +running +0/1`)
	w.cli(t, "status", id).Want(t, cli.ExitOK, `^state +running$`, `^running for +\d`, `^0 +running +\w{8}`)
	interrupt()
	if c := <-code; c != 0 || !strings.Contains(errOut.String(), "detached; the job goes on. Come back with `starling logs -f "+id+"`, end it with `starling stop "+id+"`") {
		t.Errorf("exit code %d\n%s", c, errOut.String())
	}
	if q := w.cli(t, "ps", "-q").Want(t, cli.ExitOK); !strings.Contains(q.Out, id+"\n") {
		t.Errorf("the job does not run any more: %q", q.Out)
	}
	w.cli(t, "stop", "--wait", id).Want(t, cli.ExitOK, `^`+id+` +stopped$`)
	w.cli(t, "wait", id).Want(t, cli.ExitFailed, `^`+id+` stopped in`, `^hint: starling why`)
	w.cli(t, "stop").Want(t, cli.ExitUsage, `needs an id`)
}

func (w *world) testSubmit(t *testing.T) {
	file := w.file(t, "job.yaml", `
apiVersion: v1
kind: Job
metadata: {name: filed}
spec:
  module: greet.wasm
  count: 2
  args: [one]
  inputs: [{src: "in/{rank}/name", dst: /in/name}]
  outputs: [{src: /out}]
  payment: {maxPrice: 1, budget: 1}
`)
	id := strings.TrimSpace(w.cli(t, "submit", "-d", file).Want(t, cli.ExitOK, `^j\w+$`).Out)
	w.cli(t, "wait", id).Want(t, cli.ExitOK, `^`+id+` succeeded`)
	dir := t.TempDir()
	w.cli(t, "get", id, dir).Want(t, cli.ExitOK, `^RANK +OUTPUT`, `^1 +/out`)
	if b, err := os.ReadFile(filepath.Join(dir, "1", "out", "greeting")); err != nil || string(b) != "hello grace from 1" {
		t.Errorf("%q, %v", b, err)
	}
	d := w.cli(t, "submit", "-d", file).Want(t, cli.ExitOK, `^follow it with .starling logs -f j\w+.$`)
	w.cli(t, "logs", "-f", strings.TrimSpace(d.Out)).Want(t, cli.ExitOK, `^\[1\] hello grace$`)
}

func (w *world) testLimits(t *testing.T) {
	w.cli(t, "run", "--max-price", "1", "--timeout", "2s", filepath.Join(w.files, "spin.wasm")).Want(t, cli.ExitTimeout, `time limit`, `^hint: starling why`)
}

func (w *world) testDryRun(t *testing.T) {
	args := []string{"run", "--dry-run", "-n", "3", "--max-price", "0.36", "--timeout", "1h", filepath.Join(w.files, "work.wasm")}
	w.cli(t, args...).Want(t, cli.ExitNoMatch, `^ranks +3$`, `^PROVIDER +UNITS +REGION`, `the job could not be placed now`)
	w.cli(t, append(args, "-o", "json")...).Want(t, cli.ExitNoMatch, `"maxCost": 1080000`)
}

func (w *world) testNode(t *testing.T) {
	w.cli(t, "peer", "status").Want(t, cli.ExitOK, `^peer +12D3`, `^key +`+w.owner.String(), `^addresses +/ip4/127.0.0.1/.*/p2p/12D3`, `^network +`+w.genesis.Tag(),
		`^chain +answers$`, `^balance +\d+.\d+ STAR$`, `^units +sells nothing$`)
	w.cli(t, "peer", "ls").Want(t, cli.ExitOK, `^KEY +PATH +DIR +RTT +SELLS +BUYS +AGENT`, `^\w{8} +direct +(in|out) .* starling/test +12D3\w+ +- +/ip4/127`)
	w.cli(t, "peer", "ls", "-o", "yaml").Want(t, cli.ExitOK, `^ +provider:$`, `^ +score: \d+$`)
	w.cli(t, "peer", "show", peerID(t, 99)).Want(t, cli.ExitOK, `^key +\w+`, `^as provider +0.0062 +a newcomer`, `^\+0.006\d\d\d +nothing known`, `^as buyer +0.0062`)
	w.cli(t, "peer", "show", peerID(t, 99), "-o", "json").Want(t, cli.ExitOK, `"stranger": 6155`, `"adds": 6155`)
	w.cli(t, "peer", "show", "nobody").Want(t, cli.ExitUsage, `neither a peer id`)
	facts := filepath.Join(t.TempDir(), "facts.json")
	w.cli(t, "proof", "export", peerID(t, 99), facts, "--kind", "history").Want(t, cli.ExitOK, `wrote the proof to .*: others kept 0 leases`)
	w.cli(t, "proof", "check", facts, "--offline").Want(t, cli.ExitOK, `^chain +not asked: --offline`, `^proves +others kept 0 leases`)
	w.cli(t, "proof", "export", "nobody", "-", "--kind", "history").Want(t, cli.ExitUsage, `neither a peer id`)
	w.cli(t, "peer", "ping", p2ptest.Key(9).GetPublic().Type().String()).Want(t, cli.ExitUsage, `neither a peer id`)
	w.cli(t, "peer", "ping", "-c", "3", peerID(t, 0)).Want(t, cli.ExitOK, `^peer +12D3`, `^path +direct$`, `^round trips +3$`, `^avg +\d`)
	w.cli(t, "peer", "ping", peerID(t, 99)).Want(t, cli.ExitUnreachable, `no address of peer 12D3.*\(no-address\)`, `^hint: give its whole address`)
	w.cli(t, "peer", "ping", "/ip4/127.0.0.1/tcp/1/p2p/"+peerID(t, 99), "-o", "json").Want(t, cli.ExitUnreachable, `"reason": "offline"`)
	w.cli(t, "peer", "ping", "-c", "0", peerID(t, 0)).Want(t, cli.ExitUsage)
	w.cli(t, "peer", "status").Want(t, cli.ExitOK, `^reachable +local: only peers on this machine`)
	w.cli(t, "offers").Want(t, cli.ExitOK, `^PROVIDER +CLASS +MODEL`, `^\w{8} +cpu +.* +local +\d+/16 +100m CPU 8MiB mem 8MiB disk +0.36 STAR .* yes +in \d+`)
	w.cli(t, "offers", "--class", "NO").Want(t, cli.ExitUsage)
	w.cli(t, "provider", "leases").Want(t, cli.ExitOK, `^earned +0.00 STAR$`)
	w.cli(t, "wallet", "show").Want(t, cli.ExitOK, `^owner +`+w.owner.String()+` +\d+\.\d+ STAR$`, `^fees +\d+\.\d+ SOL +of the peer$`)
	w.cli(t, "peer", "status", "-o", "yaml").Want(t, cli.ExitOK, `^peer: 12D3`)
}

// Every command that needs a peer says so, and how to get one.
func TestNoPeer(t *testing.T) {
	t.Parallel()
	w := &world{home: t.TempDir()}
	for _, args := range [][]string{
		{"ps"}, {"status", "j"}, {"logs", "j"}, {"why", "j"}, {"wait", "j"}, {"get", "j", "d"}, {"stop", "j"}, {"exec", "j", "--", "x"}, {"cp", "j:/x", "y"}, {"job", "port-forward", "j", "80"}, {"job", "pause", "j"}, {"job", "resume", "j"}, {"peer", "status"}, {"peer", "ls"}, {"peer", "show", "p"},
		{"offers"}, {"provider", "leases"}, {"proof", "ls", "j"}, {"proof", "show", "j"}, {"proof", "export", "j", "f"}, {"proof", "check", "j"},
	} {
		w.cli(t, args...).Want(t, cli.ExitUnreachable, `^starling: no peer is running here`, "^hint: start it with `starling up`")
	}
	w.cli(t, "wallet", "show").Want(t, cli.ExitUsage, `^hint: starling init`)
}
