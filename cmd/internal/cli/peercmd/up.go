package peercmd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/resident"
)

// NewUp makes the command `starling up`.
func NewUp(a *cli.App) *cobra.Command {
	var d daemon
	var once node.Once
	background := false
	c := &cobra.Command{
		Use:        "up",
		SuggestFor: []string{"serve"},
		Short:      "Run the peer",
		Long: `Runs the peer of the home directory until it is interrupted: it joins the network, sells units as
config.yaml defines, buys for its user, and answers the other commands on a unix socket. Running leases and debts
survive a restart. --detach runs the peer in the background, with its log in peer.log of the home directory;
"starling peer stop" ends it.

The section egress of config.yaml sets the network access of containers if their job requests it: none, an allowlist of
names and addresses with ports, or the internet. They never reach this machine, its local network and mail servers. The
log reports attempts as "egress refused", with the number of attempts and of addresses.

The section clusters sets whether units may be members of a cluster, and how many at a time; --no-clusters refuses
clusters until the peer ends. Present members run on. Offers contain the setting, and buyers of clusters skip such
peers.

/metrics serves metrics for Prometheus, without a token: unhealthy services, money earned, lost, paid and held, refused
orders, leases, executions and jobs by outcome, audits, reputation, calls to the chain's endpoints, the state of GPUs,
peers, offers, clusters, their overlays and egress. Give it a port in config.yaml
(metrics: {listen: 127.0.0.1:7070}), which every user of the machine can read; metrics.libp2p adds libp2p's own
metrics.
  scrape_configs: [{job_name: starling, static_configs: [{targets: ["127.0.0.1:7070"]}]}]`,
		Example: `  starling init --genesis network.json --solana-rpc https://rpc.example
  starling up
  starling up -d
  starling up --log-level debug --log-format json 2> peer.log`,
		GroupID: cli.GroupPeer,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if background {
				return detachPeer(c, a)
			}
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
	c.Flags().BoolVarP(&background, detachFlag, "d", false, "run in the background, with a log file")
	c.Flags().BoolVar(&once.NoClusters, "no-clusters", false, "sell nothing to clusters (default: clusters.accept)")
	return c
}

const (
	detachFlag = "detach"
	peerLog    = "peer.log"
	peerStart  = time.Minute
)

// detachPeer runs the peer in the background, with the flags of this command, and returns when it answers.
func detachPeer(c *cobra.Command, a *cli.App) error {
	home, err := a.PeerHome()
	if err != nil {
		return err
	}
	if running := cli.Answering(c.Context(), home); running != nil {
		return openError(home, fmt.Errorf("%w, pid %d", node.ErrRuns, running.PID()))
	}
	args := []string{"up", "--home", home}
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != detachFlag && f.Name != "home" {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	background := cli.Background{Name: "peer", Home: home, Log: peerLog, Args: args, Patience: peerStart}
	peer, err := background.Start(c.Context())
	switch {
	case errors.Is(err, fs.ErrNotExist): // the home directory
		return openError(home, err)
	case err != nil:
		return err
	}
	a.Say("the peer runs as process %d; its log is %s", peer.PID(), filepath.Join(home, peerLog))
	return nil
}

func newStop(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the peer",
		Long: `Stops the peer of the home directory and waits for its end. Sold leases end, unless the peer starts again
within their prepaid time; "starling provider drain --wait" avoids that. Jobs of the user resume with the next start.`,
		Example: `  starling provider drain --wait
  starling peer stop`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := a.PeerHome()
			if err != nil {
				return err
			}
			stopped, err := cli.StopIn(c.Context(), home)
			switch {
			case err != nil:
				return err
			case !stopped:
				a.Say("no peer runs in %s", home)
			default:
				a.Say("the peer is stopped")
			}
			return nil
		},
	}
}

// openError adds a hint to an error that keeps a peer from starting.
func openError(home string, err error) error {
	e := &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("starting the peer in %s: %w", home, err)}
	switch {
	case errors.Is(err, config.ErrConfig):
		e.Hint = "correct " + filepath.Join(home, config.FileConfig)
	case errors.Is(err, node.ErrRuns):
		e.Hint = "stop that one first, or give another --home"
	case strings.Contains(err.Error(), syscall.EADDRINUSE.Error()): // libp2p returns the text alone
		e.Hint = "another program listens on that address, perhaps another peer: change listen in " +
			filepath.Join(home, config.FileConfig)
	case errors.Is(err, fs.ErrNotExist):
		e.Hint = "set the peer up with `starling init --genesis FILE`"
	}
	return e
}
