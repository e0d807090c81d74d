package peercmd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/resident"
)

// NewUp makes the command `starling up`.
func NewUp(a *cli.App) *cobra.Command {
	var d daemon
	var once node.Once
	c := &cobra.Command{
		Use:        "up",
		SuggestFor: []string{"serve"},
		Short:      "Run the peer",
		Long: `Runs the peer that lives in the home directory until it is interrupted: it joins the network, sells
what config.yaml says, buys for its user, and answers the other commands on a unix socket. What runs and what is owed
survives a restart.

The section egress of config.yaml says what containers of others reach outside when their job asks for it: none, an
allowlist of names and addresses with ports, or the internet. They never reach this machine, its local network and
mail servers. A tenant that tries to is in the log as "egress refused", with how often and at how many addresses.

The section clusters says whether what is sold may be a member of a cluster, and how many at a time; --no-clusters
refuses them for as long as the peer runs. Members that are there go on. Offers say so, and buyers of clusters do not
ask.

At /metrics, without a token, are numbers for Prometheus: services that are out of order, money earned, lost, paid and
held, orders refused, leases, executions and jobs by how they ended, audits, reputation, calls to the chain's endpoints,
the state of GPUs, peers, offers, clusters, their overlays and ways out. Give it a port in
config.yaml (metrics: {listen: 127.0.0.1:7070}), which every user of the machine can read; metrics.libp2p adds what
libp2p counts.
  scrape_configs: [{job_name: starling, static_configs: [{targets: ["127.0.0.1:7070"]}]}]`,
		Example: `  starling init --genesis network.json --solana-rpc https://rpc.example
  starling up
  starling up --log-level debug --log-format json 2> peer.log`,
		GroupID: cli.GroupPeer,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := d.open(c.Context(), a, a.PeerHome); err != nil {
				return err
			}
			ctx := c.Context()
			p, err := node.Open(ctx, d.home, d.cache, d.version, once, d.log)
			if err != nil {
				return openError(d.home, err)
			}
			d.log.Info("starting", "home", d.home, "version", d.version)
			go resident.Run(ctx)
			err = p.Run(ctx)
			if cerr := p.Close(); err == nil {
				err = cerr
			}
			d.log.Info("stopped")
			return err
		},
	}
	d.flags(c)
	c.Flags().BoolVar(&once.NoClusters, "no-clusters", false, "sell nothing to clusters (default: clusters.accept)")
	return c
}

// openError adds a hint to an error that keeps a peer from starting.
func openError(home string, err error) error {
	e := &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("starting the peer in %s: %w", home, err)}
	switch {
	case errors.Is(err, config.ErrConfig):
		e.Hint = "correct " + filepath.Join(home, config.FileConfig)
	case errors.Is(err, node.ErrRuns):
		e.Hint = "stop that one first, or give another --home"
	case strings.Contains(err.Error(), syscall.EADDRINUSE.Error()): // libp2p passes on the text alone
		e.Hint = "another program listens there, perhaps another peer: change listen in " +
			filepath.Join(home, config.FileConfig)
	case errors.Is(err, fs.ErrNotExist):
		e.Hint = "set the peer up with `starling init --genesis FILE`"
	}
	return e
}
