package peercmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
)

func newNode(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"node"},
		Short:      "Show this peer: keys, addresses, network, chain and wallet",
		Long: `Shows the peer that runs on this home directory. One of its addresses is what others give as bootstrap
to join the network by it.`,
		Example: `  starling peer status
  starling init --bootstrap "$(starling --home other peer status -o json | jq -r '.addrs[0]')"`,
	}, 0, cli.Get(api.GetNode), func(t *cli.Table, p cli.Peer, n api.NodeInfo) { nodeTable(t, n, p.PID()) })
}

func nodeTable(t *cli.Table, n api.NodeInfo, pid int) {
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
func codeText(g market.Genesis, d program.Deployed) string {
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
