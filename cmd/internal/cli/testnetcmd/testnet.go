// Package testnetcmd has the commands below starling testnet: the only link from the binary to the testnet.
package testnetcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/verify/audit"
)

// testnetOptions are the flags that the commands of testnet share.
type testnetOptions struct {
	dir       string
	providers int
	buyers    int
	units     uint32
	rpc       string
	free      bool
	audit     time.Duration
}

// NewTestnet makes the command `starling testnet`.
func NewTestnet(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupNetworks, &cobra.Command{
		Use:   "testnet",
		Short: "Run a network of peers on this machine",
		Long: `Runs real peer processes on loopback, each with its own home directory, and a local Solana for their
payments, unless it is a free network. Several testnets can run at the same time, each in its directory.

The scripts in testnet/scenarios of the source set up networks to watch: box.sh runs hostile containers and modules
beside honest jobs; containers.sh kills providers and engines under containers; nat.sh puts peers behind routers and
firewalls; ray.sh, dask.sh and torchrun.sh run those engines on clusters; light-client.sh buys without a peer. They
need root, and leave only images in the user's cache.`,
		Example: `  starling testnet up -n 5
  starling testnet status
  starling --home testnet/out/net/buyer-1 run --count 3 --max-price 0.5 app.wasm
  starling testnet down
  starling testnet demo
  starling testnet slash
  starling testnet detach
  starling testnet sim`,
	}, testnetUp(a), testnetStatus(a), testnetDown(a), testnetFund(a), testnetServe(a), testnetDemo(a),
		testnetSlash(a), testnetDetach(a), testnetBench(a), testnetSim(a))
}

func (o *testnetOptions) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.dir, "dir", filepath.Join("testnet", "out", "net"), "directory of the testnet")
}

func (o *testnetOptions) sizeFlags(c *cobra.Command) {
	o.flags(c)
	c.Flags().IntVarP(&o.providers, "peers", "n", 5, "number of selling peers")
	c.Flags().IntVar(&o.buyers, "buyers", 1, "number of peers that only buy")
	c.Flags().Uint32Var(&o.units, "units", 2, "units of each selling peer")
	c.Flags().StringVar(&o.rpc, "solana-rpc", "", "use the local validator at this URL instead of starting one")
	c.Flags().BoolVar(&o.free, "free", false, "make a free network: no chain, no money; needs no Node.js")
	c.Flags().DurationVar(&o.audit, "audit", 0, "time between audits of every idle unit; 0 disables them")
}

func (o *testnetOptions) check() error {
	if o.providers < 1 || o.buyers < 0 || o.providers+o.buyers > 200 {
		return cli.Usagef("%d peers and %d buyers: from 1 to 200 in all", o.providers, o.buyers)
	}
	if o.units < 1 || o.units > 256 {
		return cli.Usagef("--units: %d is not between 1 and 256", o.units)
	}
	if o.free && (o.audit != 0 || o.rpc != "") {
		return cli.Usagef("--free: a free network has no chain and no audits; leave --audit and --solana-rpc out")
	}
	if o.audit != 0 && o.providers+o.buyers < audit.MinBonded {
		return cli.Usagef("--audit: %d peers in all; at least %d are needed to judge one another",
			o.providers+o.buyers, audit.MinBonded)
	}
	if o.audit != 0 && (o.audit < testnet.MinAudit || o.audit > 24*time.Hour) {
		return cli.Usagef("--audit: %v, want 0 or %v to a day", o.audit, testnet.MinAudit)
	}
	return nil
}

func testnetUp(a *cli.App) *cobra.Command {
	var o testnetOptions
	var anew bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a testnet in the background, or resume one",
		Long: `Starts a testnet in the background and returns when its peers have found each other.

If the directory has a stopped network, its peers are resumed with their keys, wallets, configurations, jobs and
receipts; the flags for size and kind are then left out. A free network can be resumed, and one on the validator of
--solana-rpc while that has its chain. Without --solana-rpc the local Solana is in memory and is lost when the network
stops; --new makes a new network in its place and deletes the homes of its peers.

Starling's program is deployed on a local Solana, which needs Node.js: a job's money is deposited before it begins,
providers claim according to the buyer's vouchers, and the rest is refunded. With --free nothing is paid and there is no
chain; both sides still sign receipts.

--audit is the time between audits: every idle unit multiplies matrices and reads random places of its memory for a
committee of the other peers. Providers bond a stake for it, which takes two windows to count: with --audit 1m,
starling proof audit shows records after three minutes. Each window has an audit here, while on a real network audits
are unpredictable. The units then share this machine's processors without overlap, because audits detect overcommitted
units.`,
		Example: `  starling testnet up -n 5
  starling testnet up --free --dir testnet/out/free
  starling testnet up --audit 1m && starling proof audit --home testnet/out/net/peer-1`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			dir, err := filepath.Abs(o.dir)
			if err != nil {
				return err
			}
			args := o.serve(dir)
			if !anew {
				stopped, err := o.stopped(c, dir)
				if err != nil {
					return err
				}
				if stopped {
					args = []string{"testnet", "serve", "--dir", dir, "--resume"}
				}
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			n, err := testnet.Up(c.Context(), dir, self, args, a.Say)
			if err != nil {
				return err
			}
			return showTestnet(a, c, n)
		},
	}
	o.sizeFlags(c)
	c.Flags().BoolVar(&anew, "new", false, "replace the stopped network in the directory")
	return c
}

// serve returns the command line that runs a new network.
func (o *testnetOptions) serve(dir string) []string {
	args := []string{"testnet", "serve", "--dir", dir, "--peers", fmt.Sprint(o.providers), "--buyers",
		fmt.Sprint(o.buyers), "--units", fmt.Sprint(o.units), "--audit", o.audit.String()}
	if o.free {
		args = append(args, "--free")
	}
	if o.rpc != "" {
		args = append(args, "--solana-rpc", o.rpc)
	}
	return args
}

// stopped reports whether dir has a stopped network to resume, with which the flags given to c agree.
func (o *testnetOptions) stopped(c *cobra.Command, dir string) (bool, error) {
	if n, err := testnet.Load(dir); err == nil && n.Alive() {
		return false, nil // the start has the error
	}
	replace := fmt.Sprintf("`starling testnet up --new --dir %s` replaces it and deletes its peers' keys, jobs and "+
		"receipts", o.dir)
	n, err := testnet.Stopped(c.Context(), dir)
	if err != nil {
		return false, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", o.dir, err), Hint: replace}
	}
	if n == nil {
		return false, nil
	}
	sellers := n.Sellers()
	for _, f := range []struct {
		flag string
		same bool
	}{
		{"peers", o.providers == sellers}, {"buyers", o.buyers == len(n.Peers)-sellers},
		{"free", o.free == n.Genesis.Free}, {"solana-rpc", o.rpc == n.RPC}, {"audit", false}, {"units", false},
	} {
		if c.Flags().Changed(f.flag) && !f.same {
			return false, cli.WithHint(cli.Usagef("--%s: %s has a stopped network of %d selling peers and %d buyers, "+
				"which is resumed as it is", f.flag, o.dir, sellers, len(n.Peers)-sellers), "%s", replace)
		}
	}
	return true, nil
}

func testnetServe(a *cli.App) *cobra.Command {
	var o testnetOptions
	var resume bool
	c := &cobra.Command{
		Use:    "serve",
		Short:  "Run a testnet until interrupted",
		Hidden: true,
		Args:   cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			start := testnet.Start
			if resume {
				start = testnet.Resume
			}
			n, err := start(c.Context(), testnet.Options{Dir: o.dir, Providers: o.providers, Buyers: o.buyers,
				Units: o.units, RPC: o.rpc, Free: o.free, Audit: o.audit, Say: a.Say})
			if err != nil {
				return err
			}
			return testnet.Serve(c.Context(), n)
		},
	}
	o.sizeFlags(c)
	c.Flags().BoolVar(&resume, "resume", false, "resume the stopped network in the directory")
	return c
}

func testnetDown(a *cli.App) *cobra.Command {
	var o testnetOptions
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop a testnet",
		Long: `Stops the peers and the local Solana. The directory stays, with keys, logs, jobs and receipts. The next
starling testnet up resumes a free network, or one on the validator of --solana-rpc. A local Solana is in memory and is
lost: its network can only be replaced, by starling testnet up --new.`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := testnet.Down(c.Context(), o.dir); err != nil {
				return err
			}
			a.Say("the testnet in %s is down; its files stay: see `starling testnet up --help`", o.dir)
			return nil
		},
	}
	o.flags(c)
	return c
}

func testnetFund(a *cli.App) *cobra.Command {
	var o testnetOptions
	tokens := "100"
	c := &cobra.Command{
		Use:     "fund ADDRESS",
		Short:   "Give a wallet test tokens, and SOL for its fees",
		Example: `  starling testnet fund --tokens 20 $(starling --peer ADDR wallet show -o json | jq -r .owner)`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := sign.ParseKey(args[0])
			if err != nil {
				return cli.Usagef("%q is not a Solana address", args[0])
			}
			n, err := testnet.Load(o.dir)
			if err != nil {
				return cli.WithHint(fmt.Errorf("no testnet runs in %s", o.dir), "starling testnet up --dir %s", o.dir)
			}
			amount, err := market.ParseDecimal(tokens, n.Genesis.Decimals)
			if err != nil {
				return cli.Usagef("--tokens: %v", err)
			}
			if err := testnet.Fund(c.Context(), o.dir, to, market.Amount(amount)); err != nil {
				return err
			}
			a.Say("%s has %s more", to, n.Genesis.FormatAmount(market.Amount(amount)))
			return nil
		},
	}
	o.flags(c)
	c.Flags().StringVar(&tokens, "tokens", tokens, "how many")
	return c
}

// testnetPeer is one line of testnet status.
type testnetPeer struct {
	Name    string        `json:"name"`
	Home    string        `json:"home"`
	PID     int           `json:"pid"`
	Up      bool          `json:"up"`
	Error   string        `json:"error,omitempty"`
	Info    *api.NodeInfo `json:"info,omitempty"`
	Balance string        `json:"balance,omitempty"`

	late bool // it did not answer in time
}

func testnetStatus(a *cli.App) *cobra.Command {
	var o testnetOptions
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the peers of a testnet",
		Args:  cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := testnet.Load(o.dir)
			if errors.Is(err, os.ErrNotExist) || err == nil && !n.Alive() {
				return &cli.Error{Code: cli.ExitUnreachable, Err: fmt.Errorf("no testnet runs in %s", o.dir),
					Hint: "start one with `starling testnet up`"}
			}
			if err != nil {
				return err
			}
			return showTestnet(a, c, n)
		},
	}
	o.flags(c)
	return c
}

const (
	// peersAtOnce is the number of peers that are asked for their state at a time, each for peerPatience.
	peersAtOnce  = 16
	peerPatience = 10 * time.Second
)

// lookAt asks a peer of a testnet for its state.
func lookAt(ctx context.Context, p *testnet.Peer) testnetPeer {
	line := testnetPeer{Name: p.Name, Home: p.Home, PID: p.PID}
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	client, err := p.Client()
	if err == nil {
		var info api.NodeInfo
		if info, err = api.GetNode.Call(ctx, client, api.None{}); err == nil {
			line.Up, line.Info, line.Balance = true, &info, info.Genesis.FormatAmount(info.Balance)
		}
	}
	if err != nil {
		line.Error, line.late = err.Error(), errors.Is(err, context.DeadlineExceeded)
	}
	return line
}

func showTestnet(a *cli.App, c *cobra.Command, n *testnet.Network) error {
	peers := make([]testnetPeer, len(n.Peers))
	var asked errgroup.Group
	asked.SetLimit(peersAtOnce)
	for i, p := range n.Peers {
		asked.Go(func() error {
			peers[i] = lookAt(c.Context(), p)
			return nil
		})
	}
	_ = asked.Wait()
	return a.Show(map[string]any{"dir": n.Dir, "rpc": n.RPC, "genesis": n.Genesis, "peers": peers}, func(t *cli.Table) {
		t.Head("PEER", "STATE", "KEY", "PEERS", "UNITS FREE", "JOBS", "BALANCE", "UP FOR", "HOME")
		for _, p := range peers {
			if !p.Up {
				state := "down"
				if p.late {
					state = "no answer"
				}
				t.Row(p.Name, state, "", "", "", "", "", "", p.Home)
				continue
			}
			units := "-"
			if p.Info.Units > 0 {
				units = fmt.Sprintf("%d of %d", p.Info.FreeUnits, p.Info.Units)
			}
			t.Row(p.Name, "up", p.Info.Key.Short(), p.Info.Peers, units, p.Info.Jobs, p.Balance,
				time.Since(p.Info.Started).Round(time.Second), p.Home)
		}
		t.Row()
		t.Row("network", n.Genesis.Tag())
		if len(peers) > 0 {
			t.Row("genesis", filepath.Join(peers[0].Home, config.FileGenesis))
			if peers[0].Up && len(peers[0].Info.Addrs) > 0 {
				t.Row("join by", peers[0].Info.Addrs[0])
			}
		}
		if n.Genesis.Free {
			t.Row("chain", "none, a free network")
		} else {
			t.Row("chain", n.RPC)
			t.Row("program", n.Genesis.Program)
		}
		if n.Genesis.AuditSlots > 0 {
			slots := n.Genesis.AuditOneIn * n.Genesis.AuditSlots
			t.Row("audits", "every "+(time.Duration(slots*n.Genesis.SlotMillis)*time.Millisecond).String())
		}
	})
}
