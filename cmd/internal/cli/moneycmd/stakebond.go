package moneycmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
)

func stakeBond(a *cli.App) *cobra.Command {
	var o StakeOptions
	c := &cobra.Command{
		Use:   "bond AMOUNT|all",
		Short: "Bond stake, to vote on rules and rewards",
		Long: `Bonds AMOUNT of the provider's stake; the bonded total must reach the network's least stake. Bonded stake
votes in later ballots, and the running peer then counts and votes on the rewards of each epoch by itself. It is slashed
with the rest, and stays bonded until it is released. The owner signs.`,
		Example: `  starling stake bond 200
  starling stake bond all`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, s, err := stakes(a, c.Context(), o)
			if err != nil {
				return err
			}
			n, err := stakeUpTo(l, s, args[0], s.Stake-s.Bonded)
			if err != nil {
				return err
			}
			text := func(n uint64) string { return l.Text(s.StakeMint, n, s.Terms) }
			switch {
			case !s.Terms.Votes.On():
				return cli.Usagef("network %s has no votes: its account was made without --voting",
					l.Genesis.Network)
			case n == 0 || n > s.Stake-s.Bonded:
				return cli.WithHint(cli.Usagef("%s cannot be bonded of a stake of %s, of which %s is bonded", text(n),
					text(s.Stake), text(s.Bonded)), "starling stake add AMOUNT")
			case s.Bonded+n < s.Least:
				return cli.Usagef("%s would be bonded, the network's least stake is %s", text(s.Bonded+n),
					text(s.Least))
			}
			owner, err := l.Signer(s.Owner, "the provider's owner")
			if err != nil {
				return err
			}
			call := program.Bond{Owner: s.Owner, Network: l.Genesis.Escrow, Provider: s.Account, Amount: n}
			return l.Send(c.Context(), fmt.Sprintf("bonding %s of the stake of %s", text(n), s.Provider),
				[]svm.Instruction{call.Instruction(l.Genesis.Program)}, owner)
		},
	}
	o.Flags(c)
	o.ProviderFlag(c)
	return c
}

func stakeRelease(a *cli.App) *cobra.Command {
	var o StakeOptions
	c := &cobra.Command{
		Use:   "release AMOUNT|all",
		Short: "Release bonded stake",
		Long: `Releases AMOUNT of the bonded stake: it no longer votes, and can be removed with starling stake remove.
Stake that voted stays bonded until that vote has ended. The owner signs.`,
		Example: `  starling stake release all`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, s, err := stakes(a, c.Context(), o)
			if err != nil {
				return err
			}
			n, err := stakeUpTo(l, s, args[0], s.Bonded)
			if err != nil {
				return err
			}
			switch {
			case n == 0 || n > s.Bonded:
				return cli.WithHint(cli.Usagef("%s cannot be released of %s", l.Text(s.StakeMint, n, s.Terms),
					l.Text(s.StakeMint, s.Bonded, s.Terms)), "starling stake status")
			case market.Slot(s.Frozen) >= s.Slot:
				return &cli.Error{Code: cli.ExitPayment,
					Err: fmt.Errorf("the stake took part in a vote, and is bonded until that has ended: %s",
						l.When(s.Slot, market.Slot(s.Frozen)))}
			}
			owner, err := l.Signer(s.Owner, "the provider's owner")
			if err != nil {
				return err
			}
			call := program.Release{Owner: s.Owner, Network: l.Genesis.Escrow, Provider: s.Account, Amount: n}
			return l.Send(c.Context(), fmt.Sprintf("releasing %s of %s", l.Text(s.StakeMint, n, s.Terms), s.Provider),
				[]svm.Instruction{call.Instruction(l.Genesis.Program)}, owner)
		},
	}
	o.Flags(c)
	o.ProviderFlag(c)
	return c
}
