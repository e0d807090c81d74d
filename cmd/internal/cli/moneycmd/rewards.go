package moneycmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/rewards"
)

func rewardsShow(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "rewards",
		Short: "Show the rewards of this peer by epoch",
		Long: `Time is divided into epochs. After each epoch, providers with bonded stake count the proven work and vote
on a list of payments. A list is accepted with more than two thirds of all bonded stake.

The emission goes to providers, by the capacity that their units showed in nine of ten windows, times the number of
passed windows. A pool gets its share of every fee. Guardians (starling run -d) get half of the fees of claims on
vouchers that they signed; judges of units get the rest, by verdict. Nothing is paid while less than the network's least
is bonded. A running peer claims its rewards by itself; with bonded stake (starling stake bond) it also votes.

The command lists the last epochs. FROM is emission or pool; STATE is open (not yet counted), voting or accepted; SUM is
the payment to all, MINE that to this peer's wallet. GUARDED is the number of the epoch's claims that this peer signed
as a guardian, with its earnings if the pool suffices. The last column names the next step. If nothing is paid at
all, the reason comes first.`,
		Example: `  starling stake rewards -o json`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			st, err := api.GetRewards.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return showRewards(a, st)
		},
	}
}

func rewardsClaim(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "claim",
		Short: "Claim accepted rewards now",
		Long: `Has the peer look for accepted payments now, and claim its wallet's share of each epoch by Merkle proof.
Each share is paid once, regardless of the number of claims, and can be claimed for three months. The peer's key pays
the fees.`,
		Example: `  starling stake claim`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			st, err := api.ClaimRewards.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return showRewards(a, st)
		},
	}
}

// whyNothing returns the reason why a network, or this peer, gets no rewards; "" if there is none.
func whyNothing(st rewards.Status, text func(uint64) string) string {
	switch {
	case !st.On:
		return "this network pays no rewards: its account on the chain was made without --voting"
	case !st.Audits:
		return "this network pays no rewards: its genesis has no audits"
	case st.Bonded < st.LeastBonded:
		return fmt.Sprintf("no rewards are paid yet: %s is bonded in the network, at least %s is required for "+
			"trusted counts (starling stake bond)",
			text(st.Bonded), text(st.LeastBonded))
	case !st.Registered:
		return "this peer earns none: it is not registered as a provider (starling stake register)"
	case st.Emission > 0 && st.Left == 0:
		return "the account that pays the emission is empty: the network's founder must fill it"
	}
	return ""
}

func showRewards(a *cli.App, st rewards.Status) error {
	g, err := a.Genesis()
	if err != nil {
		return err
	}
	text := func(n uint64) string { return g.FormatAmount(market.Amount(n)) }
	return a.Show(st, func(t *cli.Table) {
		if why := whyNothing(st, text); why != "" {
			a.Say("%s", why)
		}
		if !st.On {
			return
		}
		t.Head("EPOCH", "FROM", "STATE", "SUM", "MINE", "GUARDED", "")
		for _, p := range st.Epochs {
			from := "emission"
			if p.Source > 0 {
				from = "pool of " + p.Mint.Short()
			}
			state, mine, note := p.State, "", p.Waits
			if p.State == "voting" {
				state = fmt.Sprintf("voting, %.0f %% of more than 67", 100*float64(p.For)/float64(max(p.Total, 1)))
			}
			if p.Amount > 0 {
				mine, note = text(p.Amount), "not claimed yet"
			}
			if p.Paid {
				note = "paid"
			}
			guarded := ""
			if p.Claims > 0 {
				guarded = fmt.Sprintf("%d: %s", p.Claims, text(p.Wage))
			}
			if p.Sum == 0 && p.Waits == "" && p.Claims == 0 {
				continue
			}
			t.Row(fmt.Sprint(p.Epoch), from, state, text(p.Sum), mine, guarded, cli.Clip(note, 160))
		}
		if len(st.Epochs) == 0 {
			t.Row("none is over yet")
		}
	})
}
