package peercmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
)

func newNode(a *cli.App) *cobra.Command {
	var check bool
	c := cli.Ask(a, &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"node", "health", "doctor"},
		Short:      "Show this peer: health, keys, addresses, chain, wallet",
		Long: `Shows the peer that runs on this home directory. Other peers join the network with one of its addresses
as bootstrap.

Services with a problem come first, each with the problem and a remedy: the chain's endpoints do not answer or lag, the
clock is off, no other peer is reached, the journal's disk is full or fails, the container engine or a GPU is gone, a
GPU is too hot, SOL for fees is short, units are withdrawn or fail audits. With --check the command then fails with exit
code 1, as a health check does. GET /v1/health has the same list, with status 200 or 503, and /metrics has
starling_service_healthy.`,
		Example: `  starling peer status
  starling peer status --check    # HEALTHCHECK CMD of a Dockerfile
  starling init --bootstrap "$(starling --home other peer status -o json | jq -r '.addrs[0]')"`,
	}, 0, cli.Get(api.GetNode), func(t *cli.Table, p cli.Peer, n api.NodeInfo) { nodeTable(t, n, p.PID()) })
	show := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !check {
			return show(c, args)
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		n, err := api.GetNode.Call(c.Context(), client, api.None{})
		if err != nil || len(n.Problems) == 0 {
			return err
		}
		return unhealthy(n.Problems)
	}
	c.Flags().BoolVar(&check, "check", false, "show only problems, and fail if there are any")
	return c
}

// unhealthy returns the error of a peer with problems.
func unhealthy(problems []api.Fault) error {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return errors.New(strings.Join(lines, "\n"))
}

// healthRows shows problems and their remedies.
func healthRows(t *cli.Table, problems []api.Fault) {
	if len(problems) == 0 {
		t.Row("health", "all services are healthy")
	}
	for _, p := range problems {
		t.Row("PROBLEM", p.Service+": "+p.Problem)
		t.Row("", p.Remedy)
	}
}

func nodeTable(t *cli.Table, n api.NodeInfo, pid int) {
	healthRows(t, n.Problems)
	t.Row("peer", n.Peer)
	t.Row("key", n.Key)
	t.Row("owner", n.Owner)
	for i, addr := range n.Addrs {
		name := "addresses"
		if i > 0 {
			name = ""
		}
		t.Row(name, addr)
	}
	reachRows(t, n.Reach)
	t.Row("region", n.Region)
	t.Row("network", n.Genesis.Tag())
	chain := "answers"
	if !n.ChainUp {
		chain = "does not answer"
	}
	if n.ChainErr != "" {
		chain += ": " + n.ChainErr
	}
	t.Row("chain", chain)
	if n.Program != nil {
		t.Row("program", codeText(n.Genesis, *n.Program))
	}
	t.Row("slot", n.Slot)
	t.Row("balance", n.Genesis.FormatAmount(n.Balance))
	t.Row("peers", n.Peers)
	units := "sells nothing"
	if n.Units > 0 {
		units = fmt.Sprintf("%d of %d free", n.FreeUnits, n.Units)
	}
	t.Row("units", units)
	t.Row("jobs", n.Jobs)
	t.Row("version", n.Version)
	t.Row("running", fmt.Sprintf("for %s, process %d", cli.Ago(time.Now(), n.Started), pid))
}

// codeText describes a program's code and its upgrade authority.
func codeText(g market.Genesis, d svm.Deployed) string {
	text := "as the genesis names it"
	if g.Code.IsZero() {
		text = "code " + d.Code.Short() + ", the genesis names none"
	}
	switch {
	case d.Final():
		return text + ", final"
	case d.SingleKey():
		return text + "; one key can change it: " + d.Authority.String()
	}
	return text + "; another program can change it, such as a multisig: " + d.Authority.String()
}
