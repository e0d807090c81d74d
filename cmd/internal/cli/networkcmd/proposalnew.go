package networkcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// bounds of a vote's changes.
const (
	leastTimes, mostTimes = 4, 4 // the least stake is a quarter to four times its initial value
)

func proposalRules(a *cli.App) *cobra.Command {
	var o moneycmd.Options
	c := &cobra.Command{
		Use:   "rules",
		Short: "Show the rules and the bounds of votes on them",
		Long: `Shows each rule that is subject to votes, with its value and its bounds. The bounds follow from the
network's initial parameters: windows can grow up to fourfold and never shrink, which protects the promised times.`,
		Example: `  starling network rules`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, n, _, err := votes(a, c.Context(), o)
			if err != nil {
				return err
			}
			p := n.Params
			return a.Show(map[string]any{"rules": n.Rules, "parameters": p, "sequence": n.Sequence,
				"bonded": n.Bonded}, func(t *cli.Table) {
				t.Head("RULE", "NOW", "AT LEAST", "AT MOST")
				t.Row("response", span(l, uint64(n.Rules.ResponseSlots)), span(l, uint64(p.ResponseSlots)),
					span(l, mostTimes*uint64(p.ResponseSlots)))
				t.Row("unbonding", span(l, n.Rules.UnbondingSlots), span(l, p.UnbondingSlots),
					span(l, mostTimes*p.UnbondingSlots))
				t.Row("min-stake", l.Text(p.StakeMint, n.Rules.MinStake, p),
					l.Text(p.StakeMint, p.MinStake/leastTimes, p), l.Text(p.StakeMint, mostTimes*p.MinStake, p))
				for i, f := range n.Rules.Fees {
					of := " of " + p.Mints[i].Mint.Short()
					t.Row("fee"+of, bps(f.FeeBps), bps(account.MinFeeBps), bps(account.MaxFeeBps))
					t.Row("burn"+of, bps(f.BurnBps), bps(account.MinBurnBps), bps(account.Shares))
					t.Row("pool"+of, bps(f.PoolBps), bps(0), "all shares add up to 10000 bps")
					t.Row("treasury-share"+of, bps(f.TreasuryBps), bps(0))
					t.Row("referrer"+of, bps(f.ReferrerBps), bps(0))
				}
				t.Row("bonded", l.Text(p.StakeMint, n.Bonded, p), l.Text(p.StakeMint, p.Votes.LeastBonded,
					p)+", or nothing is voted on")
			})
		},
	}
	o.ReadFlags(c)
	return c
}

// newRules are the flags of proposal new.
type newRules struct {
	fee, burn, pool, treasury, referrer uint16
	response, unbonding                 time.Duration
	minStake, mint                      string
	dry                                 bool
}

func proposalNew(a *cli.App) *cobra.Command {
	var o moneycmd.StakeOptions
	var f newRules
	c := &cobra.Command{
		Use:   "new",
		Short: "Propose other rules",
		Long: `Opens a ballot on the present rules with the given changes. The shares of the fee must add up to 10000
bps. starling network rules shows the present rules and the bounds. It needs bonded stake of this provider, and the
least bonded stake in the network; the owner signs. Opening costs rent, which starling network proposal close refunds.`,
		Example: `  starling network proposal new --fee 150
  starling network proposal new --burn 6000 --pool 2000 --treasury-share 1000 --referrer 1000
  starling network proposal new --min-stake 500 --dry-run`,
		Args: cli.ExactArgs(0),
	}
	o.Flags(c)
	o.ProviderFlag(c)
	g := c.Flags()
	g.Uint16Var(&f.fee, "fee", 0, "fee on the providers' claims, in bps, 10 to 1000")
	g.Uint16Var(&f.burn, "burn", 0, "share of the fee that burns, in bps of it, at least 2000")
	g.Uint16Var(&f.pool, "pool", 0, "share for the verifiers' pool")
	g.Uint16Var(&f.treasury, "treasury-share", 0, "share for the treasury")
	g.Uint16Var(&f.referrer, "referrer", 0, "share for the referrer of an order")
	g.StringVar(&f.mint, "mint", "", "token of the changed fee (default the network's)")
	g.DurationVar(&f.response, "response", 0, "time for a claim after an early end of the lease")
	g.DurationVar(&f.unbonding, "unbonding", 0, "wait of removed stake before its withdrawal")
	g.StringVar(&f.minStake, "min-stake", "", "least stake of a provider, in tokens")
	g.BoolVar(&f.dry, "dry-run", false, "show the changes and propose nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		l, n, _, err := votes(a, c.Context(), o.Options)
		if err != nil {
			return err
		}
		to, err := f.rules(l, n, func(name string) bool { return g.Changed(name) })
		if err != nil {
			return err
		}
		changes := changes(l, n.Params, n.Rules, to)
		if len(changes) == 0 {
			return cli.WithHint(cli.Usagef("the proposal changes nothing"),
				"starling network rules shows the present rules")
		}
		if err := n.Params.Allows(to); err != nil {
			return cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: err},
				"starling network rules shows the bounds of votes")
		}
		if f.dry {
			return a.Show(changes, func(t *cli.Table) {
				for _, c := range changes {
					t.Row(c.What, c.From+" → "+c.To)
				}
			})
		}
		return propose(l, c.Context(), o, n, to)
	}
	return c
}

// rules returns the rules in force, changed by the flags that were given.
func (f newRules) rules(l *moneycmd.Chain, n account.Network, named func(string) bool) (account.Rules, error) {
	to := n.Rules
	to.Fees = append([]account.Fees{}, to.Fees...)
	mint := l.Genesis.Mint
	if f.mint != "" {
		var err error
		if mint, err = cli.Address("--mint", f.mint); err != nil {
			return to, err
		}
	}
	at := -1
	for i, m := range n.Params.Mints {
		if m.Mint == mint {
			at = i
		}
	}
	if at < 0 {
		return to, cli.Usagef("--mint: the network does not take %s", mint)
	}
	for _, x := range []struct {
		name  string
		value uint16
		to    *uint16
	}{{"fee", f.fee, &to.Fees[at].FeeBps}, {"burn", f.burn, &to.Fees[at].BurnBps},
		{"pool", f.pool, &to.Fees[at].PoolBps},
		{"treasury-share", f.treasury, &to.Fees[at].TreasuryBps}, {"referrer", f.referrer, &to.Fees[at].ReferrerBps}} {
		if named(x.name) {
			*x.to = x.value
		}
	}
	if named("response") {
		slots := l.Genesis.SlotsIn(f.response)
		if slots != uint64(uint32(slots)) {
			return to, cli.Usagef("--response: %v is longer than 2³² slots", f.response)
		}
		to.ResponseSlots = uint32(slots)
	}
	if named("unbonding") {
		to.UnbondingSlots = l.Genesis.SlotsIn(f.unbonding)
	}
	if named("min-stake") {
		least, err := moneycmd.StakeAmount(l, moneycmd.StakeInfo{StakeMint: n.Params.StakeMint, Terms: n.Params},
			f.minStake)
		if err != nil {
			return to, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--min-stake: %w", err)}
		}
		to.MinStake = least
	}
	return to, nil
}

// voter returns the registration of the voting provider, and its owner's key.
func voter(l *moneycmd.Chain, ctx context.Context, o moneycmd.StakeOptions) (moneycmd.StakeInfo, sign.Signer, error) {
	s, err := moneycmd.Registration(l, ctx, o)
	if err != nil {
		return s, nil, err
	}
	if s.Bonded == 0 {
		return s, nil, cli.WithHint(cli.Usagef("proposing and voting need bonded stake, and provider "+
			"%s has none", s.Provider), "starling stake bond AMOUNT")
	}
	owner, err := l.Signer(s.Owner, "the provider's owner")
	return s, owner, err
}

func propose(l *moneycmd.Chain, ctx context.Context, o moneycmd.StakeOptions, n account.Network,
	to account.Rules) error {
	s, owner, err := voter(l, ctx, o)
	if err != nil {
		return err
	}
	if n.Bonded < n.Params.Votes.LeastBonded {
		return cli.WithHint(&cli.Error{Code: cli.ExitPayment,
			Err: fmt.Errorf("%s is bonded in the network, votes need at least %s",
				l.Text(s.StakeMint, n.Bonded, n.Params),
				l.Text(s.StakeMint, n.Params.Votes.LeastBonded, n.Params))}, "other providers have to bond stake too")
	}
	ballot := account.BallotAddress(l.Genesis.Program, l.Genesis.Escrow, s.Account, uint64(s.Slot))
	call := program.ProposeRules{Payer: l.Peer.Key(), Owner: s.Owner, Network: l.Genesis.Escrow, Provider: s.Account,
		Ballot: ballot, Opened: uint64(s.Slot), Rules: to}
	err = l.Send(ctx, fmt.Sprintf("opening proposal %s", ballot),
		[]svm.Instruction{call.Instruction(l.Genesis.Program)}, owner)
	if err == nil {
		l.App.Say("a proposal is no vote: starling network proposal vote %s for", ballot.Short())
	}
	return err
}

func proposalVote(a *cli.App) *cobra.Command {
	var o moneycmd.StakeOptions
	c := &cobra.Command{
		Use:   "vote PROPOSAL for|against",
		Short: "Vote with all bonded stake of this provider",
		Long: `Votes on a proposal, once. The provider's bonded stake counts if it was bonded before the proposal, and
stays bonded until the vote has ended. The owner signs.`,
		Example: `  starling network proposal vote 7xKX for`,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if args[1] != "for" && args[1] != "against" {
				return cli.Usagef("%q: want for or against", cli.Clip(args[1], 40))
			}
			l, n, p, err := proposal(a, c.Context(), o.Options, args[0])
			if err != nil {
				return err
			}
			s, owner, err := voter(l, c.Context(), o)
			switch {
			case err != nil:
				return err
			case p.State != "open":
				return &cli.Error{Code: cli.ExitPayment, Err: fmt.Errorf("the vote on %s has ended: it is %s",
					p.Address.Short(), p.State)}
			case s.Raised >= p.Opened:
				return cli.WithHint(&cli.Error{Code: cli.ExitPayment,
					Err: fmt.Errorf("provider %s bonded in slot %d, the proposal is of slot %d: only earlier stake "+
						"votes on it", s.Provider, s.Raised, p.Opened)},
					"it votes on the next proposal")
			}
			switch _, err := l.Voted(c.Context(), sign.Hash(p.Address), s.Account); {
			case err == nil:
				return &cli.Error{Code: cli.ExitPayment, Err: fmt.Errorf("provider %s has voted on it", s.Provider)}
			case !errors.Is(err, chain.ErrNotFound):
				return l.Explain(err)
			}
			call := program.CastVote{Payer: l.Peer.Key(), Signer: s.Owner, Provider: s.Account, Ballot: p.Address,
				Vote: account.VoteAddress(l.Genesis.Program, sign.Hash(p.Address), s.Account), For: args[1] == "for"}
			return l.Send(c.Context(), fmt.Sprintf("voting %s %s with %s", args[1], p.Address.Short(),
				l.Text(s.StakeMint, s.Bonded, n.Params)),
				[]svm.Instruction{call.Instruction(l.Genesis.Program)}, owner)
		},
	}
	o.Flags(c)
	o.ProviderFlag(c)
	return c
}

func proposalExecute(a *cli.App) *cobra.Command {
	var o moneycmd.Options
	c := &cobra.Command{
		Use:   "execute PROPOSAL",
		Short: "Put a carried proposal into effect after its lock",
		Long: `Any key may execute it. Running peers apply the new rules within minutes. The program applies them at
once, also to pending operations.`,
		Example: `  starling network proposal execute 7xKX`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, _, p, err := proposal(a, c.Context(), o, args[0])
			if err != nil {
				return err
			}
			switch p.State {
			case "ripe":
			case "open", "locked":
				return &cli.Error{Code: cli.ExitPayment, Err: fmt.Errorf("%s is %s: it can be executed %s",
					p.Address.Short(), p.State, l.When(p.Slot, market.Slot(p.Ripe)))}
			default:
				return &cli.Error{Code: cli.ExitPayment, Err: fmt.Errorf("%s is %s: it cannot be executed",
					p.Address.Short(), p.State)}
			}
			return l.Send(c.Context(), fmt.Sprintf("executing %s: %s", p.Address.Short(), p.summary()),
				[]svm.Instruction{program.Enact{Network: l.Genesis.Escrow,
					Ballot: p.Address}.Instruction(l.Genesis.Program)})
		},
	}
	o.Flags(c)
	return c
}

func proposalClose(a *cli.App) *cobra.Command {
	var o moneycmd.StakeOptions
	c := &cobra.Command{
		Use:   "close PROPOSAL",
		Short: "Close a finished proposal and return its rent",
		Long: `Any key may close it after the last slot in which it could be executed. This provider's vote on it is
closed too.`,
		Example: `  starling network proposal close 7xKX`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, _, p, err := proposal(a, c.Context(), o.Options, args[0])
			if err != nil {
				return err
			}
			if last := max(p.Dead, p.Opened+account.OpeningSlots); uint64(p.Slot) <= last {
				return &cli.Error{Code: cli.ExitPayment, Err: fmt.Errorf("%s can be closed %s", p.Address.Short(),
					l.When(p.Slot, market.Slot(last)+1))}
			}
			calls := []svm.Instruction{program.CloseBallot{Ballot: p.Address,
				RentPayer: p.payer}.Instruction(l.Genesis.Program)}
			provider := account.ProviderAddress(l.Genesis.Program, l.Genesis.Escrow, l.Peer.Key())
			switch v, err := l.Voted(c.Context(), sign.Hash(p.Address), provider); {
			case err == nil:
				calls = append(calls, program.CloseVote{Vote: account.VoteAddress(l.Genesis.Program,
					sign.Hash(p.Address), provider), RentPayer: v.RentPayer}.Instruction(l.Genesis.Program))
			case !errors.Is(err, chain.ErrNotFound):
				return l.Explain(err)
			}
			return l.Send(c.Context(), fmt.Sprintf("closing %s", p.Address.Short()), calls)
		},
	}
	o.Flags(c)
	return c
}
