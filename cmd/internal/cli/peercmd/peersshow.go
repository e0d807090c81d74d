package peercmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/verify/reputation"
)

func peersShow(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show PEER|KEY",
		Short: "Explain the reputation of a peer, line by line",
		Long: `Shows the reputation of a peer as this one computes it, as provider and as buyer, with every term: the
kept leases by counterparty and value (values halve in thirty days), the weight of the counterparty's word, the failures
that this peer observed, and facts that any peer can check: audits, double sales and false statements. ADDS is the
contribution of a line to the score; together they are the score.

Then it lists the facts behind the lines, newest first, with their proofs: no statement of other peers counts before
this peer has checked it, on chain too. A lease of other peers has the hash of its last receipt, which both sides
signed, and the transaction that anchors it: starling proof export KEY FILE --kind history writes those receipts into a
file for starling proof check. An audit has its record, which starling proof export RECORD FILE --of KEY fetches.
starling proof ls and starling provider leases list the other facts.

Failures reported by other peers do not count, nor do peers that trade with that peer alone. A peer has no absolute
score: another peer, with other observations, computes another one. verify/PROTOCOL.md has the formula.`,
		Example: `  starling peer show 12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm
  starling peer show KEY -o json | jq .provider.score
  starling proof export KEY facts.json --kind history && starling proof check facts.json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			name, err := a.PeerName(c.Context(), args[0])
			if err != nil {
				return err
			}
			p, err := api.GetPeer.Call(c.Context(), client, api.ByPeer{Peer: name})
			if err != nil {
				return err
			}
			var g market.Genesis
			if a.Output == cli.OutputTable {
				n, err := api.GetNode.Call(c.Context(), client, api.None{})
				if err != nil {
					return err
				}
				g = n.Genesis
			}
			return a.Show(p, func(t *cli.Table) {
				t.Row("peer", p.Peer)
				t.Row("key", p.Key)
				for _, e := range []reputation.Explanation{p.Provider, p.Buyer} {
					scoreRows(t, g, e)
				}
				factRows(t, g, p)
			})
		},
	}
}

// scoreRows are a score with its terms.
func scoreRows(t *cli.Table, g market.Genesis, e reputation.Explanation) {
	note := ""
	switch {
	case e.Newcomer:
		note = "a newcomer: too little evidence for a judgement"
	case e.Shunned:
		note = "shunned: more evidence against it than for it"
	}
	t.Row()
	t.Row("as "+e.Role.String(), millionths(int64(e.Millionths)), note)
	t.Row("ADDS", "WHAT", "WHOSE WORD", "COUNT", "VALUE TODAY", "WEIGHT", "EVIDENCE")
	for _, l := range e.Lines {
		who, count, value, weight := "-", "-", "-", "-"
		switch {
		case l.Own:
			who = "own"
		case !l.Rater.IsZero():
			who = l.Rater.Short()
		}
		if l.Count > 0 {
			count, value = fmt.Sprint(l.Count), g.FormatAmount(l.Value)
		}
		if l.Weight > 0 {
			weight = millionths(int64(l.Weight))
		}
		t.Row(fmt.Sprintf("%+.6f", float64(l.Adds)/1e6), l.What, who, count, value, weight, exact(l.Evidence))
	}
	t.Row(fmt.Sprintf("%.6f", float64(e.Millionths)/1e6), fmt.Sprintf("lower 5 %% bound of Beta(0.5 + %s, 0.5 + %s)",
		exact(e.Good), exact(e.Bad)))
}

// maxFactRows is the number of facts in a table; JSON has more.
const maxFactRows = 40

// factRows are the facts behind the terms.
func factRows(t *cli.Table, g market.Genesis, p api.PeerReputation) {
	if len(p.Facts) == 0 {
		return
	}
	t.Row()
	t.Row("FACT", "AS", "WHOSE WORD", "VALUE", "SLOT", "OF", "PROVEN BY", "ANCHORED IN")
	for _, f := range p.Facts[:min(len(p.Facts), maxFactRows)] {
		who, value, by, in := "anybody's", "-", "seen by this peer", "-"
		switch {
		case f.Own:
			who, by = "own", "own receipts"
		case !f.Rater.IsZero():
			who = f.Rater.Short()
		}
		if f.Value > 0 {
			value = g.FormatAmount(f.Value)
		}
		switch {
		case !f.Receipt.IsZero():
			by = "receipt " + f.Receipt.String()
		case !f.Record.IsZero():
			by = "record " + f.Record.String()
		}
		if f.Tx != "" {
			in = string(f.Tx)
		}
		t.Row(f.Kind, f.Role, who, value, f.At, f.ID.Short(), by, in)
	}
	if more := p.More + max(0, len(p.Facts)-maxFactRows); more > 0 {
		t.Row(fmt.Sprintf("and %d older", more))
	}
}

// exact formats every digit, so that a column adds up to its sum.
func exact(n uint64) string { return fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000) }

func millionths(n int64) string { return fmt.Sprintf("%.4f", float64(n)/1e6) }

// rating is a score in a table.
func rating(r api.Rating) string {
	switch {
	case r.Newcomer:
		return "new"
	case r.Shunned:
		return millionths(int64(r.Score)) + "!"
	}
	return millionths(int64(r.Score))
}
