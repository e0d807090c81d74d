// Package peercmd has the commands that set up, run and show a peer or a light client, show other known peers, block
// peers and make API keys.
package peercmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/blobcmd"
	"github.com/starling-network/starling/node/api"
)

func peersLs(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:        "ls",
		SuggestFor: []string{"peers"},
		Short:      "List the connected peers",
		Long: `Lists the connected peers. PATH is direct; punched, which is direct through NATs with a relay's help; or
relayed, with the relay under VIA. New streams always use the best available connection.

SELLS and BUYS are the peers' reputation as this peer computes it, 0 to 1. new means that there is too little evidence
for a judgement; a ! means more evidence against a peer than for it. starling peer show PEER has every term.`,
		Example: `  starling peer ls
  starling peer ls -o json | jq -r '.[] | select(.conns[0].path == "relayed") | .peer'`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			peers, err := api.ListPeers.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			if len(peers) == 0 {
				a.WarnAlone(c.Context(), client)
				peers = []api.PeerInfo{}
			}
			slices.SortFunc(peers, func(x, y api.PeerInfo) int {
				return strings.Compare(x.Key.String(),
					y.Key.String())
			})
			return a.Show(peers, func(t *cli.Table) {
				t.Head("KEY", "PATH", "DIR", "RTT", "SELLS", "BUYS", "AGENT", "PEER", "VIA", "ADDRESS")
				for _, p := range peers {
					conn := api.ConnInfo{Path: "-", Direction: "-"} // just disconnected
					if len(p.Conns) > 0 {
						conn = p.Conns[0]
					}
					t.Row(p.Key.Short(), conn.Path, conn.Direction, cli.Millis(p.RTT), rating(p.Reputation.Provider),
						rating(p.Reputation.Buyer), p.Agent, p.Peer, shortPeer(conn.Via), conn.Addr)
				}
			})
		},
	}
}

// shortPeer is the end of a peer id, where ids differ.
func shortPeer(id string) string {
	if id == "" {
		return "-"
	}
	return "…" + id[max(0, len(id)-8):]
}

// NewPeer makes the command `starling peer`.
func NewPeer(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupPeer, &cobra.Command{
		Use:        "peer",
		SuggestFor: []string{"peers"},
		Short:      "Show or stop this peer, show and block others, make API keys",
		Long: `Shows the peer that runs in this home directory and other known peers: their connections and
reputation. PEER is a peer id (12D3Koo…), a key, or the first eight characters of a key.`,
		Example: `  starling peer status
  starling peer ls
  starling peer show 7xKX…gAsU
  starling peer block add 7xKX…gAsU --reason "lost three jobs"`,
	}, newNode(a), newStop(a), peersLs(a), peersShow(a), newPeerPing(a), newBlock(a), newKey(a),
		blobcmd.New(a), newAPI(a))
}

func newPeerPing(a *cli.App) *cobra.Command {
	var count int
	c := &cobra.Command{
		Use:   "ping PEER|KEY|ADDRESS",
		Short: "Measure or diagnose the connection to a peer",
		Long: `Connects this peer to another one, unless it is connected, and measures round trips. PEER is a peer id
(12D3Koo…), a key or the first eight characters of one, or a full address (/ip4/…/p2p/12D3Koo…).

If the connection fails, it shows the reason: the peer blocks this one, or is blocked; it is offline; it is behind a NAT
and no relay reaches it; it is on another network; the pre-shared keys of a private network differ; another peer answers
at its address.`,
		Example: `  starling peer ping 12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm
  starling peer ping -c 10 /dns4/a.example/tcp/4001/p2p/12D3Koo…
  starling peer ping KEY -o json | jq -r '.problem.reason // .conn.path'`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if count < 1 || count > api.MaxPings {
				return cli.Usagef("--count: %d is not between 1 and %d", count, api.MaxPings)
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			name, err := a.PeerName(c.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := api.PingPeer.Call(c.Context(), client, api.PingRequest{Peer: name, Count: count})
			if err != nil {
				return err
			}
			if p := r.Problem; p != nil {
				if a.Output != cli.OutputTable {
					if err := a.Show(r, nil); err != nil {
						return err
					}
				}
				return &cli.Error{Code: cli.ExitUnreachable, Err: fmt.Errorf("%s (%s)", p.Text, p.Reason),
					Hint: p.Advice}
			}
			return a.Show(r, func(t *cli.Table) { pingTable(t, r) })
		},
	}
	c.Flags().IntVarP(&count, "count", "c", 5, "number of round trips to measure")
	return c
}

func pingTable(t *cli.Table, r api.PingResult) {
	t.Row("peer", r.Peer)
	path := r.Conn.Path
	switch {
	case path == "punched":
		path = "direct, through NATs with a relay's help"
	case r.Conn.Via != "":
		path = "relayed via " + r.Conn.Via
		if r.Conn.Limited {
			path += ", with a low limit of data"
		}
	}
	t.Row("path", path)
	t.Row("address", r.Conn.Addr)
	if len(r.RTTs) == 0 {
		return
	}
	var sum float64
	for _, rtt := range r.RTTs {
		sum += rtt
	}
	t.Row("round trips", len(r.RTTs))
	t.Row("min", pingTime(slices.Min(r.RTTs)))
	t.Row("avg", pingTime(sum/float64(len(r.RTTs))))
	t.Row("max", pingTime(slices.Max(r.RTTs)))
}

func pingTime(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
}

// reachRows shows the reachability of this peer.
func reachRows(t *cli.Table, r api.Reach) {
	t.Row("reachable", r.State+": "+r.Text)
	addrs := slices.Clone(r.Addrs)
	slices.SortStableFunc(addrs, func(x, y api.ReachAddr) int { return cmp.Compare(x.State, y.State) })
	for _, addr := range addrs {
		state := addr.State
		if addr.Mapped {
			state += ", port mapped"
		}
		t.Row("", fmt.Sprintf("%-8s %s", state, addr.Addr))
	}
	for i, id := range r.Relays {
		name := "relays"
		if i > 0 {
			name = ""
		}
		t.Row(name, id)
	}
	if s := r.Serving; s != nil {
		t.Row("relaying", fmt.Sprintf("%d connections now, %d in all, %d refused", s.Circuits, s.Opened, s.Refused))
	}
	if r.Private {
		t.Row("access", "private network, by pre-shared key")
	}
}
