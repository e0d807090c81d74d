package proofcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/reputation"
)

// readFacts reads a file of peer export; false when it is something else.
func readFacts(name string) (reputation.File, bool) {
	b, err := cli.ReadFile(name, reputation.MaxFile)
	if err != nil {
		return reputation.File{}, false
	}
	f, err := reputation.ParseFile(b)
	return f, err == nil
}

// shownLease is one lease of such a file that was found right.
type shownLease struct {
	Lease    market.LeaseID `json:"lease"`
	Provider sign.Key       `json:"provider"`
	Buyer    sign.Key       `json:"buyer"`
	Earned   market.Amount  `json:"earned"`
	To       market.Slot    `json:"to"` // slot
	Receipt  sign.Hash      `json:"receipt"`
	Tx       string         `json:"tx"`
	Slot     market.Slot    `json:"slot"` // of the transaction
}

// shownFacts is the content of a checked file.
type shownFacts struct {
	Network string       `json:"network"`
	Peer    sign.Key     `json:"peer"`
	Leases  []shownLease `json:"leases"`
	Chain   string       `json:"chain"` // "checked", or why it was not
}

// verifyFacts checks a file of peer export, and on chain where that is at hand.
func verifyFacts(a *cli.App, ctx context.Context, f reputation.File, o verifyOptions) error {
	all, err := f.Check()
	if err != nil {
		return fmt.Errorf("the receipts do not hold: %w", err)
	}
	l, why, err := chainAtHand(a, f.Genesis, o)
	if err != nil {
		return err
	}
	out := shownFacts{Network: f.Genesis.Tag(), Peer: f.Peer, Leases: []shownLease{}, Chain: why}
	for _, x := range all {
		if l != nil {
			if err := proof.CheckReceipt(ctx, l, x); err != nil {
				if _, own := errors.AsType[*proof.BrokenRule](err); own {
					return fmt.Errorf("the receipts do not hold: %w", err)
				}
				return chainAway(err)
			}
			out.Chain = "checked: each transaction is final and has its receipts' root"
		}
		r := x.Receipt
		out.Leases = append(out.Leases, shownLease{r.Lease, r.Provider, r.Buyer, r.Cumulative, r.To, r.SignedHash(),
			string(x.In.Tx), x.In.Slot})
	}
	return a.Show(out, func(t *cli.Table) {
		t.Row("network", out.Network)
		t.Row("peer", out.Peer)
		t.Row()
		t.Row("LEASE", "PROVIDER", "BUYER", "PAID", "UNTIL SLOT", "RECEIPT", "ANCHORED IN", "SLOT")
		for _, l := range out.Leases {
			t.Row(l.Lease.Short(), l.Provider.Short(), l.Buyer.Short(), f.Genesis.FormatAmount(l.Earned), l.To,
				l.Receipt.Short(), l.Tx, l.Slot)
		}
		t.Row()
		t.Row("checked", "both signatures of every receipt, and its place under its anchor's root")
		t.Row("chain", out.Chain)
		t.Row("good", cli.Count(len(out.Leases), "lease")+" of others")
	})
}
