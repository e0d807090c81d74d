package clitest

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

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest/programtest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

const (
	slotMillis = 50
	// minted is the buyer's tokens, base units: 100 tokens.
	minted = 100_000_000
	// escrowPoll and escrowLook are the intervals at which peers poll their escrows.
	escrowPoll, escrowLook = 50 * time.Millisecond, 200 * time.Millisecond
)

// World is two selling peers, one buying peer with a local API, and a chain, in this process and in real time, with the
// commands under test.
type World struct {
	Chain   *chaintest.Programs
	Halted  atomic.Bool // the chain makes no blocks
	Genesis market.Genesis
	Home    string // of the buyer
	Homes   []string
	Hosts   []*p2p.Host // the buyer's is the last
	Seller  string      // home of a peer that sells
	Owner   sign.Key    // of the buyer's tokens
	Files   string      // folder of modules and inputs
	// Env are variables of the commands' environment beside STARLING_HOME. It changes only while no command runs.
	Env map[string]string

	commands []func(*cli.App) *cobra.Command
}

// NewHome is a world of commands in a home directory, without peers and chain.
func NewHome(home string, commands []func(*cli.App) *cobra.Command) *World {
	return &World{Home: home, Env: map[string]string{}, commands: commands}
}

// NewWorld makes a world. Its buyer is reached, and relays for others, by nat. NewWorld returns when the buyer has
// found both providers. Everything ends with the test.
func NewWorld(t testing.TB, commands []func(*cli.App) *cobra.Command, nat p2p.NAT) *World {
	t.Helper()
	w := NewHome("", commands)
	w.Files = t.TempDir()
	w.startChain(t)
	for name := range programtest.All {
		w.File(t, name+".wasm", string(programtest.Module(name)))
	}
	w.File(t, "in/0/name", "ada")
	w.File(t, "in/1/name", "grace")
	for i := range 3 {
		cfg := p2p.Config{Key: p2ptest.Key(i), Network: w.Genesis.Tag(), Agent: "starling/test"}
		if i == 2 {
			cfg.NAT = nat
		}
		w.Hosts = append(w.Hosts, p2ptest.LoopbackHost(t, cfg))
	}
	for i, h := range w.Hosts {
		w.peer(t, i, h)
	}
	p2ptest.ConnectAll(t, w.Hosts...)
	w.Finds(t)
	return w
}

// startChain makes the network on a chain that has a block every slotMillis.
func (w *World) startChain(t testing.TB) {
	t.Helper()
	blocks := chaintest.NewChain(chaintest.Config{})
	w.Genesis = market.Genesis{Network: "cli", Chain: blocks.Genesis(), Symbol: "STAR", Decimals: 6,
		SlotMillis: slotMillis, IntervalSlots: 40, Simulated: true}
	var err error
	_, w.Chain, err = chaintest.Found(blocks, &w.Genesis, account.Params{
		MarginSlots: 100, ResponseSlots: 100, UnbondingSlots: 2000, EvidenceSlots: 1000, MinStake: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, func(ctx context.Context) error {
		tick := time.NewTicker(slotMillis * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if !w.Halted.Load() {
					blocks.Advance(1)
					w.Chain.Advance()
				}
			}
		}
	})
}

// Finds waits until the buyer has found both providers.
func (w *World) Finds(t testing.TB) {
	t.Helper()
	Eventually(t, "both providers are found", func() bool {
		var offers []api.OfferInfo
		r := w.CLI(t, "offers", "-o", "json")
		return r.Code == 0 && json.Unmarshal([]byte(r.Out), &offers) == nil && len(offers) == 2 &&
			offers[0].Answered && offers[1].Answered
	})
}

// peer runs peer i; the last one buys.
func (w *World) peer(t testing.TB, i int, h *p2p.Host) {
	t.Helper()
	home := t.TempDir()
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	key := sign.NewPrivate(seed)
	cfg := config.Default()
	if i == 0 {
		w.Seller = home
	}
	if i < 2 {
		cfg.Provide.Enabled, cfg.Provide.Units, cfg.Provide.Price = true, 16, fmt.Sprintf("0.3%d", 6+i)
		cfg.Provide.Unit = config.Unit{MilliCPU: 100, MemoryMiB: 8, DiskMiB: 8}
	} else {
		w.Home, w.Owner = home, key.Key()
		w.Chain.Mint(key.Key(), minted)
		if _, err := p2p.SaveIdentity(filepath.Join(home, config.FileIdentity), seed); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(home, config.FileConfig), []byte("solana: {rpc: [configured]}\n"))
	}
	w.Homes = append(w.Homes, home)
	cfg.Buy.Webhooks.Private = true
	g, err := json.Marshal(w.Genesis)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, config.FileGenesis), g)
	blobs, err := blob.OpenStore(filepath.Join(home, "blobs"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := store.OpenSQLite(filepath.Join(home, config.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(home, "peer.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { journal.Close(); log.Close() }) // runs after the peer has ended
	parts := node.Parts{
		Config: cfg, Home: home, Genesis: w.Genesis, Key: key, Owner: key.Key(), Host: h, Store: journal, Blobs: blobs,
		Runtimes: programtest.Runtimes(), SlotEvery: time.Second, NoAPI: i == 1, Version: "test",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	ledger := w.Chain.Ledger(key.Key())
	parts.Ledger, parts.Program, parts.Escrow.PollEvery = ledger, ledger, escrowPoll
	parts.Escrow.LookEvery, parts.Escrow.RetryAfter = escrowLook, escrowLook
	n, err := node.New(t.Context(), parts)
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, n.Run)
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// File writes a file for jobs and returns its path.
func (w *World) File(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(w.Files, filepath.FromSlash(name))
	write(t, path, []byte(content))
	return path
}

// CLI runs a command on the buyer's home.
func (w *World) CLI(t testing.TB, args ...string) Result {
	t.Helper()
	var out, errOut Buffer
	code := w.App(&out, &errOut).Run(t.Context(), args)
	return Result{Code: code, Out: out.String(), Err: errOut.String()}
}

// Must runs a command that has to succeed, and returns its output.
func (w *World) Must(t testing.TB, args ...string) string {
	t.Helper()
	r := w.CLI(t, args...)
	if r.Code != 0 {
		t.Fatalf("%v: code %d\n%s%s", args, r.Code, r.Out, r.Err)
	}
	return r.Out
}

// App is the context of one command. Of the endpoints of chains that it may name, "down" does not answer.
func (w *World) App(out, errOut io.Writer) *cli.App {
	return &cli.App{
		In: strings.NewReader(""), Out: out, Err: errOut, Commands: w.commands,
		Getenv: func(name string) string {
			if name == "STARLING_HOME" {
				return w.Home
			}
			return w.Env[name]
		},
		OpenChain: func(rpc []string, _ market.Genesis) (proof.Chain, error) {
			if rpc[0] == "down" {
				down := chaintest.NewChain(chaintest.Config{})
				down.SetDown(true)
				return down.Ledger(sign.Key{1}), nil
			}
			return w.Chain.Ledger(w.Owner), nil
		},
	}
}

var started = regexp.MustCompile(`(?m)^job (j\w+)$`)

// Greet runs a job of two ranks until it is paid and returns its id.
func (w *World) Greet(t testing.TB, more ...string) (string, Result) {
	t.Helper()
	args := append([]string{"run", "-n", "2", "--wait", "paid", "--max-price", "1", "--budget", "1",
		"-i", filepath.Join(w.Files, "in/{rank}") + ":/in", "--out", "/out"}, more...)
	r := w.CLI(t, append(args, filepath.Join(w.Files, "greet.wasm"), "--", "one", "two")...).Want(t, cli.ExitOK,
		`^job (j\w+)$`)
	return started.FindStringSubmatch(r.Err)[1], r
}
