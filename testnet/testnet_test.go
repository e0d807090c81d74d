package testnet_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/template"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/demo"
	"github.com/starling-network/starling/testnet/drill"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/jobs/lm/corpus"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/scenarios"
)

// binary is starling itself, built once.
var binary = sync.OnceValues(func() (string, error) {
	built = true
	dir, err := os.MkdirTemp("", "starling-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "starling")
	return path, engine.Build(path, "github.com/starling-network/starling/cmd/starling")
})

var built bool // binary was asked for

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		if path, err := binary(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

func starling(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// needChain skips where no local Solana can be started.
func needChain(t *testing.T) {
	t.Helper()
	if os.Getenv("STARLING_LOCALNET") != "1" && !localnet.Installed() {
		t.Skipf("%v; make test installs it, or set STARLING_LOCALNET=1", localnet.ErrNotInstalled)
	}
}

func start(t *testing.T, o testnet.Options) *testnet.Network {
	t.Helper()
	if !o.Free {
		needChain(t)
	}
	if o.Dir = t.TempDir(); o.Binary == "" {
		o.Binary = starling(t)
	}
	o.Env = append(o.Env, "XDG_CACHE_HOME="+t.TempDir())
	o.Say = t.Logf
	n, err := testnet.Start(t.Context(), o)
	if err != nil {
		logs, _ := filepath.Glob(filepath.Join(o.Dir, "*", "peer.log"))
		for _, log := range logs { // the folder goes with the test
			b, _ := os.ReadFile(log)
			t.Logf("%s: %s", log, scenarios.Tail(string(b)))
		}
		t.Fatal(err)
	}
	if o.Audit > 0 { // audits are in real time: these peers go before what else this machine does, where they may
		for _, p := range n.Peers {
			_ = syscall.Setpriority(syscall.PRIO_PGRP, p.PID, -10)
		}
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		for _, p := range n.Peers {
			if syscall.Kill(p.PID, 0) == nil {
				t.Errorf("%s (process %d) still runs", p.Name, p.PID)
			}
		}
	})
	return n
}

// hello is a WASI module, by hand, that writes "hello\n" to its standard output:
// type section (two function types), imports fd_write, one function _start, a
// memory, exports, and the data with its iovec.
var hello = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x0c\x02\x60\x04\x7f\x7f\x7f\x7f\x01\x7f\x60\x00\x00" +
	"\x02\x23\x01\x16wasi_snapshot_preview1\x08fd_write\x00\x00" +
	"\x03\x02\x01\x01" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x01" +
	"\x0a\x0f\x01\x0d\x00\x41\x01\x41\x00\x41\x01\x41\x14\x10\x00\x1a\x0b" +
	"\x0b\x14\x01\x00\x41\x00\x0b\x0e\x08\x00\x00\x00\x06\x00\x00\x00hello\n")

// What jobs pay here.
var (
	free  = job.Payment{Free: true}
	token = job.Payment{MaxPrice: 1_000_000, Budget: 1_000_000, Decimals: 6}
)

func submit(t *testing.T, c *api.Client, count uint32, pay job.Payment) record.Job {
	t.Helper()
	b, err := api.PutBlob.Call(t.Context(), c, api.Upload{Data: strings.NewReader(string(hello))})
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Submit(t.Context(), job.Job{
		Name: "hello", Runtime: "wasm", Module: "hello.wasm", Count: count, Resources: job.Resources{Class: "cpu", Units: 1},
		Restart: job.Restart{Max: 1}, Timeouts: job.Timeouts{Queue: 10 * time.Second, Run: time.Minute},
		Payment: pay,
		Blobs:   map[string]job.Blob{"hello.wasm": b.Source()},
	}, job.Values{}, "")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// end follows a job to its end.
func end(t *testing.T, c *api.Client, id string) record.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Events(ctx, id, nil, nil); err != nil {
		t.Fatal(err)
	}
	j, err := api.GetJob.Call(t.Context(), c, api.ByID{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestFreeNetwork runs real peer processes on a free network, where neither Node.js nor a Solana can be found: a job is done, its
// receipts hold, a killed peer comes back on its journal, and nothing is left in the end.
func TestFreeNetwork(t *testing.T) {
	starling(t) // built by Go, which is found on the path
	t.Setenv("PATH", t.TempDir())
	n := start(t, testnet.Options{Providers: 3, Buyers: 1, Free: true})
	c, err := n.Buyers()[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	j := end(t, c, submit(t, c, 3, free).ID)
	if j.State != record.Succeeded || j.Owed+j.Paid != 0 || j.Receipts < 3 || len(j.Transactions) > 0 {
		t.Fatalf("%s: owed %d, paid %d in %v by %d receipts", j.Summary(), j.Owed, j.Paid, j.Transactions, j.Receipts)
	}
	out, err := exec.CommandContext(t.Context(), starling(t), "--home", n.Buyers()[0].Home, "proof", "check", j.ID).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "none: the network is free") {
		t.Errorf("%v: %s", err, out)
	}
	for rank := range 3 {
		var out, errs strings.Builder
		if err := c.Log(t.Context(), api.Log{ID: j.ID, Rank: rank}, &out, &errs); err != nil || out.String() != "hello\n" || errs.Len() > 0 {
			t.Errorf("rank %d said %q and %q, %v", rank, out.String(), errs.String(), err)
		}
	}
	accounts, err := api.JobReceipts.Call(t.Context(), c, api.ByID{ID: j.ID})
	if err != nil || len(accounts) != 3 {
		t.Fatalf("%d accounts, %v", len(accounts), err)
	}
	exported, err := api.JobProof.Call(t.Context(), c, api.OfJob{ID: j.ID, Kind: proof.KindReceipts})
	if err != nil {
		t.Fatal(err)
	}
	p, err := exported.Receipts()
	if err != nil {
		t.Fatal(err)
	}
	if v, err := p.Verify(n.Genesis); err != nil || len(v.Leases) != 3 || v.Owed != j.Paid {
		t.Errorf("the receipts say %+v, %v", v, err)
	}
	templateRuns(t, n)
	restarted(t, n, c, free)
}

// templateRuns makes the smoke run of the built-in template wasm, by the command line.
func templateRuns(t *testing.T, n *testnet.Network) {
	t.Helper()
	tm, err := template.Builtin("wasm")
	if err != nil {
		t.Fatal(err)
	}
	d, err := tm.Describe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--home", n.Buyers()[0].Home, "run", "--template", tm.Name}
	for name, value := range d.Smoke.Set {
		args = append(args, "--set", name+"="+value)
	}
	run := exec.CommandContext(t.Context(), starling(t), args...)
	run.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	out, err := run.Output()
	if err != nil || !strings.Contains(string(out), d.Smoke.Prints) {
		t.Errorf("%v: output %q, want %q", err, out, d.Smoke.Prints)
	} else if !tm.Ran() {
		t.Errorf("the run passed and is not in node/job/template/ran.txt: add %q", template.Record("", tm))
	}
}

// TestEscrowNetwork is TestFreeNetwork with a local Solana, where the job's money is in an escrow of the program, from which providers claim.
func TestEscrowNetwork(t *testing.T) {
	t.Parallel()
	n := start(t, testnet.Options{Providers: 3, Buyers: 1})
	c, err := n.Buyers()[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	j := end(t, c, submit(t, c, 3, token).ID)
	if j.State != record.Succeeded || j.Paid+j.Held != j.Owed || j.Owed == 0 || len(j.Transactions) != 1 || len(j.Escrows) == 0 {
		t.Fatalf("%s: owed %d, paid %d in %v; %+v", j.Summary(), j.Owed, j.Paid, j.Transactions, j.Escrows)
	}
	open := func(e record.Escrow) bool { return !e.Closed }
	for slices.ContainsFunc(j.Escrows, open) { // the test's own time limit ends it
		if j, err = api.GetJob.Call(t.Context(), c, api.ByID{ID: j.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	var paid market.Amount
	for _, e := range j.Escrows { // one, or more if a busy machine lost a rank
		if paid += e.Paid; e.Refunded != e.Deposited-e.Paid || e.Fees == 0 {
			t.Errorf("escrow %+v", e)
		}
	}
	if paid != j.Paid {
		t.Errorf("the job paid %d, its escrows %d: %+v", j.Paid, paid, j.Escrows)
	}
	var claimed market.Amount
	for _, p := range n.Providers() {
		c, err := p.Client()
		if err != nil {
			t.Fatal(err)
		}
		i, err := api.GetNode.Call(t.Context(), c, api.None{})
		if err != nil || i.Earnings == nil || i.Earnings.Lost > 0 {
			t.Fatalf("%s earned %+v, %v", p.Name, i.Earnings, err)
		}
		claimed += i.Earnings.Claimed
	}
	if claimed > j.Paid { // what is not final yet is not counted
		t.Errorf("providers claimed %d, the job paid %d", claimed, j.Paid)
	}
	anchored(t, n.Buyers()[0], j.ID)
	restarted(t, n, c, token)
}

// anchored checks a job's anchor on chain by the command line.
func anchored(t *testing.T, p *testnet.Peer, job string) {
	t.Helper()
	// A transaction is read when it is final.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.CommandContext(t.Context(), starling(t), "--home", p.Home, "proof", "check", job).CombinedOutput()
		if err == nil && strings.Contains(string(out), "checked: the program wrote down these receipts' root") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("proof check: %v: %s", err, out)
		}
	}
}

// restarted kills a provider, starts it again, and has a job done on all of them.
func restarted(t *testing.T, n *testnet.Network, c *api.Client, pay job.Payment) {
	t.Helper()
	victim := n.Providers()[0]
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j := end(t, c, submit(t, c, 3, pay).ID); j.State != record.Succeeded {
		t.Errorf("after the restart: %s", j.Summary())
	}
}

// TestSideBySide: two testnets, one of them a free network, do not disturb each other, and a directory holds one.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	a, b := start(t, testnet.Options{Providers: 1, Free: true}), start(t, testnet.Options{Providers: 1})
	if a.Genesis.Tag() == b.Genesis.Tag() {
		t.Error("two testnets have one genesis")
	}
	if !a.Genesis.Program.IsZero() || b.Genesis.Program.IsZero() {
		t.Errorf("programs %s and %s", a.Genesis.Program, b.Genesis.Program)
	}
	if _, err := testnet.Start(t.Context(), testnet.Options{Dir: a.Dir, Binary: starling(t)}); err == nil || !strings.Contains(err.Error(), "runs in "+a.Dir) {
		t.Errorf("a second testnet in one directory: %v", err)
	}
}

// TestUpDown drives the background form.
func TestUpDown(t *testing.T) {
	t.Parallel()
	needChain(t)
	dir := t.TempDir()
	args := []string{"testnet", "serve", "--dir", dir, "-n", "2", "--buyers", "0"}
	n, err := testnet.Up(t.Context(), dir, starling(t), args, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testnet.Up(t.Context(), dir, starling(t), args, t.Logf); err == nil {
		t.Error("a second testnet came up in the same directory")
	}
	loaded, err := testnet.Load(dir)
	if err != nil || !loaded.Alive() || len(loaded.Peers) != 2 || loaded.Genesis.Program.IsZero() {
		t.Fatalf("%+v, %v", loaded, err)
	}
	if err := testnet.Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, p := range n.Peers {
		if syscall.Kill(p.PID, 0) == nil {
			t.Errorf("%s (process %d) still runs", p.Name, p.PID)
		}
	}
	if err := testnet.Down(t.Context(), dir); err == nil {
		t.Error("a testnet that is down went down again")
	}
}

// TestOwnerKilled: peers and chain end with the process that holds them.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, err := testnet.Up(t.Context(), dir, starling(t), []string{"testnet", "serve", "--dir", dir, "-n", "2", "--buyers", "0", "--free"}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if !n.Genesis.Free {
		t.Errorf("it was to be free: %+v", n.Genesis)
	}
	if err := syscall.Kill(n.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, p := range n.Peers {
		for deadline := time.Now().Add(30 * time.Second); syscall.Kill(p.PID, 0) == nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s (process %d) outlived its testnet", p.Name, p.PID)
			}
		}
	}
	if err := testnet.Down(t.Context(), dir); err != nil {
		t.Errorf("taking down what is gone: %v", err)
	}
}

// TestUpFails: what keeps a testnet from coming up is said.
func TestUpFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := testnet.Up(t.Context(), dir, starling(t), []string{"testnet", "serve", "--dir", dir, "--solana-rpc", "http://127.0.0.1:1"}, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("an unreachable chain: %v", err)
	}
}

// TestDemo is the demonstration, whole, on a quarter of its text: the model learns less, and has to show the same.
func TestDemo(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_LOCALNET") != "1" {
		t.Skip("the demonstration takes more than a minute; make test runs it (STARLING_LOCALNET=1)")
	}
	needChain(t)
	dir := t.TempDir()
	text := corpus.Config{ShardBytes: corpus.DefaultShardBytes / 8, HeldOutBytes: 96 << 10}
	if err := demo.Run(t.Context(), demo.Options{Dir: dir, Out: t.Output(), Binary: starling(t), Text: text}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "demo.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r demo.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Peers) != 6 || len(r.Leases) < 6 || len(r.Rounds) != 6 || r.Killed == nil || !r.Tokens.Conserved || r.Receipts.Count == 0 {
		t.Errorf("demo.json: %s", b)
	}
	if _, err := os.Stat(filepath.Join(dir, "demo", "testnet.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the demonstration's testnet is still there: %v", err)
	}
}

// TestSlash is the double sale, whole.
func TestSlash(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_LOCALNET") != "1" {
		t.Skip("the double sale takes most of a minute; make test runs it (STARLING_LOCALNET=1)")
	}
	needChain(t)
	dir := t.TempDir()
	if err := drill.Slash(t.Context(), drill.Options{Dir: dir, Out: t.Output(), Binary: starling(t)}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "slash.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r drill.SlashReport
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.StakeBefore == 0 || r.StakeAfter != 0 || r.From >= r.To || len(r.Transactions) == 0 {
		t.Errorf("slash.json: %s", b)
	}
	sold := map[string]bool{}
	for _, v := range r.Buyers {
		sold[v.Key] = v.Loss > 0 && v.Payment == v.Loss
	}
	if b, err = os.ReadFile(filepath.Join(dir, "double-sale.json")); err != nil {
		t.Fatal(err)
	}
	p, err := proof.ParseFile(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Check()
	if err != nil {
		t.Fatal(err)
	}
	d := f.Detail.(proof.DoubleSaleDetail)
	if d.Provider.String() != r.Provider || !sold[d.Sales[0].Buyer.String()] || !sold[d.Sales[1].Buyer.String()] {
		t.Errorf("the proof shows %+v", d)
	}
	if sold[r.Reporter.Key] || r.Reporter.Key == r.Provider {
		t.Errorf("the reporter %s took part in the sale", r.Reporter.Key)
	}
}

// TestDetach is the job that outlives its client, its entry peer, a guardian and a provider, whole.
func TestDetach(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_DETACH") != "1" {
		t.Skip("it takes three minutes of a quiet machine: STARLING_DETACH=1 runs it, as starling testnet detach does; the harness has the same in virtual time")
	}
	needChain(t)
	dir := t.TempDir()
	if err := drill.Detach(t.Context(), drill.Options{Dir: dir, Out: t.Output(), Binary: starling(t)}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "detach.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r drill.DetachReport
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 3 || len(r.Guardians) != 3 || len(r.Killed) != 4 || r.Before != r.After+r.Paid {
		t.Errorf("detach.json: %s", b)
	}
}
