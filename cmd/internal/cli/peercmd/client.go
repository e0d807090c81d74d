package peercmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/p2p"
)

// NewClient makes the command `starling client`.
func NewClient(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupPeer, &cobra.Command{
		Use:   "client",
		Short: "Show or stop the light client behind --peer",
		Long: `With --peer ADDR, or $STARLING_PEER, the other commands need no peer of your own: a light client in the
background buys through that peer, with its own key. It is no part of the network: it does not listen, and connects to
two entry peers only: the named peer and a second peer that it discovers. They find offers for it and forward its
messages to providers, encrypted end to end. They cannot read or change the messages, and an offer hidden by one entry
is visible through the other.

The client uses its own directory, "client" in the peer's directory (--home names another one). It starts with the
first command and ends some minutes after its last job and its last request. Jobs resume when it starts again.

The first command pins the network. --genesis gives its hash or file; without it the first peer is trusted. On a private
network it also needs the swarm.key file: --psk FILE. The client keeps a copy.`,
		Example: `  export STARLING_PEER=/dns4/entry.example/tcp/4001/p2p/12D3…
  starling wallet show                               shows the wallet to fund
  starling run --max-price 0.05 hello.wasm
  starling ps
  starling client status`,
	}, newClientStatus(a), newClientStop(a), newClientServe(a))
}

// clientInfo is the output of client status.
type clientInfo struct {
	Home    string         `json:"home"`
	Running bool           `json:"running"`
	Node    *api.NodeInfo  `json:"node,omitempty"`
	Conns   []api.PeerInfo `json:"peers,omitempty"`
}

func newClientStatus(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the light client: entry peers, connections, wallet",
		Example: `  starling client status`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := a.ClientHome()
			if err != nil {
				return err
			}
			info := clientInfo{Home: home}
			pid := 0
			if client := cli.Answering(c.Context(), home); client != nil {
				n, err := api.GetNode.Call(c.Context(), client, api.None{})
				if err != nil {
					return err
				}
				info.Running, info.Node, pid = true, &n, client.PID()
				if info.Conns, err = api.ListPeers.Call(c.Context(), client, api.None{}); err != nil {
					return err
				}
			}
			return a.Show(info, func(t *cli.Table) { clientTable(t, info, pid) })
		},
	}
}

func clientTable(t *cli.Table, info clientInfo, pid int) {
	t.Row("home", info.Home)
	if !info.Running {
		t.Row("running", "no; the next command with --peer starts it")
		return
	}
	n := info.Node
	t.Row("running", fmt.Sprintf("for %s, process %d", cli.Ago(time.Now(), n.Started), pid))
	t.Row("key", n.Key)
	t.Row("wallet", n.Owner, n.Genesis.FormatAmount(n.Balance))
	t.Row("network", n.Genesis.Tag(), "genesis "+n.Genesis.Hash().String())
	t.Row("slot", n.Slot)
	t.Row("jobs", n.Jobs)
	for i, e := range n.Entries {
		t.Row([]string{"entry", "standby"}[min(i, 1)], e)
	}
	if len(n.Entries) == 0 {
		t.Row("entry", "none is connected")
	}
	healthRows(t, n.Problems)
	circuits, direct := 0, 0
	for _, p := range info.Conns {
		for _, c := range p.Conns {
			if c.Via != "" {
				circuits++
			} else if !slices.Contains(n.Entries, p.Peer) {
				direct++
			}
		}
	}
	t.Row("circuits", fmt.Sprintf("%d, to providers through an entry", circuits))
	if n.Direct {
		t.Row("direct", fmt.Sprintf("%d connections to providers at their own addresses", direct))
	}
}

func newClientStop(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the light client",
		Long: `Stops the light client, but not its jobs: their programs run at the providers until the prepaid time is
used up. The jobs resume when the next command with --peer starts the client again.`,
		Example: `  starling client stop`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := a.ClientHome()
			if err != nil {
				return err
			}
			stopped, err := cli.StopIn(c.Context(), home)
			if err != nil {
				return err
			}
			if !stopped {
				a.Say("no light client runs in %s", home)
				return nil
			}
			a.Say("the light client is stopped")
			return nil
		},
	}
}

func newClientServe(a *cli.App) *cobra.Command {
	var d daemon
	idle := cli.AgentIdle
	c := &cobra.Command{
		Use:    "serve",
		Short:  "Run the light client in the foreground",
		Hidden: true,
		Args:   cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := d.open(c.Context(), a, a.ClientHome); err != nil {
				return err
			}
			peers, _ := a.Light()
			ctx := c.Context()
			cl, err := client.Open(ctx, client.Config{
				Home: d.home, Peers: peers, Genesis: a.Pin, PSK: a.PSK, Cache: d.cache, Direct: a.Direct, API: true,
				Version: d.version, Log: d.log,
			})
			if err != nil {
				return clientError(err)
			}
			d.log.Info("light client is up", "home", d.home, "wallet", cl.Wallet())
			if !cl.UntilIdle(ctx, idle) {
				d.log.Info("light client is idle", "idle", idle)
			}
			return cl.Close()
		},
	}
	d.flags(c)
	c.Flags().DurationVar(&idle, "idle", idle, "end after this time without use")
	return c
}

// clientError adds exit code and hint to the error of a failed start of a light client.
func clientError(err error) error {
	e := &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s", strings.ReplaceAll(err.Error(), "\n", "; "))}
	d, _ := errors.AsType[*p2p.Diagnosis](err)
	switch {
	case errors.Is(err, client.ErrOtherNetwork), d != nil && d.Reason == p2p.ReasonOtherNetwork:
		e.Hint = "name an entry peer of the pinned network, or use another directory with --home"
	case d != nil && d.Reason == p2p.ReasonOtherKey:
		e.Code, e.Hint = cli.ExitUnreachable,
			"get the private network's swarm.key file and name it with --psk; check the address"
	case errors.Is(err, client.ErrNoEntry):
		e.Code, e.Hint = cli.ExitUnreachable, "check the address, and that the entry peer runs, with relay.serve: true"
	}
	return e
}
