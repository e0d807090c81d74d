package networkcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func newProposal(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:   "proposal",
		Short: "Vote on the network's rules",
		Long: `A provider with bonded stake may propose other rules, within bounds that no vote can change. Providers
that had bonded stake before the proposal may vote on it with all of it. The proposal stores the total bonded stake at
its opening: stake that moves afterwards cannot vote twice. A proposal is carried if more than half of that total is for
it, and more than twice as much as is against it. After a lock, in which opponents can leave the network, any key can
execute it. It then takes effect, unless other rules took effect meanwhile.

These commands call the program directly; the peer need not run. The peer's key pays the fees; the provider's owner
signs proposals and votes.`,
		Example: `  starling network rules
  starling network proposal new --fee 150
  starling network proposal ls
  starling network proposal vote 7xKX for
  starling network proposal execute 7xKX`,
	}, proposalLs(a), proposalShow(a), proposalNew(a), proposalVote(a), proposalExecute(a), proposalClose(a))
}

// change is a changed parameter of a proposal, or the bounds of one.
type change struct {
	What string `json:"parameter"`
	From string `json:"from"`
	To   string `json:"to"`
}

// proposalInfo is a proposal as the commands show it. Votes are base units of the stake mint.
type proposalInfo struct {
	Address  sign.Key      `json:"address"`
	State    string        `json:"state"` // open, rejected, locked, ripe, executed, expired, superseded
	Proposer sign.Key      `json:"proposer"`
	Rules    account.Rules `json:"rules"`
	Changes  []change      `json:"changes"`
	For      uint64        `json:"for"`
	Against  uint64        `json:"against"`
	Total    uint64        `json:"snapshot"` // bonded stake in the network at the opening
	Opened   uint64        `json:"opened"`   // slot, as are the following fields
	Ends     uint64        `json:"ends"`
	Ripe     uint64        `json:"ripe"`
	Dead     uint64        `json:"dead"`
	Slot     market.Slot   `json:"slot"`           // slot of this state
	Mine     string        `json:"mine,omitempty"` // vote of this peer's provider
	payer    sign.Key
}

// stateOf returns the state of a proposal.
func stateOf(b account.Ballot, n account.Network, now market.Slot) string {
	switch {
	case b.Done:
		return "executed"
	case b.Sequence != n.Sequence:
		return "superseded"
	case uint64(now) <= b.Ends:
		return "open"
	case !b.Carried():
		return "rejected"
	case uint64(now) < b.Ripe:
		return "locked"
	case uint64(now) <= b.Dead:
		return "ripe"
	}
	return "expired"
}

// changes are the differences between two sets of rules.
func changes(l *moneycmd.Chain, p account.Params, from, to account.Rules) (out []change) {
	add := func(what, a, b string) {
		if a != b {
			out = append(out, change{what, a, b})
		}
	}
	add("response", span(l, uint64(from.ResponseSlots)), span(l, uint64(to.ResponseSlots)))
	add("unbonding", span(l, from.UnbondingSlots), span(l, to.UnbondingSlots))
	add("min-stake", l.Text(p.StakeMint, from.MinStake, p), l.Text(p.StakeMint, to.MinStake, p))
	for i := range min(len(from.Fees), len(to.Fees), len(p.Mints)) {
		of := ""
		if len(p.Mints) > 1 {
			of = " of " + p.Mints[i].Mint.Short()
		}
		a, b := from.Fees[i], to.Fees[i]
		for _, f := range []struct {
			what string
			a, b uint16
		}{{"fee", a.FeeBps, b.FeeBps}, {"burn", a.BurnBps, b.BurnBps}, {"pool", a.PoolBps, b.PoolBps},
			{"treasury-share", a.TreasuryBps, b.TreasuryBps}, {"referrer", a.ReferrerBps, b.ReferrerBps}} {
			add(f.what+of, bps(f.a), bps(f.b))
		}
	}
	return out
}

func bps(n uint16) string { return fmt.Sprintf("%d bps", n) }

// span formats a number of slots and their duration.
func span(l *moneycmd.Chain, slots uint64) string {
	return fmt.Sprintf("%d slots, %s", slots, cli.Span(l.Slots(market.Slot(slots))))
}

// votes opens the chain of a network that votes.
func votes(a *cli.App, ctx context.Context, o moneycmd.Options) (*moneycmd.Chain, account.Network, market.Slot, error) {
	l, err := moneycmd.OpenProgram(a, o)
	if err != nil {
		return nil, account.Network{}, 0, err
	}
	n, err := l.Network(ctx)
	if err == nil && !n.Params.Votes.On() {
		return nil, n, 0, cli.WithHint(cli.Usagef("network %s has no votes", l.Genesis.Network),
			"its account was made without --voting: starling network init-escrow --help")
	}
	var now market.Slot
	if err == nil {
		now, err = l.Slot(ctx)
	}
	return l, n, now, l.Explain(err)
}

// info returns the present state of a proposal.
func info(l *moneycmd.Chain, at sign.Key, b account.Ballot, n account.Network, now market.Slot) proposalInfo {
	p := proposalInfo{Address: at, State: stateOf(b, n, now), Proposer: b.Proposer, Rules: b.Rules, For: b.For,
		Against: b.Against, Total: b.Total, Opened: b.Opened,
		Ends: b.Ends, Ripe: b.Ripe, Dead: b.Dead, Slot: now, payer: b.RentPayer}
	p.Changes = changes(l, n.Params, n.Rules, b.Rules)
	return p
}

// proposals returns all proposals of the network, the newest first.
func proposals(l *moneycmd.Chain, ctx context.Context, n account.Network, now market.Slot) ([]proposalInfo, error) {
	all, err := l.Ballots(ctx)
	if err != nil {
		return nil, l.Explain(err)
	}
	out := []proposalInfo{}
	for at, b := range all {
		if b.Subject == account.SubjectRules {
			out = append(out, info(l, at, b, n, now))
		}
	}
	slices.SortFunc(out, func(a, b proposalInfo) int {
		return cmp.Or(cmp.Compare(b.Opened, a.Opened), slices.Compare(a.Address[:], b.Address[:]))
	})
	return out, nil
}

// proposal returns the proposal with an address prefix.
func proposal(a *cli.App, ctx context.Context, o moneycmd.Options, text string) (*moneycmd.Chain, account.Network,
	proposalInfo, error) {
	l, n, now, err := votes(a, ctx, o)
	if err != nil {
		return nil, n, proposalInfo{}, err
	}
	all, err := proposals(l, ctx, n, now)
	if err != nil {
		return nil, n, proposalInfo{}, err
	}
	p, err := cli.FindOne(all, text, func(p proposalInfo) string { return p.Address.String() })
	if err != nil {
		return nil, n, p, cli.WithHint(err, "starling network proposal ls")
	}
	b, now, err := l.Ballot(ctx, p.Address) // on which the endpoints agree
	if err != nil {
		return nil, n, p, l.Explain(err)
	}
	return l, n, info(l, p.Address, b, n, now), nil
}

func proposalLs(a *cli.App) *cobra.Command {
	var o moneycmd.Options
	c := &cobra.Command{
		Use:   "ls",
		Short: "List proposals",
		Long: `Lists the proposals on the chain, the newest first. FOR and AGAINST are shares of the bonded stake at its
opening: it needs more than half, and more than twice the share against. STATE is open, rejected, locked (carried, not
yet in effect), ripe (executable), executed, expired (carried, but not executed in time) or superseded (other rules took
effect first).`,
		Example: `  starling network proposal ls -o json`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, n, now, err := votes(a, c.Context(), o)
			if err != nil {
				return err
			}
			all, err := proposals(l, c.Context(), n, now)
			if err != nil {
				return err
			}
			return a.Show(all, func(t *cli.Table) {
				t.Head("PROPOSAL", "STATE", "CHANGES", "FOR", "AGAINST", "NEXT")
				for _, p := range all {
					t.Row(p.Address.Short(), p.State, p.summary(), p.share(p.For), p.share(p.Against), next(l, p))
				}
				if len(all) == 0 {
					t.Row("none")
				}
			})
		},
	}
	o.ReadFlags(c)
	return c
}

func (p proposalInfo) summary() string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, fmt.Sprintf("%s %s → %s", c.What, c.From, c.To))
	}
	if len(out) == 0 {
		return "nothing: these are the present rules"
	}
	return cli.Clip(strings.Join(out, "; "), 120)
}

// share is votes in percent of the snapshot.
func (p proposalInfo) share(votes uint64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(votes)/float64(max(p.Total, 1)))
}

// next describes the next stage and its time.
func next(l *moneycmd.Chain, p proposalInfo) string {
	switch p.State {
	case "open":
		return "vote ends " + l.When(p.Slot, market.Slot(p.Ends))
	case "locked":
		return "can be executed " + l.When(p.Slot, market.Slot(p.Ripe))
	case "ripe":
		return "starling network proposal execute; expires " + l.When(p.Slot, market.Slot(p.Dead)+1)
	}
	return ""
}

func proposalShow(a *cli.App) *cobra.Command {
	var o moneycmd.Options
	c := &cobra.Command{
		Use:     "show PROPOSAL",
		Short:   "Show a proposal: its changes, votes and dates",
		Example: `  starling network proposal show 7xKX`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, n, p, err := proposal(a, c.Context(), o, args[0])
			if err != nil {
				return err
			}
			provider := account.ProviderAddress(l.Genesis.Program, l.Genesis.Escrow, l.Peer.Key())
			switch v, err := l.Voted(c.Context(), sign.Hash(p.Address), provider); {
			case err == nil && v.For:
				p.Mine = "for"
			case err == nil:
				p.Mine = "against"
			case !errors.Is(err, chain.ErrNotFound):
				return l.Explain(err)
			}
			return a.Show(p, func(t *cli.Table) {
				text := func(n2 uint64) string { return l.Text(n.Params.StakeMint, n2, n.Params) }
				t.Row("proposal", p.Address)
				t.Row("state", p.State, next(l, p))
				t.Row("by provider", p.Proposer)
				for _, c := range p.Changes {
					t.Row(c.What, c.From+" → "+c.To)
				}
				if len(p.Changes) == 0 {
					t.Row("changes", "nothing: these are the present rules")
				}
				t.Row("snapshot", text(p.Total), fmt.Sprintf("bonded at its opening, in slot %d", p.Opened))
				t.Row("for", text(p.For), p.share(p.For)+", more than half is needed")
				t.Row("against", text(p.Against), p.share(p.Against)+", less than half of the share for it is allowed")
				t.Row("vote ends", l.When(p.Slot, market.Slot(p.Ends)))
				t.Row("lock ends", l.When(p.Slot, market.Slot(p.Ripe)))
				t.Row("expires", l.When(p.Slot, market.Slot(p.Dead)))
				if p.Mine != "" {
					t.Row("this peer", "voted "+p.Mine)
				}
			})
		},
	}
	o.ReadFlags(c)
	return c
}
