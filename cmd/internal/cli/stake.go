package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
)

func newStake(a *App) *cobra.Command {
	return noun(groupMoney, &cobra.Command{
		Use:   "stake",
		Short: "Register as a provider and put up stake, or take it back",
		Long: `A provider registers once: its owner and its peer key sign, and the program keeps whom it belongs to and where its money
goes. Stake is what a provider loses when somebody proves that it sold one unit twice; buyers can ask for providers that have
some. What is asked back waits until no evidence from before can count any more, and can be slashed until it is withdrawn.
Stake that is bonded votes on the network's rules (starling network proposal) and decides what rewards are paid (starling stake rewards).

These commands call the program themselves; the peer need not run. The peer's key pays the fees.`,
		Example: `  starling stake register
  starling stake add 250
  starling stake bond 200
  starling stake status
  starling stake remove all
  starling stake withdraw`,
	}, stakeRegister(a), stakeAdd(a), stakeStatus(a), stakeRemove(a), stakeWithdraw(a), stakeBond(a), stakeRelease(a), rewardsShow(a), rewardsClaim(a))
}

// stakeOptions are the flags of the commands about a registration.
type stakeOptions struct {
	chainOptions
	provider string
}

func (o *stakeOptions) providerFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.provider, "provider", "", "the provider's peer key (default this peer's)")
}

// stakeInfo is the output of stake status. Amounts are in base units of the stake mint.
type stakeInfo struct {
	Provider     sign.Key    `json:"provider"` // its peer key
	Account      sign.Key    `json:"account"`  // of the registration
	Owner        sign.Key    `json:"owner"`
	Payout       sign.Key    `json:"payout"`
	Inventory    sign.Hash   `json:"inventory"`
	Stake        uint64      `json:"stake"`
	Least        uint64      `json:"least"`            // of the network
	Bonded       uint64      `json:"bonded"`           // of the stake: votes
	Frozen       uint64      `json:"frozen,omitempty"` // last slot of the votes that it took part in
	Raised       uint64      `json:"-"`
	Unbonding    uint64      `json:"unbonding"`
	Ready        uint64      `json:"ready,omitempty"`   // slot from which unbonding stake can be withdrawn
	Slashed      uint64      `json:"slashed,omitempty"` // slot of the last slash
	Registered   uint64      `json:"registered"`        // slot
	Slot         market.Slot `json:"slot"`              // as of
	StakeMint    sign.Key    `json:"stakeMint"`
	unbondSlots  uint64
	terms        program.Params
	withdrawable bool
}

// registration reads that of the peer key that was named, or of this peer.
func (l *onChain) registration(ctx context.Context, o stakeOptions) (info stakeInfo, err error) {
	key := l.peer.Key()
	if o.provider != "" {
		if key, err = address("--provider", o.provider); err != nil {
			return info, err
		}
	}
	n, err := l.Network(ctx)
	if err != nil {
		return info, l.explain(err)
	}
	p, now, err := l.Provider(ctx, key)
	if errors.Is(err, chain.ErrNotFound) {
		return info, WithHint(&Error{Code: ExitUsage, Err: fmt.Errorf("provider %s is not registered", key)},
			"starling stake register; or name its peer key by --provider")
	}
	if err != nil {
		return info, l.explain(err)
	}
	return stakeInfo{Provider: key, Account: program.ProviderAddress(l.g.Program, l.g.Escrow, key), Owner: p.Owner, Payout: p.Payout,
		Inventory: p.Inventory, Stake: p.Stake, Least: n.Rules.MinStake, Bonded: p.Bonded, Frozen: p.Frozen, Raised: p.Raised,
		Unbonding: p.Unbonding, Ready: p.Ready, Slashed: p.Slashed,
		Registered: p.Registered, Slot: now, StakeMint: n.Params.StakeMint, unbondSlots: n.Rules.UnbondingSlots, terms: n.Params,
		withdrawable: p.Unbonding > 0 && uint64(now) >= p.Ready}, nil
}

func stakeRegister(a *App) *cobra.Command {
	var o chainOptions
	var payout, inventory string
	c := &cobra.Command{
		Use:   "register",
		Short: "Register this peer as a provider of its owner",
		Long: `Enters this peer's key and its owner on the chain. Both sign: with a cold owner, give its keypair file with --wallet. The rent
of the registration stays there for ever, since a provider's past does. What units the provider has is asked of the peer, if it
runs here.`,
		Example: `  starling stake register
  starling stake register --payout <wallet> --wallet owner.json`,
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := a.programChain(o)
			if err != nil {
				return err
			}
			call := program.Register{Payer: l.peer.Key(), Owner: l.owner, Peer: l.peer.Key(), Network: l.g.Escrow, Payout: l.owner}
			if payout != "" {
				if call.Payout, err = address("--payout", payout); err != nil {
					return err
				}
			}
			if inventory != "" {
				if call.Inventory, err = sign.ParseHash(inventory); err != nil {
					return Usagef("--inventory: %q is not a hash", clip(inventory, 80))
				}
			} else if call.Inventory, err = a.inventory(c.Context(), l.peer.Key()); err != nil {
				return err
			}
			return l.register(c.Context(), call)
		},
	}
	o.flags(c)
	c.Flags().StringVar(&payout, "payout", "", "wallet that is paid (default the owner)")
	c.Flags().StringVar(&inventory, "inventory", "", "Merkle root of the ids of the units that are for sale, in hexadecimal (default those of the peer that runs here)")
	return c
}

// inventory asks the peer for the root over its units; zero, said, where no peer runs or nothing is for sale.
func (a *App) inventory(ctx context.Context, peer sign.Key) (sign.Hash, error) {
	client, err := a.Client()
	var info api.NodeInfo
	if err == nil {
		info, err = api.GetNode.Call(ctx, client, api.None{})
	}
	switch {
	case errors.Is(err, api.ErrNoPeer):
		a.say("no peer runs here, so no inventory is stated: start it first, or give --inventory")
		return sign.Hash{}, nil
	case err != nil:
		return sign.Hash{}, err
	case info.Key != peer:
		return sign.Hash{}, WithHint(Usagef("the peer that runs here is %s, not %s", info.Key, peer), "give --inventory")
	case info.Inventory.IsZero():
		a.say("the peer has no units for sale, so no inventory is stated")
	}
	return info.Inventory, nil
}

func (l *onChain) register(ctx context.Context, call program.Register) error {
	owner, err := l.signer(call.Owner, "the owner")
	if err != nil {
		return err
	}
	n, err := l.Network(ctx)
	if err != nil {
		return l.explain(err)
	}
	if _, _, err := l.Provider(ctx, call.Peer); err == nil {
		return WithHint(Usagef("provider %s is registered already", call.Peer), "starling stake status")
	} else if !errors.Is(err, chain.ErrNotFound) {
		return l.explain(err)
	}
	call.Provider = program.ProviderAddress(l.g.Program, l.g.Escrow, call.Peer)
	call.Vault, call.Mint = program.StakeAddress(l.g.Program, call.Provider), n.Params.StakeMint
	return l.send(ctx, fmt.Sprintf("registering provider %s of owner %s, paid to %s", call.Peer, call.Owner, call.Payout),
		[]program.Instruction{call.Instruction(l.g.Program)}, owner)
}

func stakeAdd(a *App) *cobra.Command {
	var o stakeOptions
	c := &cobra.Command{
		Use:   "add AMOUNT",
		Short: "Put up stake",
		Long: `Moves AMOUNT tokens from the owner's wallet into the provider's stake. Signed by the owner where its key is at hand, else by the
peer as its delegate. Anybody may add to anybody's stake; only the provider's owner gets it back.`,
		Example: `  starling stake add 250
  starling stake add 250 --provider 7xKX…gAsU`,
		Args: exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, s, err := a.stakes(c.Context(), o)
			if err != nil {
				return err
			}
			n, err := l.stakeAmount(s, args[0])
			if err != nil {
				return err
			}
			by := l.spender()
			call := program.Stake{Authority: by.Key(), Source: program.TokenAccount(l.owner, s.StakeMint), Provider: s.Account,
				Vault: program.StakeAddress(l.g.Program, s.Account), Mint: s.StakeMint, Amount: n}
			return l.send(c.Context(), fmt.Sprintf("adding %s of %s to the stake of %s", l.text(s.StakeMint, n, s.terms), l.owner, s.Provider),
				[]program.Instruction{call.Instruction(l.g.Program)}, by)
		},
	}
	o.flags(c)
	o.providerFlag(c)
	return c
}

// stakes opens the chain and reads a registration.
func (a *App) stakes(ctx context.Context, o stakeOptions) (*onChain, stakeInfo, error) {
	l, err := a.programChain(o.chainOptions)
	if err != nil {
		return nil, stakeInfo{}, err
	}
	s, err := l.registration(ctx, o)
	return l, s, err
}

// stakeAmount reads an amount of the stake mint.
func (l *onChain) stakeAmount(s stakeInfo, text string) (uint64, error) {
	if s.StakeMint == l.g.Mint {
		n, err := l.amount(text)
		return uint64(n), err
	}
	for _, m := range s.terms.Mints {
		if m.Mint == s.StakeMint {
			return market.ParseDecimal(text, m.Decimals)
		}
	}
	return market.ParseDecimal(text, 0) // base units: nobody says how many decimals it has
}

// stakeUpTo reads AMOUNT|all of the stake mint.
func (l *onChain) stakeUpTo(s stakeInfo, text string, all uint64) (uint64, error) {
	if text == "all" {
		return all, nil
	}
	return l.stakeAmount(s, text)
}

func stakeStatus(a *App) *cobra.Command {
	var o stakeOptions
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show a provider's registration and stake",
		Example: `  starling stake status`,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, s, err := a.stakes(c.Context(), o)
			if err != nil {
				return err
			}
			return a.Show(s, func(t *Table) { l.stakeTable(t, s) })
		},
	}
	o.readFlags(c)
	o.providerFlag(c)
	return c
}

func (l *onChain) stakeTable(t *Table, s stakeInfo) {
	text := func(n uint64) string { return l.text(s.StakeMint, n, s.terms) }
	t.Row("provider", s.Provider)
	t.Row("owner", s.Owner)
	t.Row("paid to", s.Payout)
	t.Row("registered", l.when(s.Slot, market.Slot(s.Registered)))
	if !s.Inventory.IsZero() {
		t.Row("inventory", s.Inventory)
	}
	note := ""
	if s.Stake < s.Least {
		note = "less than the network's least, " + text(s.Least)
	}
	t.Row("stake", text(s.Stake), note)
	if s.Bonded > 0 {
		note := "it votes, and is released by starling stake release"
		if market.Slot(s.Frozen) >= s.Slot {
			note = "it voted and cannot be released before " + l.when(s.Slot, market.Slot(s.Frozen))
		}
		t.Row("bonded", text(s.Bonded), note)
	}
	switch {
	case s.withdrawable:
		t.Row("unbonding", text(s.Unbonding), "can be withdrawn now: starling stake withdraw")
	case s.Unbonding > 0:
		t.Row("unbonding", text(s.Unbonding), "can be withdrawn from "+l.when(s.Slot, market.Slot(s.Ready)))
	}
	if s.Slashed > 0 {
		t.Row("slashed", l.when(s.Slot, market.Slot(s.Slashed)))
	}
}

func stakeRemove(a *App) *cobra.Command {
	var o stakeOptions
	c := &cobra.Command{
		Use:   "remove AMOUNT|all",
		Short: "Ask stake back; it can be withdrawn later",
		Long: `Takes AMOUNT out of the stake. It waits for the network's unbonding time, in which evidence can still take it, and is then
withdrawn with starling stake withdraw. What was asked back before and has not been withdrawn waits anew. The owner signs.`,
		Example: `  starling stake remove 100
  starling stake remove all`,
		Args: exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, s, err := a.stakes(c.Context(), o)
			if err != nil {
				return err
			}
			n, err := l.stakeUpTo(s, args[0], s.Stake-s.Bonded)
			if err != nil {
				return err
			}
			return l.unstake(c.Context(), s, n)
		},
	}
	o.flags(c)
	o.providerFlag(c)
	return c
}

func (l *onChain) unstake(ctx context.Context, s stakeInfo, n uint64) error {
	owner, err := l.signer(s.Owner, "the provider's owner")
	switch {
	case err != nil:
		return err
	case n > s.Stake-s.Bonded && n <= s.Stake:
		return WithHint(Usagef("%s of the stake is bonded", l.text(s.StakeMint, s.Bonded, s.terms)), "starling stake release")
	case n == 0 || n > s.Stake:
		return WithHint(Usagef("%s cannot be taken out of a stake of %s", l.text(s.StakeMint, n, s.terms), l.text(s.StakeMint, s.Stake, s.terms)), "starling stake status")
	}
	if s.Unbonding > 0 {
		l.a.say("%s was asked back before and waits anew from now", l.text(s.StakeMint, s.Unbonding, s.terms))
	}
	call := program.RequestUnstake{Owner: s.Owner, Network: l.g.Escrow, Provider: s.Account, Amount: n}
	err = l.send(ctx, fmt.Sprintf("taking %s out of the stake of %s", l.text(s.StakeMint, n, s.terms), s.Provider),
		[]program.Instruction{call.Instruction(l.g.Program)}, owner)
	if err == nil {
		l.a.say("%s can be withdrawn from %s: starling stake withdraw", l.text(s.StakeMint, n+s.Unbonding, s.terms), l.when(s.Slot, s.Slot+market.Slot(s.unbondSlots)))
	}
	return err
}

func stakeWithdraw(a *App) *cobra.Command {
	var o stakeOptions
	c := &cobra.Command{
		Use:     "withdraw",
		Short:   "Take what was asked back and has waited",
		Long:    `Pays all that is unbonding to the owner's wallet, whose token account is opened if there is none. The owner signs.`,
		Example: `  starling stake withdraw`,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, s, err := a.stakes(c.Context(), o)
			if err != nil {
				return err
			}
			owner, err := l.signer(s.Owner, "the provider's owner")
			switch {
			case err != nil:
				return err
			case s.Unbonding == 0:
				return WithHint(Usagef("nothing was asked back"), "starling stake remove AMOUNT")
			case !s.withdrawable:
				return &Error{Code: ExitPayment, Err: fmt.Errorf("%s can be withdrawn from %s, not yet",
					l.text(s.StakeMint, s.Unbonding, s.terms), l.when(s.Slot, market.Slot(s.Ready)))}
			}
			to := program.TokenAccount(s.Owner, s.StakeMint)
			call := program.Withdraw{Owner: s.Owner, Provider: s.Account, Vault: program.StakeAddress(l.g.Program, s.Account), Destination: to, Mint: s.StakeMint}
			return l.send(c.Context(), fmt.Sprintf("withdrawing %s to %s", l.text(s.StakeMint, s.Unbonding, s.terms), s.Owner),
				[]program.Instruction{program.OpenTokenAccount(l.peer.Key(), s.Owner, s.StakeMint), call.Instruction(l.g.Program)}, owner)
		},
	}
	o.flags(c)
	o.providerFlag(c)
	return c
}
